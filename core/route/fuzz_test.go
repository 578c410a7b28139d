package route

import (
	"testing"

	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
)

// FuzzCommunity checks that the string of a parsed community parses to the same
// community.
func FuzzCommunity(f *testing.F) {
	for _, text := range []string{"65000:1", "65000:1:2", "no-export", "65535:666", "0:0", "4294967295:4294967295:4294967295", "65536:1", "1:2:3:4", ":", "+1:2", "x"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		fuzzlimit.Time(t)
		c, err := ParseCommunity(text)
		if err != nil {
			return
		}
		if again, err := ParseCommunity(c.String()); err != nil || again != c {
			t.Errorf("%q is %+v, and %s is %+v, %v", text, c, c, again, err)
		}
		set := CommunitiesOf(c, GracefulShutdown).With(c)
		if all, err := set.Parse(); err != nil || len(all) > 2 {
			t.Errorf("%q gives the set %q: %v", text, set, err)
		}
	})
}
