package ipvs

import (
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/service"
)

// TestQuarantine: a backend that an operator drains keeps its connections and gets no new
// ones until the order is revoked, also if all others are drained, too.
func TestQuarantine(t *testing.T) {
	w := newWorld(t, service.NAT)
	for i, scheduler := range []service.Scheduler{service.Maglev, service.RoundRobin, service.LeastConn} {
		port := uint16(8000 + i)
		w.serve(port)
		f := frontend(service.NAT, scheduler, vip4, port, port)
		s := &service.Service{
			ID: service.ID{Namespace: "default", Name: "web"}, Method: f.Method, Scheduler: f.Scheduler, RingSize: f.RingSize, Survival: f.Survival,
			Health: service.HealthCheck{Kind: service.CheckNone}, Frontends: []service.Frontend{{Key: f.Key, Backends: f.Backends}},
		}
		program := func(orders ...service.Quarantine) {
			t.Helper()
			p := plan.Build(plan.Input{Services: []*service.Service{s}, Quarantines: orders, Health: func(health.Target) health.State { return health.Up }})
			w.upsert(*p.Frontends[0].Want)
		}
		program()
		at := netip.AddrPortFrom(vip4, port)
		c := w.dial(at)
		sick, err := c.who()
		must(t, err)
		order := service.Quarantine{Name: "q", Addr: f.Backends[backendOf(sick)].Addr.Addr(), Reason: "disk errors"}
		program(order)
		if got := w.spread(at, 20); got[sick] > 0 || len(got) == 0 {
			t.Errorf("%s: %s is drained: %v", scheduler, sick, got)
		}
		if name, err := c.who(); name != sick || err != nil {
			t.Errorf("%s: the connection to %s is now to %q: %v", scheduler, sick, name, err)
		}
		all := []service.Quarantine{}
		for _, b := range f.Backends {
			all = append(all, service.Quarantine{Name: b.Addr.String(), Addr: b.Addr.Addr()})
		}
		program(all...)
		if c, err := w.tryDial(at); err == nil {
			c.Close()
			t.Errorf("%s: all are drained, and one takes a connection", scheduler)
		}
		if name, err := c.who(); name != sick || err != nil {
			t.Errorf("%s: with all drained, the connection to %s is now to %q: %v", scheduler, sick, name, err)
		}
		must(t, c.bye()) // least connections would prefer the others
		program()
		if got := w.spread(at, 30); got[sick] == 0 {
			t.Errorf("%s: %s is drained no more: %v", scheduler, sick, got)
		}
	}
}
