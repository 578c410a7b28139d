package ring

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"
)

const size = 1021

func members(n int) []Member {
	var ms []Member
	for i := range n {
		ms = append(ms, Member{ID: ID(i + 1), Addr: netip.MustParseAddrPort(fmt.Sprintf("172.16.0.%d:80", i+1)), Weight: 1})
	}
	return ms
}

var none [Depth]ID

// knows reports whether packets of the slot reach a member.
func knows(s Slot, id ID) bool { return s.First == id || slices.Contains(s.Older[:], id) }

func build(t *testing.T, prev []Slot, ms []Member) []Slot {
	t.Helper()
	slots, err := Maglev(prev, size, ms)
	if err != nil {
		t.Fatal(err)
	}
	return slots
}

func TestFirstRingHasNobodyOlder(t *testing.T) {
	for i, s := range build(t, nil, members(4)) {
		if s.First == 0 || s.Older != none {
			t.Fatalf("slot %d is %+v", i, s)
		}
	}
}

// Every load balancer must find a flow on a backend that starts to drain: one that saw
// the change and one that has just started.
func TestDrainingServerKeepsItsFlows(t *testing.T) {
	ms := members(4)
	before := build(t, nil, ms)
	ms[2].Weight = 0
	for name, after := range map[string][]Slot{"saw the change": build(t, before, ms), "just started": build(t, nil, ms)} {
		for i := range after {
			if after[i].First == ms[2].ID {
				t.Fatalf("%s: slot %d gives new flows to the draining server", name, i)
			}
			if before[i].First == ms[2].ID && !knows(after[i], ms[2].ID) {
				t.Fatalf("%s: slot %d lost the draining server: %+v", name, i, after[i])
			}
		}
	}
}

// A member that owned a slot before the last change, and is still present, is its first
// or second.
func TestOwnerBeforeIsNeverForgotten(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	all := members(8)
	var prev []Slot
	for range 200 {
		ms := slices.Clone(all[:1+rng.IntN(8)])
		for i := range ms {
			ms[i].Weight = []uint32{1, 1, 1, 1, 2}[rng.IntN(5)]
		}
		rng.Shuffle(len(ms), func(i, j int) { ms[i], ms[j] = ms[j], ms[i] })
		next := build(t, prev, ms)
		for i := range prev {
			stays := slices.ContainsFunc(ms, func(m Member) bool { return m.ID == prev[i].First })
			if stays && !knows(next[i], prev[i].First) {
				t.Fatalf("slot %d: was %+v, is %+v", i, prev[i], next[i])
			}
		}
		for i, s := range next {
			for _, id := range append(s.Older[:], s.First) {
				if id != 0 && !slices.ContainsFunc(ms, func(m Member) bool { return m.ID == id }) {
					t.Fatalf("slot %d names %d, which is gone", i, id)
				}
			}
		}
		prev = next
	}
}

func TestAllDraining(t *testing.T) {
	ms := members(3)
	before := build(t, nil, ms)
	for i := range ms {
		ms[i].Weight = 0
	}
	for i, s := range build(t, before, ms) {
		if s.First != 0 || s.Older != [Depth]ID{before[i].First} {
			t.Fatalf("slot %d was %+v, is %+v", i, before[i], s)
		}
	}
}

func TestAnotherSizeForgets(t *testing.T) {
	ms := members(3)
	other, err := Maglev(build(t, nil, ms), 251, ms)
	if err != nil || len(other) != 251 {
		t.Fatal(len(other), err)
	}
}

func TestRoundRobin(t *testing.T) {
	ms := members(4)
	ms[1].Weight = 0
	ms[0], ms[3] = ms[3], ms[0]
	want := []Slot{{First: 1}, {First: 3}, {First: 4}}
	if got := RoundRobin(ms); !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

// A load balancer that has just started knows from the members' ages who owned a slot at
// any time, as long as the slot has room for all of them. The test also counts how often
// there is room, which is nearly always.
func TestJustStartedKnowsEveryOwner(t *testing.T) {
	const base, later = 8, 7
	ms := members(base + later)
	for i := range ms {
		ms[i].Since = time.Unix(1000+int64(max(0, i-base+1)), 0)
	}
	ms[1].Weight, ms[base+2].Weight = 0, 0
	var past [][]Slot
	for n := base; n <= len(ms); n++ {
		undrained := slices.Clone(ms[:n])
		for i := range undrained {
			undrained[i].Weight = 1
		}
		past = append(past, build(t, nil, ms[:n]), build(t, nil, undrained))
	}
	crowded := 0
	for i, slot := range build(t, nil, ms) {
		var owners []ID
		for _, ring := range past {
			if !slices.Contains(owners, ring[i].First) {
				owners = append(owners, ring[i].First)
			}
		}
		if len(owners) > Depth+1 {
			crowded++
			continue
		}
		for _, id := range owners {
			if !knows(slot, id) {
				t.Fatalf("slot %d was owned by %v, but is %+v", i, owners, slot)
			}
		}
	}
	if crowded > size/50 {
		t.Errorf("%d of %d slots had more owners than a slot remembers", crowded, size)
	}
}
