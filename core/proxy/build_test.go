package proxy_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/core/service"
)

// All tests use this node. n2 is in its zone, n3 in another.
var here = proxy.Node{Name: "n1", Zone: "za"}

func addrs(text string) []netip.Addr {
	var list []netip.Addr
	for _, a := range strings.Fields(text) {
		list = append(list, netip.MustParseAddr(a))
	}
	return list
}

func web(change func(*proxy.Service)) *proxy.Service {
	s := &proxy.Service{
		ID:         service.ID{Namespace: "default", Name: "web"},
		ClusterIPs: addrs("10.96.0.1"),
		Ports:      []proxy.ServicePort{{Name: "http", Protocol: service.TCP, Port: 80}},
	}
	if change != nil {
		change(s)
	}
	return s
}

// slice parses endpoints, one per line: "address node conditions hints". Conditions are
// letters of ready, serving and terminating, or "-"; hints look like "zone=za,zb" and
// "node=n1". The slice is IPv6 if its first endpoint is.
func slice(name, text string) *proxy.Slice {
	sl := &proxy.Slice{
		ID: proxy.SliceID{Namespace: "default", Name: name}, Service: "web",
		Ports: []proxy.SlicePort{{Name: "http", Protocol: service.TCP, Port: 8080}},
	}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		e := proxy.Endpoint{
			Addr: netip.MustParseAddr(words[0]), Node: strings.Trim(words[1], "-"),
			Ready: strings.Contains(words[2], "r"), Serving: strings.Contains(words[2], "s"), Terminating: strings.Contains(words[2], "t"),
		}
		for _, hint := range words[3:] {
			if list, ok := strings.CutPrefix(hint, "zone="); ok {
				e.ForZones = strings.Split(list, ",")
			} else {
				e.ForNodes = strings.Split(strings.TrimPrefix(hint, "node="), ",")
			}
		}
		sl.Endpoints = append(sl.Endpoints, e)
	}
	sl.IPv6 = len(sl.Endpoints) > 0 && sl.Endpoints[0].Addr.Is6()
	return sl
}

// print formats frontends, one per line: what clients on the node get and, if different,
// what others get. Local targets have a star.
func print(frontends []proxy.Frontend) string {
	kinds := []string{"cluster-ip", "external-ip", "load-balancer-ip", "node-port"}
	list := func(targets []proxy.Target) (text string) {
		for _, t := range targets {
			text += " " + t.Addr.String()
			if t.Local {
				text += "*"
			}
		}
		return text
	}
	choice := func(c proxy.Choice) string {
		text := strings.TrimPrefix(list(c.Targets), " ")
		if len(c.Targets) == 0 {
			text = []string{"refused", "dropped"}[c.Empty]
		}
		if len(c.Keeps) > 0 {
			text += " keeps" + list(c.Keeps)
		}
		return text
	}
	text := ""
	for _, f := range frontends {
		text += fmt.Sprintf("%s %s/%s: %s", kinds[f.Kind], netip.AddrPortFrom(f.Addr, f.Port), f.Protocol, choice(f.Inside))
		if in, out := choice(f.Inside), choice(f.Outside); in != out {
			text += " | " + out
		}
		if f.Affinity != 0 {
			text += " affinity=" + f.Affinity.String()
		}
		if f.Closed {
			text += " closed"
		}
		for _, p := range f.Allow {
			text += " allow=" + p.String()
		}
		text += "\n"
	}
	return text
}

func printProblems(problems []proxy.Problem) string {
	text := ""
	for _, p := range problems {
		text += p.Object + ": " + p.Field + ": " + p.Message + "\n"
	}
	return text
}

// compare compares text line by line, ignoring indentation.
func compare(t *testing.T, what, got, want string) {
	t.Helper()
	trimmed := ""
	for line := range strings.Lines(want) {
		if line = strings.TrimSpace(line); line != "" {
			trimmed += line + "\n"
		}
	}
	if got != trimmed {
		t.Errorf("%s\n got:\n%swant:\n%s", what, got, trimmed)
	}
}

