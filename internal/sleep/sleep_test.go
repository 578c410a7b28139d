package sleep_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/internal/sleep"
)

// TestFor sleeps for the full duration, and then until its context ends.
func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if !sleep.For(t.Context(), time.Minute) || time.Since(began) != time.Minute {
			t.Errorf("slept for %v, want a minute", time.Since(began))
		}
		began = time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if sleep.For(ctx, time.Minute) || time.Since(began) != time.Second {
			t.Errorf("slept for %v, want a second, which the context lasts", time.Since(began))
		}
	})
}
