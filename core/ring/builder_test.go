package ring

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/service"
)

// since returns a time in hours.
func since(hour int) time.Time { return time.Unix(1e9+3600*int64(hour), 0) }

// Members join one after the other, and some drain and return. A load balancer that
// starts at the end and knows only their ages finds the owner that a slot had at any
// time, like one that has lived through everything, unless the slot has had more owners
// since than it can hold.
func TestNewcomerKnowsEveryOwner(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	asked, lost := 0, 0
	for range 40 {
		ms := members(5 + rng.IntN(4))
		drained := rng.IntN(len(ms)) // from some time on
		when := rng.IntN(joins + 1)
		var past, lived []Slot
		var rings [][]Slot
		for hour := range joins + 1 {
			if hour > 0 {
				m := members(len(ms) + 1)[len(ms)]
				m.Since = since(hour)
				ms = append(ms, m)
				if hour == 2 { // two at the same time
					m = members(len(ms) + 1)[len(ms)]
					m.Since = since(hour)
					ms = append(ms, m)
				}
			}
			if hour > 0 && hour-1 == when {
				ms[drained].Weight = 0
			}
			lived = build(t, lived, ms)
			rings = append(rings, lived)
		}
		past = build(t, nil, ms)
		for hour, r := range rings {
			for i, s := range r {
				asked++
				switch full := past[i].Older[Depth-1] != 0; {
				case knows(past[i], s.First) && knows(lived[i], s.First):
				case full:
					lost++
				default:
					t.Fatalf("slot %d was %d's after %d changes, and is %v for a newcomer, %v for the others", i, s.First, hour, past[i], lived[i])
				}
			}
		}
		for i := range past {
			if past[i].First != lived[i].First {
				t.Fatalf("slot %d: %v for a newcomer, %v for the others", i, past[i], lived[i])
			}
		}
	}
	t.Logf("%d of %d owners were forgotten for later ones", lost, asked)
	if lost*200 > asked {
		t.Errorf("%d of %d owners were forgotten for later ones, want less than 0.5 %%", lost, asked)
	}
}

// Members join and drain one after the other, each at a known time. A load balancer that
// starts at the end knows the owner that a slot had at any time, unless the slot had more
// owners than it can hold. Without the times it does not.
func TestNewcomerKnowsWhoOwnedBetweenDrains(t *testing.T) {
	rng := rand.New(rand.NewPCG(17, 18))
	asked, forgotten, missedWithout, crowded := 0, 0, 0, 0
	for range 20 {
		ms := members(8)
		var rings [][]Slot
		for hour := range 6 {
			if hour > 0 {
				m := members(len(ms) + 1)[len(ms)]
				m.Since = since(2 * hour)
				ms = append(ms, m)
				rings = append(rings, build(t, nil, ms))
				drains := &ms[rng.IntN(len(ms)-1)]
				if drains.Weight > 0 {
					drains.Weight, drains.Drained = 0, since(2*hour+1)
				}
			}
			rings = append(rings, build(t, nil, ms))
		}
		known := build(t, nil, ms)
		for i := range ms {
			ms[i].Drained = time.Time{}
		}
		unknown := build(t, nil, ms)
		for age, r := range rings {
			for i, s := range r {
				asked++
				if age == 0 && known[i].Older[Depth-1] != 0 {
					crowded++
				}
				switch {
				case knows(known[i], s.First):
				case known[i].Older[Depth-1] != 0 && age > 0:
					forgotten++
				default:
					t.Fatalf("slot %d was %d's, and is %v for a newcomer", i, s.First, known[i])
				}
				if !knows(unknown[i], s.First) {
					missedWithout++
				}
			}
		}
	}
	if crowded == 0 {
		t.Error("no slot had more owners than it remembers: the first owner was not put to the test")
	}
	t.Logf("of %d owners %d were forgotten for later ones; without the times %d", asked, forgotten, missedWithout)
	if forgotten*200 > asked || missedWithout <= forgotten {
		t.Errorf("of %d owners %d were forgotten for later ones, and %d without the times", asked, forgotten, missedWithout)
	}
}

