package daemon

import (
	"context"
	"testing"
	"time"
)

// TestNothingToServe checks that a process without sockets for monitoring goes on.
func TestNothingToServe(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Monitor{}.Serve(ctx, nil, nil) }()
	select {
	case err := <-ended:
		t.Fatalf("ended before its context: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
