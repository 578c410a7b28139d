package rules

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/bench/testbed"
	"github.com/fairlead/fairlead/lab/kube"
	loop "github.com/fairlead/fairlead/reconciler/proxy"
)

// The figures of the slides' "Batch processing": what 10 pods behind each of the given
// number of Services cost their endpoints controller, in requests and seconds, before and
// after it batched changes for half a second.
const podsEach = 10

var batched = map[int]struct{ before, after, secondsBefore, secondsAfter float64 }{
	100: {551, 10, 8.5, 3.5}, 150: {785, 14, 13.5, 5.3}, 200: {1105, 17, 22.8, 7.8},
}

// slidesInterval is the batching interval of the slides.
const slidesInterval = 500 * time.Millisecond

// counting is a plane that records when each pod reaches the kernel.
type counting struct {
	proxy.Plane
	mu             sync.Mutex
	calls, entries int
	// added contains, for each Service, the times at which its pods were added to the
	// loop, in order. have is how many of them are programmed.
	added  map[netip.Addr][]time.Time
	have   map[netip.Addr]int
	delays []float64 // in milliseconds
}

// Apply implements proxy.Plane.
func (c *counting) Apply(set []proxy.Frontend, gone []proxy.Key) error {
	err := c.Plane.Apply(set, gone)
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	c.entries += len(set) + len(gone)
	for _, f := range set {
		for _, at := range c.added[f.Addr][c.have[f.Addr]:len(f.Inside.Targets)] {
			c.delays = append(c.delays, float64(now.Sub(at))/float64(time.Millisecond))
		}
		c.have[f.Addr] = len(f.Inside.Targets)
	}
	return err
}

// add records that a Service gets one more pod.
func (c *counting) add(a netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.added[a] = append(c.added[a], time.Now())
}

func (c *counting) programmed() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.delays)
}

// batches returns the rows of the slides' table: pods come up one after the other, at a
// fixed rate, behind Services that have none yet.
func (o Options) batches(ctx context.Context, g *testbed.Ground) (rows []bench.Row, err error) {
	for _, n := range o.Batches {
		if n == 0 {
			continue
		}
		for _, way := range []struct {
			name             string
			window, maxDelay time.Duration
			slides           func(int) (calls, seconds float64)
		}{
			{"not gathered", 0, 0, func(n int) (float64, float64) { return batched[n].before, batched[n].secondsBefore }},
			{fmt.Sprintf("gathered for %s, %s at most", o.Window, o.MaxDelay), o.Window, o.MaxDelay, nil},
			{fmt.Sprintf("gathered for %s", slidesInterval), slidesInterval, slidesInterval,
				func(n int) (float64, float64) { return batched[n].after, batched[n].secondsAfter }},
		} {
			c, took, err := o.comeUp(ctx, g, n, way.window, way.maxDelay)
			if err != nil {
				return rows, fmt.Errorf("%d pods in %d Services, %s: %w", podsEach, n, way.name, err)
			}
			row := func(text, unit string, values ...float64) bench.Row {
				r := bench.Plain(fmt.Sprintf("%d pods in %d Services, %s: %s", podsEach, n, way.name, text), unit, values...)
				r.Raw = nil
				return r
			}
			calls, all := row("times written", "times", float64(c.calls)), row("first pod added to all in the kernel", "s", took.Seconds())
			if _, known := batched[n]; known && way.slides != nil {
				requests, seconds := way.slides(n)
				calls, all = calls.ComparedWith("slides, requests:", requests), all.ComparedWith("slides:", seconds)
			}
			rows = append(rows, calls, row("entries written", "entries", float64(c.entries)), row("a pod added to in the kernel", "ms", c.delays...), all)
			fmt.Fprintf(o.Progress, "%d Services, %s: %d writes of %d entries\n", n, way.name, c.calls, c.entries)
		}
	}
	return rows, nil
}

// comeUp brings up the pods of n Services in random order, and waits until the kernel has
// all of them.
func (o Options) comeUp(ctx context.Context, g *testbed.Ground, n int, window, maxDelay time.Duration) (c *counting, took time.Duration, err error) {
	p := o.open(EBPF, g).(*plane)
	if err := p.fill(ctx, 0); err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, p.clear(ctx)) }()
	c = &counting{Plane: p.DataPlane, added: map[netip.Addr][]time.Time{}, have: map[netip.Addr]int{}}
	l := loop.New(loop.Config{Plane: c, Window: window, MaxDelay: maxDelay, Log: slog.New(slog.DiscardHandler)})
	l.SetNode(proxy.Node{Name: "node"})
	for i := range n {
		l.SetService(&proxy.Service{
			ID: idOf(i), ClusterIPs: []netip.Addr{kube.ServiceAddr(i)},
			Ports: []proxy.ServicePort{{Protocol: service.TCP, Port: testbed.ServicePort}},
		})
	}
	l.Loaded()
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- l.Run(running) }()
	defer func() { stop(); err = errors.Join(err, <-ended) }()
	if err := settled(ctx, func() bool { return l.View().Synced }); err != nil {
		return nil, 0, err
	}
	c.mu.Lock()
	c.calls, c.entries = 0, 0
	c.mu.Unlock()
	began := time.Now()
	if err := o.addPods(ctx, l, c, n); err != nil {
		return nil, 0, err
	}
	err = settled(ctx, func() bool { return c.programmed() == n*podsEach })
	return c, time.Since(began), err
}

// addPods brings up the pods at the rate.
func (o Options) addPods(ctx context.Context, l *loop.Loop, c *counting, n int) error {
	turns := make([]int, 0, n*podsEach)
	for i := range n * podsEach {
		turns = append(turns, i%n)
	}
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(turns), func(i, j int) { turns[i], turns[j] = turns[j], turns[i] })
	endpoints := make([][]proxy.Endpoint, n)
	tick := time.NewTicker(time.Second / time.Duration(o.Rate))
	defer tick.Stop()
	for _, i := range turns {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		up := proxy.Endpoint{Addr: kube.EndpointAddr(i*podsEach + len(endpoints[i])), Node: "another", Ready: true, Serving: true}
		endpoints[i] = append(endpoints[i][:len(endpoints[i]):len(endpoints[i])], up) // a slice passed to the loop must not be modified
		c.add(kube.ServiceAddr(i))
		id := idOf(i)
		l.SetSlice(&proxy.Slice{
			ID: proxy.SliceID{Namespace: id.Namespace, Name: id.Name + "-0"}, Service: id.Name,
			Ports: []proxy.SlicePort{{Protocol: service.TCP, Port: testbed.Port}}, Endpoints: endpoints[i],
		})
	}
	return nil
}

func idOf(i int) service.ID { return service.ID{Namespace: "default", Name: fmt.Sprintf("svc-%d", i)} }

// settled waits until a condition holds.
func settled(ctx context.Context, so func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for !so() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("timeout waiting for all pods in the kernel: %w", ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}
