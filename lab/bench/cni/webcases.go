package cni

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/budget"
	"github.com/fairlead/fairlead/lab/netns"
)

// thread is a kernel thread or one of a process.
type thread interface {
	Limit(share float64) error
	Used() (time.Duration, error)
}

// used returns the CPU time of each thread, in seconds.
func used(threads []thread) (all []float64, err error) {
	for _, t := range threads {
		took, failed := t.Used()
		all, err = append(all, took.Seconds()), errors.Join(err, failed)
	}
	return all, err
}

func sum(all []float64) (s float64) {
	for _, x := range all {
		s += x
	}
	return s
}

// webPoint is one figure: requests through a load balancer to some web pods.
type webPoint struct {
	name string
	*balanced
	pods int
	// prepare configures the network.
	prepare func(context.Context) error
	// on returns the threads of the load balancer's machine. share is the budget of each,
	// of which it gets its part, if parts are set; 0 changes nothing.
	on    func() []thread
	share float64
	parts []float64
	// queues is the number of queues of the card.
	queues int
	// connections is their number; 0 means WebOptions.Connections.
	connections int
	// client is the budget of each thread of the client; 0 means clientBudget.
	client float64
}

// limit sets the budgets.
func (p webPoint) limit(threads []thread) error {
	if p.share == 0 {
		return nil
	}
	var errs []error
	for i, t := range threads {
		share := p.share
		if p.parts != nil {
			share *= p.parts[i]
		}
		errs = append(errs, t.Limit(share))
	}
	return errors.Join(errs...)
}

// limitPods gives the pods of one network their budget. The scheduler accepts no more
// budgets than there are CPUs.
func (w *web) limitPods(kind string) error {
	var errs []error
	limit := func(kind string, share float64) {
		for _, p := range w.pods[kind] {
			errs = append(errs, budget.Process(p.process.PID(), share))
		}
	}
	for other := range w.pods {
		if other != kind {
			limit(other, idle)
		}
	}
	limit(kind, podBudget)
	return errors.Join(errs...)
}

// measureWeb measures a point once.
func (w *web) measureWeb(ctx context.Context, p webPoint) (got answered, err error) {
	if p.prepare != nil {
		if err := p.prepare(ctx); err != nil {
			return got, err
		}
	}
	on := p.on()
	// The packets of the last measurement pass.
	if err := errors.Join(bench.Pause(ctx, 200*time.Millisecond), w.limitPods(p.kind), p.limit(on)); err != nil {
		return got, err
	}
	if got, err = w.ask(ctx, p, on); err != nil {
		return got, fmt.Errorf("%s: %w", p.name, err)
	}
	w.o.logf("  %-50s %6.0f requests/s, %5.1f ms CPU for 1,000, idle: client %2.0f %%, machine %2.0f %%", p.name, got.rate, got.balancer, got.client, got.machine)
	return got, nil
}

// rounds measures all points, one at a time in rotating order, and adds their rows.
func (w *web) rounds(ctx context.Context, points []webPoint, r *bench.Report) error {
	all := map[string][]answered{}
	for round := range w.o.Rounds {
		for _, p := range turn(points, round) {
			got, err := w.measureWeb(ctx, p)
			if err != nil {
				return err
			}
			all[p.name] = append(all[p.name], got)
		}
	}
	for _, p := range points {
		each := func(of func(answered) float64) (figures []float64) {
			for _, a := range all[p.name] {
				figures = append(figures, of(a))
			}
			return figures
		}
		r.Rows = append(r.Rows,
			bench.Estimated(p.name, "requests/s", each(func(a answered) float64 { return a.rate })...),
			bench.Estimated(p.name+": CPU", "ms/1,000", each(func(a answered) float64 { return a.balancer })...),
			bench.Plain(p.name+": client idle", "%", each(func(a answered) float64 { return a.client })...),
			bench.Plain(p.name+": machine idle", "%", each(func(a answered) float64 { return a.machine })...))
	}
	return nil
}

// best returns the higher of two measurements: other work only makes them lower.
func (w *web) best(ctx context.Context, p webPoint) (answered, error) {
	a, err := w.measureWeb(ctx, p)
	if err != nil {
		return a, err
	}
	b, err := w.measureWeb(ctx, p)
	if b.rate > a.rate {
		a = b
	}
	return a, err
}

