package growth

import "testing"

var sink int

// TestRatio distinguishes linear from quadratic work.
func TestRatio(t *testing.T) {
	Linear(t, 20000, func(size int) func() {
		return func() {
			for i := range 50 * size {
				sink += i & 3
			}
		}
	})
	quadratic := ratio(200, func(size int) func() {
		return func() {
			for i := range size {
				for j := range size {
					sink += i ^ j
				}
			}
		}
	})
	if quadratic <= allowed {
		t.Errorf("quadratic work costs %.1f times as much each", quadratic)
	}
}
