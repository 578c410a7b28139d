package status

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/selection"
	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/fake"
	"github.com/fairlead/fairlead/lab/testkit/growth"
	"github.com/fairlead/fairlead/reconciler"
)

// TestGathersLinearly gathers and explains ten times as much.
func TestGathersLinearly(t *testing.T) {
	for name, c := range map[string]struct {
		size               int
		services, backends func(size int) int
	}{
		"Services": {400, func(n int) int { return n }, func(int) int { return 1 }},
		"backends": {1000, func(int) int { return 1 }, func(n int) int { return n }},
	} {
		t.Run(name, func(t *testing.T) {
			growth.Linear(t, c.size, func(size int) func() {
				a := large(c.services(size), c.backends(size))
				return func() {
					s := a.Gather(eleven)
					if v := s.ExplainServices(); len(v) != c.services(size) || !v[0].Advertised {
						t.Fatalf("%d verdicts, the first %+v", len(v), v[0])
					}
				}
			})
		})
	}
}

// What a query selects costs the same however many Services there are: only finding them
// looks at every one, without allocating.
func TestGathersOnlyWhatIsSelected(t *testing.T) {
	only := selection.Selection{Services: []string{"web-000007"}, Backends: []string{"172.0.0.9"}}
	var sizes []int
	var allocs []float64
	for _, services := range []int{100, 4000} {
		a := large(services, 1)
		for i := range a.View().Plan.Frontends {
			if err := a.DataPlane.Upsert(*a.View().Plan.Frontends[i].Want); err != nil {
				t.Fatal(err)
			}
		}
		s := a.GatherOnly(eleven, only)
		if len(s.Services) != 2 || len(s.Routes) != 2 || s.Services[0].ID != "default/web-000007" || s.Services[0].Frontends[0].Detail == nil || !s.Services[0].Frontends[0].Detail.Live {
			t.Fatalf("selected: %+v, %+v", s.Services, s.Routes)
		}
		body, err := marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, len(body))
		allocs = append(allocs, testing.AllocsPerRun(5, func() { a.GatherOnly(eleven, only) }))
	}
	if sizes[0] != sizes[1] || allocs[1] > 1.2*allocs[0] {
		t.Errorf("bytes %v and allocations %v of 100 and 4000 Services", sizes, allocs)
	}
}

// BenchmarkGatherOnly answers a query for one of 50,000 Services.
func BenchmarkGatherOnly(b *testing.B) {
	a := large(50000, 2)
	for b.Loop() {
		if s := a.GatherOnly(eleven, selection.Selection{Services: []string{"web-040000"}}); len(s.Services) != 1 {
			b.Fatal(s.Services)
		}
	}
}

// large is an agent that programs and advertises everything.
func large(services, backends int) Agent {
	var all []*service.Service
	for i := range services {
		s := named(fmt.Sprintf("web-%06d", i), netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}).String(), time.Hour)
		for b := range backends {
			n := i*backends + b
			s.Frontends[0].Backends = append(s.Frontends[0].Backends, service.Backend{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, byte(n >> 16), byte(n >> 8), byte(n)}), 80), Weight: 1})
		}
		all = append(all, s)
	}
	p := plan.Build(plan.Input{
		Services: all, Node: plan.Node{Name: "node1", NextHop4: netip.MustParseAddr("10.0.0.105")},
		Health: func(health.Target) health.State { return health.Up },
	})
	v := &reconciler.View{Plan: p, Loaded: true, Held: map[service.Key]desired.Frontend{}, Announced: map[route.Route]time.Time{}}
	for _, f := range p.Frontends {
		v.Held[f.Key] = *f.Want
	}
	for _, r := range p.Routes {
		v.Announced[r.Route] = eleven
	}
	return Agent{Role: "balancer", View: func() *reconciler.View { return v }, DataPlane: fake.New(), Announcer: peers{}}
}