// calibrate finds the budget with which a load balancer answers about as many requests per
// second as wanted.
func (w *web) calibrate(ctx context.Context, p webPoint, wanted float64) (share float64, err error) {
	for i := range 4 {
		p.name = fmt.Sprintf("calibration %d, budget %.4f", i+1, p.share)
		got, err := w.measureWeb(ctx, p)
		if err != nil {
			return 0, err
		}
		if p.share == 0 {
			p.share = got.balancer / 1e6 * got.rate // what it uses without a limit
		}
		p.share = min(max(p.share*wanted/got.rate, 0.005), 0.4)
	}
	return p.share, nil
}

// saturation is the number of web pods whose requests the reference load balancer can just
// carry, as a share of the largest number.
const saturation = 0.4

// onMachine returns the threads of the machine of a load balancer in a pod of Daejeon's
// node: the node's card, nginx, and the tunnel of flannel's udp mode.
func (w *web) onMachine(b *balanced) (all []thread) {
	all = kernelThreads(w.card)
	if b.process != nil { // nginx has one thread
		all = append(all, budget.Thread(b.process.PID()))
	}
	if b.kind == TunUDP {
		for _, id := range w.forwarders[w.Daejeon].Threads {
			all = append(all, budget.Thread(id))
		}
	}
	return all
}

func kernelThreads(card []budget.KernelThread) (all []thread) {
	for _, t := range card {
		all = append(all, t)
	}
	return all
}

// divide returns the parts that several threads of one machine need. They are measured
// before any of them has a limit.
func (w *web) divide(ctx context.Context, p webPoint) (parts []float64, err error) {
	on := p.on()
	if len(on) == 1 {
		return nil, nil
	}
	p.name += ", no limit"
	before, err := used(on)
	if err != nil {
		return nil, err
	}
	if _, err := w.measureWeb(ctx, p); err != nil {
		return nil, err
	}
	after, err := used(on)
	for i := range after {
		parts = append(parts, (after[i]-before[i])/(sum(after)-sum(before)))
	}
	return parts, err
}

