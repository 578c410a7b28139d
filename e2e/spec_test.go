package e2e

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/fairlead/fairlead/lab/paper"
)

// Ports of the Services and of the servers behind them; they differ, so that
// whoever forgets to rewrite one is found out.
const (
	httpPort, httpTarget = 8080, paper.ServerPort
	echoPort, echoTarget = 5300, 53
)

// spec is a Service of the tests, with the servers of one of the paper's.
type spec struct {
	name string
	// of is the paper's service, whose balancers and servers it has.
	of int
	// host is the VIPs' last part.
	host int
	// annotations without their prefix, "method: tunnel".
	annotations []string
	// ownRoute announces the VIPs alone, not the whole prefix.
	ownRoute bool
	// node is where its servers are; empty for all.
	node string
}

// servers gives those of a Service that are there now.
func (s spec) servers(w *world) []paper.Pod {
	var pods []paper.Pod
	for _, pod := range w.Servers(s.of) {
		if s.node == "" || pod.Node.Name == s.node {
			pods = append(pods, pod)
		}
	}
	return pods
}

// vip gives the address of a family, with a port.
func (s spec) vip(six bool, port uint16) netip.AddrPort {
	text := fmt.Sprintf("10.1.%d.%d", s.of+1, s.host)
	if six {
		text = fmt.Sprintf("fd00:10:1:%d::%d", s.of+1, s.host)
	}
	return netip.AddrPortFrom(netip.MustParseAddr(text), port)
}

func (s spec) http() netip.AddrPort  { return s.vip(false, httpPort) }
func (s spec) http6() netip.AddrPort { return s.vip(true, httpPort) }

// manifest writes the Service and an EndpointSlice a family.
func (s spec) manifest(w *world) string {
	var b strings.Builder
	drawn := w.Services[s.of]
	six := drawn.Prefix6.IsValid()
	addresses, prefixes := s.vip(false, 0).Addr().String(), drawn.Prefix.String()
	if six {
		addresses += "," + s.vip(true, 0).Addr().String()
		prefixes += "," + drawn.Prefix6.String()
	}
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Service\nmetadata:\n  name: %s\n  creationTimestamp: \"2026-01-01T00:00:00Z\"\n", s.name)
	fmt.Fprintf(&b, "  annotations:\n    fairlead.io/addresses: %q\n", addresses)
	if !s.ownRoute {
		fmt.Fprintf(&b, "    fairlead.io/prefixes: %q\n", prefixes)
	}
	for _, a := range s.annotations {
		fmt.Fprintf(&b, "    fairlead.io/%s\n", a)
	}
	fmt.Fprintf(&b, "spec:\n  type: LoadBalancer\n  ports:\n")
	fmt.Fprintf(&b, "    - {name: http, port: %d}\n    - {name: echo, port: %d, protocol: UDP}\n", httpPort, echoPort)
	s.slice(&b, w, "IPv4", func(p paper.Pod) netip.Addr { return p.Addr })
	if six {
		s.slice(&b, w, "IPv6", func(p paper.Pod) netip.Addr { return p.Addr6 })
	}
	return b.String()
}

func (s spec) slice(b *strings.Builder, w *world, family string, addr func(paper.Pod) netip.Addr) {
	fmt.Fprintf(b, "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: %s-%s\n", s.name, strings.ToLower(family))
	fmt.Fprintf(b, "  labels: {kubernetes.io/service-name: %s}\naddressType: %s\n", s.name, family)
	fmt.Fprintf(b, "ports:\n  - {name: http, port: %d}\n  - {name: echo, port: %d, protocol: UDP}\nendpoints:\n", httpTarget, echoTarget)
	for _, pod := range s.servers(w) {
		conditions := "{ready: true}"
		if w.draining[pod.Name] {
			conditions = "{ready: false, serving: true, terminating: true}"
		}
		fmt.Fprintf(b, "  - addresses: [%q]\n    nodeName: %s\n    targetRef: {kind: Pod, name: %s}\n    conditions: %s\n",
			addr(pod), pod.Node.Name, pod.Name, conditions)
	}
}
