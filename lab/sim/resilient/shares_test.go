package resilient

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// change returns a table after its hops have changed to hops, and how many buckets moved.
func change(table []string, hops []string, weights ...uint32) (next []string, moved int) {
	next = slices.Clone(table)
	s := NewShares(hops, weights, len(table), func(i int) string { return table[i] })
	for i, hop := range table {
		if stays, _ := s.Stays(hop); !stays {
			next[i] = s.Move(hop, "")
			moved++
		}
	}
	return next, moved
}

func TestByHand(t *testing.T) {
	table := slices.Repeat([]string{""}, 8)
	for _, c := range []struct {
		hops    []string
		weights []uint32
		want    string
		moved   int
	}{
		{[]string{"a", "b"}, []uint32{1, 1}, "aaaabbbb", 8},
		{[]string{"a", "b", "c"}, []uint32{1, 1, 2}, "ccaaccbb", 4},
		{[]string{"b", "c"}, []uint32{1, 1}, "ccbbccbb", 2},
		{[]string{"c", "b"}, []uint32{3, 1}, "ccccccbb", 2},
		{nil, nil, "", 8},
	} {
		next, moved := change(table, c.hops, c.weights...)
		got := ""
		for _, hop := range next {
			got += hop
		}
		if got != c.want || moved != c.moved {
			t.Errorf("%v by %v: %q, %d moved, want %q, %d", c.hops, c.weights, got, moved, c.want, c.moved)
		}
		table = next
	}
}

// After any change, each hop has its share, and no more buckets have moved than
// necessary.
func TestNoMoreMovesThanMust(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 1))
	table := make([]string, 61)
	for range 500 {
		var hops []string
		var weights []uint32
		for _, hop := range []string{"a", "b", "c", "d", "e"} {
			if dice.IntN(3) > 0 {
				hops, weights = append(hops, hop), append(weights, 1+dice.Uint32N(4))
			}
		}
		if len(hops) == 0 {
			continue
		}
		has := map[string]int{}
		for _, hop := range table {
			has[hop]++
		}
		next, moved := change(table, hops, weights...)
		must, before := 0, 0
		for i, end := range Bounds(uint64(len(table)), weights) {
			share := int(end) - before
			before = int(end)
			must += max(0, share-has[hops[i]])
			if n := len(slices.DeleteFunc(slices.Clone(next), func(hop string) bool { return hop != hops[i] })); n != share {
				t.Fatalf("%s has %d buckets, want %d", hops[i], n, share)
			}
		}
		if moved != must {
			t.Fatalf("%d buckets moved, %d must", moved, must)
		}
		table = next
	}
}
