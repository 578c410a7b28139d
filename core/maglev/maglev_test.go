package maglev

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

func backends(weights ...uint32) []Backend {
	var bs []Backend
	for i, w := range weights {
		bs = append(bs, Backend{netip.MustParseAddrPort(fmt.Sprintf("172.16.%d.%d:8080", i/250, i%250+1)), w})
	}
	return bs
}

func mustBuild(t testing.TB, size int, bs []Backend) []uint32 {
	t.Helper()
	ring, err := Build(size, bs)
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

func owners(ring []uint32, bs []Backend) []netip.AddrPort {
	ids := make([]netip.AddrPort, len(ring))
	for i, o := range ring {
		ids[i] = bs[o].ID
	}
	return ids
}

// slowTwin fills a ring from complete permutation tables, like the paper's pseudocode,
// with weights as rational turns.
func slowTwin(size int, bs []Backend) []uint32 {
	order := make([]int, 0, len(bs))
	var heaviest uint32
	for i, b := range bs {
		if b.Weight > 0 {
			order = append(order, i)
		}
		heaviest = max(heaviest, b.Weight)
	}
	slices.SortFunc(order, func(a, b int) int { return bs[a].ID.Compare(bs[b].ID) })
	permutation := map[int][]int{}
	for _, i := range order {
		offset, skip := hash(bs[i].ID, 0)%uint64(size), hash(bs[i].ID, 1)%uint64(size-1)+1
		for j := range size {
			permutation[i] = append(permutation[i], int((offset+uint64(j)*skip)%uint64(size)))
		}
	}
	ring := make([]uint32, size)
	for i := range ring {
		ring[i] = None
	}
	next, taken := map[int]int{}, map[int]uint64{}
	for filled, round := 0, uint64(1); filled < size && len(order) > 0; round++ {
		for _, i := range order {
			if round*uint64(bs[i].Weight)/uint64(heaviest) == taken[i] || filled == size {
				continue
			}
			taken[i]++
			for ring[permutation[i][next[i]]] != None {
				next[i]++
			}
			ring[permutation[i][next[i]]] = uint32(i)
			filled++
		}
	}
	return ring
}

func TestSlowTwin(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		size := []int{2, 3, 13, 251, 1021, 4093}[rng.IntN(6)]
		weights := make([]uint32, rng.IntN(20))
		for i := range weights {
			weights[i] = []uint32{0, 1, 1, 2, 7, 100}[rng.IntN(6)]
		}
		bs := backends(weights...)
		if got, want := mustBuild(t, size, bs), slowTwin(size, bs); !slices.Equal(got, want) {
			t.Fatalf("size %d, weights %v:\n got %v\nwant %v", size, weights, got, want)
		}
	}
}

// The largest ring for which nearest is used, and the next prime.
func TestSlowTwinOfLargeRings(t *testing.T) {
	bs := backends(1, 7, 3, 0, 2)
	for _, size := range []int{131071, 131101} {
		if got, want := mustBuild(t, size, bs), slowTwin(size, bs); !slices.Equal(got, want) {
			t.Errorf("size %d: another ring than the slow twin's", size)
		}
	}
}

func TestOrderDoesNotMatter(t *testing.T) {
	bs := backends(1, 2, 3, 1, 5, 0, 1)
	want := owners(mustBuild(t, 1021, bs), bs)
	rng := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		rng.Shuffle(len(bs), func(i, j int) { bs[i], bs[j] = bs[j], bs[i] })
		if got := owners(mustBuild(t, 1021, bs), bs); !slices.Equal(got, want) {
			t.Fatal("another order of backends gave another ring")
		}
	}
}

// Load balancers of different versions compute the ring: it must never change.
func TestReproducible(t *testing.T) {
	ring := mustBuild(t, 65537, backends(1, 1, 2, 3))
	sum := crc32.NewIEEE()
	for _, o := range ring {
		fmt.Fprintf(sum, "%d,", o)
	}
	const want = 0x260a59c0
	if got := sum.Sum32(); got != want {
		t.Fatalf("ring has checksum %#x, want %#x: balancers of two versions would choose differently", got, want)
	}
}

func TestShares(t *testing.T) {
	for _, weights := range [][]uint32{{1, 1, 1, 1}, {1, 2, 3, 4}, {100, 1}, {0, 1, 1}} {
		bs := backends(weights...)
		count, total := make([]int, len(bs)), 0.0
		for _, o := range mustBuild(t, 16381, bs) {
			count[o]++
		}
		for _, w := range weights {
			total += float64(w)
		}
		for i, w := range weights {
			want := 16381 * float64(w) / total
			if d := float64(count[i]) - want; d > 2 || d < -2 {
				t.Errorf("weights %v: backend %d owns %d slots, want %.0f", weights, i, count[i], want)
			}
		}
	}
}

// If one backend of a hundred is removed, added or drained, hardly any slot of the others
// may move. The shares are logged.
func TestLittleMoves(t *testing.T) {
	bs := equal(101)
	all := owners(mustBuild(t, 65537, bs), bs)
	worst := 0.0
	for i := range bs {
		rest := slices.Delete(slices.Clone(bs), i, i+1)
		without := owners(mustBuild(t, 65537, rest), rest)
		moved := 0
		for slot := range all {
			if all[slot] != bs[i].ID && all[slot] != without[slot] {
				moved++
			}
		}
		worst = max(worst, float64(moved)/65537)
	}
	t.Logf("at most %.2f %% of the slots moved between two others of 100 when one came or went", 100*worst)
	if worst > 0.01 {
		t.Errorf("%.2f %%, want at most 1 %%", 100*worst)
	}
}

func equal(n int) []Backend {
	weights := make([]uint32, n)
	for i := range weights {
		weights[i] = 1
	}
	return backends(weights...)
}

func TestSizeMustBePrime(t *testing.T) {
	for _, size := range []int{-7, 0, 1, 4, 16384, 65536} {
		if _, err := Build(size, backends(1)); err == nil {
			t.Errorf("a ring of %d slots was not refused", size)
		}
	}
	_, err := Build(16384, nil)
	if want := "ring size 16384 is not a prime: the nearest are 16381 and 16411"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestNoWeightNoOwner(t *testing.T) {
	for _, o := range mustBuild(t, 13, backends(0, 0)) {
		if o != None {
			t.Fatalf("slot owned by %d, want no owner", o)
		}
	}
}

func BenchmarkBuild(b *testing.B) {
	for _, size := range []int{16381, 65537} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			bs := equal(100)
			for b.Loop() {
				mustBuild(b, size, bs)
			}
		})
	}
}
