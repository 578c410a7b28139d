package endpoints

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// idle is how long no request means that the controllers are done. It is longer than a
// batch period.
const idle = time.Second

// batching makes pods ready behind Services, with and without a batch period, in
// alternation.
func (e *experiment) batching(ctx context.Context, c *controlPlane) error {
	e.Note("kube-controller-manager with its two controllers of endpoints, five workers each; %d pods of each Service, %d become ready per second, one Service after the other; requests are writes of Endpoints and of EndpointSlices", e.Pods, e.Rate)
	for round := range e.Rounds {
		for _, limit := range e.Limits {
			for _, n := range e.Services {
				for i := range 2 {
					period := time.Duration((i+round)%2) * e.Period
					counts, took, err := c.batch(ctx, e.Options, n, period, limit)
					if err != nil {
						return fmt.Errorf("%d Services, period %s: %w", n, period, err)
					}
					for _, kind := range kinds {
						name := batchName(kind, n, limit, period)
						e.add(name+": requests", "requests", counts[kind])
						e.add(name+": all known", "s", took[kind])
						e.logf("%s: %g requests, %.1f s", name, counts[kind], took[kind])
					}
				}
			}
		}
	}
	return nil
}

func batchName(kind string, services, limit int, period time.Duration) string {
	name := fmt.Sprintf("%s, %d Services", kind, services)
	if limit > 0 {
		name += fmt.Sprintf(", %d requests/s at most", limit)
	}
	return fmt.Sprintf("%s, period %s", name, period)
}

// batch returns the write requests for each kind, and the seconds from the first ready pod
// until all endpoints are known.
func (c *controlPlane) batch(ctx context.Context, o Options, services int, period time.Duration, limit int) (requests, seconds map[string]float64, err error) {
	r, err := c.newRun(ctx, services, o.Pods)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, r.end(ctx)) }()
	m, err := c.manage(ctx, period, limit)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, m.Stop()) }()
	feeds := map[string]*feed{}
	for _, kind := range kinds {
		if feeds[kind], err = r.follow(ctx, kind); err != nil {
			return nil, nil, err
		}
		defer feeds[kind].close()
	}
	before, err := r.prepare(ctx, feeds)
	if err != nil {
		return nil, nil, err
	}
	began := time.Now()
	if err := r.comeUp(ctx, o.Rate); err != nil {
		return nil, nil, err
	}
	seconds = map[string]float64{}
	for kind, f := range feeds {
		at, err := f.await(ctx, services, services*o.Pods)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", kind, err)
		}
		seconds[kind] = at.Sub(began).Seconds()
	}
	if requests, err = c.settledWrites(ctx, idle); err != nil {
		return nil, nil, err
	}
	for _, kind := range kinds {
		requests[kind] -= before[kind]
	}
	return requests, seconds, nil
}

// prepare creates the Services, and returns the writes up to now as soon as the
// controllers have created an object without endpoints for each.
func (r *run) prepare(ctx context.Context, feeds map[string]*feed) (map[string]float64, error) {
	if err := r.createServices(ctx); err != nil {
		return nil, err
	}
	for kind, f := range feeds {
		if _, err := f.await(ctx, r.services, 0); err != nil {
			return nil, fmt.Errorf("%s without endpoints: %w", kind, err)
		}
	}
	return r.settledWrites(ctx, idle)
}
