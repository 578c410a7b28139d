package proxy_test

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
)

// twin is a slow reference implementation of Build that applies the rules of TestBuild
// one by one to each frontend.
func twin(s *proxy.Service, all []*proxy.Slice, n proxy.Node) []proxy.Frontend {
	made := map[proxy.Key]proxy.Frontend{}
	for _, is4 := range []bool{true, false} {
		clusterIP := of(is4, s.ClusterIPs)
		if len(clusterIP) == 0 {
			continue
		}
		anyAddr := netip.IPv4Unspecified()
		if !is4 {
			anyAddr = netip.IPv6Unspecified()
		}
		for i, p := range s.Ports {
			if p.Port == 0 || !slices.Contains([]service.Protocol{service.TCP, service.UDP, service.SCTP}, p.Protocol) ||
				slices.ContainsFunc(s.Ports[:i], func(o proxy.ServicePort) bool { return o.Port == p.Port && o.Protocol == p.Protocol }) {
				continue
			}
			add := func(kind proxy.Kind, addr netip.Addr, port uint16) {
				k := proxy.Key{Addr: addr, Port: port, Protocol: p.Protocol}
				if _, taken := made[k]; !taken {
					made[k] = twinFrontend(s, all, n, p, k, kind, is4)
				}
			}
			add(proxy.ClusterIP, clusterIP[0], p.Port)
			for _, a := range of(is4, s.LoadBalancerIPs) {
				add(proxy.LoadBalancerIP, a, p.Port)
			}
			for _, a := range of(is4, s.ExternalIPs) {
				add(proxy.ExternalIP, a, p.Port)
			}
			if p.NodePort != 0 {
				add(proxy.NodePort, anyAddr, p.NodePort)
			}
		}
	}
	var list []proxy.Frontend
	for _, f := range made {
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b proxy.Frontend) int { return a.Key.Compare(b.Key) })
	return list
}

// of returns the usable addresses of a family.
func of(is4 bool, addrs []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool { return service.CheckUnicast(a) != nil || a.Is4() != is4 })
}

func twinFrontend(s *proxy.Service, all []*proxy.Slice, n proxy.Node, p proxy.ServicePort, k proxy.Key, kind proxy.Kind, is4 bool) proxy.Frontend {
	f := proxy.Frontend{Key: k, Kind: kind, Affinity: max(0, s.Affinity)}
	endpoints := twinEndpoints(s, all, n, p, is4)
	if kind == proxy.ClusterIP {
		f.Inside = twinChoice(endpoints, n, s.InternalLocal, p.Protocol)
		f.Outside = f.Inside
	} else {
		f.Inside, f.Outside = twinChoice(endpoints, n, false, p.Protocol), twinChoice(endpoints, n, s.ExternalLocal, p.Protocol)
	}
	if kind != proxy.LoadBalancerIP || len(s.SourceRanges) == 0 {
		return f
	}
	for _, r := range s.SourceRanges {
		if r.IsValid() && r.Addr().Is4() == is4 {
			if r.Bits() == 0 {
				f.Allow = nil
				return f
			}
			f.Allow = append(f.Allow, r.Masked())
		}
	}
	f.Closed = len(f.Allow) == 0
	return f
}

// twinEndpoints returns the endpoints of a port by address and port.
func twinEndpoints(s *proxy.Service, all []*proxy.Slice, n proxy.Node, p proxy.ServicePort, is4 bool) map[netip.AddrPort]proxy.Endpoint {
	endpoints := map[netip.AddrPort]proxy.Endpoint{}
	// rank is the preference of an endpoint over its duplicate.
	rank := func(e proxy.Endpoint) (r int) {
		for _, good := range []bool{!e.Terminating, e.Ready, e.Serving, e.Node != "" && e.Node == n.Name} {
			if r *= 2; good {
				r++
			}
		}
		return r
	}
	for _, sl := range all {
		for _, sp := range sl.Ports {
			for _, e := range sl.Endpoints {
				at := netip.AddrPortFrom(e.Addr, sp.Port)
				other, double := endpoints[at]
				outer := slices.Concat(s.ExternalIPs, s.LoadBalancerIPs)
				switch {
				case sp.Name != p.Name || sp.Protocol != p.Protocol || sp.Port == 0:
				case service.CheckUnicast(e.Addr) != nil || e.Addr.Is4() != is4 || sl.IPv6 == is4:
				case sp.Port == p.Port && slices.Contains(s.ClusterIPs, e.Addr):
				case sp.Port == p.Port && slices.Contains(outer, e.Addr) && e.Node == "":
				case double && rank(other) >= rank(e):
				default:
					endpoints[at] = e
				}
			}
		}
	}
	return endpoints
}

