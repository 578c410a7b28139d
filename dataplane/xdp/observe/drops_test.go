package observe

import (
	"testing"
)

func TestSampleMask(t *testing.T) {
	for every, want := range map[uint32]uint32{0: 0, 1: 0, 2: 1, 3: 3, 16: 15, 17: 31, 1 << 31: 1<<31 - 1, 1<<32 - 1: 1<<31 - 1} {
		if got := sampleMask(every); got != want {
			t.Errorf("one of %d: mask %#x, want %#x", every, got, want)
		}
	}
}
