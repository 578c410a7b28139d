package guard

import (
	"testing"
)

// Buckets have the specified depth, in the units of their clocks.
func TestBucket(t *testing.T) {
	for _, c := range []struct {
		rate        uint32
		step, depth uint64
	}{{0, 0, 0}, {1, 16_000_000, 128_000_000}, {1000, 16000, 1_600_000}, {1 << 31, 0, 0}} {
		if step, depth := bucket(c.rate, clientClock); step != c.step || depth != c.depth {
			t.Errorf("%d a second: %d, %d", c.rate, step, depth)
		}
	}
	if batch(10) != 1 || batch(1<<30) != 32 {
		t.Errorf("batches of %d and %d", batch(10), batch(1<<30))
	}
}
