package daemon

import (
	"context"
	"testing"
	"testing/synctest"
)

// TestMonitorWithoutSockets serves nothing until it is canceled: its end stops an agent.
func TestMonitorWithoutSockets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := false
		go func() {
			_ = Monitor{}.Serve(ctx, nil, nil)
			ended = true
		}()
		synctest.Wait()
		if ended {
			t.Error("it ended at once")
		}
		cancel()
		synctest.Wait()
		if !ended {
			t.Error("it does not end")
		}
	})
}
