package agents_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/topology"
)

// routing is a folder's BGP configuration, with parts of it left out or wrong.
func routing(change ...string) string {
	text := fmt.Sprintf(`apiVersion: fairlead.io/v1alpha1
kind: BGPPeer
metadata: {name: reflector}
spec: {peerAddress: %s, nodeSelector: {matchLabels: {rack: "1"}}}
---
apiVersion: fairlead.io/v1alpha1
kind: Advertisement
metadata: {name: edge}
spec: {trafficPolicy: Local, med: 7, communities: ["65000:1"], peers: [reflector]}
`, topology.ReflectorAddr)
	return strings.NewReplacer(change...).Replace(text)
}

// TestRoutingFromTheFolder runs load balancers on two nodes, one of which has the
// backend, with peers and announcements only from their folder.
func TestRoutingFromTheFolder(t *testing.T) {
	w := fixture.New(t, topology.Options{Services: make([]topology.ServiceOptions, 1), Nodes: 2, OnNodes: true}, 1)
	s := fixture.Spec{Name: "tunnel", Host: 1}
	w.HandIn(t, s)
	for _, node := range w.Nodes {
		w.Eventually(t, node.Name, func(status.Status) error { return nil }) // otherwise it cannot handle a signal yet
		if err := w.Process(node.Name).Stop(fixture.Within); err != nil {
			t.Fatal(err)
		}
		if err := w.StartNode(node, "--role", "balancer", "--interface", topology.Dev, "--node-labels", "rack=1"); err != nil {
			t.Fatal(err)
		}
	}
	with := s.Servers(w)[0].Node
	without := w.Nodes[0]
	if without == with {
		without = w.Nodes[1]
	}
	shows := func(node, words string) {
		t.Helper()
		w.Eventually(t, node, func(s status.Status) error {
			for _, r := range s.Routes {
				if strings.Contains(fmt.Sprint(r.Prefix, " ", r.Advertised, " ", r.Attributes, " ", r.Reason), words) {
					return nil
				}
			}
			return fmt.Errorf("routes are %+v, want one with %q", s.Routes, words)
		})
	}
	write := func(change ...string) {
		t.Helper()
		if err := w.Write(web, "bgp.yaml", routing(change...)); err != nil {
			t.Fatal(err)
		}
	}
	prefix, vip := w.Services[web].Prefix, netip.PrefixFrom(s.HTTP().Addr(), 32)
	shows(with.Name, "this agent advertises no routes: configure BGP peers")
	write("kind: Advertisement", "kind: AddressPool", "{trafficPolicy: Local, med: 7, communities: [\"65000:1\"], peers: [reflector]}", "{addresses: [10.9.9.9]}")
	w.Routed(t, prefix, with.Addr, without.Addr)

	write()
	w.Routed(t, prefix)
	w.Routed(t, vip, with.Addr)
	w.Answers(t, s.HTTP())
	shows(with.Name, vip.String()+" true communities 65000:1, MED 7, to reflector")
	shows(without.Name, vip.String()+" false  Advertisement edge is for nodes with a healthy local backend (trafficPolicy)")

	write("med: 7", "med: seven", "rack: \"1\"", "rack: 1")
	w.Problem(t, with.Name, "bgp.yaml:9", "Advertisement edge", "spec.med", "want a whole number")
	w.Problem(t, with.Name, "bgp.yaml:4", "BGPPeer reflector", "spec.nodeSelector", "rack", "want text")
	w.Routed(t, vip, with.Addr)

	write("rack: \"1\"", "rack: \"2\"")
	w.Routed(t, vip)
	write()
	w.Routed(t, vip, with.Addr)
}
