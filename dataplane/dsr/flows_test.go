package dsr

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/core/schedule"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/internal/tc"
	"github.com/fairlead/fairlead/lab/testkit"
)

// establish exchanges packets between a client and the backend.
func (n *node) establish(t *testing.T, c netip.AddrPort) {
	t.Helper()
	n.run(t, n.agent.obj.ToServer, n.pod, wire{client: c, dst: vip, flags: "S", tunnel: pod.Addr()}.bytes(t))
	n.run(t, n.agent.obj.FromServer, n.pod, wire{client: pod, dst: c, flags: "SA", ttl: 64}.bytes(t))
	n.run(t, n.agent.obj.ToServer, n.pod, wire{client: c, dst: vip, tunnel: pod.Addr()}.bytes(t))
}

// small has a table with so few sets that they are soon full.
func small(t *testing.T, flows uint32) *node {
	t.Helper()
	n := newNode(t)
	if err := n.agent.Detach(); err != nil {
		t.Fatal(err)
	}
	n.agent = openAgent(t, n.ns, Config{MaxFlows: flows}, tc.Open)
	n.set(t, entry(service.Tunnel, vip, pod, service.TCP), entry(service.Tunnel, vip, pod, service.UDP))
	return n
}

// TestAFloodEvictsNoEstablishedFlow sends many times as many SYNs, stray segments and
// datagrams as the table has room for.
func TestAFloodEvictsNoEstablishedFlow(t *testing.T) {
	n := small(t, 64)
	var old []netip.AddrPort
	for i := range 8 {
		c := netip.AddrPortFrom(client.Addr(), uint16(20000+i))
		n.establish(t, c)
		old = append(old, c)
	}
	attacker := netip.MustParseAddr("203.0.113.1")
	for i := range 1500 {
		w := wire{client: netip.AddrPortFrom(attacker, uint16(1024+i)), dst: vip, tunnel: pod.Addr(), flags: []string{"S", "A", ""}[i%3], udp: i%3 == 2}
		if verdict, _ := n.run(t, n.agent.obj.ToServer, n.pod, w.bytes(t)); verdict != untouched {
			t.Fatalf("packet %d: verdict %d", i, verdict)
		}
	}
	for _, c := range old {
		n.steps(t, []step{{name: "an established flow, with a second chance", in: wire{client: c, dst: vip, tunnel: pod.Addr(), tunnelOption: list{second}},
			out: wire{client: c, dst: pod}, verdict: untouched, counter: "tunnel-delivered"}})
	}
	if n.count(t, "flow-evicted") == 0 {
		t.Error("nothing was evicted: was it a flood?")
	}
}

// TestFlowsAimedAtOneSet sends SYNs of flows that the public hash of every load balancer
// puts into one set: anyone can compute that. The table's own hash spreads them.
func TestFlowsAimedAtOneSet(t *testing.T) {
	const sets, flows = 512, 64
	n := small(t, sets*flowWays)
	aimed := 0
	for port := uint16(1024); aimed < flows; port++ {
		c := netip.AddrPortFrom(netip.MustParseAddr("203.0.113.1"), port)
		hash := schedule.Hash(schedule.Flow{Client: c, Key: service.Key{VIP: pod.Addr(), Port: pod.Port(), Protocol: service.TCP}})
		if uint64(hash)*sets>>32 != 7 {
			continue
		}
		aimed++
		n.run(t, n.agent.obj.ToServer, n.pod, wire{client: c, dst: vip, flags: "S", tunnel: pod.Addr()}.bytes(t))
	}
	// By chance, nine of 64 in one of 512 sets do not happen.
	if known, err := n.agent.Flows(); err != nil || len(known) != flows {
		t.Errorf("%d of %d flows are remembered, %v", len(known), flows, err)
	}
}

// TestAFullTableRefusesByName has more established flows than room.
func TestAFullTableRefusesByName(t *testing.T) {
	n := small(t, 8)
	for i := range 8 {
		n.establish(t, netip.AddrPortFrom(client.Addr(), uint16(20000+i)))
	}
	syn := wire{client: client, dst: vip, flags: "S", tunnel: pod.Addr()}
	n.steps(t, []step{{name: "one more", in: syn, same: true, verdict: dropped, counter: "dropped-flows-full"}})
	n.run(t, n.agent.obj.ToServer, n.pod, wire{client: netip.AddrPortFrom(client.Addr(), 20003), dst: vip, flags: "R", tunnel: pod.Addr()}.bytes(t))
	n.steps(t, []step{{name: "after one was reset", in: syn, out: wire{client: client, dst: pod, flags: "S"}, verdict: untouched, counter: "flow-made"}})
}

// TestEachFlow queries some of the flows.
func TestEachFlow(t *testing.T) {
	n := small(t, 4096)
	for i := range 300 {
		c := netip.AddrPortFrom(client.Addr(), uint16(20000+i))
		n.run(t, n.agent.obj.ToServer, n.pod, wire{client: c, dst: vip, udp: i%3 == 0, flags: "S", tunnel: pod.Addr()}.bytes(t))
	}
	n.establish(t, client)
	for _, tc := range []struct {
		q    dataplane.FlowQuery
		want int
	}{
		{dataplane.FlowQuery{}, 301}, {dataplane.FlowQuery{Limit: 7}, 7}, {dataplane.FlowQuery{Protocol: service.UDP}, 100}, {dataplane.FlowQuery{Client: client}, 1},
		{dataplane.FlowQuery{Client: netip.AddrPortFrom(client.Addr(), 0)}, 301}, {dataplane.FlowQuery{VIP: vip, Server: pod, Limit: 1000}, 301},
		{dataplane.FlowQuery{VIP: vip6}, 0}, {dataplane.FlowQuery{Server: second}, 0},
	} {
		got := 0
		for f, err := range n.agent.EachFlow(tc.q) {
			if err != nil {
				t.Fatal(err)
			}
			if !tc.q.Takes(f) {
				t.Errorf("%+v gave %+v", tc.q, f)
			}
			if f.Client == client && f.State != "established" {
				t.Errorf("state %s, want established", f.State)
			}
			got++
		}
		if got != tc.want {
			t.Errorf("%+v gave %d flows, want %d", tc.q, got, tc.want)
		}
	}
	testkit.Eventually(t, patience, func() error { // other calls in between are answered
		for range n.agent.EachFlow(dataplane.FlowQuery{}) {
			if _, err := n.agent.List(); err != nil {
				return fmt.Errorf("list while flows are read: %w", err)
			}
		}
		return nil
	})
}

// TestAResetFlowIsNotKnown: a flow that a backend rejected is tried elsewhere, if its
// packet has a list.
func TestAResetFlowIsNotKnown(t *testing.T) {
	n := small(t, 64)
	stray := wire{client: client, dst: vip, tunnel: pod.Addr(), payload: "x"}
	listed, onward := stray, stray
	listed.tunnelOption = list{second}
	onward.tunnel = second.Addr()
	n.steps(t, []step{
		{name: "stray", in: stray, out: wire{client: client, dst: pod, payload: "x"}, verdict: untouched, counter: "flow-made"},
		{name: "refused", prog: dsrProgFromServer, in: wire{client: pod, dst: client, flags: "R", ttl: 64}, out: wire{client: vip, dst: client, flags: "R"}, verdict: sent},
		{name: "with a list", in: listed, out: onward, verdict: sent, counter: "second-chance"},
	})
}