// TestBuild checks Build against kube-proxy's rules, as in pkg/proxy of v1.36:
//
//  1. Without a cluster IP of a family there are no frontends of that family, whatever
//     external addresses there are (servicechangetracker.go, serviceToServiceMap).
//  2. Endpoints are those of the slices' ports of the same name and protocol, each
//     address and port once; one that is not terminating wins over one that is
//     (endpointslicecache.go, addEndpoints).
//  3. The Cluster list is the ready endpoints filtered by hints; if none is ready
//     anywhere, all that are serving and terminating (topology.go, CategorizeEndpoints).
//  4. The Local list is the ready endpoints on this node regardless of hints; if
//     none is ready, those on this node that are serving and terminating.
//  5. Hints select the endpoints for this node if every ready endpoint has node hints
//     and one is for this node; otherwise those for its zone by the same rule;
//     otherwise all.
//  6. A cluster IP uses the list of its internal policy. External addresses use Cluster
//     for the node's own sockets and pods, and the external policy's list for others.
//  7. If a list is empty: rejected if the Service has no endpoint in either
//     condition on any node, otherwise dropped (nftables/proxier.go, syncProxyRules).
//  8. A UDP flow stays with its endpoint as long as that serves, even if it is
//     terminating or excluded by hints or policy (conntrack/cleanup.go).
//  9. Source ranges apply only to load balancer IPs; a /0 range allows everyone
//     (serviceport.go, newBaseServiceInfo).
func TestBuild(t *testing.T) {
	local := func(s *proxy.Service) { s.InternalLocal = true }
	datagrams := func(s *proxy.Service) { s.Ports[0].Protocol = service.UDP }
	outer := func(s *proxy.Service) {
		s.Ports[0].NodePort = 30080
		s.ExternalIPs, s.LoadBalancerIPs = addrs("192.0.2.1"), addrs("198.51.100.1")
	}
	outerLocal := func(s *proxy.Service) { outer(s); s.ExternalLocal = true }
	for _, c := range []struct {
		name      string
		service   func(*proxy.Service)
		endpoints string
		want      string
	}{
		{"headless", func(s *proxy.Service) { outer(s); s.ClusterIPs = nil }, "10.1.0.1 n1 rs", ""},
		{"no slices", nil, "", "cluster-ip 10.96.0.1:80/TCP: refused"},
		{"ready here and elsewhere, sorted", nil, "10.1.0.9 n2 rs\n10.1.0.1 n1 rs",
			"cluster-ip 10.96.0.1:80/TCP: 10.1.0.1:8080* 10.1.0.9:8080"},
		{"not ready", nil, "10.1.0.1 n1 -\n10.1.0.2 n1 s", "cluster-ip 10.96.0.1:80/TCP: refused"},
		{"terminating are not used while another is ready", nil, "10.1.0.1 n1 st\n10.1.0.2 n2 rs", "cluster-ip 10.96.0.1:80/TCP: 10.1.0.2:8080"},
		{"only terminating", nil, "10.1.0.1 n1 st\n10.1.0.2 n2 t", "cluster-ip 10.96.0.1:80/TCP: 10.1.0.1:8080*"},
		{"published though not ready", nil, "10.1.0.1 n1 rt", "cluster-ip 10.96.0.1:80/TCP: 10.1.0.1:8080*"},
		{"affinity", func(s *proxy.Service) { s.Affinity = time.Minute }, "10.1.0.1 n1 rs", "cluster-ip 10.96.0.1:80/TCP: 10.1.0.1:8080* affinity=1m0s"},

		{"internal Local", local, "10.1.0.1 n1 rs\n10.1.0.2 n2 rs", "cluster-ip 10.96.0.1:80/TCP: 10.1.0.1:8080*"},
		{"internal Local, none here", local, "10.1.0.2 n2 rs", "cluster-ip 10.96.0.1:80/TCP: dropped"},
		{"internal Local, none at all", local, "10.1.0.2 n2 -", "cluster-ip 10.96.0.1:80/TCP: refused"},
		{"internal Local, only terminating here", local, "10.1.0.1 n1 st\n10.1.0.2 n2 rs", "cluster-ip 10.96.0.1:80/TCP: 10.1.0.1:8080*"},
		{"internal Local, only terminating elsewhere", local, "10.1.0.2 n2 st", "cluster-ip 10.96.0.1:80/TCP: dropped"},
		{"internal Local leaves outer addresses alone", func(s *proxy.Service) { local(s); s.Ports[0].NodePort = 30080 }, "10.1.0.2 n2 rs",
			`node-port 0.0.0.0:30080/TCP: 10.1.0.2:8080
			 cluster-ip 10.96.0.1:80/TCP: dropped`},
		{"a node without a name has no local endpoints", func(s *proxy.Service) { local(s) }, "10.1.0.2 - rs", "cluster-ip 10.96.0.1:80/TCP: dropped"},

		{"outer addresses", outer, "10.1.0.1 n1 rs\n10.1.0.2 n2 rs",
			`node-port 0.0.0.0:30080/TCP: 10.1.0.1:8080* 10.1.0.2:8080
			 cluster-ip 10.96.0.1:80/TCP: 10.1.0.1:8080* 10.1.0.2:8080
			 external-ip 192.0.2.1:80/TCP: 10.1.0.1:8080* 10.1.0.2:8080
			 load-balancer-ip 198.51.100.1:80/TCP: 10.1.0.1:8080* 10.1.0.2:8080`},
		{"external Local", outerLocal, "10.1.0.1 n1 rs\n10.1.0.2 n2 rs",
			`node-port 0.0.0.0:30080/TCP: 10.1.0.1:8080* 10.1.0.2:8080 | 10.1.0.1:8080*
			 cluster-ip 10.96.0.1:80/TCP: 10.1.0.1:8080* 10.1.0.2:8080
			 external-ip 192.0.2.1:80/TCP: 10.1.0.1:8080* 10.1.0.2:8080 | 10.1.0.1:8080*
			 load-balancer-ip 198.51.100.1:80/TCP: 10.1.0.1:8080* 10.1.0.2:8080 | 10.1.0.1:8080*`},
		{"external Local, none here", outerLocal, "10.1.0.2 n2 rs",
			`node-port 0.0.0.0:30080/TCP: 10.1.0.2:8080 | dropped
			 cluster-ip 10.96.0.1:80/TCP: 10.1.0.2:8080
			 external-ip 192.0.2.1:80/TCP: 10.1.0.2:8080 | dropped
			 load-balancer-ip 198.51.100.1:80/TCP: 10.1.0.2:8080 | dropped`},
		{"external Local, none at all", outerLocal, "",
			`node-port 0.0.0.0:30080/TCP: refused
			 cluster-ip 10.96.0.1:80/TCP: refused
			 external-ip 192.0.2.1:80/TCP: refused
			 load-balancer-ip 198.51.100.1:80/TCP: refused`},
		{"external Local, only terminating here", func(s *proxy.Service) { s.ExternalLocal = true; s.Ports[0].NodePort = 30080 },
			"10.1.0.1 n1 st\n10.1.0.2 n2 rs",
			`node-port 0.0.0.0:30080/TCP: 10.1.0.2:8080 | 10.1.0.1:8080*
			 cluster-ip 10.96.0.1:80/TCP: 10.1.0.2:8080`},

		{"UDP, one terminates", datagrams, "10.1.0.1 n1 st\n10.1.0.2 n2 rs\n10.1.0.3 n2 t", "cluster-ip 10.96.0.1:80/UDP: 10.1.0.2:8080 keeps 10.1.0.1:8080*"},
		{"UDP, all terminate", datagrams, "10.1.0.1 n1 st\n10.1.0.3 n2 t", "cluster-ip 10.96.0.1:80/UDP: 10.1.0.1:8080*"},
		{"UDP, hints", datagrams, "10.1.0.1 n1 rs zone=za\n10.1.0.3 n3 rs zone=zb", "cluster-ip 10.96.0.1:80/UDP: 10.1.0.1:8080* keeps 10.1.0.3:8080"},
		{"UDP, internal Local", func(s *proxy.Service) { datagrams(s); local(s) }, "10.1.0.1 n1 st\n10.1.0.2 n1 rs\n10.1.0.3 n3 rs\n10.1.0.4 n3 -",
			"cluster-ip 10.96.0.1:80/UDP: 10.1.0.2:8080* keeps 10.1.0.1:8080* 10.1.0.3:8080"},
		{"UDP, internal Local, none here", func(s *proxy.Service) { datagrams(s); local(s) }, "10.1.0.3 n3 rs",
			"cluster-ip 10.96.0.1:80/UDP: dropped keeps 10.1.0.3:8080"},

		{"zone hints", nil, "10.1.0.1 n1 rs zone=za\n10.1.0.2 n2 rs zone=zb,za\n10.1.0.3 n3 rs zone=zb",
			"cluster-ip 10.96.0.1:80/TCP: 10.1.0.1:8080* 10.1.0.2:8080"},
		{"one ready endpoint lacks a hint", nil, "10.1.0.1 n1 rs zone=za\n10.1.0.3 n3 rs", "cluster-ip 10.96.0.1:80/TCP: 10.1.0.1:8080* 10.1.0.3:8080"},
		{"one that is not ready lacks a hint", nil, "10.1.0.1 n1 rs zone=za\n10.1.0.3 n3 rs zone=zb\n10.1.0.4 n3 st",
			"cluster-ip 10.96.0.1:80/TCP: 10.1.0.1:8080*"},
		{"no hint for this zone", nil, "10.1.0.1 n1 rs zone=zb\n10.1.0.3 n3 rs zone=zc", "cluster-ip 10.96.0.1:80/TCP: 10.1.0.1:8080* 10.1.0.3:8080"},
		{"node hints", nil, "10.1.0.1 n1 rs node=n1 zone=za\n10.1.0.2 n2 rs node=n2 zone=za", "cluster-ip 10.96.0.1:80/TCP: 10.1.0.1:8080*"},
		{"node hints, none for this: zone", nil, "10.1.0.2 n2 rs node=n2 zone=za\n10.1.0.3 n3 rs node=n3 zone=zb",
			"cluster-ip 10.96.0.1:80/TCP: 10.1.0.2:8080"},
		{"node hints, one lacks its: zone", nil, "10.1.0.1 n1 rs node=n1 zone=za\n10.1.0.2 n2 rs zone=za", "cluster-ip 10.96.0.1:80/TCP: 10.1.0.1:8080* 10.1.0.2:8080"},
		{"hints do not keep terminating ones elsewhere away", nil, "10.1.0.1 n2 st zone=za\n10.1.0.3 n3 st zone=zb",
			"cluster-ip 10.96.0.1:80/TCP: 10.1.0.1:8080 10.1.0.3:8080"},
		{"hints do not touch the list Local", local, "10.1.0.1 n1 rs zone=zb\n10.1.0.2 n2 rs zone=za", "cluster-ip 10.96.0.1:80/TCP: 10.1.0.1:8080*"},

		{"source ranges", func(s *proxy.Service) {
			outer(s)
			s.SourceRanges = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8::/32")}
		}, "10.1.0.2 n2 rs",
			`node-port 0.0.0.0:30080/TCP: 10.1.0.2:8080
			 cluster-ip 10.96.0.1:80/TCP: 10.1.0.2:8080
			 external-ip 192.0.2.1:80/TCP: 10.1.0.2:8080
			 load-balancer-ip 198.51.100.1:80/TCP: 10.1.0.2:8080 allow=203.0.113.0/24`},
		{"source range of everybody", func(s *proxy.Service) {
			s.LoadBalancerIPs = addrs("198.51.100.1")
			s.SourceRanges = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("0.0.0.0/0")}
		}, "10.1.0.2 n2 rs",
			`cluster-ip 10.96.0.1:80/TCP: 10.1.0.2:8080
			 load-balancer-ip 198.51.100.1:80/TCP: 10.1.0.2:8080`},
		{"an address twice: the load balancer's, which has the ranges", func(s *proxy.Service) {
			s.LoadBalancerIPs, s.ExternalIPs = addrs("198.51.100.1"), addrs("198.51.100.1 198.51.100.1 10.96.0.1")
			s.SourceRanges = []netip.Prefix{netip.MustParsePrefix("203.0.113.1/24")}
		}, "10.1.0.2 n2 rs",
			`cluster-ip 10.96.0.1:80/TCP: 10.1.0.2:8080
			 load-balancer-ip 198.51.100.1:80/TCP: 10.1.0.2:8080 allow=203.0.113.0/24`},

		{"pods in their node's network", func(s *proxy.Service) { s.ExternalIPs = addrs("10.0.0.5"); s.Ports[0].Port = 8080 },
			"10.0.0.5 n1 rs\n10.0.0.6 n2 rs",
			`external-ip 10.0.0.5:8080/TCP: 10.0.0.5:8080* 10.0.0.6:8080
			 cluster-ip 10.96.0.1:8080/TCP: 10.0.0.5:8080* 10.0.0.6:8080`},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := here
			if strings.Contains(c.name, "without a name") {
				n = proxy.Node{}
			}
			s, slices := web(c.service), []*proxy.Slice{slice("web-1", c.endpoints)}
			slices[0].Ports[0].Protocol = s.Ports[0].Protocol
			got, problems := proxy.Build(s, slices, n)
			compare(t, "frontends", print(got), c.want)
			compare(t, "problems", printProblems(problems), "")
			compare(t, "the slow twin", print(twin(s, slices, n)), c.want)
		})
	}
}

