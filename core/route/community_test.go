package route

import (
	"strings"
	"testing"
)

func TestCommunities(t *testing.T) {
	for text, want := range map[string]Community{
		"65000:1":             {Global: 65000, Local1: 1},
		"4200000000:1:2":      {Large: true, Global: 4200000000, Local1: 1, Local2: 2},
		"graceful-shutdown":   GracefulShutdown,
		"65535:0":             GracefulShutdown,
		"65535:65281":         NoExport,
		"no-advertise":        NoAdvertise,
		"blackhole":           Blackhole,
		"0:0:0":               {Large: true},
		"no-export-subconfed": NoExportSubConf,
	} {
		got, err := ParseCommunity(text)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
		if again, err := ParseCommunity(got.String()); err != nil || again != got {
			t.Errorf("%s: %s does not read as it was written: %+v, %v", text, got, again, err)
		}
	}
	for text, want := range map[string]string{
		"":               "is not a community",
		"65000":          "is not a community; want one like 65000:1 or 65000:1:2, or one of graceful-shutdown",
		"65536:1":        "65536 is more than 65535",
		"1:2:3:4":        "is not a community",
		"1:-2":           "is not a community",
		"1:2:5000000000": "is not a community",
	} {
		if _, err := ParseCommunity(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}

// Sets do not depend on the order of their elements, because routes are compared by them.
func TestSets(t *testing.T) {
	a := Community{Global: 65000, Local1: 10}
	b := Community{Global: 65000, Local1: 9}
	large := Community{Large: true, Global: 1}
	want := Communities("65000:9 65000:10 graceful-shutdown 1:0:0")
	if got := CommunitiesOf(large, a, GracefulShutdown, b, a); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := CommunitiesOf(a, large).With(GracefulShutdown, b); got != want {
		t.Errorf("with two more: %q, want %q", got, want)
	}
	if got := NamesOf("b", "a", "b"); got != "a b" || !got.Has("b") || got.Has("c") || NamesOf() != "" || Names("").Has("") {
		t.Errorf("names %q", got)
	}
}
