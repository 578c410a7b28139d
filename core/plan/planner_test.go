package plan

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/core/service"
)

// changing is a load balancer whose Services, probes, orders and neighbors change.
type changing struct {
	rng      *rand.Rand
	services map[string]*service.Service
	states   map[health.Target]health.State // of targets that are probed
	moved    map[netip.Addr]bool
	held     map[service.Key]map[netip.AddrPort]health.State
	orders   []service.Quarantine
	offered  bool // the Advertisement for external IPs applies
	neighbor bool
	dedicated,
	draining bool
}

func (c *changing) backends() (all []service.Backend) {
	for i := range 1 + c.rng.IntN(4) {
		b := service.Backend{Addr: netip.AddrPortFrom(address(172<<24+i*3+c.rng.IntN(3)), 8080), Weight: uint32(c.rng.IntN(5)), Node: []string{"", node.Name}[c.rng.IntN(2)]}
		all = append(all, b)
	}
	return all
}

// change makes a change. There are few names and addresses, so that they often collide.
func (c *changing) change() {
	switch name := fmt.Sprint("s", c.rng.IntN(6)); c.rng.IntN(10) {
	case 0:
		delete(c.services, name)
	case 1, 2, 3:
		c.services[name] = c.service(name)
	case 4:
		c.orders = nil
		if c.rng.IntN(2) == 0 {
			c.orders = []service.Quarantine{{Name: "q", Addr: address(172<<24 + c.rng.IntN(12)), Since: time.Unix(int64(c.rng.IntN(3)), 0)}}
		}
	case 5:
		c.offered = !c.offered
	case 6:
		switch c.rng.IntN(6) {
		case 0:
			c.neighbor = !c.neighbor
		case 1:
			c.dedicated = !c.dedicated
		case 2:
			c.draining = !c.draining
		}
	default:
		for t := range c.states { // any
			c.states[t] = []health.State{health.Up, health.Down, health.Removed}[c.rng.IntN(3)]
			c.moved[t.Addr.Addr()] = true
			break
		}
	}
}

func (c *changing) service(name string) *service.Service {
	s := web(name, "10.1.1.1", 0, func(s *service.Service) {
		s.Created = time.Unix(int64(c.rng.IntN(3)), 0)
		s.Panic = c.rng.IntN(2) == 0
		s.Dedicated = c.rng.IntN(8) == 0
		if c.rng.IntN(4) == 0 {
			s.Health = service.HealthCheck{Kind: service.CheckNone}
		} else if c.rng.IntN(4) == 0 {
			s.Health.Port = 9090
		}
	})
	s.Frontends = nil
	for port := range 1 + c.rng.IntN(3) {
		s.Frontends = append(s.Frontends, service.Frontend{
			Key:      service.Key{VIP: address(10<<24 + c.rng.IntN(3)), Port: uint16(80 + port), Protocol: []service.Protocol{service.TCP, service.UDP}[c.rng.IntN(2)]},
			Kind:     []service.AddressKind{service.LoadBalancerAddress, service.LoadBalancerAddress, service.ExternalAddress}[c.rng.IntN(3)],
			Backends: service.SortBackends(c.backends()),
		})
	}
	return s
}

func (c *changing) input() Input {
	in := Input{
		Node: node, Quarantines: slices.Clone(c.orders),
		Health: func(t health.Target) health.State { return c.states[t] },
		Held:   func(k service.Key) map[netip.AddrPort]health.State { return c.held[k] },
		Announce: func(s *service.Service, vip netip.Addr) ([]route.Offer, string) {
			if s.KindOf(vip) == service.ExternalAddress && !c.offered {
				return nil, "no Advertisement is for external IPs"
			}
			return []route.Offer{{By: "a", Prefix: netip.PrefixFrom(vip, vip.BitLen()), MinHealthyBackends: 1}}, ""
		},
	}
	for _, name := range slices.Sorted(maps.Keys(c.services)) {
		in.Services = append(in.Services, c.services[name])
	}
	if c.neighbor {
		in.Nodes = map[netip.Addr]string{address(10 << 24): "load balancer lb2"}
	}
	if c.dedicated {
		in.Node.Only = service.ID{Namespace: "default", Name: "s1"}
	}
	if c.draining {
		in.Node.Drain = Drain{Stage: Withdrawn}
	}
	return in
}

