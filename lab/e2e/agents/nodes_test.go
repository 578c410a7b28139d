package agents_test

import (
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/topology"
)

// TestOnNodes runs the load balancers directly on two of three nodes, each of which also
// has a backend pod.
func TestOnNodes(t *testing.T) {
	w := fixture.New(t, topology.Options{Services: make([]topology.ServiceOptions, 1), Nodes: 3, IPv6: true, OnNodes: true}, 3)
	var hops, hops6 []netip.Addr
	services := []fixture.Spec{
		{Name: "tunnel", Host: 1},
		{Name: "direct", Host: 2, Annotations: []string{"forwarding-mode: dsr-nat"}},
		// A backend's answer with fullnat would arrive on its pod's interface, where no
		// load balancer program runs: this needs a load balancer in a pod, or backends
		// elsewhere.
		{Name: "nat", Host: 3, Annotations: []string{"forwarding-mode: fullnat"}, Node: w.Nodes[2].Name},
		{Name: "turns", Host: 4, Annotations: []string{"scheduler: rr"}},
	}
	w.HandIn(t, services...)
	for _, node := range w.Nodes[:2] {
		w.Eventually(t, node.Name, func(status.Status) error { return nil }) // otherwise it cannot handle a signal yet
		if err := w.Process(node.Name).Stop(fixture.Within); err != nil {
			t.Fatal(err)
		}
		err := w.StartNode(node, "--role", "balancer", "--interface", topology.Dev, "--peer", topology.ReflectorAddr.String())
		if err != nil {
			t.Fatal(err)
		}
		hops, hops6 = append(hops, node.Addr), append(hops6, node.Addr6)
	}
	w.Routed(t, w.Services[web].Prefix, hops...)
	w.Routed(t, w.Services[web].Prefix6, hops6...)
	for _, s := range services {
		t.Run(s.Name, func(t *testing.T) { w.Reach(t, s, true) })
	}
}