func TestBuildOfUnknownZone(t *testing.T) {
	hinted := slice("web-1", "10.1.0.1 n1 rs zone=za\n10.1.0.3 n3 rs zone=zb")
	got, _ := proxy.Build(web(nil), []*proxy.Slice{hinted}, proxy.Node{Name: "n1"})
	compare(t, "frontends", print(got), "cluster-ip 10.96.0.1:80/TCP: 10.1.0.1:8080* 10.1.0.3:8080")
}

func TestBuildOfTwoFamilies(t *testing.T) {
	s := web(func(s *proxy.Service) {
		s.ClusterIPs = addrs("10.96.0.1 fd00:96::1")
		s.LoadBalancerIPs = addrs("198.51.100.1 2001:db8::1")
		s.Ports[0].NodePort = 30080
		s.ExternalLocal = true
		s.SourceRanges = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}
	})
	slices := []*proxy.Slice{slice("web-4", "10.1.0.1 n1 rs"), slice("web-6", "fd00:1::2 n2 rs")}
	got, problems := proxy.Build(s, slices, here)
	compare(t, "frontends", print(got), `
		node-port 0.0.0.0:30080/TCP: 10.1.0.1:8080*
		cluster-ip 10.96.0.1:80/TCP: 10.1.0.1:8080*
		load-balancer-ip 198.51.100.1:80/TCP: 10.1.0.1:8080* allow=203.0.113.0/24
		node-port [::]:30080/TCP: [fd00:1::2]:8080 | dropped
		load-balancer-ip [2001:db8::1]:80/TCP: [fd00:1::2]:8080 | dropped closed
		cluster-ip [fd00:96::1]:80/TCP: [fd00:1::2]:8080`)
	compare(t, "problems", printProblems(problems), `
		Service default/web: spec.loadBalancerSourceRanges: none is of the family of 2001:db8::1, which therefore serves nobody; add one`)
	compare(t, "the slow twin", print(twin(s, slices, here)), print(got))
}

