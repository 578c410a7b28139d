package addresspool

import (
	"testing"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
)

// FuzzRange checks that a parsed range contains its ends in order, and that its string
// parses to the same range.
func FuzzRange(f *testing.F) {
	for _, text := range []string{
		"10.1.1.5", "10.1.1.0/24", "10.1.1.5-10.1.1.9", "10.1.1.5 - 10.1.1.9", "fd00::/64", "fd00::1-fd00::2", "10.1.1.1/24", "10.1.1.9-10.1.1.5",
		"::ffff:10.1.1.1", "10.1.1.1-fd00::1", "0.0.0.0/0", "fe80::1%eth0", "fe80::1%a-b", "224.0.0.1", "-", "/", "2000::/3",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		fuzzlimit.Time(t)
		r, err := ParseRange(text)
		if err != nil {
			return
		}
		if !r.Contains(r.First) || !r.Contains(r.Last) || r.Last.Less(r.First) || r.size() == 0 || service.CheckUnicast(r.First) != nil {
			t.Errorf("%q is %+v", text, r)
		}
		if again, err := ParseRange(r.String()); err != nil || again != r {
			t.Errorf("%q is %s, which is %s, %v", text, r, again, err)
		}
	})
}
