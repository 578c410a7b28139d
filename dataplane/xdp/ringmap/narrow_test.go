package ringmap

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
)

// A narrow ring has the words from which it was packed, also if it is found in memory with
// something behind it. Words with too many different values, or that gain nothing, are not packed.
func TestPack(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, c := range []struct {
		slots, distinct int
		want            bool
	}{{251, 1, true}, {251, 100, true}, {251, 218, true}, {251, 219, false}, {1021, 256, true}, {1021, 257, false}, {16381, 256, true}, {1, 1, false}, {0, 0, false}} {
		words := make([]uint64, c.slots)
		for i := range words {
			if words[i] = uint64(i); i >= c.distinct {
				words[i] = rng.Uint64N(uint64(c.distinct))
			}
			words[i] *= 0x100000003
		}
		got, ok := pack(nil, words)
		if ok != c.want {
			t.Errorf("%d slots with %d different words: %v, want %v", c.slots, c.distinct, ok, c.want)
		}
		if !ok {
			continue
		}
		if want := (c.slots+7)/8 + c.distinct; len(got) != want {
			t.Errorf("%d slots with %d different words: %d words, want %d", c.slots, c.distinct, len(got), want)
		}
		memory := append(slices.Clone(got), 7, 8, 9)
		s := slotsOf(Ring{Entry: bpf.BalancerFrontend{Slots: uint32(c.slots), Scheduler: narrowBit}}, memory)
		if s.memory() != uint32(len(got)) || s.n != c.slots {
			t.Fatalf("%d slots: found %d words and %d slots", c.slots, s.memory(), s.n)
		}
		for i, w := range words {
			if s.at(i) != w {
				t.Fatalf("%d slots: slot %d is %x, want %x", c.slots, i, s.at(i), w)
			}
		}
		if short := slotsOf(Ring{Entry: bpf.BalancerFrontend{Slots: uint32(c.slots), Scheduler: narrowBit}}, got[:len(got)-1]); short.n != 0 {
			t.Errorf("%d slots: found in too little memory", c.slots)
		}
	}
}