// TestBuildOfTwoFamiliesAndEndpointsOfOne rejects clients of the other family, whatever
// the policies, as it has no endpoint anywhere.
func TestBuildOfTwoFamiliesAndEndpointsOfOne(t *testing.T) {
	s := web(func(s *proxy.Service) {
		s.ClusterIPs = addrs("fd00:96::1 10.96.0.1")
		s.Ports[0].NodePort, s.InternalLocal, s.ExternalLocal = 30080, true, true
	})
	got, problems := proxy.Build(s, []*proxy.Slice{slice("web-4", "10.1.0.2 n2 rs"), {Service: "web", IPv6: true}}, here)
	compare(t, "frontends", print(got), `
		node-port 0.0.0.0:30080/TCP: 10.1.0.2:8080 | dropped
		cluster-ip 10.96.0.1:80/TCP: dropped
		node-port [::]:30080/TCP: refused
		cluster-ip [fd00:96::1]:80/TCP: refused`)
	compare(t, "problems", printProblems(problems), "")
}

// TestBuildOfANamedTargetPort has two generations of pods with different ports of the
// same name, and one pod with both.
func TestBuildOfANamedTargetPort(t *testing.T) {
	before, after := slice("web-1", "10.1.0.1 n1 rs\n10.1.0.2 n2 rs"), slice("web-2", "10.1.0.3 n1 rs\n10.1.0.2 n2 rs")
	after.Ports[0].Port = 9090
	got, _ := proxy.Build(web(nil), []*proxy.Slice{before, after}, here)
	compare(t, "frontends", print(got), "cluster-ip 10.96.0.1:80/TCP: 10.1.0.1:8080* 10.1.0.2:8080 10.1.0.2:9090 10.1.0.3:9090*")
}

