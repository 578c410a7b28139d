package health

import "github.com/fairlead/fairlead/core/service"

// Tracker turns the outcomes of probes into a State, as keepalived does. Its
// zero value has seen nothing. It is a value: Next gives the one after.
type Tracker struct {
	State State
	// Against counts the outcomes in a row that speak against State.
	Against int
	// Bad counts the bad ones in a row since it went Down.
	Bad int
}

// Next gives the Tracker after one more probe. The very first probe decides
// alone; from then on Rise good ones in a row are needed to come up and Fall
// bad ones to go down, and then as many as there is time for in Drain until it is
// gone. Thresholds below 1 count as 1.
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
	case t.State == Gone:
		return Tracker{State: Gone}
	case t.State == Unknown:
		return down(Tracker{State: Down}, c)
	}
	return down(Tracker{State: Down, Bad: t.Bad + 1}, c)
}

// down gives one that is down, or gone if its time is over.
func down(t Tracker, c service.HealthCheck) Tracker {
	if int64(t.Bad)*int64(max(c.Interval, service.MinInterval)) >= int64(c.Drain) {
		return Tracker{State: Gone}
	}
	return t
}