// webBalancers measures load balancers on this kernel, in each of flannel's networks, and
// with one and two queues (RSS).
func webBalancers(ctx context.Context, o WebOptions, r *bench.Report) (err error) {
	o.logf("balancers: %d rounds of %g s", o.Rounds, o.Seconds)
	w, err := newWeb(ctx, o, flannel...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	var points, rss []webPoint
	most := slices.Max(o.Pods)
	for _, kind := range flannel {
		for _, maker := range []string{iptables, ours, webServer} {
			if maker == webServer && kind != HostGW {
				continue
			}
			b, err := w.addBalancer(ctx, maker, kind)
			if err != nil {
				return err
			}
			more, err := w.webPoints(ctx, b)
			if err != nil {
				return err
			}
			points = append(points, more...)
			if kind == HostGW && maker != webServer {
				rss = append(rss, w.queuePoints(b)...)
			}
		}
	}
	// One queue after two, so that the number changes twice in a round.
	slices.SortStableFunc(rss, func(a, b webPoint) int { return cmp.Compare(b.queues, a.queues) })
	points = append(points, rss...)
	free := w.webPoint(w.all[0], 1, most)
	if err := w.setBudget(ctx, w.webPoint(w.all[0], 1, 1), free, points, r); err != nil {
		return err
	}
	free.name, free.share = free.name+", no limit", generous
	return w.rounds(ctx, append(points, free), r)
}

// webPoints returns the points of a load balancer with one queue.
func (w *web) webPoints(ctx context.Context, b *balanced) (points []webPoint, err error) {
	parts, err := w.divide(ctx, w.webPoint(b, 1, slices.Max(w.o.Pods)))
	for _, pods := range w.o.Pods {
		p := w.webPoint(b, 1, pods)
		p.parts = parts
		points = append(points, p)
	}
	return points, err
}

// setBudget gives all points the budget with which the reference load balancer saturates.
// one and most are its requests to one pod and to all, without a limit.
func (w *web) setBudget(ctx context.Context, one, most webPoint, points []webPoint, r *bench.Report) error {
	got, err := w.best(ctx, one)
	if err != nil {
		return err
	}
	wanted := got.rate * saturation * float64(most.pods)
	share, err := w.calibrate(ctx, most, wanted)
	for i := range points {
		points[i].share = share
	}
	r.Note("%s: the load balancer's machine has a budget of %.4f of a CPU, divided among its threads as they need it: %s then carries about %.0f requests/s", most.name, share, most.maker, wanted)
	return err
}

func (w *web) webPoint(b *balanced, queues, pods int) webPoint {
	p := webPoint{name: fmt.Sprintf("web, %s, %s, %d pods", b.maker, b.kind, pods), balanced: b, pods: pods, queues: queues}
	p.prepare = func(ctx context.Context) error { return w.queues(ctx, queues) }
	p.on = func() []thread { return w.onMachine(b) }
	return p
}

// queueConnections is the number of connections with two queues. They are fewer than the
// packets of a queue: one that was full stays stopped (veth with GRO in Linux 6.18).
const queueConnections = 100

// queuePoints returns the points of a load balancer with one and two queues.
func (w *web) queuePoints(b *balanced) (points []webPoint) {
	for _, queues := range []int{1, 2} {
		p := w.webPoint(b, queues, slices.Max(w.o.Pods))
		p.name += fmt.Sprintf(", queues: %d", queues)
		p.connections = min(queueConnections, w.o.Connections)
		points = append(points, p)
	}
	return points
}

// mostBalancers is the number of load balancers up to which the paper found linear growth.
const mostBalancers = 4

// webScale measures one to four load balancers: IPVS in guests, each limited by the budget
// of its kernel. The node in front of them spreads connections (ECMP) and has no limit.
func webScale(ctx context.Context, o WebOptions, r *bench.Report) (err error) {
	o.logf("scale: %d rounds of %g s", o.Rounds, o.Seconds)
	w, err := newWeb(ctx, o, HostGW)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	err = w.Lab.Host(w.Daejeon.Node).Do(func() error { return netns.WriteSysctl("net.ipv4.fib_multipath_hash_policy", "1") })
	if err != nil {
		return err
	}
	var all []*balanced
	var kernels []thread
	for i := range mostBalancers {
		g, err := w.startGuest(ctx, i)
		if err != nil {
			return err
		}
		defer g.stop()
		all, kernels = append(all, g.balancers[0]), append(kernels, g.kernel)
	}
	points, err := w.scalePoints(ctx, all, kernels, r)
	if err != nil {
		return err
	}
	return w.rounds(ctx, points, r)
}

// scalePoints returns the points with their budgets.
func (w *web) scalePoints(ctx context.Context, all []*balanced, kernels []thread, r *bench.Report) ([]webPoint, error) {
	o := w.o
	most := slices.Max(o.Pods)
	var points []webPoint
	for n := range mostBalancers {
		points = append(points, webPoint{
			name: fmt.Sprintf("web, %d balancers", n+1), balanced: all[0], pods: most, connections: max(1, o.Connections*(n+1)/mostBalancers), prepare: func(context.Context) error { return w.spread(all[:n+1]...) },
			on: func() []thread { return kernels[:n+1] },
		})
	}
	free, err := w.best(ctx, points[0])
	if err != nil {
		return nil, err
	}
	share, err := w.calibrate(ctx, points[0], free.rate/(mostBalancers+2))
	if err != nil {
		return nil, err
	}
	for i := range points {
		points[i].share = share
	}
	two, err := w.best(ctx, points[1])
	if err != nil {
		return nil, err
	}
	small := clientBudget * (1 - two.client/100) // saturates two load balancers, without idle time
	for _, n := range []int{2, 4} {
		p := points[n-1]
		p.name, p.client = p.name+", small client", small
		points = append(points, p)
	}
	r.Note("web: %d connections for four load balancers, and as many for each of fewer; each of the load balancers has a budget of %.4f of a CPU, and each thread of the small client one of %.4f", o.Connections, share, small)
	return points, nil
}
