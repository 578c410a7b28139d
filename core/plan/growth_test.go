package plan

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/testkit/growth"
)

// many returns the given number of Services, with the given number of endpoints each.
func many(services, endpoints int, change ...func(i int, s *service.Service)) []*service.Service {
	all := make([]*service.Service, services)
	for i := range all {
		all[i] = &service.Service{
			ID: service.ID{Namespace: "default", Name: fmt.Sprintf("web-%06d", i)}, Method: service.Tunnel, Scheduler: service.Maglev,
			RingSize: service.DefaultRingSize, Health: service.DefaultHealthCheck, Panic: true,
			Frontends: []service.Frontend{{Key: service.Key{VIP: address(10<<24 + i), Port: 80, Protocol: service.TCP}, Backends: servers(i, endpoints)}},
		}
		for _, c := range change {
			c(i, all[i])
		}
	}
	return all
}

func address(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

func servers(i, n int) []service.Backend {
	all := make([]service.Backend, n)
	for b := range all {
		all[b] = service.Backend{Addr: netip.AddrPortFrom(address(172<<24+i*n+b), 8080), Weight: 1}
	}
	return all
}

// at returns the input of a node that has all backends programmed but knows the health of
// none: the most expensive case.
func at(services []*service.Service) Input {
	held := map[service.Key]map[netip.AddrPort]health.State{}
	for _, s := range services {
		for _, f := range s.Frontends {
			held[f.Key] = make(map[netip.AddrPort]health.State, len(f.Backends))
			for _, b := range f.Backends {
				held[f.Key][b.Addr] = health.Up
			}
		}
	}
	return Input{
		Services: services, Node: node, Health: func(health.Target) health.State { return health.Unknown },
		Held: func(k service.Key) map[netip.AddrPort]health.State { return held[k] },
	}
}

// TestGrowsLinearly builds plans for ten times as many Services, endpoints and offers.
func TestGrowsLinearly(t *testing.T) {
	offers := func(of ...route.Offer) func(*service.Service, netip.Addr) ([]route.Offer, string) {
		return func(*service.Service, netip.Addr) ([]route.Offer, string) { return of, "" }
	}
	wide := netip.MustParsePrefix("10.0.0.0/8")
	for name, c := range map[string]struct {
		size     int
		services func(size int) []*service.Service
		announce func(*service.Service, netip.Addr) ([]route.Offer, string)
	}{
		"Services":  {size: 10000, services: func(n int) []*service.Service { return many(n, 1) }},
		"endpoints": {size: 10000, services: func(n int) []*service.Service { return many(1, n) }},
		"of both protocols": {size: 1000, services: func(n int) []*service.Service {
			return many(1, n, func(_ int, s *service.Service) {
				udp := s.Frontends[0]
				udp.Protocol = service.UDP
				udp.Backends = servers(1<<12, n)
				s.Frontends = append(s.Frontends, udp)
			})
		}},
		"behind one prefix": {size: 3000, services: func(n int) []*service.Service { return many(n, 1) }, announce: offers(route.Offer{By: "a", Prefix: wide})},
		"behind one prefix, unfit": {size: 3000, services: func(n int) []*service.Service { return many(n, 1) },
			announce: offers(route.Offer{By: "a", Prefix: wide, MinHealthyBackends: 2})},
		"announced in two ways": {size: 3000, services: func(n int) []*service.Service { return many(n, 1) },
			announce: func(_ *service.Service, vip netip.Addr) ([]route.Offer, string) {
				p := netip.PrefixFrom(vip, 32)
				return []route.Offer{{By: "a", Prefix: p}, {By: "b", Prefix: p, Attributes: route.Attributes{MED: 7}}}, ""
			}},
		"for one address and port": {size: 3000, services: func(n int) []*service.Service {
			return many(n, 1, func(_ int, s *service.Service) { s.Frontends[0].VIP = address(10 << 24) })
		}},
		"ranges of ports": {size: 3000, services: func(n int) []*service.Service {
			return many(n, 1, func(_ int, s *service.Service) { s.Frontends[0].Port, s.Frontends[0].Last = 1000, 1999 })
		}},
		"ranges of one address": {size: 3000, services: func(n int) []*service.Service {
			return many(n, 1, func(i int, s *service.Service) {
				s.Frontends[0].VIP = address(10 << 24)
				s.Frontends[0].Port, s.Frontends[0].Last = uint16(2*i+1), uint16(2*i+2)
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			growth.Linear(t, c.size, func(size int) func() {
				in := at(c.services(size))
				in.Announce = c.announce
				return func() { Build(in) }
			})
		})
	}
}

// BenchmarkBuild builds plans of large configurations.
func BenchmarkBuild(b *testing.B) {
	for _, c := range []struct{ services, endpoints int }{{1000, 1}, {10000, 1}, {100000, 1}, {10000, 100}, {1, 1000}, {1, 5000}, {1, 100000}} {
		b.Run(fmt.Sprintf("%d services of %d endpoints", c.services, c.endpoints), func(b *testing.B) {
			in := at(many(c.services, c.endpoints))
			b.ReportAllocs()
			for b.Loop() {
				Build(in)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*c.services*c.endpoints), "ns/endpoint")
		})
	}
}
