package proxy

import "time"

// Default values of a Pace.
const (
	DefaultWindow   = 10 * time.Millisecond
	DefaultMaxDelay = 40 * time.Millisecond
)

// Pace controls how changes are batched: a change is written immediately if there was no
// write within Window before it; otherwise when nothing more has changed for Window, or
// after MaxDelay at the latest. With Window 0, only changes that arrive during a write
// are batched.
type Pace struct{ Window, MaxDelay time.Duration }

// Due returns when to write pending changes. first and last are the times of the first
// and last pending change; written is the end of the last write.
func (p Pace) Due(first, last, written time.Time) time.Time {
	if first.Sub(written) >= p.Window {
		return first
	}
	due, latest := last.Add(p.Window), first.Add(p.MaxDelay)
	if latest.Before(due) {
		return latest
	}
	return due
}