func twinChoice(endpoints map[netip.AddrPort]proxy.Endpoint, n proxy.Node, local bool, protocol service.Protocol) (c proxy.Choice) {
	isLocal := func(e proxy.Endpoint) bool { return e.Node == n.Name && n.Name != "" }
	ready := func(e proxy.Endpoint) bool { return e.Ready }
	leaving := func(e proxy.Endpoint) bool { return e.Serving && e.Terminating }
	forNode := func(e proxy.Endpoint) bool { return n.Name != "" && slices.Contains(e.ForNodes, n.Name) }
	forZone := func(e proxy.Endpoint) bool { return n.Zone != "" && slices.Contains(e.ForZones, n.Zone) }
	pick := func(conditions ...func(proxy.Endpoint) bool) (targets []proxy.Target) {
		for at, e := range endpoints {
			if !slices.ContainsFunc(conditions, func(c func(proxy.Endpoint) bool) bool { return !c(e) }) {
				targets = append(targets, proxy.Target{Addr: at, Local: isLocal(e)})
			}
		}
		slices.SortFunc(targets, func(a, b proxy.Target) int { return a.Addr.Compare(b.Addr) })
		return targets
	}
	var tries [][]proxy.Target
	switch {
	case local:
		tries = [][]proxy.Target{pick(isLocal, ready), pick(isLocal, leaving)}
	case len(pick(ready)) == len(pick(ready, func(e proxy.Endpoint) bool { return len(e.ForNodes) > 0 })) && len(pick(ready, forNode)) > 0:
		tries = [][]proxy.Target{pick(ready, forNode)}
	case len(pick(ready)) == len(pick(ready, func(e proxy.Endpoint) bool { return len(e.ForZones) > 0 })) && len(pick(ready, forZone)) > 0:
		tries = [][]proxy.Target{pick(ready, forZone)}
	default:
		tries = [][]proxy.Target{pick(ready), pick(leaving)}
	}
	for _, targets := range tries {
		if len(c.Targets) == 0 {
			c.Targets = targets
		}
	}
	if len(c.Targets) == 0 && len(pick(ready))+len(pick(leaving)) > 0 {
		c.Empty = proxy.Dropped
	}
	if protocol == service.UDP {
		c.Keeps = slices.DeleteFunc(pick(func(e proxy.Endpoint) bool { return e.Serving }), func(t proxy.Target) bool { return slices.Contains(c.Targets, t) })
	}
	return c
}

// dice generates Services from few values, so that they often collide.
type dice struct{ roll func(n int) int }

func (d dice) bool() bool { return d.roll(2) == 0 }

func pick[T any](d dice, from ...T) T { return from[d.roll(len(from))] }

// some picks up to most values.
func some[T any](d dice, most int, from ...T) (list []T) {
	for range d.roll(most + 1) {
		list = append(list, pick(d, from...))
	}
	return list
}

func (d dice) service() *proxy.Service {
	s := &proxy.Service{
		ID:              service.ID{Namespace: "default", Name: "web"},
		ClusterIPs:      some(d, 2, addrs("10.96.0.1 10.96.0.2 fd00:96::1 127.0.0.1")...),
		ExternalIPs:     some(d, 2, addrs("192.0.2.1 198.51.100.1 10.1.0.1 2001:db8::1 ::")...),
		LoadBalancerIPs: some(d, 2, addrs("198.51.100.1 10.96.0.1 2001:db8::2")...),
		Affinity:        pick(d, 0, -1, time.Hour),
		InternalLocal:   d.bool(), ExternalLocal: d.bool(),
		SourceRanges: some(d, 2, netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("2001:db8::1/32"), netip.Prefix{}),
	}
	for range d.roll(4) {
		s.Ports = append(s.Ports, proxy.ServicePort{
			Name: pick(d, "", "a", "b"), Protocol: pick(d, service.TCP, service.UDP, service.SCTP, 0),
			Port: uint16(pick(d, 0, 80, 81, 8080)), NodePort: uint16(pick(d, 0, 30000, 30001, 30002)),
		})
	}
	// The twin does not support duplicate node ports.
	for i := range s.Ports {
		for _, o := range s.Ports[:i] {
			if o.NodePort == s.Ports[i].NodePort && o.Protocol == s.Ports[i].Protocol {
				s.Ports[i].NodePort = 0
			}
		}
	}
	return s
}

