package proxy

import "time"

// Good values of a Pace.
const (
	DefaultWindow   = 10 * time.Millisecond
	DefaultMaxDelay = 40 * time.Millisecond
)

// Pace is how changes are gathered: one is written at once if nothing was for
// Window before it; else when nothing more has changed for Window, or after
// MaxDelay at the latest. Window 0 gathers only what changes while the plane
// writes.
type Pace struct{ Window, MaxDelay time.Duration }

// Due gives when to write what has changed: first and last are when the first and
// the last change came that are not written, written is when the last write ended.
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