// TestBuildDropsDoubles has the same endpoint in two slices: while it moves between them,
// and when a pod got the address of a terminating one.
func TestBuildDropsDoubles(t *testing.T) {
	going, coming := slice("web-1", "10.1.0.1 n1 st\n10.1.0.2 n2 rs"), slice("web-2", "10.1.0.1 n1 rs\n10.1.0.2 n2 rs")
	for _, order := range [][]*proxy.Slice{{going, coming}, {coming, going}} {
		got, _ := proxy.Build(web(nil), order, here)
		compare(t, "frontends", print(got), "cluster-ip 10.96.0.1:80/TCP: 10.1.0.1:8080* 10.1.0.2:8080")
	}
}

func TestBuildMatchesPortsByNameAndProtocol(t *testing.T) {
	s := web(func(s *proxy.Service) {
		s.Ports = append(s.Ports, proxy.ServicePort{Name: "dns", Protocol: service.UDP, Port: 53}, proxy.ServicePort{Name: "dns", Protocol: service.TCP, Port: 53})
	})
	sl := slice("web-1", "10.1.0.1 n1 rs")
	sl.Ports = append(sl.Ports, proxy.SlicePort{Name: "dns", Protocol: service.UDP, Port: 5353})
	got, _ := proxy.Build(s, []*proxy.Slice{sl}, here)
	compare(t, "frontends", print(got), `
		cluster-ip 10.96.0.1:53/TCP: refused
		cluster-ip 10.96.0.1:53/UDP: 10.1.0.1:5353*
		cluster-ip 10.96.0.1:80/TCP: 10.1.0.1:8080*`)
}

