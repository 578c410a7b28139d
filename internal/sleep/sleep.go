// Package sleep provides a sleep that a context can interrupt. Waiting for events and retry
// intervals are up to the callers.
package sleep

import (
	"context"
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
