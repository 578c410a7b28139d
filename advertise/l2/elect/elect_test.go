package elect

import (
	"errors"
	"maps"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/advertise/l2/wire"
)

// The rank must be the same in every version and on every machine.
func TestRankIsPinned(t *testing.T) {
	for want, pair := range map[uint64][2]string{
		0x7c8cb0962070da55: {"10.1.0.1", "10.0.0.1"}, 0x798e306d07c7677c: {"fd00:1::1", "fd00::2"},
	} {
		if got := rank(addr(pair[0]), addr(pair[1])); got != want {
			t.Errorf("rank of %s = %#x, want %#x", pair, got, want)
		}
	}
}

// Addresses are spread evenly, up to chance, and a member that leaves only moves its own.
func TestSpreadAndMoves(t *testing.T) {
	const members, addresses = 8, 8000
	best := func(a netip.Addr, without int) (b int) {
		for m := 1; m <= members; m++ {
			if m != without && (b == 0 || before(a, at(m), at(b))) {
				b = m
			}
		}
		return b
	}
	count := map[int]int{}
	for _, a := range vips(addresses) {
		first := best(a, 0)
		count[first]++
		for gone := 1; gone <= members; gone++ {
			if after := best(a, gone); gone != first && after != first {
				t.Errorf("without %d %s moves from %d to %d", gone, a, first, after)
			}
		}
	}
	share := float64(addresses) / members
	for m, n := range count {
		if d := math.Abs(float64(n) - share); d > 5*math.Sqrt(share) {
			t.Errorf("member %d has %d addresses of %d, want about %.0f", m, n, addresses, share)
		}
	}
}

func TestStartTakeoverAndReturn(t *testing.T) {
	s := newSegment(t, 1)
	all := vips(150) // several pages
	s.both = func(a netip.Addr) { t.Errorf("two answer for %s", a) }
	for i := 1; i <= 3; i++ {
		s.start(i, 3, all)
	}
	s.run(2 * time.Second)
	before := s.owners(0)
	if !maps.Equal(before, s.slowTwin(0)) || len(before) != len(all) {
		t.Fatalf("owners %v", before)
	}
	// One is killed: its addresses are taken after the hold time, no others move.
	delete(s.nodes, at(2))
	killed := s.now
	for len(s.owners(0)) < len(all) {
		s.run(10 * time.Millisecond)
		if s.now.Sub(killed) > hold+interval/10 {
			t.Fatalf("%d of %d addresses are answered for %s after a member was killed", len(s.owners(0)), len(all), s.now.Sub(killed))
		}
	}
	for a, o := range s.owners(0) {
		if before[a] != at(2) && o != before[a] {
			t.Errorf("%s moved from %s to %s though neither was killed", a, before[a], o)
		}
	}
	// It comes back, and gets its addresses back.
	s.start(2, 3, all)
	s.run(2 * time.Second)
	if got := s.owners(0); !maps.Equal(got, before) {
		t.Errorf("after the return %v, before %v", got, before)
	}
	// It stops offering: everything is taken immediately.
	s.nodes[at(2)].SetAddresses(s.now, nil)
	s.carry(s.nodes[at(2)])
	s.run(3 * delay)
	if got := s.owners(0); len(got) != len(all) {
		t.Errorf("%d of %d addresses are answered for after a member has left", len(got), len(all))
	}
}

// Whatever happens, a while later all agree with the slow twin. If no message is lost and
// nobody is cut off, two never answer at the same time.
func TestRandomWorlds(t *testing.T) {
	for seed := range uint64(16) {
		s := newSegment(t, seed+1)
		lossy := seed%2 == 0
		if lossy {
			s.loss = 0.1
		} else {
			s.both = func(a netip.Addr) { t.Errorf("seed %d: two answer for %s", seed, a) }
		}
		of := 2 + s.rand.IntN(4)
		all := vips(1 + s.rand.IntN(90))
		for i := 1; i <= of; i++ {
			s.start(i, of, all)
		}
		for range 12 {
			s.disturb(of, all, lossy)
			s.run(time.Duration(s.rand.IntN(3000)) * time.Millisecond)
		}
		s.loss = 0
		s.run(10 * time.Second)
		for side := range 2 {
			if got, want := s.owners(side), s.slowTwin(side); !maps.Equal(got, want) {
				t.Errorf("seed %d: side %d: owners %v, want %v", seed, side, got, want)
			}
		}
		if t.Failed() {
			return
		}
	}
}

// disturb does something random to the environment; partitions only on request.
func (s *segment) disturb(of int, all []netip.Addr, partitions bool) {
	i := 1 + s.rand.IntN(of)
	n := s.nodes[at(i)]
	switch what := s.rand.IntN(5); {
	case n == nil:
		s.start(i, of, all)
	case what == 0:
		delete(s.nodes, n.Self)
	case what == 1:
		some := s.rand.IntN(len(all) + 1)
		n.SetAddresses(s.now, all[:some])
		s.carry(n)
	case what == 2:
		n.SetLink(s.now, !n.running, []wire.MAC{n.mac})
		n.SetLink(s.now, true, []wire.MAC{n.mac})
		s.carry(n)
	case partitions:
		s.side[n.Self] = s.rand.IntN(2)
	default:
		delete(s.nodes, n.Self) // and restarted before anyone notices
		s.start(i, of, all)
	}
}