// TestBuildSharesTargets checks that frontends of a port with the same targets share the
// slice.
func TestBuildSharesTargets(t *testing.T) {
	s := web(func(s *proxy.Service) {
		s.Ports[0].NodePort, s.ExternalIPs, s.ExternalLocal, s.InternalLocal = 30080, addrs("192.0.2.1 192.0.2.2"), true, true
	})
	got, _ := proxy.Build(s, []*proxy.Slice{slice("web-1", "10.1.0.1 n1 rs")}, here)
	if len(got) != 4 {
		t.Fatalf("%d frontends, want 4", len(got))
	}
	for _, f := range got {
		if &f.Inside.Targets[0] != &got[0].Inside.Targets[0] || &f.Outside.Targets[0] != &got[0].Inside.Targets[0] {
			t.Errorf("%v has targets of its own", f.Key)
		}
	}
}

// TestBuildNamesWhatItLeavesOut uses every invalid value that an API server may accept.
func TestBuildNamesWhatItLeavesOut(t *testing.T) {
	s := web(func(s *proxy.Service) {
		s.ClusterIPs = addrs("10.96.0.1 10.96.0.2 ::ffff:10.96.0.3")
		s.ExternalIPs = addrs("127.0.0.1 2001:db8::1 192.0.2.1")
		s.LoadBalancerIPs = addrs("0.0.0.0 169.254.1.1")
		s.SourceRanges = []netip.Prefix{{}, netip.MustParsePrefix("10.0.0.0/8")}
		s.Ports = []proxy.ServicePort{
			{Name: "http", Protocol: service.TCP, Port: 8080, NodePort: 30080},
			{Name: "zero", Protocol: service.TCP},
			{Name: "gre", Protocol: 47, Port: 1},
			{Name: "again", Protocol: service.TCP, Port: 8080},
			{Name: "node", Protocol: service.TCP, Port: 81, NodePort: 30080},
		}
	})
	bad := slice("web-1", `
		10.1.0.1 n1 rs
		127.0.0.1 n1 rs
		0.0.0.0 n1 rs
		fe80::1 n1 rs
		224.0.0.1 n1 rs
		2001:db8::7 n1 rs`)
	circle := slice("web-2", "10.96.0.1 n1 rs\n192.0.2.1 - rs\n192.0.2.9 - rs")
	circle.Ports = append(circle.Ports, proxy.SlicePort{Name: "node", Protocol: service.TCP})
	slices := []*proxy.Slice{bad, circle, slice("web-3", "10.1.0.3 n3 rs\n2001:db8::7 n1 rs")}
	got, problems := proxy.Build(s, slices, here)
	compare(t, "frontends", print(got), `
		node-port 0.0.0.0:30080/TCP: 10.1.0.1:8080* 10.1.0.3:8080 192.0.2.9:8080
		cluster-ip 10.96.0.1:81/TCP: refused
		cluster-ip 10.96.0.1:8080/TCP: 10.1.0.1:8080* 10.1.0.3:8080 192.0.2.9:8080
		external-ip 192.0.2.1:81/TCP: refused
		external-ip 192.0.2.1:8080/TCP: 10.1.0.1:8080* 10.1.0.3:8080 192.0.2.9:8080`)
	compare(t, "problems", printProblems(problems), `
		Service default/web: spec.clusterIPs: 10.96.0.2 is the second of its family; only the first is served
		Service default/web: spec.clusterIPs: ::ffff:10.96.0.3 is an IPv4 address in IPv6 clothes; write 10.96.0.3
		Service default/web: spec.externalIPs: 127.0.0.1 is not a unicast address that can be routed to
		Service default/web: spec.externalIPs: 2001:db8::1 is of a family of which the Service has no cluster IP; add it to spec.ipFamilies
		Service default/web: status.loadBalancer: 0.0.0.0 is not a unicast address that can be routed to
		Service default/web: status.loadBalancer: 169.254.1.1 is not a unicast address that can be routed to
		Service default/web: spec.loadBalancerSourceRanges[0]: this is not a prefix; want one like 10.0.0.0/8
		EndpointSlice default/web-1: endpoints[1].addresses: 127.0.0.1 is not a unicast address that can be routed to (and 4 more endpoints of this slice are not served)
		EndpointSlice default/web-2: ports[1].port: 0 is out of range; want 1 to 65535
		EndpointSlice default/web-2: endpoints[0].addresses: 10.96.0.1 is the Service's own address and port, which would send traffic in circles (and 1 more endpoints of this slice are not served)
		EndpointSlice default/web-3: endpoints[1].addresses: 2001:db8::7 is of another family than its slice
		Service default/web: spec.ports[1].port: 0 is out of range; want 1 to 65535
		Service default/web: spec.ports[2].protocol: protocol(47) is not served; want TCP, UDP or SCTP
		Service default/web: spec.ports[3].port: 8080/TCP is given twice; only the first is served
		Service default/web: spec.ports[4].nodePort: 30080/TCP is given twice; only the first is served`)
	for _, p := range problems {
		if p.Service != s.ID {
			t.Errorf("%s is of Service %s", p, p.Service)
		}
	}
	compare(t, "the slow twin", print(twin(s, slices, here)), print(got))
}

