package xdp

import (
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/flowtable"
	"github.com/fairlead/fairlead/lab/testkit"
)

// Connections with a FIN or RST, from either side, weigh little for lc but still count as
// connections. The agent's count matches the programs' count.
func TestEndedConnectionsWeighLittle(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	d.sweeper.close()
	f := stateful(service.LeastConn, 2)
	f.Backends[1].MaxConns = 6
	upsert(t, d, f)
	had := opened(t, n, d, vips[false], 4)
	b := had[1]
	if had[0] == b || had[2] != had[0] || had[3] != b {
		t.Fatalf("four flows went to %v", had)
	}
	send := func(i int, flags string) (to netip.Addr) {
		t.Helper()
		testkit.Do(t, n.balancer, func() (err error) {
			to, err = n.server(d, packet{src: clientOf(i), dst: vips[false], flags: flags}.bytes(t))
			return err
		})
		return to
	}
	for i, flags := range map[int]string{1: "FA", 3: "R"} {
		if to := send(i, flags); to != b {
			t.Errorf("%s of flow %d went to %v", flags, i, to)
		}
		send(i, flags) // repeating it changes nothing
	}
	counted := func(when string, want ...uint64) {
		t.Helper()
		got := map[uint64]int{}
		for _, c := range d.flows.Connections {
			got[c]++
		}
		for _, c := range want {
			if got[c]--; got[c] < 0 {
				t.Errorf("%s: connections are %v, want %v among them", when, got, want)
			}
		}
	}
	counted("after FIN and RST", 2*flowtable.Active, 2*flowtable.Ended)
	for i := 4; i < 6; i++ {
		if to := send(i, "S"); to != b {
			t.Errorf("flow %d went to %v, which has active connections", i, to)
		}
	}
	counted("opening", 2*flowtable.Active, 2*flowtable.Active+2*flowtable.Ended)
	if to := send(6, "S"); to == b {
		t.Error("of two backends with as many active connections, the one with more ended ones received the next flow")
	}
	for id := range d.flows.Connections {
		d.flows.Connections[id] += 7 * flowtable.Ended // as if updates had been lost
		d.flows.Connections[id] -= 5 * flowtable.Active
	}
	d.sweep(flowtable.Now())
	counted("after a recount", 3*flowtable.Active, 2*flowtable.Active+2*flowtable.Ended)
	send(7, "S") // equal except for ended ones: the first again
	send(8, "S")
	send(9, "S")
	if got := send(10, "S"); got == b {
		t.Errorf("%v received more connections than its limit, including ended ones", got)
	}
}
