package calibrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/sim/experiments"
	"github.com/fairlead/fairlead/lab/sim/scenario"
	"github.com/fairlead/fairlead/lab/topology"
)

// drains is how long queues have to empty after the load, in the lab and in the
// simulator, in whole seconds. Leftover packets would be counted in the next case.
func (o Options) drains() time.Duration {
	full := time.Duration(linkQueue * PacketBytes * 8 * uint64(time.Second) / o.LinkRate)
	return (2*time.Second + full + time.Second - 1).Truncate(time.Second)
}

// cases runs the experiment with 1 to Balancers load balancers, and then with one that is
// disconnected midway.
func (r *Result) cases(ctx context.Context, o Options) error {
	s, err := newSystem(ctx, o)
	if s != nil {
		defer s.close() //nolint:errcheck // the sandbox removes what is left
	}
	if err != nil {
		return err
	}
	for n := 1; n <= o.Balancers; n++ {
		if _, err := s.Route(ctx, 0); err != nil {
			return err
		}
		if err := s.inService(ctx); err != nil {
			return err
		}
		if err := r.add(ctx, s, o, n, false); err != nil {
			return err
		}
	}
	return r.add(ctx, s, o, o.Balancers, true)
}

// add measures and predicts one case.
func (r *Result) add(ctx context.Context, s *system, o Options, balancers int, cut bool) error {
	row := Row{Case: fmt.Sprintf("%d balancers", balancers)}
	if balancers == 1 {
		row.Case = "1 balancer"
	}
	if cut {
		row.Case += ", one cut off midway"
	}
	fmt.Fprintln(o.Progress, "calibrate:", row.Case)
	if err := s.measure(ctx, o, &row, cut); err != nil {
		return fmt.Errorf("calibrate: %s: %w", row.Case, err)
	}
	if err := r.predict(ctx, o, &row, balancers, cut); err != nil {
		return fmt.Errorf("calibrate: %s: %w", row.Case, err)
	}
	r.Rows = append(r.Rows, row)
	return nil
}

// measure runs one case in the lab.
func (s *system) measure(ctx context.Context, o Options, row *Row, cut bool) error {
	from, err := open(s.Lab.Host(topology.Client), s.ClientAddrs, s.Services[0].VIP, o.Flows)
	if err != nil {
		return err
	}
	defer from.close()
	midway, gone := func() error { return nil }, make(chan time.Duration, 1)
	if cut {
		midway = func() error { return s.cut(ctx, gone) }
	}
	before, began := s.got(), time.Now()
	if err := from.send(ctx, o.Rate, o.Duration, o.Duration/2, midway); err != nil {
		return err
	}
	took := time.Since(began).Seconds()
	row.Sent, row.Received = float64(from.sent)/took, float64(s.got()-before)/took
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(o.drains()):
	}
	row.Lost = 100 * (1 - float64(s.got()-before)/float64(from.sent))
	if cut {
		row.NoticedMs = float64((<-gone).Milliseconds())
	}
	return errors.Join(s.FailedProcess(), ctx.Err())
}

// cut disconnects the first load balancer. It sends on gone how long the router took to
// stop forwarding to it.
func (s *system) cut(ctx context.Context, gone chan<- time.Duration) error {
	pod, began := s.Balancers(0)[0], time.Now()
	go func() {
		at, _ := cluster.Await(ctx, 10*time.Millisecond, cluster.StartLimit, func() bool {
			hops, err := s.RouterHops(0)
			return err == nil && !slices.Contains(hops, pod.Node.Addr.String())
		})
		gone <- max(0, at.Sub(began)) // if it never does, FailedProcess or the loss shows it
	}()
	return s.Lab.Cut(pod.Name, topology.Dev)
}

// noticed is the time that BFD takes to detect a disconnected load balancer: the i-th of
// n equally likely values. The detection time is three times 300 ms after the last
// packet, which arrived up to 300 ms before the disconnect.
func noticed(i, n int) time.Duration {
	return 600*time.Millisecond + 300*time.Millisecond*time.Duration(2*i+1)/time.Duration(2*n)
}

// late is how much longer the router of the lab took than BFD allows. A busy machine can
// delay detection, and the simulator does not model that.
func (r Row) late() time.Duration {
	const latest = 900
	return time.Duration(max(0, r.NoticedMs-latest)) * time.Millisecond
}

// linkQueue is the number of packets that wait for a shaped link: the queue length of a
// veth.
const linkQueue = 1000

// predict runs the simulator for one case.
func (r *Result) predict(ctx context.Context, o Options, row *Row, balancers int, cut bool) error {
	var received, lost []float64
	for seed := range o.Seeds {
		text := r.scenario(o, row.Sent, balancers)
		if cut {
			text += fmt.Sprintf("events: [{at: %.3fs, cuts: [router, lb-1], noticed: %dms}]\n", o.Duration.Seconds()/2, (noticed(seed, o.Seeds) + row.late()).Milliseconds())
		}
		c, err := scenario.Parse("calibrate.yaml", []byte(text), nil)
		if err != nil {
			return err
		}
		e := c.Experiment()
		result, err := e.Run(experiments.NewRun(ctx, &e, uint32(seed+1), 1, nil))
		if err != nil {
			return err
		}
		sum, all := 0.0, 0.0
		for i := range servers {
			for _, p := range result.Curve("servers", fmt.Sprintf("web-%d", i+1)) {
				all += p.Y
				if p.X <= o.Duration.Seconds() {
					sum += p.Y
				}
			}
		}
		sent := result.Cell("sums", "value", "requested", "connections and single requests")
		received, lost = append(received, sum/o.Duration.Seconds()), append(lost, 100*max(0, 1-all/sent))
	}
	row.ReceivedPredicted, row.LostPredicted = bench.SpreadOf(received), bench.SpreadOf(lost)
	return nil
}

// scenario returns the case as a simulator scenario.
func (r *Result) scenario(o Options, sent float64, balancers int) string {
	return fmt.Sprintf(`about: The ECMP experiment of the lab.
duration: %.0fs
interval: 1s
packet: %d
topology:
  clients: [{name: flow, count: %d}]
  routers: [{name: router, ecmp: resilient}]
  balancers: [{name: lb, count: %d, takes: %.0fns}]
  servers: [{name: web, count: %d}]
  links:
  - {between: [flow, router], rate: 10Gbit}
  - {between: [router, lb], rate: %.3fMbit, queue: %d}
  lans:
  - {name: overlay, members: [lb, web], rate: 10Gbit, queue: 10000}
  - {name: replies, members: [web, router], rate: 10Gbit, queue: 10000}
services: [{name: web, servers: web}]
load: [{from: flow, to: web, protocol: udp, arrivals: steady, rate: %.3f, end: %.3fs}]
`, (o.Duration + o.drains()).Seconds(), PacketBytes, o.Flows, balancers, r.PacketNs, servers, r.LinkBits/1e6, linkQueue, sent, o.Duration.Seconds())
}
