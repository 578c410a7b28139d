package conformance

import (
	"errors"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/schedule"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/fake"
)

// from returns a flow of the i-th client from its n-th port.
func from(k service.Key, i, n int) schedule.Flow {
	client := netip.AddrFrom4([4]byte{192, 168, byte(i >> 8), byte(i)})
	return schedule.Flow{Client: netip.AddrPortFrom(client, uint16(2000+n)), Key: k}
}

// distinct counts the backends selected for flows of several clients: the maximum per
// client, and the total.
func (s *runner) distinct(k service.Key, clients, ports int) (each, all int) {
	s.Helper()
	servers := map[netip.AddrPort]bool{}
	for i := range clients {
		its := map[netip.AddrPort]bool{}
		for n := range ports {
			server := s.must(from(k, i, n), true).Server
			its[server], servers[server] = true, true
		}
		each = max(each, len(its))
	}
	return each, len(servers)
}

func hashes(s *runner) {
	for scheduler, want := range map[service.Scheduler][2]int{service.SourceHash: {1, 4}, service.DestinationHash: {1, 1}, service.Maglev: {4, 4}} {
		s.part(string(scheduler), func(s *runner) {
			f := frontend(service.Tunnel, scheduler, 4)
			s.upsert(f)
			defer s.delete(f.Key)
			if each, all := s.distinct(f.Key, 40, 12); each != want[0] || all != want[1] {
				s.Errorf("one client reached up to %d backends, all clients %d; want %v", each, all, want)
			}
		})
	}
}

func maxConns(s *runner) {
	for _, scheduler := range service.Schedulers {
		s.part(string(scheduler), func(s *runner) {
			f := frontend(service.Tunnel, scheduler, 3)
			f.Survival = service.FlowTable
			for i := range f.Backends {
				f.Backends[i].MaxConns = uint32(5 * (i + 1))
			}
			s.upsert(f)
			defer s.delete(f.Key)
			s.sameList()
			count := map[netip.AddrPort]uint32{}
			for i := range 30 {
				count[s.must(flow(f.Key, i), true).Server]++
			}
			for _, b := range f.Backends {
				if count[b.Addr] != b.MaxConns {
					s.Errorf("%s has %d connections, want %d", b.Addr, count[b.Addr], b.MaxConns)
				}
			}
			if _, err := s.send(flow(f.Key, 30), true); !errors.Is(err, fake.ErrFull) {
				s.Errorf("a connection above the limit: %v", err)
			}
			s.must(flow(f.Key, 7), false)
			s.upsert(with(f, func(b []service.Backend) []service.Backend { b[1].MaxConns++; return b }))
			if d := s.must(flow(f.Key, 30), true); d.Server != f.Backends[1].Addr {
				s.Errorf("after the limit was raised: connection forwarded to %v", d)
			}
		})
	}
}

func affinity(s *runner) {
	for _, scheduler := range []service.Scheduler{service.Maglev, service.RoundRobin, service.LeastConn, service.PowerOfTwo} {
		s.part(string(scheduler), func(s *runner) {
			f := frontend(service.Tunnel, scheduler, 3)
			f.Survival, f.Affinity = service.FlowTable, time.Hour
			s.upsert(f)
			defer s.delete(f.Key)
			var had []netip.AddrPort
			for i := range 12 {
				had = append(had, s.must(from(f.Key, i, 0), true).Server)
			}
			for step, change := range []func(){
				func() {},
				func() { s.upsert(joined(f, 5, then(1))) },
				func() { s.reopen() },
			} {
				change()
				for i, server := range had {
					if d := s.must(from(f.Key, i, step+1), true); d.Server != server {
						s.Fatalf("step %d: client %d moved from %s to %v", step, i, server, d)
					}
				}
			}
			s.upsert(drained(f, 0))
			for i := range had {
				if d := s.must(from(f.Key, i, 9), true); d.Server == f.Backends[0].Addr {
					s.Fatalf("client %d was forwarded to %v, which drains", i, d)
				}
				s.must(from(f.Key, i, 0), false)
			}
		})
	}
}

// without returns f with backends without a port, which receive flows on the port that
// the client used.
func without(f desired.Frontend) desired.Frontend {
	return with(f, func(bs []service.Backend) []service.Backend {
		for i := range bs {
			bs[i].Addr = netip.AddrPortFrom(bs[i].Addr.Addr(), 0)
		}
		return bs
	})
}

