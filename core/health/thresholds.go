package health

import "github.com/fairlead/fairlead/core/service"

// Tracker turns probe results into a State, like keepalived. The zero value has no
// results. A Tracker is a value: Next returns its successor.
type Tracker struct {
	State State
	// Against counts consecutive results that contradict State.
	Against int
	// Bad counts consecutive failures since the Target went Down.
	Bad int
}

// Next returns the Tracker after one more probe. The first probe decides immediately.
// After that, Rise consecutive successes are needed to come up and Fall consecutive
// failures to go down, and then as many failures as fit in Drain until the Target is
// Gone. Thresholds below 1 count as 1.
func (t Tracker) Next(good bool, c service.HealthCheck) Tracker {
	switch {
	case good && t.State == Up:
		return Tracker{State: Up}
	case good:
		t.Bad = 0
		if t.Against++; t.State == Unknown || t.Against >= c.Rise {
			return Tracker{State: Up}
		}
		return t
	case t.State == Up:
		if t.Against++; t.Against < c.Fall {
			return t
		}
		return down(Tracker{State: Down}, c)
	case t.State == Removed:
		return Tracker{State: Removed}
	case t.State == Unknown:
		return down(Tracker{State: Down}, c)
	}
	return down(Tracker{State: Down, Bad: t.Bad + 1}, c)
}

// down returns t, or a Gone Tracker if the drain timeout has passed.
func down(t Tracker, c service.HealthCheck) Tracker {
	if int64(t.Bad)*int64(max(c.Interval, service.MinInterval)) >= int64(c.Drain) {
		return Tracker{State: Removed}
	}
	return t
}
