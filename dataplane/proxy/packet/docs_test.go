package packet

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
)

// TestDropsAreExplained: docs/troubleshooting.md explains every drop of the service
// proxy, by the reason that fairlead_proxy_drops_total has, and no others.
func TestDropsAreExplained(t *testing.T) {
	spec, err := loadPacket()
	if err != nil {
		t.Fatal(err)
	}
	var enum *btf.Enum
	if err := spec.Types.TypeByName("packet_counter", &enum); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, v := range enum.Values {
		if name, drops := strings.CutPrefix(v.Name, "PACKET_COUNTER_DROPPED_"); drops {
			want = append(want, strings.ReplaceAll(strings.ToLower(name), "_", "-"))
		}
	}
	page, err := os.ReadFile("../../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "\n| drop reason of the service proxy | cause | resolution |\n|---|---|---|\n")
	if !found {
		t.Fatal("the page has no table of the service proxy's drops")
	}
	var got []string
	for line := range strings.Lines(table) {
		name, isRow := strings.CutPrefix(line, "| `")
		if !isRow {
			break
		}
		name, _, _ = strings.Cut(name, "` |")
		got = append(got, name)
	}
	slices.Sort(want)
	slices.Sort(got)
	if len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("the table explains\n%q\nthe programs drop for\n%q", got, want)
	}
}
