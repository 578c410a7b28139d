package dsr

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/bpfmap"
	"github.com/fairlead/fairlead/internal/netorder"
	"github.com/fairlead/fairlead/internal/tc"
)

// balancerOf returns the source of the tests' tunnels in the family of an address, and
// another address that no load balancer has.
func balancerOf(a netip.Addr) (balancer, unknown netip.Addr) {
	if a.Is6() {
		return balancer6, balancer6.Next()
	}
	return balancer4, balancer4.Next()
}

func (n *node) setBalancers(t *testing.T, all ...netip.Addr) {
	t.Helper()
	if all == nil {
		all = []netip.Addr{}
	}
	if err := n.agent.SetBalancers(all); err != nil {
		t.Fatal(err)
	}
}

// tunnelCases contains one packet of every kind that arrives in a tunnel, as frames from
// an outer source, with both encapsulations.
func tunnelCases(t *testing.T, v, p, s, c, from netip.AddrPort) map[string][]byte {
	frames := map[string][]byte{}
	for _, gue := range []bool{false, true} {
		w := wire{client: c, dst: v, payload: "x", tunnel: p.Addr(), tunnelFrom: from.Addr(), gue: gue}
		syn, listed, datagram, later := w, w, w, w
		syn.flags, listed.tunnelOption, datagram.udp, later.later = "S", list{s}, true, true
		for name, w := range map[string]wire{"SYN": syn, "data": w, "with a list": listed, "datagram": datagram, "later fragment": later} {
			frames[fmt.Sprintf("%s, gue %v", name, gue)] = w.bytes(t)
		}
	}
	lb := ipHead{src: from.Addr(), dst: p.Addr(), ttl: 64}
	quoted, _ := wire{client: v, dst: c, payload: "x"}.ip(t)
	proto, message := byte(1), append([]byte{3, 1, 0, 0, 0, 0, 0, 0}, quoted...)
	if v.Addr().Is6() {
		proto, message[0], message[1] = 58, 1, 3
	}
	router := ipHead{src: c.Addr().Next(), dst: v.Addr(), ttl: 60, proto: proto}
	frames["ICMP error"] = frame(router, message, lb)
	return frames
}

// TestTunnelsOfUnknownBalancers: hosts other than the load balancers send encapsulated
// packets, as anyone can who reaches the node.
func TestTunnelsOfUnknownBalancers(t *testing.T) {
	families(t, func(t *testing.T, v, p, s, c netip.AddrPort) {
		n := newNode(t)
		n.set(t, entry(service.Tunnel, v, p, service.TCP), entry(service.Tunnel, v, p, service.UDP))
		balancer, unknown := balancerOf(p.Addr())
		check := func(when string, from netip.Addr, accepted bool) {
			t.Helper()
			for name, frame := range tunnelCases(t, v, p, s, c, netip.AddrPortFrom(from, 0)) {
				before := n.count(t, "dropped-unknown-balancer")
				verdict, _ := n.run(t, n.agent.obj.ToServer, n.pod, frame)
				if counted := n.count(t, "dropped-unknown-balancer") != before; (verdict == dropped) == accepted || counted == accepted {
					t.Errorf("%s: %s: verdict %d, counted %v; want it accepted: %v", when, name, verdict, counted, accepted)
				}
			}
		}
		check("before the load balancers are known", unknown, true)
		n.setBalancers(t, balancer)
		check("a load balancer", balancer, true)
		check("an unknown sender", unknown, false)
		n.setBalancers(t, netip.AddrFrom16(balancer.As16()))
		check("a load balancer whose address is IPv4-mapped", balancer, true)
		foreign := wire{client: c, dst: netip.AddrPortFrom(v.Addr(), 81), payload: "x", tunnel: p.Addr(), tunnelFrom: unknown}
		n.steps(t, []step{{name: "a tunnel of others", in: foreign, same: true, verdict: untouched, counter: "passed-foreign-tunnel"}})

		n.setBalancers(t)
		check("a load balancer that has just left", balancer, true)
		check("an unknown sender while there is no load balancer", unknown, false)
		left := knownBalancers{addrOf(balancer): {Left: 1}}
		if err := bpfmap.Hold(n.agent.obj.Balancers, left); err != nil {
			t.Fatal(err)
		}
		n.setBalancers(t)
		check("a load balancer that left long ago", balancer, false)
		if err := n.agent.SetBalancers(nil); err != nil {
			t.Fatal(err)
		}
		check("every sender is accepted again", unknown, true)
	})
}

