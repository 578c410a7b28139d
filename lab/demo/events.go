package demo

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/lab/paper"
	"github.com/fairlead/fairlead/status"
)

// change is one event: prepare what does not belong to it, do it, and say when
// it has converged.
type change struct {
	name string
	// prepare does what must be there before; it gives whom the event is about.
	prepare func(ctx context.Context) (paper.Pod, error)
	// expect notes what is to be true afterwards, before the clock starts.
	expect func(pod paper.Pod)
	// do is the event itself; the clock runs from its start.
	do func(pod paper.Pod) error
	// converged says whether the world is as it should be after it.
	converged func(ctx context.Context, pod paper.Pod) bool
	// pace is how often converged is asked.
	pace time.Duration
	// after cleans up once the event was measured.
	after func(pod paper.Pod) error
}

// mainService is the one that the events happen to.
const mainService = 0

// changes are the events in their order.
func (c *cluster) changes() []change {
	const tablePace, statusPace = time.Millisecond, 10 * time.Millisecond
	routed := func(context.Context, paper.Pod) bool { return c.routerHas(mainService, c.nextHops(mainService)) }
	leave := func(pod paper.Pod) { c.forget(pod.Name) }
	remove := func(pod paper.Pod) error { return c.removePod(pod.Name) }
	return []change{
		{name: AddBalancer, pace: tablePace, converged: routed,
			prepare: func(ctx context.Context) (paper.Pod, error) { return c.addBalancer(ctx, mainService) },
			do:      c.startBalancer},
		{name: RemoveBalancer, pace: tablePace, converged: routed, prepare: c.oneOfTwo, expect: leave,
			do: func(pod paper.Pod) error { return c.process(pod.Name).Signal(syscall.SIGTERM) },
			after: func(pod paper.Pod) error {
				<-c.process(pod.Name).Done()
				return remove(pod)
			}},
		// A killed container's network goes a little later, when its runtime
		// notices.
		{name: KillBalancer, pace: tablePace, converged: routed, prepare: c.oneOfTwo, expect: leave,
			do:    func(pod paper.Pod) error { return c.process(pod.Name).Kill() },
			after: remove},
		{name: CutBalancer, pace: tablePace, converged: routed, prepare: c.oneOfTwo, expect: leave,
			do:    func(pod paper.Pod) error { return c.lab.Cut(pod.Name, paper.Dev) },
			after: remove},
		{name: AddServer, pace: statusPace, prepare: c.newServer,
			do:        func(paper.Pod) error { return c.writeManifests(mainService) },
			converged: c.serves},
		{name: DrainServer, pace: statusPace, prepare: c.firstServer,
			expect:    func(pod paper.Pod) { c.draining[pod.Name] = true },
			do:        func(paper.Pod) error { return c.writeManifests(mainService) },
			converged: c.drains},
		{name: KillServer, pace: statusPace, prepare: c.firstServer, do: remove, converged: c.withdrew},
	}
}

// oneOfTwo gives the balancer that came first, after a new one was started
// where it is the only one, as whoever keeps their number would.
func (c *cluster) oneOfTwo(ctx context.Context) (paper.Pod, error) {
	for len(c.pods(true, mainService)) < 2 {
		if err := c.oneMoreBalancer(ctx, mainService); err != nil {
			return paper.Pod{}, err
		}
	}
	return c.pods(true, mainService)[0], nil
}

// oneMoreBalancer starts one and waits until the router knows it.
func (c *cluster) oneMoreBalancer(ctx context.Context, service int) error {
	pod, err := c.addBalancer(ctx, service)
	if err != nil {
		return err
	}
	if err := c.startBalancer(pod); err != nil {
		return err
	}
	_, ok := await(ctx, time.Millisecond, startLimit, func() bool { return c.routerHas(service, c.nextHops(service)) })
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !ok {
		return fmt.Errorf("the router never learnt of balancer %s: %s", pod.Name, lastLines(c.logFile(pod.Name)))
	}
	return nil
}

// newServer starts a server that no balancer knows of yet.
func (c *cluster) newServer(ctx context.Context) (paper.Pod, error) {
	c.mu.Lock()
	pod, part := c.net.AddServer(mainService)
	c.mu.Unlock()
	if err := c.lab.Add(ctx, part); err != nil {
		return pod, err
	}
	return pod, c.serve(pod)
}

// firstServer gives the first server that does not drain.
func (c *cluster) firstServer(context.Context) (paper.Pod, error) {
	for _, pod := range c.pods(false, mainService) {
		if !c.draining[pod.Name] {
			return pod, nil
		}
	}
	return paper.Pod{}, fmt.Errorf("no server is left: start with more")
}

// serves, drains and withdrew say whether every balancer's data plane gives a
// server new flows, keeps only its old ones, or has let go of it.
func (c *cluster) serves(ctx context.Context, pod paper.Pod) bool {
	return c.inService(ctx, pod, func(b *status.Backend) bool { return b != nil && b.InService && !b.Draining })
}

func (c *cluster) drains(ctx context.Context, pod paper.Pod) bool {
	return c.inService(ctx, pod, func(b *status.Backend) bool { return b != nil && b.InService && b.Draining })
}

func (c *cluster) withdrew(ctx context.Context, pod paper.Pod) bool {
	return c.inService(ctx, pod, func(b *status.Backend) bool { return b == nil || !b.InService })
}

func (c *cluster) inService(ctx context.Context, pod paper.Pod, good func(*status.Backend) bool) bool {
	return c.everyBalancer(ctx, mainService, func(s status.Status) bool {
		var found *status.Backend
		for _, svc := range s.Services {
			for _, f := range svc.Frontends {
				i := slices.IndexFunc(f.Backends, func(b status.Backend) bool { return b.Address.Addr() == pod.Addr })
				if i >= 0 {
					found = &f.Backends[i]
				}
			}
		}
		return good(found)
	})
}
