package ecmp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/internal/sysctl"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/flows"
	"github.com/fairlead/fairlead/lab/interop"
	"github.com/fairlead/fairlead/router"
)

// hopCount is the number of next hops, one of which is lost.
const hopCount = 4

// spreading is a way for a router to spread flows over next hops.
type spreading struct {
	name, router string
	// shadow runs our router next to FRR, to make FRR's routes resilient (shadow routes).
	shadow bool
}

// nexthops withdraws one of four next hops and counts the flows whose next hop changes:
// those of the withdrawn next hop, and others.
func nexthops(ctx context.Context, o Options, r *bench.Report) error {
	for _, how := range []spreading{
		{"fairlead, resilient", cluster.RouterFairlead, false},
		{"frr, plain", cluster.RouterFRR, false},
		{"frr, with fairlead's shadow routes", cluster.RouterFRR, true},
	} {
		if !slices.Contains(o.Routers, how.router) {
			continue
		}
		if err := o.loseHop(ctx, how, r); err != nil {
			return fmt.Errorf("%s: %w", how.name, err)
		}
	}
	r.Note("nexthops: %d flows over %d next hops, of which one is withdrawn, %d times", o.Flows, hopCount, o.Rounds)
	return nil
}

// loseHop measures one way of spreading.
func (o Options) loseHop(ctx context.Context, how spreading, r *bench.Report) (err error) {
	n, err := newHops(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	if err := n.start(ctx, how); err != nil {
		return err
	}
	var own, moved, others []float64
	for range o.Rounds {
		before, err := n.askWith(ctx, hopCount, how)
		if err != nil {
			return err
		}
		now, err := n.askWith(ctx, hopCount-1, how)
		if err != nil {
			return err
		}
		by, all := flows.Moved(before, now), 0
		for _, count := range by {
			all += count
		}
		dead := by[hopName(hopCount-1)]
		o.logf("nexthops: %s: %d flows, %d moved, the lost next hop had %d", how.name, len(now), all, dead)
		own, moved, others = append(own, float64(dead)), append(moved, float64(all)), append(others, float64(all-dead))
	}
	row := func(what string, figures []float64) bench.Row {
		return bench.Plain("nexthops: "+how.name+": "+what, fmt.Sprintf("of %d flows", o.Flows), figures...)
	}
	last := row("of other next hops, moved", others)
	if how.shadow || how.router == cluster.RouterFairlead {
		last = last.WorstAtMost(0)
	}
	r.Rows = append(r.Rows, row("of the lost next hop", own), row("moved", moved), last)
	return nil
}

// hopsNetwork is a network whose load balancers answer requests themselves, each with its
// name.
type hopsNetwork struct {
	*network
	flows *flows.Flows
	hops  []*speakers
	ends  []func() error
}

func hopName(i int) string { return fmt.Sprintf("hop-%d", i+1) }

var (
	hopsClient  = netip.MustParseAddr("192.168.0.2")
	hopsService = netip.AddrPortFrom(servicePrefix(0).Addr().Next(), cluster.EchoPort)
)

// newHops builds a client and the load balancers next to router and reflector:
//
//	client 192.168.0.2 ── .1 router ─┬─ hop-1 … hop-4, 10.0.1.1 … .4
//	                                 └─ reflector
func newHops(ctx context.Context, o Options) (n *hopsNetwork, err error) {
	t := lab.Topology{
		Hosts: []lab.HostSpec{{Name: "client"}},
		Links: []lab.Link{{A: lab.At("client", "eth0", hopsClient.String()+"/24").Via("192.168.0.1", "default"), B: lab.At("router", "eth1", "192.168.0.1/24")}},
	}
	for i := range hopCount {
		t.Hosts = append(t.Hosts, lab.HostSpec{Name: hopName(i), Loopback: []string{hopsService.Addr().String() + "/32"}})
		t.Links = append(t.Links, lab.Link{B: lab.Port(segment),
			A: lab.At(hopName(i), "eth0", balancerAddr(i).String()+"/16").Via(routerAddr.String(), "192.168.0.0/24")})
	}
	base, err := newNetwork(ctx, o, t)
	if err != nil {
		return nil, err
	}
	n = &hopsNetwork{network: base}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
		}
	}()
	for i := range hopCount {
		c, err := flows.Answer(n.lab.Host(hopName(i)), hopsService)
		if err != nil {
			return n, err
		}
		n.ends = append(n.ends, c.Close)
	}
	if n.flows, err = flows.Open(n.lab.Host("client"), hopsClient, hopsService, o.Flows); err != nil {
		return n, err
	}
	n.ends = append(n.ends, n.flows.Close)
	return n, n.lab.Host("router").Do(func() error {
		s, err := router.RouterSysctls(0)
		if err != nil {
			return err
		}
		return sysctl.SetAll(s)
	})
}

func (n *hopsNetwork) close() error {
	var errs []error
	for _, end := range n.ends {
		errs = append(errs, end())
	}
	return errors.Join(append(errs, n.network.close())...)
}

// start starts all BGP speakers.
func (n *hopsNetwork) start(ctx context.Context, how spreading) error {
	if _, err := n.startReflector(); err != nil {
		return err
	}
	if err := n.startSpreading(how); err != nil {
		return err
	}
	for i := range hopCount {
		s, err := n.speak(hopName(i), i, 1)
		if err != nil {
			return err
		}
		if err := s.obey(order{All: 1}); err != nil {
			return err
		}
		n.hops = append(n.hops, s)
	}
	return ctx.Err()
}

func (n *hopsNetwork) startSpreading(how spreading) error {
	if how.router == cluster.RouterFairlead {
		_, err := n.startRouter()
		return err
	}
	d, err := interop.Start(n.lab.Host("router").Namespace(), interop.Kind(how.router), interop.Config{
		AS: config.DefaultAS, RouterID: routerAddr, LocalAddress: routerAddr, BFD: true,
		Peers: []interop.Peer{{Address: reflectorAddr}},
	})
	if err != nil {
		return err
	}
	n.ends = append(n.ends, d.Stop)
	if how.shadow {
		_, err = n.network.start("router", "router", "--shadow-protocol", "bgp", "--socket", filepath.Join(n.dir, "router.sock"))
	}
	return err
}

// askWith lets count load balancers advertise, waits until every route of the router's
// kernel has exactly these next hops, and returns which load balancer answers each flow.
func (n *hopsNetwork) askWith(ctx context.Context, count int, how spreading) ([]string, error) {
	last := order{}
	if count == hopCount {
		last.All = 1
	}
	if err := n.hops[hopCount-1].obey(last); err != nil {
		return nil, err
	}
	want := []string{}
	metrics := []int{router.DefaultMetric}
	if how.shadow {
		metrics = []int{router.DefaultShadowMetric, router.DefaultMetric}
	}
	for _, metric := range metrics {
		line := fmt.Sprintf("%d:", metric)
		for i := range count {
			line += " " + balancerAddr(i).String()
		}
		want = append(want, line)
	}
	var have []string
	var err error
	_, ok := cluster.Await(ctx, time.Millisecond, cluster.StartLimit, func() bool {
		have, err = n.lab.Host("router").Routes(servicePrefix(0))
		return err == nil && slices.Equal(have, want)
	})
	if !ok {
		return nil, errors.Join(ctx.Err(), err, fmt.Errorf("the router has %q, want %q", have, want))
	}
	who, err := n.flows.Ask()
	if err == nil && slices.Contains(who, "") {
		err = fmt.Errorf("flows get no replies: %v", flows.Shares(who))
	}
	return who, err
}