// TestSecondChanceKeepsTheSender: a packet that a node forwards is accepted by the next
// node, which knows only load balancers.
func TestSecondChanceKeepsTheSender(t *testing.T) {
	families(t, func(t *testing.T, v, p, s, c netip.AddrPort) {
		first, next := newNode(t), newNode(t)
		balancer, _ := balancerOf(p.Addr())
		for _, n := range []*node{first, next} {
			n.set(t, entry(service.Tunnel, v, p, service.TCP))
			n.setBalancers(t, balancer)
		}
		for _, gue := range []bool{false, true} {
			in := wire{client: c, dst: v, payload: "x", tunnel: p.Addr(), tunnelOption: list{s}, gue: gue}
			verdict, out := first.run(t, first.agent.obj.ToServer, first.pod, in.bytes(t))
			if verdict != sent {
				t.Fatalf("gue %v: verdict %d, want it sent on", gue, verdict)
			}
			// The next node's backend has this node's address here.
			in.tunnelOption = nil
			sentOn := in
			sentOn.tunnel = s.Addr()
			wantFrame(t, out, sentOn.bytes(t))
			next.steps(t, []step{{name: "at the next node", in: in, out: wire{client: c, dst: p, payload: "x"}, verdict: untouched, counter: "tunnel-delivered"}})
		}
	})
}

// TestBalancersOutliveTheAgent: an agent takes over from another. If that one checked
// senders, it does so from the first packet on. After a release that did not, no flow
// breaks before the load balancers are known.
func TestBalancersOutliveTheAgent(t *testing.T) {
	families(t, func(t *testing.T, v, p, s, c netip.AddrPort) {
		n := newNode(t)
		n.set(t, entry(service.Tunnel, v, p, service.TCP))
		balancer, unknown := balancerOf(p.Addr())
		in := wire{client: c, dst: v, payload: "x", tunnel: p.Addr()}
		out := wire{client: c, dst: p, payload: "x"}
		from := func(a netip.Addr) wire { w := in; w.tunnelFrom = a; return w }
		again := func() {
			t.Helper()
			if err := n.agent.Close(); err != nil {
				t.Fatal(err)
			}
			n.agent = openAgent(t, n.ns, Config{}, tc.Open)
		}
		again()
		n.steps(t, []step{{name: "after an agent that did not check", in: from(unknown), out: out, verdict: untouched, counter: "tunnel-delivered"}})
		n.setBalancers(t, balancer)
		again()
		n.steps(t, []step{
			{name: "after one that checked, a load balancer", in: from(balancer), out: out, verdict: untouched, counter: "tunnel-delivered"},
			{name: "after one that checked, an unknown sender", in: from(unknown), same: true, verdict: dropped, counter: "dropped-unknown-balancer"},
		})
		if err := n.agent.SetBalancers(nil); err != nil {
			t.Fatal(err)
		}
		again()
		n.steps(t, []step{{name: "after one that no longer checked", in: from(unknown), out: out, verdict: untouched, counter: "tunnel-delivered"}})
	})
}

func TestBalancersLinger(t *testing.T) {
	addr := func(i byte) dsrAddr {
		return dsrAddr{Word: netorder.Words(netip.AddrFrom4([4]byte{10, 0, 0, i}))}
	}
	const now = time.Hour
	programmed := knownBalancers{
		addr(1): {}, addr(2): {}, addr(3): {Left: uint64(now - balancerLinger + time.Second)}, addr(4): {Left: uint64(now - balancerLinger)},
		addr(5): {Left: uint64(now - time.Second)},
	}
	got := knownBalancers{addr(1): {}, addr(5): {}, addr(6): {}}.linger(programmed, now)
	want := knownBalancers{addr(1): {}, addr(5): {}, addr(6): {}, addr(2): {Left: uint64(now)}, addr(3): programmed[addr(3)]}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestSetBalancersRefuses: a set that does not fit leaves the previous one unchanged.
func TestSetBalancersRefuses(t *testing.T) {
	n := newNode(t)
	n.setBalancers(t, balancer4)
	many := make([]netip.Addr, n.agent.obj.Balancers.MaxEntries()+1)
	for i, a := 0, balancer6; i < len(many); i, a = i+1, a.Next() {
		many[i] = a
	}
	for name, all := range map[string][]netip.Addr{"no address": {{}}, "too many": many} {
		if err := n.agent.SetBalancers(all); err == nil {
			t.Errorf("%s: no error", name)
		}
		programmed, err := bpfmap.Read[dsrAddr, dsrKnownBalancer](n.agent.obj.Balancers)
		if err != nil || len(programmed) != 1 {
			t.Errorf("%s: %d programmed, %v", name, len(programmed), err)
		}
	}
}
