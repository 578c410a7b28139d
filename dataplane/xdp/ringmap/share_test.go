package ringmap

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/ring"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
)

// sharer is a frontend among others of the same backends.
type sharer struct {
	has   Existing
	slots []ring.Slot // what it must have
}

func secondChance(protocol service.Protocol) Ring {
	return Ring{entryOf(bpf.BalancerSchedulerSCHEDULER_MAGLEV, bpf.BalancerSurvivalSURVIVAL_SECOND_CHANCE), protocol}
}

// set gives a frontend backends, and computes what it must have without sharing.
func (s *sharer) set(t *testing.T, r *Rings, entryStays bool, members []ring.Member) {
	t.Helper()
	var prev []ring.Slot
	var before []ring.Member
	if s.slots != nil {
		prev = s.slots
		if entryStays && s.has.Made {
			before = s.has.Members
		}
	}
	q := Request{Ring: secondChance(service.TCP), Members: members, Before: s.has, EntryStays: entryStays && s.slots != nil}
	p, err := r.Lay(q, &Scratch{})
	if err != nil {
		t.Fatal(err)
	}
	apply(t, &p)
	if s.slots, err = ring.NewBuilder(0).Maglev(prev, testSize, members, before); err != nil {
		t.Fatal(err)
	}
	s.has = Existing{p.Ring, members, true}
}

func (s *sharer) remove(r *Rings) {
	p := r.Remove(s.has.Ring)
	p.Finish()
	*s = sharer{}
}

// distinct returns how many rings the frontends have.
func distinct(all []sharer) int {
	places := map[location]bool{}
	for _, s := range all {
		if s.slots != nil {
			places[s.has.location()] = true
		}
	}
	return len(places)
}

// Frontends of the same backends have one ring. While a change of their backends reaches one
// after the other, they have two, and then one again.
func TestFrontendsShareARing(t *testing.T) {
	r := testRings(3*testSize, 500)
	all := make([]sharer, 4)
	for _, weights := range [][]uint32{{1, 1, 1}, {1, 1, 1, 1}, {1, 0, 1, 1}, {1, 1}} {
		for i := range all {
			all[i].set(t, r, true, testMembers(weights...))
			want := 2
			if all[len(all)-1].has.location() == all[0].has.location() || all[len(all)-1].slots == nil {
				want = 1
			}
			if n := distinct(all); n != want {
				t.Errorf("%v: %d rings after %d frontends, want %d", weights, n, i+1, want)
			}
		}
		if _, slots := r.Usage(); slots != testSize {
			t.Errorf("%v: %d slots are in use", weights, slots)
		}
		must(t, r.Wake())
	}
	alone := all[0].has.location()
	for i := range all[1:] {
		all[1+i].remove(r)
	}
	all[0].set(t, r, true, testMembers(1, 1, 1))
	if all[0].has.location() != alone {
		t.Error("the ring of a single frontend did not change in place")
	}
	all[0].remove(r)
	if _, slots := r.Usage(); slots != 0 || len(r.chains.byOwner) != 0 || len(r.shared.at) != 0 || len(r.shared.from) != 0 {
		t.Errorf("left: %d slots, %d chains, %d rings, %d origins", slots, len(r.chains.byOwner), len(r.shared.at), len(r.shared.from))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// randomMembers returns some of a few backends, draining or not.
func randomMembers(rng *rand.Rand, sets int) []ring.Member {
	all := testMembers(1, 1, 1, 1, 1)
	set := rng.IntN(sets)
	for i := range all {
		if set>>i&1 == 1 {
			all[i].Weight = 0
		}
		all[i].Since = time.Unix(int64(1000*i), 0)
	}
	return all[:2+set%4]
}

// Whatever frontends come, change and go, also over restarts: each has the slots that it would
// have alone, and chains and memory are those of the distinct rings.
func TestSharedRingsAreThoseOfEachAlone(t *testing.T) {
	for name, wide := range map[string]uint32{"wide": math.MaxUint32, "narrow": 0, "both": 3 * testSize} {
		t.Run(name, func(t *testing.T) { sharedRingsAreThoseOfEachAlone(t, wide) })
	}
}

func sharedRingsAreThoseOfEachAlone(t *testing.T, wide uint32) {
	rng := rand.New(rand.NewPCG(3, 4))
	const n = 12
	r := testRings((n+2)*testSize, 2000)
	r.wide = wide
	all := make([]sharer, n)
	shared := 0
	for step := range 3000 {
		s := &all[rng.IntN(n)]
		switch {
		case rng.IntN(10) == 0 && s.slots != nil:
			s.remove(r)
		case rng.IntN(200) == 0:
			restart(r, all)
		default:
			s.set(t, r, rng.IntN(4) > 0, randomMembers(rng, 8))
		}
		if rng.IntN(5) == 0 {
			must(t, r.Wake())
		}
		checkSharers(t, r, all, step)
		shared += n - distinct(all)
	}
	if shared < 3000 {
		t.Errorf("%d times a frontend shared a ring", shared)
	}
	if each := int(r.shared.words) / len(r.shared.at); wide == 0 && each > testSize/3 || wide == math.MaxUint32 && each != testSize {
		t.Errorf("rings have %d words", each)
	}
}

// restart reads the memory again, as another process does.
func restart(r *Rings, all []sharer) {
	r.shared, r.memory.segments[0].Extents = newSharing(), r.memory.wholeSegment()
	for i := range all {
		if s := &all[i]; s.slots != nil {
			r.Mark(s.has.Ring)
			s.has.Made = false
		}
	}
}

func checkSharers(t *testing.T, r *Rings, all []sharer, step int) {
	t.Helper()
	uses := map[uint32]uint32{}
	seen, words := map[*stored]bool{}, uint32(0)
	for i, s := range all {
		if s.slots == nil {
			continue
		}
		if !slices.Equal(r.Slots(s.has.Ring), s.slots) {
			t.Fatalf("step %d: frontend %d has other slots", step, i)
		}
		one := r.shared.find(s.has.Ring)
		if seen[one] {
			continue
		}
		seen[one] = true
		words += one.N
		for i := range one.n {
			uses[chainOf(one.at(i))]++
		}
	}
	delete(uses, 0)
	for n, want := range uses {
		if r.chains.slots[n] != want {
			t.Fatalf("step %d: chain %d has %d slots, want %d", step, n, r.chains.slots[n], want)
		}
	}
	if _, taken := r.Usage(); taken != words || r.shared.words != words || len(r.shared.at) != len(seen) {
		t.Fatalf("step %d: %d words and %d rings, want %d and %d", step, taken, len(r.shared.at), words, len(seen))
	}
}