func (d dice) slices() (list []*proxy.Slice) {
	for range d.roll(4) {
		sl := &proxy.Slice{ID: proxy.SliceID{Namespace: "default", Name: "web"}, Service: "web", IPv6: d.bool()}
		for range d.roll(3) {
			sl.Ports = append(sl.Ports, proxy.SlicePort{
				Name: pick(d, "", "a", "b"), Protocol: pick(d, service.TCP, service.UDP), Port: uint16(pick(d, 0, 80, 8080, 8081)),
			})
		}
		for range d.roll(6) {
			all := addrs("10.1.0.1 10.1.0.2 10.1.0.3 10.96.0.1 192.0.2.1 127.0.0.1 fd00:1::1")
			if sl.IPv6 {
				all = addrs("fd00:1::1 fd00:1::2 fd00:1::3 fd00:96::1 2001:db8::1 fe80::1 ::1 ::ffff:10.1.0.1 10.1.0.1")
			}
			sl.Endpoints = append(sl.Endpoints, proxy.Endpoint{
				Addr: pick(d, all...), Node: pick(d, "", "n1", "n2"), Ready: d.bool(), Serving: d.bool(), Terminating: d.bool(),
				ForZones: some(d, 2, "za", "zb", "za"), ForNodes: some(d, 1, "n1", "n2"),
			})
		}
		list = append(list, sl)
	}
	return list
}

// check compares Build with its twin and checks the promises of its contract.
func check(t *testing.T, s *proxy.Service, all []*proxy.Slice, n proxy.Node) {
	t.Helper()
	got, _ := proxy.Build(s, all, n)
	if g, w := print(got), print(twin(s, all, n)); g != w {
		t.Fatalf("Service %+v on %+v\n got:\n%swant:\n%s", s, n, g, w)
	}
	for i, f := range got {
		if i > 0 && got[i-1].Key.Compare(f.Key) >= 0 {
			t.Fatalf("%v is after %v", f.Key, got[i-1].Key)
		}
		for _, c := range []proxy.Choice{f.Inside, f.Outside} {
			if !slices.IsSortedFunc(c.Targets, func(a, b proxy.Target) int { return a.Addr.Compare(b.Addr) }) {
				t.Fatalf("targets of %v are out of order: %v", f.Key, c.Targets)
			}
		}
	}
	for _, ip := range s.ClusterIPs {
		if h := proxy.HealthOf(s, all, n); ip.Is4() && h.Ready4 > 0 && len(got) == 0 {
			t.Fatalf("%+v of a Service without frontends", h)
		}
	}
}

// TestBuildAgainstTwin compares both on random Services.
func TestBuildAgainstTwin(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	d := dice{rng.IntN}
	for range 20_000 {
		n := proxy.Node{Name: pick(d, "", "n1", "n1"), Zone: pick(d, "", "za", "zc")}
		check(t, d.service(), d.slices(), n)
	}
}

// FuzzBuild compares both on fuzzed Services.
func FuzzBuild(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("Fairlead guides a line to where it must run, with the least friction."))
	f.Fuzz(func(t *testing.T, data []byte) {
		fuzzlimit.Time(t)
		d := dice{func(n int) int {
			if len(data) == 0 {
				return 0
			}
			v := int(data[0])
			data = data[1:]
			return v % n
		}}
		n := proxy.Node{Name: pick(d, "", "n1"), Zone: pick(d, "", "za", "zc")}
		check(t, d.service(), d.slices(), n)
	})
}
