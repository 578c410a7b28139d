package kubeproxy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// pending contains the changes that the API server has acknowledged and the kernel does
// not have yet.
type pending struct {
	mu     sync.Mutex
	pairs  []pair
	since  []time.Time
	delays []float64 // of the completed changes, in milliseconds
}

func (p *pending) add(made pair) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pairs, p.since = append(p.pairs, made), append(p.since, time.Now())
}

// look records the changes that have reached the kernel, and returns how many have not.
func (p *pending) look(s subject) (left int, err error) {
	p.mu.Lock()
	pairs := p.pairs
	p.mu.Unlock()
	if len(pairs) == 0 {
		return 0, nil
	}
	held, err := s.held(pairs)
	if err != nil {
		return 0, err
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	// Changes added meanwhile are at the end of the list, after those that were looked
	// up. A completed change of a Service also completes that Service's earlier changes.
	past := map[netip.Addr]bool{}
	var rest pending
	for i := len(p.pairs) - 1; i >= 0; i-- {
		made, since := p.pairs[i], p.since[i]
		if past[made.service] || i < len(held) && held[i] {
			past[made.service] = true
			p.delays = append(p.delays, milliseconds(now.Sub(since)))
			continue
		}
		rest.pairs, rest.since = append(rest.pairs, made), append(rest.since, since)
	}
	slices.Reverse(rest.pairs)
	slices.Reverse(rest.since)
	p.pairs, p.since = rest.pairs, rest.since
	return len(p.pairs), nil
}

// watch looks until ctx ends and no change is pending.
func (p *pending) watch(ctx context.Context, s subject) error {
	deadline := time.Time{}
	for {
		left, err := p.look(s)
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			if left == 0 {
				return nil
			}
			if deadline.IsZero() {
				deadline = time.Now().Add(changeLimit)
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("%d changes are not in the kernel after %s", left, changeLimit)
			}
		}
		time.Sleep(max(s.pause(), time.Millisecond))
	}
}

// churn makes changes at a constant rate, and measures the proxy's CPU time and the delay
// of each change.
func (m *meter) churn(ctx context.Context) error {
	var p pending
	changing, stop := context.WithCancel(ctx)
	defer stop()
	watched := make(chan error, 1)
	go func() { watched <- p.watch(changing, m.subject) }()
	before, err := cpuOf(m.subject.program())
	if err != nil {
		return err
	}
	began := time.Now()
	err = m.makeChanges(ctx, &p, began.Add(m.Duration))
	took := time.Since(began)
	after, failed := cpuOf(m.subject.program())
	stop()
	if err := errors.Join(err, failed, <-watched, ctx.Err()); err != nil {
		return err
	}
	m.into.add("churn cpu", 100*(after-before).Seconds()/took.Seconds())
	m.into.add("churn", p.delays...)
	m.logf("%d changes in %.1f s: %.1f %% of a processor; p50 %.1f ms, p99 %.1f ms", len(p.delays), took.Seconds(),
		m.into["churn cpu"][0], percentile(p.delays, 50), percentile(p.delays, 99))
	if rate := float64(len(p.delays)) / took.Seconds(); rate < 0.95*float64(m.Rate) {
		m.note("%s among %d: the API server took %.0f changes a second, not %d", m.subject.name(), m.cluster.services, rate, m.Rate)
	}
	return m.recordAgent(ctx, Churn)
}

// makeChanges makes changes at the rate until the given time.
func (m *meter) makeChanges(ctx context.Context, p *pending, until time.Time) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	tick := time.NewTicker(time.Second / time.Duration(m.Rate))
	defer tick.Stop()
	for i := 0; time.Now().Before(until) && ctx.Err() == nil; i++ {
		<-tick.C
		group.Go(func() error {
			made, err := m.cluster.changeEndpoint(ctx, m.cluster.scattered(m.Changes+i))
			if err == nil {
				p.add(made)
			}
			return err
		})
	}
	return group.Wait()
}