// Slots hold each member once, nobody else, and nothing after a zero.
func TestSlotsAreWellFormed(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	b := NewBuilder(5 * size)
	var prev []Slot
	for range 150 {
		ms := members(12)
		rng.Shuffle(len(ms), func(i, j int) { ms[i], ms[j] = ms[j], ms[i] })
		ms = ms[:1+rng.IntN(len(ms))]
		for i := range ms {
			ms[i].Weight, ms[i].Since = rng.Uint32N(3), since(rng.IntN(6))
			if rng.IntN(2) == 0 {
				ms[i].Drained = since(rng.IntN(8))
			}
		}
		slots, err := b.Maglev(prev, size, ms, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range slots {
			seen := map[ID]bool{s.First: true}
			ended := false
			for _, id := range s.Older {
				present := slices.ContainsFunc(ms, func(m Member) bool { return m.ID == id })
				if id != 0 && (ended || seen[id] || !present) {
					t.Fatalf("slot %d is %v of %v", i, s, ms)
				}
				ended, seen[id] = id == 0, true
			}
		}
		if again := build(t, slots, ms); !slices.Equal(again, slots) {
			t.Fatal("a ring that follows one of the same members is another")
		}
		prev = slots
	}
}

// history is a set of members that join, drain, leave and change their weights at random.
type history struct {
	rng   *rand.Rand
	ms    []Member
	hours int
	last  ID
}

func (h *history) step() {
	h.hours++
	i := h.rng.IntN(len(h.ms))
	switch m := &h.ms[i]; h.rng.IntN(8) {
	case 0, 1:
		m.Weight, m.Drained = 0, since(h.hours)
	case 2:
		m.Weight, m.Drained = 1, time.Time{}
	case 3: // at an unknown time
		m.Weight, m.Drained = 0, time.Time{}
	case 4:
		m.Weight = 1 + h.rng.Uint32N(2)
	case 5:
		if len(h.ms) > 3 {
			h.ms = slices.Delete(h.ms, i, i+1)
		}
	default:
		h.last++
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 17, byte(h.last >> 8), byte(h.last)}), 80)
		h.ms = append(h.ms, Member{ID: 1000 + h.last, Addr: addr, Weight: 1, Since: since(h.hours - 2*h.rng.IntN(2))})
	}
	h.rng.Shuffle(len(h.ms), func(i, j int) { h.ms[i], h.ms[j] = h.ms[j], h.ms[i] })
}

// whole builds a ring after a previous one with known members, slot by slot and without a
// cache.
func whole(t *testing.T, prev []Slot, before, ms []Member) []Slot {
	t.Helper()
	next, err := NewBuilder(0).Next(size, ms, before, prev != nil)
	if err != nil {
		t.Fatal(err)
	}
	slots := make([]Slot, size)
	for i := range slots {
		var was *Slot
		if prev != nil {
			was = &prev[i]
		}
		slots[i] = next.Slot(i, was)
	}
	return slots
}

