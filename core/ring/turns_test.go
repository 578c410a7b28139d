package ring

import (
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
		{[]uint32{1, 3}, []ID{2, 2, 1, 2}}, // from ns-2's IPVS
		{[]uint32{4, 8, 2}, []ID{2, 2, 1, 2, 1, 2, 3}},
		{[]uint32{5, 1, 1}, []ID{1, 1, 1, 1, 1, 2, 3}},
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

// ipvs selects servers one at a time, as the kernel's module ip_vs_wrr is described: it
// walks over the servers repeatedly, with a current weight that decreases by the
// greatest common divisor on each pass, and takes those with at least this weight.
type ipvs struct {
	weights       []uint32
	at            int
	current, most uint32
	divisor       uint32
}

func newIPVS(weights []uint32) *ipvs {
	s := &ipvs{weights: weights, at: -1, most: slices.Max(weights)}
	for s.divisor = s.most; slices.ContainsFunc(weights, func(w uint32) bool { return w%s.divisor != 0 }); {
		s.divisor--
	}
	s.current = s.most
	return s
}

func (s *ipvs) next() ID {
	for {
		if s.at++; s.at == len(s.weights) {
			s.at = 0
			if s.current -= s.divisor; s.current == 0 {
				s.current = s.most
			}
		}
		if s.weights[s.at] >= s.current {
			return ID(s.at + 1)
		}
	}
}

// FuzzWeightedRoundRobin compares two rounds with IPVS's selections.
func FuzzWeightedRoundRobin(f *testing.F) {
	f.Add([]byte{1, 3})
	f.Add([]byte{0, 20, 10, 0, 30, 255})
	f.Fuzz(func(t *testing.T, weights []byte) {
		ms := members(min(len(weights), 15))
		all := make([]uint32, len(ms))
		for i := range ms {
			all[i] = uint32(weights[i])
			ms[i].Weight = all[i]
		}
		slots := ids(WeightedRoundRobin(ms))
		if len(slots) == 0 {
			if slices.ContainsFunc(all, func(w uint32) bool { return w > 0 }) {
				t.Fatalf("weights %v: no slots", all)
			}
			return
		}
		reference := newIPVS(all)
		for i := range 2 * len(slots) {
			if got, want := slots[i%len(slots)], reference.next(); got != want {
				t.Fatalf("weights %v: turn %d is %d, want %d: %v", all, i, got, want, slots)
			}
		}
	})
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
