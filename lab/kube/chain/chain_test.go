package chain

import (
	"testing"
)

// TestChain runs the scenarios one after the other in one environment; each leaves it
// ready for the next.
func TestChain(t *testing.T) {
	w := newWorld(t)
	t.Run("from Service to answers", w.whole)
	t.Run("external and cluster addresses", w.beyond)
	t.Run("BGP sessions", w.sessions)
	t.Run("dedicated load balancer", w.dedicated)
	t.Run("killed load balancer", w.killed)
	t.Run("degraded node", w.degraded)
	t.Run("API server away", w.serverAway)
	t.Run("health without API server", w.healthAlone)
	t.Run("slow store", w.slowStore)
	t.Run("no rights", w.noRights)
	t.Run("two controllers", w.twoControllers)
}

// whole follows a Service from its address to its deletion.
func (w *world) whole(t *testing.T) {
	w.service(t, "web")
	vip := w.address(t, "web")
	w.routed(t, vip) // no endpoints yet
	w.endpoints(t, "web", "s1", "s2")
	w.routed(t, vip, "n1", "n2")
	w.answered(t, vip, "s1", "s2")
	w.endpoints(t, "web", "s2")
	w.answered(t, vip, "s2")
	w.routed(t, vip, "n1", "n2")
	w.endpoints(t, "web")
	w.routed(t, vip)
	w.endpoints(t, "web", "s1", "s2")
	w.routed(t, vip, "n1", "n2")
	w.answered(t, vip, "s1", "s2")

	// An address in use is not assigned twice, and becomes free with its Service.
	w.service(t, "shop")
	w.endpoints(t, "shop", "s1")
	other := w.address(t, "shop")
	if other == vip {
		t.Fatalf("both Services have %s", vip)
	}
	w.routed(t, other, "n1", "n2")
	w.answered(t, other, "s1")
	w.drop(t, "web")
	w.routed(t, vip)
	w.service(t, "next")
	if got := w.address(t, "next"); got != vip {
		t.Errorf("next has %s, not %s, which is free", got, vip)
	}
	w.routed(t, vip)
	w.endpoints(t, "next", "s2")
	w.routed(t, vip, "n1", "n2")
	w.answered(t, vip, "s2")
	w.reported(t, "shop", "True AllNodes: 2/2 nodes")
	w.endpoints(t, "next")
	w.reported(t, "next", "False NotOnAnyNode: 0/2 nodes; n1: NoEndpoints; n2: NoEndpoints")
	w.drop(t, "shop")
	w.drop(t, "next")
	w.routed(t, vip)
	w.routed(t, other)
}