// A slot whose only owner, before and after, is one member stays as it is if no member in
// it was removed, and need not be rebuilt. The rings are the same whether or not tables
// are cached and whether or not every slot is evaluated. New flows go to the same backend
// as on a load balancer that has just started.
func TestSlotsOfWhomAlwaysOwnedThemStay(t *testing.T) {
	rng := rand.New(rand.NewPCG(19, 20))
	stayed, others, asked := 0, 0, 0
	for range 6 {
		h := &history{rng: rng, ms: members(9)}
		b := NewBuilder(30 * size)
		prev, before := whole(t, nil, nil, h.ms), slices.Clone(h.ms)
		for change := range 80 {
			h.step()
			known := before
			if rng.IntN(5) == 0 {
				known = nil // a restarted load balancer
			}
			next, err := b.Next(size, h.ms, known, true)
			if err != nil {
				t.Fatal(err)
			}
			asked += len(next.rings)
			slots := whole(t, prev, known, h.ms)
			fresh := whole(t, nil, nil, h.ms)
			for i := range prev {
				if !next.Always(i, prev[i].First) || slices.ContainsFunc(prev[i].Older[:], func(id ID) bool { return id != 0 && !next.Has(id) }) {
					if got := next.Slot(i, &prev[i]); got != slots[i] {
						t.Fatalf("change %d: slot %d was %v and is %v, or %v without a memory", change, i, prev[i], got, slots[i])
					}
					others++
				} else if stayed++; slots[i] != prev[i] {
					t.Fatalf("change %d: slot %d was %v and is %v", change, i, prev[i], slots[i])
				}
				if slots[i].First != fresh[i].First {
					t.Fatalf("change %d: slot %d is %v, and %v with a balancer that has just started", change, i, slots[i], fresh[i])
				}
			}
			prev, before = slots, slices.Clone(h.ms)
		}
	}
	t.Logf("%d slots stayed, %d did not; %d tables were asked", stayed, others, asked)
	if stayed == 0 || others == 0 {
		t.Errorf("%d slots stayed, %d did not", stayed, others)
	}
}

// A ring that does not look back on what its predecessor did knows everyone who owned a
// slot since it began, or before that as far as it was known then, and who is still
// present, unless the slot has no room.
func TestWhoReallyOwnedIsKnown(t *testing.T) {
	rng := rand.New(rand.NewPCG(25, 26))
	asked, forgotten := 0, 0
	for range 4 {
		h := &history{rng: rng, ms: members(12)}
		for i := range h.ms {
			h.ms[i].Since = since(-rng.IntN(4))
		}
		slots, before := whole(t, nil, nil, h.ms), slices.Clone(h.ms)
		really := make([]map[ID]bool, size)
		crowded := make([]bool, size)
		for i, s := range slots {
			really[i] = map[ID]bool{s.First: true}
			for _, id := range s.Older {
				really[i][id] = true
			}
		}
		for change := range 60 {
			h.step()
			slots = whole(t, slots, before, h.ms)
			before = slices.Clone(h.ms)
			for i, s := range slots {
				really[i][s.First] = true
				crowded[i] = crowded[i] || s.Older[Depth-1] != 0
				for id := range really[i] {
					if id == 0 || !slices.ContainsFunc(h.ms, func(m Member) bool { return m.ID == id }) {
						delete(really[i], id)
						continue
					}
					asked++
					switch {
					case knows(s, id):
					case crowded[i]:
						forgotten++
					default:
						t.Fatalf("change %d: slot %d was %d's, and is %v", change, i, id, s)
					}
				}
			}
		}
	}
	t.Logf("%d of %d were forgotten for later ones", forgotten, asked)
}

// A member that drains costs one table, and a member that leaves at most one, however
// many moments are considered.
func TestWhoGoesCostsFewTables(t *testing.T) {
	b := NewBuilder(100 * size)
	ms := members(20)
	for i := range ms {
		ms[i].Since = since(i)
	}
	made := func(before []Member) int {
		t.Helper()
		had := len(b.tables)
		if _, err := b.Next(size, ms, before, before != nil); err != nil {
			t.Fatal(err)
		}
		return len(b.tables) - had
	}
	if n := made(nil); n != joins+1 {
		t.Errorf("the first ring costs %d tables", n)
	}
	before := slices.Clone(ms)
	ms[4].Weight, ms[4].Drained = 0, since(30)
	if n := made(before); n != 1 {
		t.Errorf("who drains costs %d tables", n)
	}
	before = slices.Clone(ms)
	ms = slices.Delete(slices.Clone(ms), 4, 5)
	if n := made(before); n > 1 {
		t.Errorf("who goes costs %d tables", n)
	}
	if n := made(nil); n < joins-1 {
		t.Errorf("a balancer that has just started makes %d tables", n)
	}
}