func ranges(s *runner) {
	for _, method := range service.Methods {
		s.part(string(method), func(s *runner) {
			one := frontend(method, service.Maglev, 3)
			some, more, whole := without(one), without(one), without(one)
			one = kind{method: method, scheduler: service.Maglev, protocol: service.TCP}.frontend(3)
			some.Port, some.Last = 8000, 8999
			more.Port, more.Last, more.Protocol = 8500, 9999, service.UDP
			whole.Key = service.Key{VIP: one.VIP, Last: 65535}
			at := func(port uint16, p service.Protocol) service.Key {
				return service.Key{VIP: one.VIP, Port: port, Protocol: p}
			}
			for _, f := range []desired.Frontend{one, some, more} {
				s.upsert(f)
				defer s.delete(f.Key)
			}
			s.sameList()
			for _, k := range []service.Key{at(8000, service.TCP), at(8999, service.TCP), at(8500, service.UDP), at(9999, service.UDP)} {
				for i := range 10 {
					if d := s.must(flow(k, i), true); d.Server.Port() != k.Port {
						s.Fatalf("%v went to %v", k, d)
					}
				}
			}
			others := []service.Key{at(7999, service.TCP), at(9000, service.TCP), at(8499, service.UDP), at(81, service.TCP), at(80, service.UDP)}
			for _, k := range others {
				if _, err := s.send(flow(k, 1), true); !errors.Is(err, fake.ErrNoFrontend) {
					s.Errorf("%v: %v", k, err)
				}
			}
			s.upsert(whole)
			defer s.delete(whole.Key)
			for _, k := range append(others, at(80, service.TCP), at(8000, service.TCP)) {
				s.must(flow(k, 2), true)
			}
			s.reopen()
			s.sameList()
			s.delete(some.Key)
			s.must(flow(at(8000, service.TCP), 3), true)
			s.delete(whole.Key)
			if _, err := s.send(flow(at(8000, service.TCP), 4), true); !errors.Is(err, fake.ErrNoFrontend) {
				s.Errorf("after the range is removed: %v", err)
			}
		})
	}
}

func clients(s *runner) {
	f := frontend(service.Tunnel, service.Maglev, 3)
	f.Allow = []netip.Prefix{netip.MustParsePrefix("192.168.0.0/24")}
	f.Deny = []netip.Prefix{netip.MustParsePrefix("192.168.0.128/25"), netip.MustParsePrefix("192.168.0.3/32")}
	s.upsert(f)
	s.sameList()
	for client, want := range map[int]error{1: nil, 3: fake.ErrDenied, 127: nil, 128: fake.ErrDenied, 256: fake.ErrDenied} {
		for _, opens := range []bool{true, false} {
			if _, err := s.send(from(f.Key, client, 1), opens); !errors.Is(err, want) {
				s.Errorf("client %d: %v, want %v", client, err, want)
			}
		}
	}
	f.Allow = nil
	s.upsert(f)
	s.must(from(f.Key, 256, 1), true)
	f.Deny = nil
	s.upsert(f)
	s.must(from(f.Key, 128, 1), true)
	s.sameList()
}

// clientsOfRanges checks client restrictions where a port and the whole address differ.
// The more specific one applies.
func clientsOfRanges(s *runner) {
	one, whole := frontend(service.Tunnel, service.Maglev, 3), without(frontend(service.Tunnel, service.Maglev, 3))
	whole.Key = service.Key{VIP: one.VIP, Last: 65535}
	denied := []netip.Prefix{netip.MustParsePrefix("192.168.0.3/32")}
	other := service.Key{VIP: one.VIP, Port: one.Port + 1, Protocol: service.TCP}
	flows := 0 // each flow is a new one
	meets := func(what string, k service.Key, want error) {
		flows++
		if _, err := s.send(from(k, 3, flows), true); !errors.Is(err, want) {
			s.Errorf("%s: %v, want %v", what, err, want)
		}
		s.must(from(k, 4, flows), true)
	}
	whole.Deny = denied
	s.upsert(whole)
	defer s.delete(whole.Key)
	meets("a denied client at the whole address", other, fake.ErrDenied)
	s.upsert(one)
	meets("at an allowed port", one.Key, nil)
	meets("at another port of the address", other, fake.ErrDenied)
	one.Deny, whole.Deny = denied, nil
	s.upsert(one)
	s.upsert(whole)
	s.reopen()
	s.sameList()
	meets("at a port that denies it", one.Key, fake.ErrDenied)
	meets("at another port", other, nil)
	s.delete(one.Key)
	meets("at the port without its frontend", one.Key, nil)
}
