package ring

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func ids(slots []Slot) (out []ID) {
	for _, s := range slots {
		out = append(out, s.First)
	}
	return out
}

func TestWeightedRoundRobin(t *testing.T) {
	for _, c := range []struct {
		weights []uint32
		want    []ID
	}{
		{nil, nil},
		{[]uint32{0, 0}, nil},
		{[]uint32{7}, []ID{1}},
		{[]uint32{6, 0, 6}, []ID{1, 3}},
		{[]uint32{1, 2}, []ID{2, 1, 2}},
		{[]uint32{4, 8, 2}, []ID{2, 1, 2, 3, 2, 1, 2}},
		{[]uint32{5, 1, 1}, []ID{1, 1, 1, 2, 3, 1, 1}},
	} {
		ms := members(len(c.weights))
		for i := range ms {
			ms[i].Weight = c.weights[i]
		}
		slices.Reverse(ms)
		if got := ids(WeightedRoundRobin(ms)); !slices.Equal(got, c.want) {
			t.Errorf("weights %v: got %v, want %v", c.weights, got, c.want)
		}
	}
}

// Whatever the weights, every member gets its share of a round and of each part of it,
// within two turns.
func TestTurnsAreSpreadEvenly(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 9))
	for range 200 {
		ms := members(1 + rng.IntN(8))
		total := 0.0
		for i := range ms {
			ms[i].Weight = 1 + rng.Uint32N(40)
			total += float64(ms[i].Weight)
		}
		slots := WeightedRoundRobin(ms)
		for _, m := range ms {
			got := 0.0
			for i, s := range slots {
				if s.First == m.ID {
					got++
				}
				want := float64(m.Weight) / total * float64(i+1)
				if got < want-2 || got > want+2 {
					t.Fatalf("%v: after %d turns member %d had %.0f of them, want %.1f", ms, i+1, m.ID, got, want)
				}
			}
		}
	}
}

func TestTurnsAreBounded(t *testing.T) {
	ms := members(3)
	ms[0].Weight, ms[1].Weight, ms[2].Weight = 65535, 65534, 1
	got := ids(WeightedRoundRobin(ms))
	count := map[ID]int{}
	for _, id := range got {
		count[id]++
	}
	if len(got) > MaxTurns+len(ms) || count[3] != 1 || count[1] < MaxTurns*49/100 || count[2] < MaxTurns*49/100 {
		t.Errorf("%d turns: %v", len(got), count)
	}
}
