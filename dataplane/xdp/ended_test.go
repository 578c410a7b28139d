package xdp

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/testkit"
)

// Connections with a FIN or RST, from either side, weigh little for lc but still count as
// connections. The agent's count matches the programs' count.
func TestEndedConnectionsWeighLittle(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	d.stopSweeping()
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
		for _, c := range d.flows.connections {
			got[c]++
		}
		for _, c := range want {
			if got[c]--; got[c] < 0 {
				t.Errorf("%s: connections are %v, want %v among them", when, got, want)
			}
		}
	}
	counted("after FIN and RST", 2*connectionActive, 2*connectionHasEnded)
	for i := 4; i < 6; i++ {
		if to := send(i, "S"); to != b {
			t.Errorf("flow %d went to %v, which has active connections", i, to)
		}
	}
	counted("opening", 2*connectionActive, 2*connectionActive+2*connectionHasEnded)
	if to := send(6, "S"); to == b {
		t.Error("of two backends with as many active connections, the one with more ended ones received the next flow")
	}
	for id := range d.flows.connections {
		d.flows.connections[id] += 7 * connectionHasEnded // as if updates had been lost
		d.flows.connections[id] -= 5 * connectionActive
	}
	d.sweep(flowNow())
	counted("after a recount", 3*connectionActive, 2*connectionActive+2*connectionHasEnded)
	send(7, "S") // equal except for ended ones: the first again
	send(8, "S")
	send(9, "S")
	if got := send(10, "S"); got == b {
		t.Errorf("%v received more connections than its limit, including ended ones", got)
	}
}

// TestDrift splits random counts and corrects them.
func TestDrift(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	of := func(n int) uint64 {
		return uint64(int64(rng.IntN(n)-n/3)*connectionActive + int64(rng.IntN(n)-n/3))
	}
	for range 2000 {
		before, counted := of(9), of(9)
		if got := before + drift(before, counted, before); got != counted {
			t.Errorf("nothing changed, counted %v, is %v", halves(counted), halves(got))
		}
		after := of(9)
		got, a, c, b := halves(after+drift(before, counted, after)), halves(after), halves(counted), halves(before)
		for i := range got {
			lo, hi := min(b[i], a[i]), max(b[i], a[i])
			want := a[i] + c[i] - min(max(c[i], lo), hi)
			if got[i] != want {
				t.Errorf("from %v to %v, counted %v: %v, want %d", b, a, c, got, want)
			}
		}
	}
}