func TestPartitionAndHeal(t *testing.T) {
	s := newSegment(t, 3)
	all := vips(6)
	for i := 1; i <= 2; i++ {
		s.start(i, 2, all)
	}
	s.run(2 * time.Second)
	s.side[at(2)] = 1
	s.run(2 * time.Second)
	if len(s.owners(0)) != len(all) || len(s.owners(1)) != len(all) {
		t.Fatalf("in a partition both sides answer for all: %d, %d of %d", len(s.owners(0)), len(s.owners(1)), len(all))
	}
	s.side[at(2)] = 0
	clear(s.announced)
	s.run(time.Second)
	if got := s.owners(0); !maps.Equal(got, s.slowTwin(0)) {
		t.Errorf("after healing %v", got)
	}
	for _, a := range all {
		if s.announced[a] == 0 {
			t.Errorf("%s, which both answered for, is not announced again", a)
		}
	}
}

// A host has the address: it is rejected by name, retried, and taken once it is free.
func TestAddressInUse(t *testing.T) {
	s := newSegment(t, 4)
	all := vips(2)
	s.hosts[all[0]] = wire.MAC{2, 9, 9, 9, 9, 9}
	n := s.start(1, 1, all)
	s.run(2 * time.Second)
	state := n.Addresses(s.now)
	if state[0].State != Conflict || !strings.HasPrefix(state[0].Why, "02:09:09:09:09:09 already has the address") || state[1].State != Owner {
		t.Fatalf("%+v", state)
	}
	if !n.Strange(s.now, all[0]) || n.Strange(s.now, all[1]) {
		t.Error("the conflict is not reported as such")
	}
	delete(s.hosts, all[0])
	s.run(retryConflict + 2*time.Second)
	if !n.Owns(all[0]) {
		t.Errorf("free, but not taken: %+v", n.Addresses(s.now)[0])
	}
}

// An owned address is defended once in a while, without a storm.
func TestDefence(t *testing.T) {
	s := newSegment(t, 5)
	all := vips(1)
	n := s.start(1, 1, all)
	s.run(20 * time.Second)
	clear(s.announced)
	for range 100 {
		n.Used(s.now, all[0], wire.MAC{2, 9, 9, 9, 9, 9})
		s.carry(n)
		s.run(100 * time.Millisecond)
	}
	if got := s.announced[all[0]]; got != 1 && got != 2 { // 10 s of intrusion, possibly with a refresh
		t.Errorf("%d announcements in 10 s of intrusion", got)
	}
	if why := n.Addresses(s.now)[0].Why; !strings.Contains(why, "address conflict: 02:09:09:09:09:09 also uses it, last seen 0s ago") || !n.Owns(all[0]) {
		t.Errorf("owner %v: %s", n.Owns(all[0]), why)
	}
}

// An owner announces immediately, after 0.1, 1 and 5 seconds, and every minute.
func TestAnnouncements(t *testing.T) {
	s := newSegment(t, 6)
	all := vips(1)
	n := s.start(1, 1, all)
	for !n.Owns(all[0]) {
		s.run(time.Millisecond)
	}
	for _, c := range []struct {
		wait time.Duration
		want int
	}{{0, 1}, {50 * time.Millisecond, 1}, {60 * time.Millisecond, 2}, {time.Second, 3}, {4 * time.Second, 4}, {50 * time.Second, 4}, {15 * time.Second, 5}, {time.Minute, 6}} {
		s.run(c.wait)
		if got := s.announced[all[0]]; got != c.want {
			t.Errorf("after another %s: %d announcements, want %d", c.wait, got, c.want)
		}
	}
}

// If a member receives nothing, although others receive from it, the others continue without it, and
// report the fault.
func TestOneWay(t *testing.T) {
	s := newSegment(t, 7)
	all := vips(8)
	for i := 1; i <= 3; i++ {
		s.start(i, 3, all)
	}
	s.run(2 * time.Second)
	s.deaf[at(1)] = true
	s.run(2 * time.Second)
	for _, m := range s.nodes[at(2)].Members() {
		if deaf := m.Address == at(1); m.Alive == deaf || deaf && m.Fault != "it does not receive this node's hellos" {
			t.Errorf("%+v", m)
		}
	}
	delete(s.nodes, at(1))
	if got := s.owners(0); len(got) != len(all) {
		t.Errorf("%d of %d addresses are answered for by the others", len(got), len(all))
	}
}

// Replays of former sessions, and of the current one, have no effect.
func TestReplay(t *testing.T) {
	s := newSegment(t, 8)
	all := vips(2)
	a, b := s.start(1, 2, all), s.start(2, 2, all)
	s.run(2 * time.Second)
	m := a.members[b.Self]
	recorded := wire.Hello{Hold: hold, Mine: m.theirs, Yours: m.mine, Sequence: m.received, First: wire.LowestAddress, Last: wire.HighestAddress}
	if err := a.Receive(s.now, b.Self, recorded); err == nil {
		t.Error("a hello is taken twice")
	}
	s.start(2, 2, all) // b is a different instance now
	s.run(time.Second)
	recorded.Sequence = 1 << 40
	if err := a.Receive(s.now, b.Self, recorded); err == nil || !a.members[b.Self].alive {
		t.Errorf("a hello of before the restart is taken: %v", err)
	}
	delete(s.nodes, b.Self)
	s.run(2 * hold)
	recorded.Mine = a.members[b.Self].theirs
	if err := a.Receive(s.now, b.Self, recorded); err != nil || a.members[b.Self].alive {
		t.Errorf("a recording brings a dead member back: %v", err)
	}
	if err := a.Receive(s.now, at(9), recorded); err == nil {
		t.Error("a hello of an unknown node is accepted")
	}
	a.Refused(b.Self, errStrange)
	if got := a.Members(); len(got) != 1 || got[0].Alive || got[0].Fault != errStrange.Error() {
		t.Errorf("%+v", got)
	}
}

var errStrange = errors.New("its hello is not signed")
