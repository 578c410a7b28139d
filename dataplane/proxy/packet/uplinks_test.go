package packet

import (
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/internal/tc"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/testnet"
)

// second is node A's address on a second network, through which it sends everything to
// other networks.
var second = ip("10.9.0.11")

func twoUplinks(w *world) {
	testnet.Pair(w.t, w.router, "a2", w.nodeA, "eth1")
	w.do(w.router, func() error { return address("a2", ip("10.9.0.1")) })
	w.do(w.nodeA, func() error { return address("eth1", second) })
	w.route(w.nodeA, "0.0.0.0/0", ip("10.9.0.1"))
}

// TestTwoUplinks: packets arrive on one link, and replies leave on another. That needs no
// masquerading, because the programs are at every link. Node ports are also served on the
// node's second address.
func TestTwoUplinks(t *testing.T) {
	w := buildWorld(t, tc.Open, twoUplinks)
	testkit.DropInvalid(t, w.nodeA)
	families(t, func(t *testing.T, v6 family) {
		w.t = t
		if err := w.plane.SetNodeAddresses([]netip.Addr{v6.of(nodeAAddr), v6.of(second)}); err != nil {
			t.Fatal(err)
		}
		for pods, seen := range map[string]netip.Addr{"A": clientAddr, "B": nodeAAddr, "H": clientAddr} {
			w.expose(v6, pods, pods)
			name := map[string]string{"A": "A", "B": "B", "H": "host"}[pods]
			for _, at := range []netip.AddrPort{v6.at(clusterIP, 80), v6.at(loadIP, 80), v6.at(nodeAAddr, 30080), v6.at(second, 30080)} {
				w.want(w.client, at, name, v6.of(seen), at.Addr() == v6.of(nodeAAddr))
				w.wantDatagram(w.client, at, 5000, name, v6.of(seen))
				w.want(w.podC, at, name, v6.of(podCAddr), false)
				if at.Port() == 30080 {
					continue
				}
				own := v6.of(second)
				if pods == "H" {
					own = at.Addr()
				}
				w.want(w.nodeA, at, name, own, false)
				w.wantDatagram(w.nodeA, at, 10, name, own)
			}
		}
	})
}
