package l2

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/lab/testkit"
)

// TestWithdrawing has a member release its VIPs while another, which takes over part of
// them, is dead but not yet detected as such. They count as withdrawn when the live
// member has taken all of them, and not before.
func TestWithdrawing(t *testing.T) {
	s := newSegment(t)
	first := s.start(1)
	s.start(2)
	third := s.start(3)
	before := s.settled(1, 2, 3)
	had := map[netip.Addr]bool{}
	for vip, n := range before {
		if n == 1 {
			had[vip] = true
		}
	}
	if err := s.members[2].Kill(); err != nil {
		t.Fatal(err)
	}
	said := first.Send(prefixes{}).Waits
	if len(said) != len(had) {
		t.Errorf("just let go of %d, and %d are waited for", len(had), len(said))
	}
	from := map[string]int{}
	for _, w := range said {
		if !had[w.Prefix.Addr()] || w.Since.IsZero() {
			t.Errorf("%+v was not this member's", w)
		}
		from[w.From]++
	}
	if len(from) != 2 {
		t.Errorf("waited for are %v, want both others", from)
	}
	testkit.Eventually(t, within, func() error {
		if waits := first.Query().Waits; len(waits) > 0 {
			return fmt.Errorf("%v", waits)
		}
		return nil
	})
	owned := map[netip.Addr]bool{}
	for _, a := range third.Query().Answered {
		owned[a.Prefix.Addr()] = a.State == "owner"
	}
	for vip := range had {
		if !owned[vip] {
			t.Errorf("nobody is waited for, and %s has no owner", vip)
		}
	}
	// Nobody else offers what the last member releases.
	if waits := third.Send(prefixes{}).Waits; len(waits) > 0 {
		t.Errorf("nobody can take them, and waited for is %v", waits)
	}
}
