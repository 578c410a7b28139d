package scenario

import (
	"context"
	"math"
	"slices"

	"github.com/fairlead/fairlead/lab/sim"
)

// outcome is the result of one seed.
type outcome struct {
	s *Scenario
	// until is the simulated time, in seconds.
	until float64
	total tally
	bins  []tally
	spans []tally // between events
	watch *watch
	// By name: what a load balancer or a server received, and what was lost there.
	shares map[string]portion
	tables []found
}

// found contains the statistics of a load balancer's table for a service.
type found struct {
	balancer, service string
	buckets           int
	sim.Chains
}

type portion struct {
	got, lost float64
	bins      []float64
}

// lingers is how long replies to single packets are awaited at the end, in seconds.
const lingers = 1

// mostStep is the maximum simulated time, in seconds, between checks for an interruption.
const mostStep = 1

// run simulates one seed. If it is interrupted, it returns the partial outcome and the
// context's error. progress receives the progress from 0 to 1.
func (s *Scenario) run(ctx context.Context, seed uint32, progress func(float64)) (*outcome, error) {
	if s.Clock == Compat {
		return run[sim.Seconds](ctx, s, seed, progress)
	}
	return run[sim.Nanoseconds](ctx, s, seed, progress)
}

func run[T sim.Time](ctx context.Context, s *Scenario, seed uint32, progress func(float64)) (*outcome, error) {
	n, err := build[T](s, seed)
	if err != nil {
		return nil, err
	}
	o := &outcome{s: s, watch: n.watch, shares: map[string]portion{}}
	before, step := newTally(s), 0
	for _, end := range n.watch.bounds {
		for o.until < end && ctx.Err() == nil {
			if o.until = float64(step+1) * min(s.Interval/10, mostStep); o.until < end {
				step++
			} else {
				o.until = end
			}
			if err := n.Run(o.until); err != nil {
				return nil, err
			}
			progress(o.until / s.Duration)
		}
		now := n.tally()
		o.spans, before = append(o.spans, now.minus(before)), now
		if ctx.Err() != nil {
			break
		}
	}
	if udp := func(l Load) bool { return l.Protocol == UDP }; ctx.Err() == nil && slices.ContainsFunc(s.Load, udp) {
		if err := n.Run(s.Duration + lingers); err != nil {
			return nil, err
		}
	}
	n.sum(o)
	return o, ctx.Err()
}

// everybody visits each node. For clients, it passes the index of their load.
func (n *site[T]) everybody(each func(node sim.Node, load *int)) {
	for i := range n.s.Load {
		for _, name := range n.s.find(n.s.Load[i].From) {
			each(n.nodes[name], &i)
		}
	}
	for _, name := range slices.Concat(n.routers, n.balancers, n.servers) {
		for _, node := range n.parts(name) {
			each(node, nil)
		}
	}
	for i := range n.s.Topology.LANs {
		if l := &n.s.Topology.LANs[i]; l.Kind == Switched {
			each(n.nodes[l.Name], nil)
		}
	}
}

// tally sums up all counts so far.
func (n *site[T]) tally() tally {
	t := newTally(n.s)
	n.everybody(func(node sim.Node, load *int) { t.add(n.s, load, n.At(node)) })
	return t
}

// sum fills in the network's counts. An incomplete interval is omitted.
func (n *site[T]) sum(o *outcome) {
	o.total = n.tally()
	o.bins = make([]tally, int(math.Floor(o.until/n.s.Interval*(1+1e-12))))
	for i := range o.bins {
		o.bins[i] = newTally(n.s)
	}
	n.everybody(func(node sim.Node, load *int) {
		for i, c := range n.Bins(node) {
			if i < len(o.bins) {
				o.bins[i].add(n.s, load, c)
			}
		}
	})
	for _, name := range slices.Concat(n.balancers, n.servers) {
		p := portion{bins: make([]float64, len(o.bins))}
		for _, node := range n.parts(name) {
			c := n.At(node)
			p.lost += float64(c.Lost())
			if n.s.who[name].group.Role == Balancer && len(n.fronts[name]) > 1 && node == n.nodes[name] {
				continue // its parts have counted them
			}
			p.got += float64(c.Got)
			for i, bin := range n.Bins(node) {
				if i < len(p.bins) {
					p.bins[i] += float64(bin.Got)
				}
			}
		}
		o.shares[name] = p
	}
	for _, name := range n.balancers {
		for i, svc := range n.s.Services {
			if front, ok := n.fronts[name][i]; ok && svc.Buckets > 0 {
				o.tables = append(o.tables, found{name, svc.Name, svc.Buckets, n.Chains(front)})
			}
		}
	}
}
