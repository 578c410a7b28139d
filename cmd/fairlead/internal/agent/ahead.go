package agent

import (
	"context"
	"sync"

	"github.com/fairlead/fairlead/source"
)

// ahead is a source that starts before its snapshots are needed, so that Services are
// read while programs load. The latest snapshot waits for Run.
type ahead struct {
	stop  context.CancelFunc
	ended chan struct{}
	err   error // valid once ended

	mu      sync.Mutex
	latest  *source.Snapshot
	publish func(source.Snapshot)
}

// begin starts a source. snapshots says whether snapshots will be needed.
func begin(of source.Source, snapshots bool) *ahead {
	ctx, stop := context.WithCancel(context.Background())
	a := &ahead{stop: stop, ended: make(chan struct{})}
	take := a.take
	if !snapshots {
		take = nil
	}
	go func() {
		defer close(a.ended)
		a.err = of.Run(ctx, take)
	}()
	return a
}

func (a *ahead) take(s source.Snapshot) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.latest = &s; a.publish != nil {
		a.publish(s)
	}
}

// Run implements source.Source.
func (a *ahead) Run(ctx context.Context, publish func(source.Snapshot)) error {
	a.mu.Lock()
	if a.publish = publish; a.latest != nil {
		publish(*a.latest)
	}
	a.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-a.ended:
	}
	return a.close()
}

// close stops the source and returns its error.
func (a *ahead) close() error {
	a.stop()
	<-a.ended
	return a.err
}
