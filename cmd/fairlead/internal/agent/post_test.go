package agent

import (
	"fmt"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/core/event"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/reconciler"
)

// TestKubeEvents: an event is shown at what it concerns, elsewhere than at the Node only by
// load balancers.
func TestKubeEvents(t *testing.T) {
	peer, service := event.Object{Kind: "BGPPeer", Name: "tor-1"}, event.Object{Kind: "Service", Namespace: "shop", Name: "web"}
	backend := event.Object{Kind: "Backend", Name: "10.0.0.1:80"}
	drain := drainEvent("n1", reconciler.Drain{Stage: plan.Withdrawn, Why: []string{"Node n1 is cordoned"}, Flows: 3})
	for _, c := range []struct {
		e    event.Event
		want []string
	}{
		{event.Event{Type: event.PeerDown, Object: peer, From: "established", To: "idle", Cause: "cut"},
			[]string{"Node n1: Peer PeerDown: BGPPeer tor-1: established -> idle: cut"}},
		{event.Event{Type: event.BFDDown, Object: peer}, nil},
		{event.Event{Type: event.BackendUnhealthy, Object: backend, Field: "tcp", From: "up", To: "down", Cause: "refused", Services: []string{"shop/web", "shop/api"}},
			[]string{"Service shop/web: Probe BackendUnhealthy: Backend 10.0.0.1:80: tcp: up -> down: refused", "Service shop/api: Probe BackendUnhealthy: Backend 10.0.0.1:80: tcp: up -> down: refused"}},
		{event.Event{Type: event.ConfigRejected, Object: service, Field: "spec.ports[0].port", Cause: "out of range"},
			[]string{"Service shop/web: Read ConfigRejected: spec.ports[0].port: out of range"}},
		{event.Event{Type: event.ConfigRejected, Object: event.Object{Kind: "Advertisement", Name: "all"}, Cause: "bad"},
			[]string{"Advertisement all: Read ConfigRejected: bad"}},
		{event.Event{Type: event.ReconcileFailed, Object: event.Object{Kind: "Route", Name: "10.1.1.1/32"}, Cause: "no"},
			[]string{"Node n1: Program ReconcileFailed: Route 10.1.1.1/32: no"}},
		{drain, []string{"Node n1: Drain RoutesWithdrawn: routes are withdrawn, 3 flows are left: Node n1 is cordoned"}},
		{event.Event{Type: event.BackendUnhealthy, Object: event.Object{Kind: "Backend"}, Cause: "only counted"},
			[]string{"Node n1: Probe BackendUnhealthy: Backend: only counted"}},
	} {
		for _, balancer := range []bool{true, false} {
			var got []string
			for _, k := range kubeEvents(c.e, "n1", balancer) {
				got = append(got, fmt.Sprintf("%s: %s %s: %s", k.About, k.Action, k.Reason, k.Note))
			}
			want := slices.DeleteFunc(slices.Clone(c.want), func(s string) bool { return !balancer && s[:4] != "Node" })
			if !slices.Equal(got, want) {
				t.Errorf("%s, balancer %v: got %q\nwant %q", c.e.Type, balancer, got, want)
			}
		}
	}
}
