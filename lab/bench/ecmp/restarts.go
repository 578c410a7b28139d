package ecmp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/flows"
	"github.com/fairlead/fairlead/lab/topology"
)

// reflectors kills each of two reflectors and starts it again, under traffic.
func reflectors(ctx context.Context, o Options, r *bench.Report) error {
	for _, router := range o.Routers {
		if err := o.killReflectors(ctx, router, r); err != nil {
			return fmt.Errorf("%s: %w", router, err)
		}
	}
	r.Note("reflectors: %d flows of datagrams are sent continuously, each with a reply; a change is a netlink message about a changed route in the router", o.Flows)
	return nil
}

func (o Options) killReflectors(ctx context.Context, router string, r *bench.Report) (err error) {
	s, f, err := o.underFlows(ctx, "reflectors", router)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close(), s.close()) }()
	for _, name := range s.Reflectors() {
		changes := s.watch.changes.Load()
		lost, err := f.through(func() error {
			return errors.Join(s.restart(ctx, name, unix.SIGKILL, func() error { return s.StartReflector(name) }), s.allUp(ctx))
		})
		if err != nil {
			return err
		}
		what := fmt.Sprintf("reflectors: %s: %s killed and started again, ", router, name)
		r.Rows = append(r.Rows,
			count(what+"changes of the route", "changes", float64(s.watch.changes.Load()-changes)).AtMost(0),
			count(what+"packets lost", "packets", float64(lost)).AtMost(0))
		o.logf("%s%d changes, %d packets lost", what, s.watch.changes.Load()-changes, lost)
	}
	return nil
}

// restarts ends each component, gracefully as for an upgrade and by force, and starts it
// again, under traffic.
func restarts(ctx context.Context, o Options, r *bench.Report) (err error) {
	s, f, err := o.underFlows(ctx, "restarts", cluster.RouterFairlead)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close(), s.close()) }()
	balancer := s.Balancers(mainService)[0]
	for _, part := range []struct {
		what, process string
		start         func() error
	}{
		{"router", topology.Router, s.StartRouter},
		{"reflector", topology.Reflector, func() error { return s.StartReflector(topology.Reflector) }},
		{"balancer's agent", balancer.Name, func() error { return s.StartBalancer(balancer) }},
		{"server's node's agent", balancer.Node.Name, func() error { return s.StartNode(balancer.Node) }},
	} {
		for _, how := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
			lost, err := f.through(func() error { return errors.Join(s.restart(ctx, part.process, how, part.start), s.allUp(ctx)) })
			if err != nil {
				return fmt.Errorf("%s: %w", part.what, err)
			}
			name := fmt.Sprintf("restarts: %s ends by %s and starts again: packets lost", part.what, unix.SignalName(how))
			r.Rows = append(r.Rows, count(name, "packets", float64(lost)).AtMost(0))
			o.logf("%s: %d", name, lost)
		}
	}
	r.Note("restarts: %d flows of datagrams are sent continuously, each with a reply: %d datagrams in total; two reflectors, %d balancers", o.Flows, f.sent, o.Most)
	return nil
}

// traffic contains flows that continue while something happens.
type traffic struct {
	*flows.Flows
	before []string
	sent   int
	close  func() error
}

// underFlows brings up a system with two reflectors, and flows through it that are all
// answered.
func (o Options) underFlows(ctx context.Context, name, router string) (s *system, t *traffic, err error) {
	if s, err = o.newSystem(ctx, name, router, topology.Options{TwoReflectors: true}); err != nil {
		return nil, nil, err
	}
	t = &traffic{}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close(), s.close())
		}
	}()
	if err := s.bringUp(ctx, o.Most); err != nil {
		return s, t, err
	}
	if err := s.allUp(ctx); err != nil {
		return s, t, err
	}
	for _, pod := range s.Servers(mainService) {
		c, err := flows.Answer(s.Lab.Host(pod.Name), netip.AddrPortFrom(pod.Addr, cluster.EchoPort))
		if err != nil {
			return s, t, err
		}
		before := t.close
		t.close = func() error { return errors.Join(c.Close(), call(before)) }
	}
	to := netip.AddrPortFrom(s.Services[mainService].VIP.Addr(), cluster.EchoPort)
	if t.Flows, err = flows.Open(s.Lab.Host(topology.Client), s.ClientAddrs[0], to, o.Flows); err != nil {
		return s, t, err
	}
	if t.before, err = t.Ask(); err == nil && slices.Contains(t.before, "") {
		err = fmt.Errorf("not all flows are answered before anything happens: %v", flows.Shares(t.before))
	}
	return s, t, err
}

func call(f func() error) error {
	if f == nil {
		return nil
	}
	return f()
}

// Close ends the flows and the processes that answer them.
func (t *traffic) Close() error {
	var err error
	if t.Flows != nil {
		err = t.Flows.Close()
	}
	return errors.Join(err, call(t.close))
}

// through runs do while the flows continue, and returns how many packets were lost
// meanwhile.
func (t *traffic) through(do func() error) (lost int, err error) {
	t.Sent, t.Lost = 0, 0
	_, failed := t.During(t.before, func() { err = do() })
	if err = errors.Join(err, failed); err != nil {
		return 0, err
	}
	if t.before, err = t.Ask(); err != nil {
		return 0, err
	}
	t.sent += t.Sent
	return t.Lost, nil
}

// restart ends a process and starts it again.
func (s *system) restart(ctx context.Context, process string, how unix.Signal, start func() error) error {
	old := s.Process(process)
	if err := old.Signal(how); err != nil {
		return err
	}
	select {
	case <-old.Done():
	case <-time.After(2 * cluster.StartLimit):
		return fmt.Errorf("%s does not end: %s", process, cluster.LastLines(s.LogFile(process)))
	case <-ctx.Done():
		return ctx.Err()
	}
	if how == unix.SIGKILL { // give peers time to notice the failure, or to suffer from it
		if err := bench.Pause(ctx, time.Second); err != nil {
			return err
		}
	}
	return start()
}

// allUp waits until all sessions are up and the router's kernel has the right next hops,
// plus one second for what follows from that.
func (s *system) allUp(ctx context.Context) error {
	if err := s.sessionsUp(ctx); err != nil {
		return err
	}
	if _, err := s.converge(ctx, "start", time.Now()); err != nil {
		return err
	}
	return bench.Pause(ctx, time.Second)
}
