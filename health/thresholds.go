package health

// Tracker turns the outcomes of probes into a State, as keepalived does. Its
// zero value has seen nothing. It is a value: Next gives the one after.
type Tracker struct {
	State State
	// Against counts the outcomes in a row that speak against State.
	Against int
}

// Next gives the Tracker after one more probe. The very first probe decides
// alone; from then on rise good ones in a row are needed to come up and fall
// bad ones to go down. Thresholds below 1 count as 1.
func (t Tracker) Next(good bool, rise, fall int) Tracker {
	switch {
	case t.State == Unknown && good:
		return Tracker{State: Up}
	case t.State == Unknown:
		return Tracker{State: Down}
	case good == (t.State == Up):
		return Tracker{State: t.State}
	}
	t.Against++
	if good && t.Against >= rise {
		return Tracker{State: Up}
	}
	if !good && t.Against >= fall {
		return Tracker{State: Down}
	}
	return t
}