// apply does what a load balancer does with a plan.
func (c *changing) apply(p *Plan, probe, forget []health.Target) {
	for _, t := range forget {
		delete(c.states, t)
		c.moved[t.Addr.Addr()] = true
	}
	for _, t := range probe {
		c.states[t] = health.Unknown
	}
	for i := range p.Frontends {
		f := &p.Frontends[i]
		if f.Want == nil {
			continue
		}
		c.held[f.Key] = map[netip.AddrPort]health.State{}
		for _, b := range f.Want.Backends {
			c.held[f.Key][b.Addr] = health.Up
		}
	}
}

// comparable returns what a plan says.
func comparable(p *Plan) any {
	frontends := slices.Clone(p.Frontends)
	for i := range frontends {
		frontends[i].probed = nil
	}
	return []any{frontends, p.Routes, p.Refusals, p.Quarantines}
}

// TestPlannerIsBuild compares plans that are built one after the other with plans from
// nothing, while everything changes.
func TestPlannerIsBuild(t *testing.T) {
	reused := 0
	for seed := range uint64(100) {
		c := &changing{
			rng: rand.New(rand.NewPCG(seed, 3)), services: map[string]*service.Service{}, states: map[health.Target]health.State{},
			moved: map[netip.Addr]bool{}, held: map[service.Key]map[netip.AddrPort]health.State{},
		}
		var m Planner
		for step := range 60 {
			for range c.rng.IntN(3) {
				c.change()
			}
			in, moved := c.input(), c.moved
			if c.rng.IntN(20) == 0 {
				moved = nil // unknown
			}
			c.moved = map[netip.Addr]bool{}
			before := maps.Clone(m.decided)
			p, probe, forget := m.Build(in, moved)
			want := Build(in)
			if got, want := comparable(p), comparable(want); !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d, step %d:\n got %+v\nwant %+v", seed, step, got, want)
			}
			for s, d := range m.decided {
				if before[s] == d {
					reused++
				}
			}
			c.apply(p, probe, forget)
			targets := map[health.Target]bool{}
			for _, one := range want.Targets {
				targets[one] = true
			}
			if len(targets) != len(want.Targets) || len(targets) != len(c.states) {
				t.Fatalf("seed %d, step %d: %d targets, want %d", seed, step, len(c.states), len(want.Targets))
			}
			for one := range c.states {
				if !targets[one] {
					t.Fatalf("seed %d, step %d: %v is still probed", seed, step, one)
				}
			}
		}
	}
	if reused < 1000 {
		t.Errorf("only %d decisions were reused", reused)
	}
	t.Logf("%d decisions were reused", reused)
}

// TestPlannerDecidesOnce asks for the health of a Service's targets only if it may have
// changed.
func TestPlannerDecidesOnce(t *testing.T) {
	asked := 0
	services := many(100, 3)
	in := Input{Services: services, Node: node, Health: func(health.Target) health.State { asked++; return health.Up }}
	var m Planner
	expect := func(what string, want int, changed map[netip.Addr]bool) {
		t.Helper()
		asked = 0
		if m.Build(in, changed); asked != want {
			t.Errorf("%s: asked for the health of %d targets, want %d", what, asked, want)
		}
	}
	expect("at first", 300, map[netip.Addr]bool{})
	expect("without a change", 0, map[netip.Addr]bool{})
	expect("after a change of health", 3, map[netip.Addr]bool{services[7].Frontends[0].Backends[1].Addr.Addr(): true})
	in.Services = slices.Clone(services)
	other := *services[3]
	in.Services[3] = &other
	expect("after a change of a Service", 3, map[netip.Addr]bool{})
	expect("if any health may have changed", 300, nil)
	in.Node.Name = "lb2"
	expect("on another node", 300, map[netip.Addr]bool{})
}
