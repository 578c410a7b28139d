package ringmap

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/core/ring"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/alloc"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
)

const testSize = 251

// testRings are rings in memory of this process only.
func testRings(slots, chains uint32) *Rings {
	r := &Rings{builder: ring.NewBuilder(1 << 16), shared: newSharing(), wide: math.MaxUint32}
	r.grace = r.Wake
	r.memory = memory{spec: &ebpf.MapSpec{MaxEntries: slots}, segments: []*segment{{words: make([]uint64, slots), Extents: alloc.NewExtents(slots)}}}
	r.chains = newChainTable(chains, func() error { r.chains.numbers.Wake(); return nil })
	return r
}

func entryOf(scheduler bpf.BalancerScheduler, survival bpf.BalancerSurvival) bpf.BalancerFrontend {
	return bpf.BalancerFrontend{Scheduler: scheduler, Survival: survival, RingSize: testSize}
}

func testMembers(weights ...uint32) (all []ring.Member) {
	for i, w := range weights {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 16, 5, byte(i + 1)}), 80)
		all = append(all, ring.Member{ID: ring.ID(i + 1), Addr: addr, Weight: w})
	}
	return all
}

// apply carries out a plan, except for the chains, which are written to the kernel.
func apply(t *testing.T, p *Plan) {
	t.Helper()
	p.fresh = nil
	if p.rings.maps = new(bpf.BalancerMaps); p.Write(nil) != nil {
		t.Fatal("Write failed")
	}
	p.Commit()
	p.Finish()
}

// lay lays out a ring and carries it out. It is as core/ring builds it from the one before.
func lay(t *testing.T, r *Rings, q Request) Existing {
	t.Helper()
	var prev []ring.Slot
	if q.Before.Entry.Slots > 0 {
		prev = r.Slots(q.Before.Ring)
	}
	p, err := r.Lay(q, &Scratch{})
	if err != nil {
		t.Fatal(err)
	}
	apply(t, &p)
	if want, err := ring.Maglev(prev, testSize, q.Members); err != nil || p.chained() && !slices.Equal(r.Slots(p.Ring), want) {
		t.Errorf("the ring is not the one that follows (%v)", err)
	}
	return Existing{p.Ring, q.Members, true}
}

// Rings follow each other in place while only members change, and move otherwise. In the end
// nothing is in use.
func TestRingsFollowEachOther(t *testing.T) {
	for _, protocol := range []service.Protocol{service.TCP, service.UDP} {
		r := testRings(3*testSize, 500)
		q := Request{Ring: Ring{entryOf(bpf.BalancerSchedulerSCHEDULER_MAGLEV, bpf.BalancerSurvivalSURVIVAL_SECOND_CHANCE), protocol}}
		for i, step := range []struct {
			weights []uint32
			moves   bool
		}{
			{[]uint32{1, 1, 1}, true}, {[]uint32{1, 1, 1, 1}, false}, {[]uint32{1, 0, 1, 1}, false}, {[]uint32{1, 0, 1, 2}, true},
			{[]uint32{1, 1}, false}, {[]uint32{2, 1, 1}, true}, {[]uint32{0, 0, 0}, false},
		} {
			q.EntryStays, q.Members = !step.moves, testMembers(step.weights...)
			was := q.Before
			q.Before = lay(t, r, q)
			if moved := was.Entry.Slot != q.Before.Entry.Slot; i > 0 && moved != step.moves {
				t.Errorf("step %d: from slot %d to %d", i, was.Entry.Slot, q.Before.Entry.Slot)
			}
			if _, slots := r.Usage(); slots != testSize {
				t.Errorf("step %d: %d slots are in use", i, slots)
			}
		}
		p := r.Remove(q.Before.Ring)
		p.Finish()
		if _, slots := r.Usage(); slots != 0 || len(r.chains.byOwner) != 0 || r.Lacking() != 0 {
			t.Errorf("%d slots and %d chains are left, %d lack", slots, len(r.chains.byOwner), r.Lacking())
		}
	}
}

// Members that get other numbers keep their slots, as when a frontend begins to track flows.
func TestRingOfOtherNumbers(t *testing.T) {
	r := testRings(2*testSize, 100)
	q := Request{Ring: Ring{entryOf(bpf.BalancerSchedulerSCHEDULER_MAGLEV, bpf.BalancerSurvivalSURVIVAL_SECOND_CHANCE), service.TCP}, Members: testMembers(1, 1, 1)}
	q.Before = lay(t, r, q)
	was := r.Slots(q.Before.Ring)
	q.Members = testMembers(1, 1)
	for i := range q.Members {
		q.Members[i].ID += 10
	}
	p, err := r.Lay(q, &Scratch{})
	if err != nil {
		t.Fatal(err)
	}
	apply(t, &p)
	for i, s := range r.Slots(p.Ring) {
		if s.First < 11 || s.First > 12 || was[i].First < 3 && s.First != was[i].First+10 && s.Older[0] != was[i].First+10 {
			t.Fatalf("slot %d: %v, was %v", i, s, was[i])
		}
	}
}

// A ring that is derived from a predecessor's remembers the owners there, by address.
func TestRingOfAPredecessor(t *testing.T) {
	r := testRings(2*testSize, 500)
	ms := testMembers(1, 0, 1)
	q := Request{Ring: Ring{entryOf(bpf.BalancerSchedulerSCHEDULER_MAGLEV, bpf.BalancerSurvivalSURVIVAL_SECOND_CHANCE), service.TCP}, Members: ms}
	q.Past = make(AddressRing, testSize)
	for i := range q.Past {
		q.Past[i] = [1 + ring.Depth]netip.AddrPort{ms[1].Addr, netip.MustParseAddrPort("172.16.9.9:80"), ms[i%2*2].Addr}
	}
	p, err := r.Lay(q, &Scratch{})
	if err != nil {
		t.Fatal(err)
	}
	apply(t, &p)
	for i, s := range r.Slots(p.Ring) {
		if other := ring.ID(i%2*2 + 1); s.Older[0] != 2 || s.First != other && !slices.Contains(s.Older[:], other) {
			t.Fatalf("slot %d: %v", i, s)
		}
	}
}

// Rings of schedulers that do not hash contain the members, with weights or without.
func TestListedRings(t *testing.T) {
	for scheduler, want := range map[bpf.BalancerScheduler]string{
		bpf.BalancerSchedulerSCHEDULER_RR:  "[1 2] then [1 2]",
		bpf.BalancerSchedulerSCHEDULER_WLC: "[8589934593 4294967298] then [8589934593 12884901890]",
	} {
		r := testRings(testSize, 1)
		q := Request{Ring: Ring{entryOf(scheduler, bpf.BalancerSurvivalSURVIVAL_NONE), service.TCP}, Members: testMembers(2, 1)}
		first, err := r.Lay(q, &Scratch{})
		if err != nil {
			t.Fatal(err)
		}
		apply(t, &first)
		got := fmt.Sprint(r.shared.find(first.Ring).words)
		q.EntryStays, q.Before, q.Members = true, Existing{first.Ring, q.Members, true}, testMembers(2, 3)
		next, err := r.Lay(q, &Scratch{})
		if err != nil || !next.InPlace() {
			t.Fatalf("in place: %v, %v", next.InPlace(), err)
		}
		apply(t, &next)
		if got += fmt.Sprint(" then ", r.shared.find(next.Ring).words); got != want {
			t.Errorf("scheduler %d: %s, want %s", scheduler, got, want)
		}
	}
}
