package endpoints

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// partition compares one object for all endpoints of a Service (Endpoints) with several
// (EndpointSlices, at most 100 endpoints each). Both controllers run at the same time.
func (e *experiment) partition(ctx context.Context, c *controlPlane) (err error) {
	e.Note("bytes are those of one watch in protobuf; requests are writes of kube-controller-manager, without a batch period and a rate limit")
	m, err := c.manage(ctx, 0, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Stop()) }()
	for _, n := range e.Sizes {
		for round := range e.Rounds {
			e.logf("%d pods of one Service, round %d of %d", n, round+1, e.Rounds)
			if err := e.partitionOf(ctx, c, n); err != nil {
				return fmt.Errorf("%d endpoints: %w", n, err)
			}
		}
	}
	return nil
}

// partitionOf measures one Service, whose pods become ready, and then change.
func (e *experiment) partitionOf(ctx context.Context, c *controlPlane, n int) (err error) {
	r, err := c.newRun(ctx, 1, n)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.end(ctx)) }()
	feeds, meters := map[string]*feed{}, map[string]*meter{}
	for _, kind := range kinds {
		if feeds[kind], err = r.follow(ctx, kind); err != nil {
			return err
		}
		defer feeds[kind].close()
		if meters[kind], err = r.meter(ctx, kind); err != nil {
			return err
		}
		defer meters[kind].close()
	}
	before, err := r.prepare(ctx, feeds)
	if err != nil {
		return err
	}
	if err := r.comeUp(ctx, e.Rate); err != nil {
		return err
	}
	after, objects, err := r.settled(ctx, feeds, n)
	if err != nil {
		return err
	}
	for _, kind := range kinds {
		name := fmt.Sprintf("%s, %d pods: ", kind, n)
		e.add(name+"objects", "objects", objects[kind])
		e.add(name+"requests until all are ready", "requests", after[kind]-before[kind])
		e.add(name+"bytes until all are ready", "bytes", meters[kind].read())
	}
	return e.changes(ctx, r, feeds, meters)
}

// settled waits until so many endpoints are ready and the controllers are done.
func (r *run) settled(ctx context.Context, feeds map[string]*feed, ready int) (writes, objects map[string]float64, err error) {
	objects = map[string]float64{}
	for kind, f := range feeds {
		if _, err := f.await(ctx, 1, ready); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", kind, err)
		}
		f.mu.Lock()
		objects[kind] = float64(len(f.objects))
		f.mu.Unlock()
	}
	writes, err = r.settledWrites(ctx, idle/4)
	return writes, objects, err
}

// changes makes one pod unready and ready again, several times.
func (e *experiment) changes(ctx context.Context, r *run, feeds map[string]*feed, meters map[string]*meter) error {
	writes, _, err := r.settled(ctx, feeds, r.pods)
	if err != nil {
		return err
	}
	for i := range e.Changes {
		read := map[string]float64{}
		for kind, m := range meters {
			read[kind] = m.read()
		}
		status, ready := "False", r.pods-1
		if i%2 == 1 {
			status, ready = "True", r.pods
		}
		if err := r.setReady(ctx, 0, status); err != nil {
			return err
		}
		after, _, err := r.settled(ctx, feeds, ready)
		if err != nil {
			return err
		}
		time.Sleep(idle / 10) // the meters may be behind the feeds
		for _, kind := range kinds {
			name := fmt.Sprintf("%s, %d pods: ", kind, r.pods)
			e.add(name+"requests of one change", "requests", after[kind]-writes[kind])
			e.add(name+"bytes of one change", "bytes", meters[kind].read()-read[kind])
		}
		writes = after
	}
	return nil
}
