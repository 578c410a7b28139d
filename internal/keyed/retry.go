package keyed

import "time"

// Backoff after failures: doubled from First to Last.
const (
	First = 100 * time.Millisecond
	Last  = 10 * time.Second
)

// Backoff returns the pause after that many consecutive failures.
func Backoff(tries int) time.Duration { return min(First<<min(tries-1, 10), Last) }

// Retry is a series of consecutive failures; the zero value is none.
type Retry struct {
	Err error
	// Since is when the first of Tries failures occurred.
	Since time.Time
	Tries int
	// Due is when to try again; zero after a failure: not before the wish changes.
	Due time.Time
}

// Settle records a result; nil ends the series.
func (r *Retry) Settle(err error, now time.Time) {
	if err == nil {
		*r = Retry{}
		return
	}
	if r.Tries++; r.Tries == 1 {
		r.Since = now
	}
	r.Err, r.Due = err, now.Add(Backoff(r.Tries))
}

// Ready reports whether the next try is due.
func (r *Retry) Ready(now time.Time) bool { return !now.Before(r.Due) }

// Sooner returns the earlier time. Zero means never.
func Sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
