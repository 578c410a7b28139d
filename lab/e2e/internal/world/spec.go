package world

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/lab/paper"
)

// Ports of the Services and of their backends. They differ, so that code which forgets to
// rewrite one fails.
const (
	HTTPPort, HTTPTarget = 8080, paper.ServerPort
	EchoPort, EchoTarget = 5300, 53
)

// Spec is a Service of the tests, with the backends of one of the paper's services.
type Spec struct {
	Name string
	// Of is the paper's service whose load balancers and backends it has.
	Of int
	// Host is the last part of the VIPs.
	Host int
	// Annotations are without their prefix, such as "forwarding-mode: tunnel".
	Annotations []string
	// OwnRoute advertises only the VIPs, not the whole prefix.
	OwnRoute bool
	// Node is the node of its backends; empty means all nodes.
	Node string
}

// Servers returns the current backends of a Service.
func (s Spec) Servers(w *World) []paper.Pod {
	var pods []paper.Pod
	for _, pod := range w.Servers(s.Of) {
		if s.Node == "" || pod.Node.Name == s.Node {
			pods = append(pods, pod)
		}
	}
	return pods
}

// VIP returns the address of a family, with a port.
func (s Spec) VIP(six bool, port uint16) netip.AddrPort {
	text := fmt.Sprintf("10.1.%d.%d", s.Of+1, s.Host)
	if six {
		text = fmt.Sprintf("fd00:10:1:%d::%d", s.Of+1, s.Host)
	}
	return netip.AddrPortFrom(netip.MustParseAddr(text), port)
}

// HTTP and HTTP6 are the VIPs that answer HTTP.
func (s Spec) HTTP() netip.AddrPort  { return s.VIP(false, HTTPPort) }
func (s Spec) HTTP6() netip.AddrPort { return s.VIP(true, HTTPPort) }

// Manifest returns the Service and an EndpointSlice per family.
func (s Spec) Manifest(w *World) string {
	var b strings.Builder
	drawn := w.Services[s.Of]
	six := drawn.Prefix6.IsValid()
	addresses, prefixes := s.VIP(false, 0).Addr().String(), drawn.Prefix.String()
	if six {
		addresses += "," + s.VIP(true, 0).Addr().String()
		prefixes += "," + drawn.Prefix6.String()
	}
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Service\nmetadata:\n  name: %s\n  creationTimestamp: \"2026-01-01T00:00:00Z\"\n", s.Name)
	fmt.Fprintf(&b, "  annotations:\n    fairlead.io/addresses: %q\n", addresses)
	if !s.OwnRoute {
		fmt.Fprintf(&b, "    fairlead.io/advertise-prefixes: %q\n", prefixes)
	}
	for _, a := range append(s.patience(), s.Annotations...) {
		fmt.Fprintf(&b, "    fairlead.io/%s\n", a)
	}
	fmt.Fprintf(&b, "spec:\n  type: LoadBalancer\n  ports:\n")
	fmt.Fprintf(&b, "    - {name: http, port: %d}\n    - {name: echo, port: %d, protocol: UDP}\n", HTTPPort, EchoPort)
	s.slice(&b, w, "IPv4", func(p paper.Pod) netip.Addr { return p.Addr })
	if six {
		s.slice(&b, w, "IPv6", func(p paper.Pod) netip.Addr { return p.Addr6 })
	}
	return b.String()
}

// patience sets check timeouts longer than a busy machine delays a backend, or its
// checker: slow but healthy backends only matter in the scenarios that configure their
// own checks.
func (s Spec) patience() []string {
	if slices.ContainsFunc(s.Annotations, func(a string) bool { return strings.HasPrefix(a, "health-check") }) {
		return nil
	}
	return []string{"health-check-interval: 10s", "health-check-timeout: 10s"}
}

func (s Spec) slice(b *strings.Builder, w *World, family string, addr func(paper.Pod) netip.Addr) {
	fmt.Fprintf(b, "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: %s-%s\n", s.Name, strings.ToLower(family))
	fmt.Fprintf(b, "  labels: {kubernetes.io/service-name: %s}\n", s.Name)
	if spans := s.spans(w, addr); spans != "" {
		fmt.Fprintf(b, "  annotations: {fairlead.io/backend-timestamps: %q}\n", spans)
	}
	fmt.Fprintf(b, "addressType: %s\n", family)
	fmt.Fprintf(b, "ports:\n  - {name: http, port: %d}\n  - {name: echo, port: %d, protocol: UDP}\nendpoints:\n", HTTPTarget, EchoTarget)
	for _, pod := range s.Servers(w) {
		conditions := "{ready: true}"
		if w.Draining[pod.Name] {
			conditions = "{ready: false, serving: true, terminating: true}"
		}
		fmt.Fprintf(b, "  - addresses: [%q]\n    nodeName: %s\n    targetRef: {kind: Pod, name: %s}\n    conditions: %s\n",
			addr(pod), pod.Node.Name, pod.Name, conditions)
	}
}

// spans returns the annotation with the times since which backends serve, and drain, as
// far as they are set.
func (s Spec) spans(w *World, addr func(paper.Pod) netip.Addr) string {
	var all []string
	for _, pod := range s.Servers(w) {
		at, known := w.Since[pod.Name]
		if !known {
			continue
		}
		span := fmt.Sprintf("%s=%s", addr(pod), at.UTC().Format(time.RFC3339Nano))
		if at, drains := w.Drained[pod.Name]; drains {
			span += "/" + at.UTC().Format(time.RFC3339Nano)
		}
		all = append(all, span)
	}
	return strings.Join(all, ",")
}
