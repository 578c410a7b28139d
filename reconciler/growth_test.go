package reconciler

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/lab/testkit/growth"
	"github.com/fairlead/fairlead/source"
)

// shelf is a data plane that only stores what it is given, so that only the loop's own
// work is measured.
type shelf map[service.Key]desired.Frontend

func (s shelf) List() (all []desired.Frontend, err error) {
	for _, f := range s {
		all = append(all, f)
	}
	return all, nil
}
func (s shelf) Upsert(f desired.Frontend) error                 { s[f.Key] = f; return nil }
func (s shelf) Delete(k service.Key) error                      { delete(s, k); return nil }
func (s shelf) Counters() ([]dataplane.FrontendCounters, error) { return nil, nil }
func (s shelf) Describe() dataplane.Description                 { return dataplane.Description{} }
func (s shelf) Close() error                                    { return nil }

// unprobed is a prober without results, so that the state of the data plane decides.
type unprobed struct{}

func (unprobed) Change(_, _ []health.Target)      {}
func (unprobed) Transitions() map[netip.Addr]bool { return map[netip.Addr]bool{} }
func (unprobed) State(health.Target) health.State { return health.Unknown }
func (unprobed) Changed() <-chan struct{}         { return nil }

// several returns the given number of Services with the given number of endpoints each.
func several(services, endpoints int) source.Snapshot {
	var s source.Snapshot
	for i := range services {
		one := web(0, 0)
		one.ID.Name = fmt.Sprintf("web-%06d", i)
		f := &one.Frontends[0]
		f.VIP = netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		for b := range endpoints {
			n := i*endpoints + b
			f.Backends = append(f.Backends, service.Backend{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, byte(n >> 16), byte(n >> 8), byte(n)}), 80), Weight: 1})
		}
		s.Services = append(s.Services, one)
	}
	return s
}

// holding returns a loop whose data plane already has everything in a snapshot.
func holding(s source.Snapshot) *Loop {
	plane := shelf{}
	for _, svc := range s.Services {
		for _, f := range svc.Frontends {
			plane[f.Key] = desired.FrontendOf(svc, f.Key, f.Backends)
		}
	}
	l := New(Config{
		Prober: unprobed{}, DataPlane: plane, Announcer: &advertise.Fake{}, DSRAgent: nowhere{}, Linger: time.Hour, Resync: time.Hour,
		Node: plan.Node{Name: "lb1", NextHop4: netip.MustParseAddr("10.0.0.105")}, Log: slog.New(slog.DiscardHandler),
	})
	l.snapshot.Store(&s)
	return l
}

// nowhere is a DSR agent that does nothing.
type nowhere struct{}

func (nowhere) Set([]desired.Frontend) error    { return nil }
func (nowhere) SetBalancers([]netip.Addr) error { return nil }

// TestPassesGrowLinearly runs passes over ten times as much: right after a start, with no
// changes, and when all Services are deleted.
func TestPassesGrowLinearly(t *testing.T) {
	for name, c := range map[string]struct {
		size int
		of   func(n int) source.Snapshot
	}{
		"Services":  {500, func(n int) source.Snapshot { return several(n, 1) }},
		"endpoints": {1000, func(n int) source.Snapshot { return several(1, n) }},
	} {
		t.Run(name, func(t *testing.T) {
			growth.Linear(t, c.size, func(n int) func() {
				s := c.of(n)
				return func() {
					l := holding(s)
					l.pass()
					l.pass()
					l.snapshot.Store(&source.Snapshot{})
					l.pass()
					if len(l.View().Announced) > 0 || len(l.View().Leaving) != len(s.Services) {
						t.Errorf("left are %d routes and %d frontends", len(l.View().Announced), len(l.View().Leaving))
					}
				}
			})
		})
	}
}

// healthy is a prober whose targets are all up. moved is what it names as changed.
type healthy struct {
	unprobed
	moved map[netip.Addr]bool
}

func (h *healthy) State(health.Target) health.State { return health.Up }
func (h *healthy) Transitions() map[netip.Addr]bool { return h.moved }

// BenchmarkPass runs passes in which nothing has changed, the health of one backend, or one
// Service.
func BenchmarkPass(b *testing.B) {
	for _, c := range []struct{ services, endpoints int }{{1000, 1}, {10000, 1}, {10000, 100}, {1, 5000}} {
		s := several(c.services, c.endpoints)
		one := s.Services[c.services/2]
		prober := &healthy{}
		l := holding(s)
		l.Prober = prober
		l.pass()
		for _, change := range []struct {
			what string
			make func(i int)
		}{
			{"nothing", func(int) { prober.moved = map[netip.Addr]bool{} }},
			{"health", func(int) { prober.moved = map[netip.Addr]bool{one.Frontends[0].Backends[0].Addr.Addr(): true} }},
			{"a Service", func(i int) {
				prober.moved = map[netip.Addr]bool{}
				other := *one
				other.RingSize = []int{8191, 16381}[i%2]
				next := s
				next.Services = slices.Clone(s.Services)
				next.Services[c.services/2] = &other
				l.snapshot.Store(&next)
			}},
		} {
			b.Run(fmt.Sprintf("%d services of %d endpoints/%s", c.services, c.endpoints, change.what), func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					change.make(i)
					l.pass()
				}
			})
		}
	}
}
