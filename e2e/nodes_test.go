package e2e

import (
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/lab/paper"
	"github.com/fairlead/fairlead/status"
)

// TestOnNodes has the balancers straight on two of three nodes, each of which
// also has a server's pod.
func TestOnNodes(t *testing.T) {
	w := newWorld(t, paper.Options{Services: make([]paper.ServiceOptions, 1), Nodes: 3, IPv6: true, OnNodes: true}, 3)
	var hops, hops6 []netip.Addr
	services := []spec{
		{name: "tunnel", host: 1},
		{name: "direct", host: 2, annotations: []string{"method: direct-nat"}},
		// A server's answer to fullnat would come in by its pod's interface,
		// where no balancer's program runs: so far that needs a balancer in a
		// pod, or servers elsewhere.
		{name: "nat", host: 3, annotations: []string{"method: fullnat"}, node: w.Nodes[2].Name},
		{name: "turns", host: 4, annotations: []string{"scheduler: rr"}},
	}
	w.write(t, services...)
	for _, node := range w.Nodes[:2] {
		w.eventually(t, node.Name, func(status.Status) error { return nil }) // else it cannot take a signal yet
		if err := w.Process(node.Name).Stop(within); err != nil {
			t.Fatal(err)
		}
		err := w.StartNode(node, "--role", "balancer", "--interface", paper.Dev, "--peer", paper.ReflectorAddr.String())
		if err != nil {
			t.Fatal(err)
		}
		hops, hops6 = append(hops, node.Addr), append(hops6, node.Addr6)
	}
	w.routed(t, w.Services[web].Prefix, hops...)
	w.routed(t, w.Services[web].Prefix6, hops6...)
	for _, s := range services {
		t.Run(s.name, func(t *testing.T) { w.reach(t, s, true) })
	}
}
