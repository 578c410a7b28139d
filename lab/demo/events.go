package demo

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/lab/topology"
)

// change is one event: prepare what does not belong to it, do it, and determine when it
// has converged.
type change struct {
	name string
	// prepare creates what must exist before; it returns the pod that the event is about.
	prepare func(ctx context.Context) (topology.Pod, error)
	// expect records the expected state after the event, before the clock starts.
	expect func(pod topology.Pod)
	// do is the event itself; the clock starts with it.
	do func(pod topology.Pod) error
	// converged reports whether the system has reached the expected state.
	converged func(ctx context.Context, pod topology.Pod) bool
	// pace is how often converged is called.
	pace time.Duration
	// after cleans up when the event has been measured.
	after func(pod topology.Pod) error
}

// mainService is the service of the events.
const mainService = 0

// changes are the events in order.
func (c *system) changes() []change {
	const tablePace, statusPace = time.Millisecond, 10 * time.Millisecond
	routed := func(context.Context, topology.Pod) bool { return c.RouterHas(mainService, c.NextHops(mainService)) }
	leave := func(pod topology.Pod) { c.Forget(pod.Name) }
	remove := func(pod topology.Pod) error { return c.RemovePod(pod.Name) }
	return []change{
		{name: AddBalancer, pace: tablePace, converged: routed,
			prepare: func(ctx context.Context) (topology.Pod, error) { return c.AddBalancer(ctx, mainService) },
			do:      func(pod topology.Pod) error { return c.StartBalancer(pod) }},
		{name: RemoveBalancer, pace: tablePace, converged: routed, prepare: c.oneOfTwo, expect: leave,
			do: func(pod topology.Pod) error { return c.Process(pod.Name).Signal(syscall.SIGTERM) },
			after: func(pod topology.Pod) error {
				<-c.Process(pod.Name).Done()
				return remove(pod)
			}},
		// The network of a killed container is removed a little later, when its runtime
		// notices.
		{name: KillBalancer, pace: tablePace, converged: routed, prepare: c.oneOfTwo, expect: leave,
			do:    func(pod topology.Pod) error { return c.Process(pod.Name).Kill() },
			after: remove},
		{name: CutBalancer, pace: tablePace, converged: routed, prepare: c.oneOfTwo, expect: leave,
			do:    func(pod topology.Pod) error { return c.Lab.Cut(pod.Name, topology.Dev) },
			after: remove},
		{name: AddServer, pace: statusPace,
			prepare:   func(ctx context.Context) (topology.Pod, error) { return c.AddServer(ctx, mainService) },
			do:        func(topology.Pod) error { return c.writeManifests(mainService) },
			converged: c.serves},
		{name: DrainServer, pace: statusPace, prepare: c.firstServer,
			expect:    func(pod topology.Pod) { c.draining[pod.Name] = true },
			do:        func(topology.Pod) error { return c.writeManifests(mainService) },
			converged: c.drains},
		{name: KillServer, pace: statusPace, prepare: c.firstServer, do: remove, converged: c.withdrew},
	}
}

// oneOfTwo returns the oldest load balancer. If it is the only one, it first starts
// another, as an operator would.
func (c *system) oneOfTwo(ctx context.Context) (topology.Pod, error) {
	for len(c.Balancers(mainService)) < 2 {
		if _, err := c.Route(ctx, mainService); err != nil {
			return topology.Pod{}, err
		}
	}
	return c.Balancers(mainService)[0], nil
}

// firstServer returns the first backend that does not drain.
func (c *system) firstServer(context.Context) (topology.Pod, error) {
	for _, pod := range c.Servers(mainService) {
		if !c.draining[pod.Name] {
			return pod, nil
		}
	}
	return topology.Pod{}, fmt.Errorf("no server is left: increase --servers")
}

// serves, drains and withdrew report whether every load balancer's data plane gives a
// backend new flows, keeps only its old ones, or at least gives it no new ones.
func (c *system) serves(ctx context.Context, pod topology.Pod) bool {
	return c.inService(ctx, pod, func(b *status.Backend) bool { return b != nil && b.InService && b.ProgrammedWeight > 0 })
}

func (c *system) drains(ctx context.Context, pod topology.Pod) bool {
	return c.inService(ctx, pod, func(b *status.Backend) bool { return b != nil && b.InService && b.Draining })
}

func (c *system) withdrew(ctx context.Context, pod topology.Pod) bool {
	return c.inService(ctx, pod, func(b *status.Backend) bool { return b == nil || !b.InService || b.Draining })
}

func (c *system) inService(ctx context.Context, pod topology.Pod, good func(*status.Backend) bool) bool {
	return c.EveryBalancer(ctx, mainService, func(s status.Status) bool {
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
