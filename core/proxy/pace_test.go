package proxy

import (
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	usual := Pace{DefaultWindow, DefaultMaxDelay}
	for _, c := range []struct {
		says                       string
		pace                       Pace
		first, last, written, want time.Time
	}{
		{"nothing was ever written", usual, at(5), at(7), time.Time{}, at(5)},
		{"nothing for a window before", usual, at(10), at(10), at(0), at(10)},
		{"one change soon after a write", usual, at(9), at(9), at(0), at(19)},
		{"the last of some", usual, at(3), at(20), at(0), at(30)},
		{"as late as it may be", usual, at(3), at(34), at(0), at(43)},
		{"no gathering", Pace{0, DefaultMaxDelay}, at(0), at(9), at(0), at(0)},
		{"came while the plane wrote", Pace{0, DefaultMaxDelay}, at(3), at(4), at(5), at(4)},
	} {
		if got := c.pace.Due(c.first, c.last, c.written); !got.Equal(c.want) {
			t.Errorf("%s: due at %s, want %s", c.says, got.Sub(start), c.want.Sub(start))
		}
	}
}
