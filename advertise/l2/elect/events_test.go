package elect

import (
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/advertise/l2/wire"
)

// TestEvents takes, hands over and releases addresses, one of which another host has: each
// change is an event.
func TestEvents(t *testing.T) {
	s := newSegment(t, 7)
	all := vips(8)
	s.hosts[all[7]] = wire.MAC{2, 9, 9, 9, 9, 9}
	one := s.start(1, 2, all)
	s.run(20 * time.Second)
	expect := func(what string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !slices.Contains(s.recorded, w) {
				t.Errorf("%s: recorded %q, want %q", what, s.recorded, w)
			}
		}
		s.recorded = nil
	}
	expect("alone", "L2AddressClaimed", "L2AddressConflict")
	s.start(2, 2, all)
	s.run(20 * time.Second)
	expect("two members", "L2MemberUp", "L2AddressReleased", "L2AddressClaimed")
	delete(s.nodes, at(2))
	s.run(20 * time.Second)
	expect("one is dead", "L2MemberSilent", "L2AddressClaimed")
	one.SetLink(s.now, false, []wire.MAC{one.mac})
	s.carry(one)
	expect("no link", "L2AddressReleased")
}
