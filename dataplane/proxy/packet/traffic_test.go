package packet

import (
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/internal/tc"
	"github.com/fairlead/fairlead/lab/testkit/refusals"
)

// hooks are both ways to attach. If the kernel has no tcx they are the same.
var hooks = func() map[string]tc.Opener {
	if refusals.Without("clsact") {
		return map[string]tc.Opener{"tcx": tc.Open}
	}
	return map[string]tc.Opener{"tcx": tc.Open, "clsact": tc.OpenClsact}
}()

func TestTraffic(t *testing.T) {
	for name, hook := range hooks {
		t.Run(name, func(t *testing.T) {
			w := buildWorld(t, hook)
			families(t, func(t *testing.T, v6 family) {
				w.t = t
				w.traffic(v6)
			})
		})
	}
}

// traffic connects every kind of client to every kind of endpoint.
func (w *world) traffic(v6 family) {
	cluster, load, node := v6.at(clusterIP, 80), v6.at(loadIP, 80), v6.at(nodeAAddr, 30080)
	for _, tc := range []struct{ name, pods string }{{"A", "A"}, {"B", "B"}, {"host", "H"}} {
		w.t.Run("to "+tc.name, func(t *testing.T) {
			w := *w
			w.t = t
			w.expose(v6, tc.pods, tc.pods)
			outside := v6.of(clientAddr) // as the endpoint sees it
			if tc.name == "B" {
				outside = v6.of(nodeAAddr)
			}
			for _, at := range []struct {
				to   string
				addr int
			}{{"a cluster address", 0}, {"a load balancer's", 1}, {"a node port", 2}} {
				w.t.Run("at "+at.to, func(t *testing.T) {
					w := w
					w.t = t
					to := []netip.AddrPort{cluster, load, node}[at.addr]
					big := at.addr == 2 // the others use the same path
					w.want(w.client, to, tc.name, outside, big)
					w.wantDatagram(w.client, to, 10, tc.name, outside)
					w.wantDatagram(w.client, to, 5000, tc.name, outside)
					w.want(w.podC, to, tc.name, v6.of(podCAddr), big)
					w.wantDatagram(w.podC, to, 10, tc.name, v6.of(podCAddr))
					w.wantDatagram(w.podC, to, 5000, tc.name, v6.of(podCAddr))
					if at.addr == 2 {
						return
					}
					seen := v6.of(nodeAAddr)
					if tc.name == "host" {
						seen = to.Addr()
					}
					w.want(w.nodeA, to, tc.name, seen, at.addr == 0)
					w.wantDatagram(w.nodeA, to, 10, tc.name, seen)
				})
			}
		})
	}
}