// A Builder with a cache builds the same rings as one without, and stays within its
// limit.
func TestBuilderRemembers(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 16))
	const room = 7*size + 5
	b := NewBuilder(room)
	for range 300 {
		ms := members(1 + rng.IntN(5))
		for i := range ms {
			ms[i].ID += ID(rng.IntN(2)) * 100 // the ID has changed since
			ms[i].Weight, ms[i].Since = rng.Uint32N(2), since(rng.IntN(3))
		}
		got, err := b.Maglev(nil, size, ms, nil)
		if err != nil {
			t.Fatal(err)
		}
		if want := build(t, nil, ms); !slices.Equal(got, want) {
			t.Fatalf("another ring of %v", ms)
		}
		held := 0
		for e := b.latest.Front(); e != nil; e = e.Next() {
			held += len(e.Value.(*table).slots)
		}
		if held > room || held+b.room != room || b.latest.Len() != len(b.tables) {
			t.Fatalf("holds %d slots in %d tables of which %d are known, and has room for %d", held, b.latest.Len(), len(b.tables), b.room)
		}
	}
	if b.latest.Len() != 7 {
		t.Errorf("remembers %d rings, want 7", b.latest.Len())
	}
}

func TestChain(t *testing.T) {
	for _, c := range []struct {
		slot     Slot
		tcp, udp []ID
	}{
		{Slot{}, nil, nil},
		{Slot{First: 1}, nil, nil},
		{Slot{First: 1, Older: [Depth]ID{2, 3}}, []ID{2, 3}, []ID{2, 3, 1}},
		{Slot{First: 1, Older: [Depth]ID{2, 3, 4, 5, 6}}, []ID{2, 3, 4, 5, 6}, []ID{2, 3, 4, 5, 1}},
		{Slot{Older: [Depth]ID{2, 3}}, []ID{2, 3}, []ID{2, 3}},
	} {
		for p, want := range map[uint8][]ID{6: c.tcp, 132: c.tcp, 17: c.udp} {
			if got := c.slot.Chain(service.Protocol(p)); !slices.Equal(got, want) {
				t.Errorf("%v: %v, want %v", c.slot, got, want)
			}
		}
	}
}

// BenchmarkChange drains and restores one of 100 members that joined one by one.
func BenchmarkChange(b *testing.B) {
	for _, room := range []int{0, 1 << 21} {
		b.Run(fmt.Sprintf("remembers %d", room), func(b *testing.B) {
			ms := members(100)
			for i := range ms {
				ms[i].Since = since(i)
			}
			builder := NewBuilder(room)
			var prev []Slot
			for i := 0; b.Loop(); i++ {
				ms[i/2%100].Weight = uint32(i % 2)
				var err error
				if prev, err = builder.Maglev(prev, 65537, ms, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestAhead builds the tables of several rings together: the rings are the same, and need no
// further table.
func TestAhead(t *testing.T) {
	const size = 251
	var lists [][]Member
	for i := range 20 {
		ms := members(3 + i%5)[i%3:]
		for j := range ms {
			ms[j].Since = since(j / 2)
		}
		lists = append(lists, ms)
	}
	ahead, alone := NewBuilder(1<<20), NewBuilder(1<<20)
	if err := ahead.Ahead(size, lists); err != nil {
		t.Fatal(err)
	}
	built := len(ahead.tables)
	for i, ms := range lists {
		got, err := ahead.Next(size, ms, nil, false)
		if err != nil {
			t.Fatal(err)
		}
		want, err := alone.Next(size, ms, nil, false)
		if err != nil {
			t.Fatal(err)
		}
		for slot := range size {
			if g, w := got.Slot(slot, nil), want.Slot(slot, nil); g != w {
				t.Fatalf("list %d, slot %d: %v, alone %v", i, slot, g, w)
			}
		}
	}
	if n := len(ahead.tables); n != built || n != len(alone.tables) {
		t.Errorf("%d tables, of which %d were built ahead; alone %d", n, built, len(alone.tables))
	}
	if err := ahead.Ahead(250, lists); err == nil {
		t.Error("a size that is not a prime was accepted")
	}
}
