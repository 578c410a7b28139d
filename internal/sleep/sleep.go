// Package sleep provides a sleep that a context can interrupt. Waiting for events and retry
// intervals are up to the callers.
package sleep

import (
	"context"
	"math/rand/v2"
	"time"
)

// For waits for d or until ctx is done, and reports whether d has fully elapsed.
func For(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// About is For with a duration that is up to a quarter longer or shorter, so that many
// processes do not synchronize.
func About(ctx context.Context, d time.Duration) bool {
	return For(ctx, time.Duration(float64(d)*(0.75+rand.Float64()/2)))
}
