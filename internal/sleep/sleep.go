// Package sleep waits for a while that a context may cut short. Waits for events, and
// when to try again, are the callers' business.
package sleep

import (
	"context"
	"time"
)

// For waits for d, or until ctx is done, and reports whether all of d has passed.
func For(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
