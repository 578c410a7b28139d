package ringmap

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/dataplane/xdp/alloc"
)

// testLists are lists in memory of this process only, in one segment.
func testLists(index, words []uint64) *Lists {
	l := &Lists{memory: memory{spec: &ebpf.MapSpec{Name: "lists", MaxEntries: uint32(len(words))}}, index: index}
	l.memory.segments = []*segment{{words: words, Extents: alloc.NewExtents(uint32(len(words)))}}
	l.read()
	return l
}

// TestListsMatchTheTwin compares lists with a slice of slices, under random changes, restarts and
// lack of room.
func TestListsMatchTheTwin(t *testing.T) {
	const size = 300
	rng := rand.New(rand.NewPCG(1, 2))
	index, words := make([]uint64, 20), make([]uint64, size)
	l, twin := testLists(index, words), make([][]uint64, len(index))
	used := func() (n int) { // equal lists count once
		seen := map[string]bool{}
		for _, list := range twin {
			if key := string(bytesOf(list)); !seen[key] {
				seen[key] = true
				n += len(list)
			}
		}
		return n
	}
	full, shared := 0, 0
	for range 20000 {
		i, list := rng.IntN(len(index)), make([]uint64, rng.IntN(40))
		for j := range list {
			list[j] = uint64(j + rng.IntN(2)*rng.IntN(2))
		}
		if rng.IntN(3) == 0 {
			list = slices.Clone(twin[rng.IntN(len(twin))])
			shared++
		}
		before := slices.Clone(words)
		if err := l.Set(uint32(i), list); err == nil {
			twin[i] = list
		} else if full++; used()+len(list) <= size/4 || !strings.Contains(err.Error(), "memory of lists: all 1 segments are in use") {
			t.Fatalf("with %d of %d words in use: %v", used(), size, err)
		} else if !slices.Equal(words, before) {
			t.Fatal("a list without room changes memory")
		}
		if rng.IntN(50) == 0 {
			l = testLists(index, words) // another process
		}
		for n, want := range twin {
			if got := l.Get(uint32(n)); !slices.Equal(got, want) {
				t.Fatalf("list %d is %v, want %v", n, got, want)
			}
		}
		if _, taken := l.memory.usage(); int(taken) != used() {
			t.Fatalf("%d words are taken, %d in use", taken, used())
		}
	}
	if full < 100 || shared < 100 {
		t.Errorf("only %d were full, %d shared", full, shared)
	}
}

// A change that is cut off before the index switches leaves the list before.
func TestListIsWrittenElsewhere(t *testing.T) {
	index, words := make([]uint64, 2), make([]uint64, 100)
	l := testLists(index, words)
	list := []uint64{1, 2, 3}
	for range 1000 {
		if err := l.Set(0, list); err != nil {
			t.Fatal(err)
		}
		was := index[0]
		list = append(slices.Clone(list[1:]), list[0])
		if _, err := l.store(list); err != nil { // and no more
			t.Fatal(err)
		}
		next := testLists(index, words)
		if got := next.Get(0); index[0] != was || slices.Equal(got, list) || len(got) != 3 {
			t.Fatalf("the list is %v", got)
		}
		l = next
	}
}

// Words that are not those of lists are dropped.
func TestStrayIndex(t *testing.T) {
	l := testLists([]uint64{5<<32 | 10, 5<<32 | 12, 5<<32 | 98, 1<<32 | 1<<31, 5<<32 | 10}, make([]uint64, 100))
	if got, want := l.index, []uint64{5<<32 | 10, 0, 0, 0, 5<<32 | 10}; !slices.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}
