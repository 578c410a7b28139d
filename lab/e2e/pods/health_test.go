package pods_test

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
)

// healthPort is the backends' health port; nobody listens there at first.
const healthPort = 9000

// checked is a Service whose backends are probed on healthPort.
func checked(name string, host int, more ...string) fixture.Spec {
	return fixture.Spec{Name: name, Of: web, Host: host, OwnRoute: true, Annotations: append([]string{
		"health-check: http", fmt.Sprintf("health-check-port: %q", fmt.Sprint(healthPort)),
		"health-check-interval: 1s", "health-check-timeout: 1s",
	}, more...)}
}

// well makes every backend healthy; ill ends that.
func (p *pods) well(t *testing.T, of int) (ill func()) {
	t.Helper()
	var listeners []net.Listener
	for _, pod := range p.Servers(of) {
		listeners = append(listeners, p.Heal(t, pod, healthPort))
	}
	return func() {
		for _, ln := range listeners {
			ln.Close()
		}
	}
}

// frontends waits until every frontend of a Service has a state on every load balancer,
// and every backend a health.
func (p *pods) frontends(t *testing.T, of fixture.Spec, want plan.State, health string) {
	t.Helper()
	for _, balancer := range p.Balancers(of.Of) {
		p.Eventually(t, balancer.Name, func(s status.Status) error {
			one, err := s.Only(of.Name)
			if err != nil {
				return err
			}
			for _, f := range one.Services[0].Frontends {
				if f.State != want || (f.Reason == "") != (want == plan.Active) {
					return fmt.Errorf("%s: %s is %s (%s), want %s", balancer.Name, f.Key(), f.State, f.Reason, want)
				}
				for _, b := range f.Backends {
					if b.Health != health || (b.LastError == "") != (health == "up") {
						return fmt.Errorf("%s: %s is %s (%s), want %s", balancer.Name, b.Address, b.Health, b.LastError, health)
					}
				}
			}
			return nil
		})
	}
}

// panicMode checks that all backends stay in service if every one fails its checks.
func (p *pods) panicMode(t *testing.T) {
	s := checked("brave", 11)
	ill := p.well(t, web)
	p.HandIn(t, s)
	p.frontends(t, s, plan.Active, "up")
	// One after the other becomes unhealthy, and keeps its connections.
	all := []fixture.Traffic{p.Load(t, "panic", s.HTTP(), 10, 50)}
	fixture.During(t, all, "every server ill", func() {
		ill()
		p.frontends(t, s, plan.Panic, "down")
		p.Reach(t, s, true)
	})
	fixture.During(t, all, "every server well again", func() {
		ill = p.well(t, web)
		p.frontends(t, s, plan.Active, "up")
		p.Reach(t, s, true)
	})
	ill()
}

// noPanic checks that without panic mode the route is withdrawn, and returns with the
// backends.
func (p *pods) noPanic(t *testing.T) {
	s := checked("timid", 12, "panic-mode: disabled", "forwarding-mode: "+string(service.DSRNAT))
	ill := p.well(t, web)
	p.HandIn(t, s)
	p.frontends(t, s, plan.Active, "up")
	var hops []netip.Addr
	for _, pod := range p.Balancers(web) {
		hops = append(hops, pod.Node.Addr)
	}
	route := netip.PrefixFrom(s.HTTP().Addr(), 32)
	p.Routed(t, route, hops...)
	all := []fixture.Traffic{p.Load(t, "unaffected", p.tunnel.HTTP(), 10, 50)}
	fixture.During(t, all, "every server of another Service ill", func() {
		ill()
		p.frontends(t, s, plan.NoHealthyBackend, "down")
		p.Routed(t, route)
	})
	ill = p.well(t, web)
	p.Routed(t, route, hops...)
	p.Requests(t, 50, s.HTTP())
	ill()
}