func TestHealthOf(t *testing.T) {
	s := web(func(s *proxy.Service) {
		s.ClusterIPs = addrs("10.96.0.1 fd00:96::1")
		s.Ports = append(s.Ports, proxy.ServicePort{Name: "more", Protocol: service.TCP, Port: 81})
		s.ExternalLocal, s.HealthCheckNodePort = true, 32000
	})
	v4 := slice("web-4", "10.1.0.1 n1 rs zone=zb\n10.1.0.2 n1 rs\n10.1.0.3 n1 st\n10.1.0.4 n2 rs")
	v4.Ports = append(v4.Ports, proxy.SlicePort{Name: "more", Protocol: service.TCP, Port: 8081})
	slices := []*proxy.Slice{v4, slice("web-6", "fd00:1::3 n1 st")}
	if got, want := proxy.HealthOf(s, slices, here), (proxy.HealthCheck{Port: 32000, IPv4: true, IPv6: true, Ready4: 2}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for name, change := range map[string]func(*proxy.Service){
		"policy Cluster":  func(s *proxy.Service) { s.ExternalLocal = false },
		"no port":         func(s *proxy.Service) { s.HealthCheckNodePort = 0 },
		"without address": func(s *proxy.Service) { s.ClusterIPs = nil },
	} {
		other := *s
		change(&other)
		if got := proxy.HealthOf(&other, slices, here); got != (proxy.HealthCheck{}) {
			t.Errorf("%s: got %+v, want none", name, got)
		}
	}
	if got := proxy.HealthOf(nil, slices, here); got != (proxy.HealthCheck{}) {
		t.Errorf("no Service: got %+v, want none", got)
	}
}

// TestSame changes the fields of a frontend one at a time.
func TestSame(t *testing.T) {
	s := web(func(s *proxy.Service) { s.LoadBalancerIPs, s.Affinity = addrs("198.51.100.1"), time.Hour })
	build := func() proxy.Frontend {
		f, _ := proxy.Build(s, []*proxy.Slice{slice("web-1", "10.1.0.1 n1 rs\n10.1.0.2 n2 rs")}, here)
		return f[1]
	}
	a, b := build(), build()
	if !a.Same(&b) {
		t.Error("two builds of the same differ")
	}
	for i, change := range []func(*proxy.Frontend){
		func(f *proxy.Frontend) { f.Port++ },
		func(f *proxy.Frontend) { f.Kind = proxy.ExternalIP },
		func(f *proxy.Frontend) { f.Affinity++ },
		func(f *proxy.Frontend) { f.Closed = true },
		func(f *proxy.Frontend) { f.Allow = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} },
		func(f *proxy.Frontend) { f.Outside.Targets = f.Outside.Targets[:1] },
		func(f *proxy.Frontend) { f.Inside = proxy.Choice{Empty: proxy.Dropped} },
		func(f *proxy.Frontend) { f.Outside.Keeps = f.Inside.Targets },
		func(f *proxy.Frontend) {
			f.Inside.Targets = slices.Clone(f.Inside.Targets)
			f.Inside.Targets[0].Local = false
		},
	} {
		b := build()
		if change(&b); a.Same(&b) {
			t.Errorf("change %d is not seen", i)
		}
	}
}
