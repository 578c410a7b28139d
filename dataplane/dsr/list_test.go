package dsr

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/bpfmap"
	"github.com/fairlead/fairlead/internal/tc"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/testnet"
)

// servers returns n backends that are not here.
func servers(like netip.AddrPort, n int) list {
	var l list
	a := like.Addr()
	for i := range n {
		a = a.Next()
		l = append(l, netip.AddrPortFrom(a, like.Port()+uint16(i)))
	}
	return l
}

// TestListsOfEveryLength: a packet of an unknown flow goes to the first backend of its
// list with the rest, in each form of a list.
func TestListsOfEveryLength(t *testing.T) {
	families(t, func(t *testing.T, v, p, s, c netip.AddrPort) {
		n := newNode(t)
		n.set(t, entry(service.Tunnel, v, p, service.TCP), entry(service.Tunnel, v, p, service.UDP),
			entry(service.DSRNAT, v, netip.AddrPortFrom(p.Addr(), 9090), service.TCP),
			entry(service.DSRNAT, v, netip.AddrPortFrom(p.Addr(), 9090), service.UDP))
		for length := 1; length <= 5; length++ {
			older := servers(s, length)
			for _, udp := range []bool{false, true} {
				unknown := wire{client: netip.AddrPortFrom(c.Addr(), uint16(41000+length)), dst: v, udp: udp, payload: "odd"}
				for _, gue := range []bool{false, true} {
					in := unknown
					in.tunnel, in.tunnelOption, in.gue, in.gueSum = p.Addr(), older, gue, length%2 == 0
					out := in
					out.tunnel, out.tunnelOption, out.gueSum = older[0].Addr(), older[1:], false
					n.steps(t, []step{{name: fmt.Sprintf("tunnel, %d, gue %v, udp %v", length, gue, udp),
						in: in, out: out, verdict: sent, counter: "second-chance"}})
				}
				in, out := unknown, unknown
				in.dst, in.option = netip.AddrPortFrom(p.Addr(), 9090), append(list{v}, older...)
				out.dst, out.option = older[0], append(list{v}, older[1:]...)
				n.steps(t, []step{{name: fmt.Sprintf("dsr-nat, %d, udp %v", length, udp), in: in, out: out, verdict: sent, counter: "second-chance"}})
			}
		}
	})
}

// TestListsWithUnknownBackends sends packets whose lists contain others than the frontend's
// backends, as anyone can. None goes to them, nor to another port of a backend. A backend
// after them is used.
func TestListsWithUnknownBackends(t *testing.T) {
	families(t, func(t *testing.T, v, p, s, c netip.AddrPort) {
		n := newNode(t)
		direct := netip.AddrPortFrom(p.Addr(), 9090)
		n.set(t, entry(service.Tunnel, v, p, service.TCP), entry(service.DSRNAT, v, direct, service.TCP))
		victim, ssh := c, netip.AddrPortFrom(s.Addr(), 22)
		port := uint16(43000)
		for name, l := range map[string]list{"an unknown address": {victim}, "another port": {ssh}, "an unknown address and a backend": {victim, s}} {
			port++
			unknown := wire{client: netip.AddrPortFrom(c.Addr(), port), dst: v, payload: "x"}
			for _, gue := range []bool{false, true} {
				if name == "another port" {
					break // a tunnel does not use ports
				}
				in := unknown
				in.tunnel, in.tunnelOption, in.gue = p.Addr(), l, gue
				st := step{name: fmt.Sprintf("tunnel, %s, gue %v", name, gue), in: in, verdict: untouched, counter: "skipped-unknown-server"}
				st.out = unknown
				st.out.dst = p
				if len(l) == 2 {
					st.out = in
					st.out.tunnel, st.out.tunnelOption, st.verdict = s.Addr(), nil, sent
				}
				n.steps(t, []step{st})
				port++
				unknown.client = netip.AddrPortFrom(c.Addr(), port)
			}
			in := unknown
			in.dst, in.option = direct, append(list{v}, l...)
			st := step{name: "dsr-nat, " + name, in: in, verdict: untouched, counter: "skipped-unknown-server"}
			st.out = unknown
			st.out.dst = direct
			if len(l) == 2 {
				st.out = in
				st.out.dst, st.out.option, st.verdict = s, list{v}, sent
			}
			n.steps(t, []step{st})
		}
	})
}

// TestServersLinger: packets go to a backend that has left its frontend, for its existing
// flows, but never to one of another frontend.
func TestServersLinger(t *testing.T) {
	families(t, func(t *testing.T, v, p, s, c netip.AddrPort) {
		n := newNode(t)
		here, other := entry(service.Tunnel, v, p, service.TCP), entry(service.Tunnel, netip.AddrPortFrom(v.Addr(), 81), s, service.TCP)
		in := wire{client: c, dst: v, payload: "x", tunnel: p.Addr(), tunnelOption: list{s}}
		out := in
		out.tunnel, out.tunnelOption = s.Addr(), nil
		n.setOnly(t, here, entry(service.Tunnel, v, s, service.TCP))
		n.steps(t, []step{{name: "a server", in: in, out: out, verdict: sent, counter: "second-chance"}})
		n.setOnly(t, here, other)
		n.steps(t, []step{{name: "one that has left", in: in, out: out, verdict: sent, counter: "second-chance"}})
		n.agent.cfg.Linger = -time.Hour
		n.setOnly(t, here, other)
		taken := wire{client: c, dst: p, payload: "x"}
		n.steps(t, []step{{name: "one that left long ago", in: in, out: taken, verdict: untouched, counter: "skipped-unknown-server"}})
	})
}

// TestBackendsReturn: a backend that is added again, long after it left, is served at once.
func TestBackendsReturn(t *testing.T) {
	families(t, func(t *testing.T, v, p, _, _ netip.AddrPort) {
		n := newNode(t)
		back, other := entry(service.Tunnel, v, p, service.TCP), entry(service.Tunnel, netip.AddrPortFrom(v.Addr(), 81), p, service.TCP)
		n.setOnly(t, back, other)
		n.setOnly(t, other)
		n.agent.cfg.Linger = -time.Hour
		n.setOnly(t, back, other)
		state, err := n.agent.State()
		if err != nil || len(state.Entries) != 2 {
			t.Errorf("it serves %v, %v; want 2 entries", state.Entries, err)
		}
	})
}

// TestServersOfAPredecessor: an agent takes over from one that did not write the backends
// of other nodes. Until the first Set any listed one is accepted.
func TestServersOfAPredecessor(t *testing.T) {
	families(t, func(t *testing.T, v, p, s, c netip.AddrPort) {
		n := newNode(t)
		here := entry(service.Tunnel, v, p, service.TCP)
		n.set(t, here)
		servers, err := n.agent.obj.NextServers.Clone()
		if err != nil {
			t.Fatal(err)
		}
		defer servers.Close()
		if err := errors.Join(n.agent.Close(), bpfmap.Hold(servers, nextServers{})); err != nil {
			t.Fatal(err)
		}
		n.agent = openAgent(t, n.ns, Config{}, tc.Open)
		in := wire{client: c, dst: v, payload: "x", tunnel: p.Addr(), tunnelOption: list{s}}
		out := in
		out.tunnel, out.tunnelOption = s.Addr(), nil
		n.steps(t, []step{{name: "before the first Set", in: in, out: out, verdict: sent, counter: "second-chance"}})
		n.setOnly(t, here)
		taken := wire{client: c, dst: p, payload: "x"}
		n.steps(t, []step{{name: "after it", in: in, out: taken, verdict: untouched, counter: "skipped-unknown-server"}})
	})
}

// TestGUE terminates UDP tunnels here, with both families outside and inside.
func TestGUE(t *testing.T) {
	for _, tc := range []struct{ v, p, outer, c netip.AddrPort }{
		{vip, pod, pod, client}, {vip6, pod6, pod6, client6}, {vip, pod, pod6, client}, {vip6, pod6, pod, client6},
	} {
		t.Run(fmt.Sprintf("%s by %s", tc.v, tc.outer.Addr()), func(t *testing.T) {
			n := newNode(t)
			var entries []Entry
			for _, proto := range []service.Protocol{service.TCP, service.UDP} {
				e := entry(service.Tunnel, tc.v, tc.outer, proto)
				e.Deliver = tc.p.Addr()
				entries = append(entries, e)
			}
			n.set(t, entries...)
			s := second
			if tc.outer.Addr().Is6() {
				s = second6
			}
			in := func(w wire) wire { w.dst, w.tunnel, w.gue = tc.v, tc.outer.Addr(), true; return w }
			out := func(w wire) wire { w.dst = tc.p; return w }
			listed := func(w wire) wire { w = in(w); w.tunnelOption = list{s, s}; return w }
			summed := func(w wire) wire { w = in(w); w.gueSum = true; return w }
			syn, data := wire{client: tc.c, flags: "S", mss: 1400, payload: "x"}, wire{client: tc.c, payload: "data"}
			udp := wire{client: tc.c, udp: true, payload: "odd"}
			foreign := in(syn)
			foreign.dst = netip.AddrPortFrom(tc.v.Addr(), 81)
			n.steps(t, []step{
				{name: "SYN", in: in(syn), out: out(syn), verdict: untouched, counter: "flow-made"},
				{name: "known, with a list", in: listed(data), out: out(data), verdict: untouched, counter: "tunnel-delivered"},
				{name: "with a checksum", in: summed(data), out: out(data), verdict: untouched, counter: "tunnel-delivered"},
				{name: "UDP inside", in: in(udp), out: out(udp), verdict: untouched, counter: "flow-made"},
				{name: "another port", in: foreign, same: true, verdict: untouched, counter: "passed-foreign-tunnel"},
			})
		})
	}
}

// TestGUEThatIsNotOurs changes the header: such packets stay unmodified.
func TestGUEThatIsNotOurs(t *testing.T) {
	n := newNode(t)
	n.set(t, entry(service.Tunnel, vip, pod, service.TCP))
	const gue = 14 + 20 + 8
	for name, change := range map[string]func([]byte){
		"version 1":           func(b []byte) { b[gue] |= 0x40 },
		"control":             func(b []byte) { b[gue] |= 0x20 },
		"flags":               func(b []byte) { b[gue+3] = 1 },
		"protocol":            func(b []byte) { b[gue+1] = 6 },
		"another magic":       func(b []byte) { b[gue+4] = 0x9f },
		"none in the list":    func(b []byte) { b[gue+5] = 0 },
		"seven in the list":   func(b []byte) { b[gue+5] = 7 },
		"longer than it says": func(b []byte) { b[gue]++ },
		"shorter":             func(b []byte) { b[gue]-- },
	} {
		frame := wire{client: client, dst: vip, tunnel: pod.Addr(), gue: true, tunnelOption: list{second, second}, payload: "x"}.bytes(t)
		change(frame)
		verdict, out := n.run(t, n.agent.obj.ToServer, n.pod, frame)
		if verdict != untouched {
			t.Errorf("%s: verdict %d", name, verdict)
		}
		wantFrame(t, out, frame)
	}
}

// TestNoPacketGoesRound: no backend of a list knows the flow, and this one is among them.
// A packet stops after as many hops as its list is long.
func TestNoPacketGoesRound(t *testing.T) {
	families(t, func(t *testing.T, v, p, s, c netip.AddrPort) {
		n := newNode(t)
		n.set(t, entry(service.Tunnel, v, p, service.UDP))
		r := rand.New(rand.NewPCG(1, 2))
		for i := range 60 {
			names := append(servers(s, 3), p)
			var l list
			for range 1 + r.IntN(5) {
				l = append(l, names[r.IntN(len(names))])
			}
			w := wire{client: netip.AddrPortFrom(c.Addr(), uint16(42000+i)), dst: v, udp: true, payload: "x",
				tunnel: p.Addr(), tunnelOption: l, gue: i%2 == 1}
			for hop := 0; ; hop++ {
				verdict, out := n.run(t, n.agent.obj.ToServer, n.pod, w.bytes(t))
				rest := w
				for len(rest.tunnelOption) > 0 && rest.tunnelOption[0].Addr() == p.Addr() {
					rest.tunnelOption = rest.tunnelOption[1:]
				}
				if len(rest.tunnelOption) == 0 { // it is for this backend again
					if verdict != untouched {
						t.Fatalf("%v at hop %d: verdict %d, want it taken", l, hop, verdict)
					}
					break
				}
				rest.tunnel, rest.tunnelOption = rest.tunnelOption[0].Addr(), rest.tunnelOption[1:]
				if verdict != sent {
					t.Fatalf("%v at hop %d: verdict %d, want it sent on", l, hop, verdict)
				}
				wantFrame(t, out, rest.bytes(t))
				w = rest
				w.tunnel = p.Addr() // which is that backend
			}
		}
	})
}

func sctp(src, dst netip.AddrPort, chunk byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, src.Port())
	b = binary.BigEndian.AppendUint16(b, dst.Port())
	return append(b, 1, 2, 3, 4, 0xca, 0xfe, 0xca, 0xfe, chunk, 0, 0, 20, 1, 2, 3, 4, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1)
}

// frame puts IP headers before a payload: the inner one and, if any, the tunnel's.
func frame(inner ipHead, payload []byte, outer ...ipHead) []byte {
	b, proto := inner.before(payload)
	for _, o := range outer {
		o.proto = 4
		if proto == 0x86dd {
			o.proto = 41
		}
		b, proto = o.before(b)
	}
	return append(ethernet(proto), b...)
}

// check passes a frame to a program and verifies verdict and output.
func (n *node) check(t *testing.T, name, prog string, in []byte, verdict int, want []byte, counter string) {
	t.Helper()
	before := n.count(t, counter)
	got, out := n.run(t, n.agent.obj.hooked()[prog].Program, n.pod, in)
	if got != verdict {
		t.Errorf("%s: verdict %d, want %d", name, got, verdict)
	}
	t.Log(name)
	wantFrame(t, out, want)
	if grew := n.count(t, counter) - before; grew != 1 {
		t.Errorf("%s: counter %s grew by %d, want 1", name, counter, grew)
	}
}

// TestSCTP: the address changes, port and checksum stay.
func TestSCTP(t *testing.T) {
	families(t, func(t *testing.T, v, p, s, c netip.AddrPort) {
		n := newNode(t)
		p = netip.AddrPortFrom(p.Addr(), v.Port())
		n.set(t, entry(service.Tunnel, v, p, service.SCTP))
		client := ipHead{src: c.Addr(), dst: v.Addr(), ttl: 60, proto: 132}
		toPod, lb := client, ipHead{src: balancer4, dst: p.Addr(), ttl: 64, option: list{s}}
		toPod.dst = p.Addr()
		if v.Addr().Is6() {
			lb.src = balancer6
		}
		n.check(t, "data of an unknown flow", dsrProgToServer, frame(client, sctp(c, v, 0), lb), sent,
			frame(client, sctp(c, v, 0), ipHead{src: lb.src, dst: s.Addr(), ttl: 64}), "second-chance")
		n.check(t, "INIT", dsrProgToServer, frame(client, sctp(c, v, 1), lb), untouched, frame(toPod, sctp(c, v, 1)), "flow-made")
		n.check(t, "data of a known flow", dsrProgToServer, frame(client, sctp(c, v, 0), lb), untouched, frame(toPod, sctp(c, v, 0)), "tunnel-delivered")
		answer := ipHead{src: p.Addr(), dst: c.Addr(), ttl: 64, proto: 132}
		restored := ipHead{src: v.Addr(), dst: c.Addr(), ttl: 63, proto: 132}
		n.check(t, "INIT ACK", dsrProgFromServer, frame(answer, sctp(v, c, 2)), sent, frame(restored, sctp(v, c, 2)), "restored-straight")
	})
}

// An INIT directly to the backend ends no association of the VIP: the backend accepts it
// with COOKIE ACK, with the INIT's own tag, or continues as before.
func TestForgedINIT(t *testing.T) {
	families(t, func(t *testing.T, v, p, s, c netip.AddrPort) {
		n := newNode(t)
		p = netip.AddrPortFrom(p.Addr(), v.Port())
		n.set(t, entry(service.Tunnel, v, p, service.SCTP))
		const (
			init, initACK, cookieACK, data = 1, 2, 11, 0
			byVIP, direct, servers         = 0x01020304, 0x0a0b0c0d, 0x77777777
		)
		chunk := func(src, dst netip.AddrPort, kind byte, tag, initiate uint32) []byte {
			b := sctp(src, dst, kind)
			binary.BigEndian.PutUint32(b[4:], tag)
			binary.BigEndian.PutUint32(b[16:], initiate)
			return b
		}
		head := func(src, dst netip.AddrPort, ttl byte) ipHead {
			return ipHead{src: src.Addr(), dst: dst.Addr(), ttl: ttl, proto: 132}
		}
		lb := ipHead{src: balancer4, dst: p.Addr(), ttl: 64}
		if v.Addr().Is6() {
			lb.src = balancer6
		}
		toward := func(name string, kind byte, tag, initiate uint32, counter string) {
			t.Helper()
			n.check(t, name, dsrProgToServer, frame(head(c, v, 60), chunk(c, v, kind, tag, initiate), lb), untouched,
				frame(head(c, p, 60), chunk(c, v, kind, tag, initiate)), counter)
		}
		back := func(name string, kind byte, tag uint32) {
			t.Helper()
			n.check(t, name, dsrProgFromServer, frame(head(p, c, 64), chunk(p, c, kind, tag, servers)), sent,
				frame(head(v, c, 63), chunk(v, c, kind, tag, servers)), "restored-straight")
		}
		untouchedByUs := func(name, prog string, bytes []byte) {
			t.Helper()
			verdict, out := n.run(t, n.agent.obj.hooked()[prog].Program, n.pod, bytes)
			if verdict != untouched {
				t.Errorf("%s: verdict %d", name, verdict)
			}
			wantFrame(t, out, bytes)
		}
		straight := frame(head(c, p, 60), chunk(c, p, init, 0, direct))
		toward("INIT", init, 0, byVIP, "flow-made")
		untouchedByUs("a forged INIT", dsrProgToServer, straight)
		back("INIT ACK", initACK, byVIP)
		untouchedByUs("INIT ACK for it", dsrProgFromServer, frame(head(p, c, 64), chunk(p, c, initACK, direct, servers)))
		back("COOKIE ACK", cookieACK, byVIP)
		toward("data", data, servers, 0, "tunnel-delivered")
		untouchedByUs("another forged INIT", dsrProgToServer, straight)
		untouchedByUs("INIT ACK for it", dsrProgFromServer, frame(head(p, c, 64), chunk(p, c, initACK, direct, servers)))
		back("data", data, byVIP)
		before := n.count(t, "flow-forgotten")
		untouchedByUs("COOKIE ACK for it, which was not forged", dsrProgFromServer, frame(head(p, c, 64), chunk(p, c, cookieACK, direct, servers)))
		if grew := n.count(t, "flow-forgotten") - before; grew != 1 {
			t.Errorf("%d flows were forgotten, want 1", grew)
		}
		untouchedByUs("the direct association continues", dsrProgFromServer, frame(head(p, c, 64), chunk(p, c, data, direct, servers)))
	})
}

// TestOtherOptionsStay: a client's own IP options or extension headers reach the backend.
func TestOtherOptionsStay(t *testing.T) {
	families(t, func(t *testing.T, v, p, s, c netip.AddrPort) {
		n := newNode(t)
		n.set(t, entry(service.Tunnel, v, p, service.TCP), entry(service.DSRNAT, v, p, service.UDP))
		others := func() []byte {
			if v.Addr().Is6() {
				return []byte{0, 0, 1, 4, 0, 0, 0, 0} // a Destination Options header with padding
			}
			return []byte{0x94, 4, 0, 0} // router alert
		}
		tcp, tcpOut := wire{client: c, dst: v, flags: "S"}.l4(t), wire{client: c, dst: p, flags: "S"}.l4(t)
		head := ipHead{src: c.Addr(), dst: v.Addr(), ttl: 60, proto: 6, others: others()}
		out := ipHead{src: c.Addr(), dst: p.Addr(), ttl: 60, proto: 6, others: others()}
		lb := ipHead{src: balancer4, dst: p.Addr(), ttl: 64}
		if v.Addr().Is6() {
			lb.src = balancer6
		}
		n.check(t, "in a tunnel", dsrProgToServer, frame(head, tcp, lb), untouched, frame(out, tcpOut), "tunnel-delivered")
		udp := wire{client: c, dst: p, udp: true, payload: "q"}.l4(t)
		head = ipHead{src: c.Addr(), dst: p.Addr(), ttl: 60, proto: 17, others: others(), option: list{v}}
		out = ipHead{src: c.Addr(), dst: p.Addr(), ttl: 60, proto: 17, others: others()}
		n.check(t, "behind our list", dsrProgToServer, frame(head, udp), untouched, frame(out, udp), "dsr-nat-delivered")
	})
}

// TestRangeOfPorts has one entry for many ports, and for every protocol.
func TestRangeOfPorts(t *testing.T) {
	families(t, func(t *testing.T, v, p, _, c netip.AddrPort) {
		n := newNode(t)
		ports := entry(service.Tunnel, netip.AddrPortFrom(v.Addr(), 8000), netip.AddrPortFrom(p.Addr(), 0), service.TCP)
		ports.Last = 8999
		whole := entry(service.DSRNAT, netip.AddrPortFrom(v.Addr(), 0), netip.AddrPortFrom(p.Addr(), 0), service.AnyProtocol)
		whole.Last = 65535
		n.set(t, ports, whole)
		wantEntries(t, n.agent, ports, whole)
		at := func(a netip.AddrPort, port uint16) netip.AddrPort { return netip.AddrPortFrom(a.Addr(), port) }
		n.steps(t, []step{
			{name: "within", in: wire{client: c, dst: at(v, 8500), flags: "S", tunnel: p.Addr()}, out: wire{client: c, dst: at(p, 8500), flags: "S"},
				verdict: untouched, counter: "tunnel-delivered"},
			{name: "outside", in: wire{client: c, dst: at(v, 9000), flags: "S", tunnel: p.Addr()}, same: true, verdict: untouched, counter: "passed-foreign-tunnel"},
			{name: "the whole address", in: wire{client: c, dst: at(p, 53), udp: true, option: list{at(v, 53)}}, out: wire{client: c, dst: at(p, 53), udp: true},
				verdict: untouched, counter: "dsr-nat-delivered"},
			{name: "its answer", prog: dsrProgFromServer, in: wire{client: at(p, 53), dst: c, udp: true, ttl: 64}, out: wire{client: at(v, 53), dst: c, udp: true},
				verdict: sent, counter: "restored-straight"},
		})
	})
}

// TestDR sends packets for the VIP itself, to a pod, at the node's ingress, and to a node
// that has the VIP.
func TestDR(t *testing.T) {
	families(t, func(t *testing.T, v, p, s, c netip.AddrPort) {
		n := newNode(t)
		n.set(t, entry(service.DR, v, p, service.TCP))
		wantEntries(t, n.agent, entry(service.DR, v, p, service.TCP))
		c2 := netip.AddrPortFrom(c.Addr(), 40002)
		to := func(dst netip.AddrPort, f func(*wire)) wire { w := wire{client: c, dst: dst}; f(&w); return w }
		syn := func(w *wire) { w.flags = "S" }
		n.steps(t, []step{
			{name: "where it comes in", prog: dsrProgToHost, in: to(v, syn), out: to(v, func(w *wire) { w.flags, w.ttl = "S", 62 }), verdict: sent, counter: "shortcut"},
			{name: "SYN", in: to(v, func(w *wire) { w.flags, w.option = "S", list{v} }), out: to(p, syn), verdict: untouched, counter: "flow-made"},
			{name: "data", in: to(v, func(w *wire) { w.payload = "odd" }), out: to(p, func(w *wire) { w.payload = "odd" }), verdict: untouched, counter: "dr-delivered"},
			{name: "unknown", in: to(v, func(w *wire) { w.client, w.option = c2, list{v, s} }), out: wire{client: c2, dst: s, option: list{v}},
				verdict: sent, counter: "second-chance"},
			{name: "from another's list", in: wire{client: c2, dst: p, option: list{v}}, out: wire{client: c2, dst: p}, verdict: untouched, counter: "flow-made"},
			{name: "answer", prog: dsrProgFromServer, in: wire{client: p, dst: c, ttl: 64}, out: wire{client: v, dst: c}, verdict: sent, counter: "restored-straight"},
			{name: "another VIP", in: to(netip.AddrPortFrom(v.Addr(), 81), syn), same: true, verdict: untouched},
		})
		other := netip.AddrPortFrom(p.Addr().Next(), p.Port())
		testkit.Do(t, n.ns, func() error {
			return addRoute(n.pod, netip.PrefixFrom(other.Addr(), other.Addr().BitLen()).String(), "")
		})
		n.set(t, entry(service.DR, v, p, service.TCP), entry(service.DR, v, other, service.TCP))
		if got := n.agent.Describe().Attached; len(got) == 0 || !contains(got, "dr cannot distinguish two backends of one VIP on a node") {
			t.Errorf("described as %q", got)
		}
	})
}

func contains(lines []string, part string) bool {
	return slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, part) })
}

// TestDRToAServerThatHoldsTheVIP changes only the list.
func TestDRToAServerThatHoldsTheVIP(t *testing.T) {
	families(t, func(t *testing.T, v, _, s, c netip.AddrPort) {
		n := newNode(t)
		host := ap("10.0.0.105:80")
		if v.Addr().Is6() {
			host = ap("[2001:db8::105]:80")
		}
		testkit.Do(t, n.ns, func() error { return testnet.Address("lo", netip.PrefixFrom(v.Addr(), v.Addr().BitLen()).String()) })
		n.set(t, entry(service.DR, v, host, service.TCP))
		c2 := netip.AddrPortFrom(c.Addr(), 40002)
		n.steps(t, []step{
			{name: "SYN", prog: dsrProgToHost, in: wire{client: c, dst: v, flags: "S", option: list{v}}, out: wire{client: c, dst: v, flags: "S"},
				verdict: untouched, counter: "flow-made"},
			{name: "data", prog: dsrProgToHost, in: wire{client: c, dst: v}, same: true, verdict: untouched, counter: "dr-delivered"},
			{name: "unknown", prog: dsrProgToHost, in: wire{client: c2, dst: v, option: list{v, s}}, out: wire{client: c2, dst: s, option: list{v}, ttl: 62},
				verdict: sent, counter: "second-chance"},
			{name: "answer", prog: dsrProgFromHost, in: wire{client: v, dst: c}, same: true, verdict: untouched, counter: "restored-straight"},
		})
	})
}

// TestTwoVIPsOnOneServerPort: one client address and port uses both.
func TestTwoVIPsOnOneServerPort(t *testing.T) {
	families(t, func(t *testing.T, v, p, _, c netip.AddrPort) {
		n := newNode(t)
		other := netip.AddrPortFrom(v.Addr().Next(), v.Port())
		n.set(t, entry(service.Tunnel, v, p, service.TCP), entry(service.Tunnel, other, p, service.TCP))
		first, second := wire{client: c, dst: v, flags: "S", tunnel: p.Addr()}, wire{client: c, dst: other, flags: "S", tunnel: p.Addr()}
		reset := wire{client: c, dst: v, flags: "R", tunnel: p.Addr()}
		n.steps(t, []step{
			{name: "the first", in: first, out: wire{client: c, dst: p, flags: "S"}, verdict: untouched, counter: "flow-made"},
			{name: "the second", in: second, same: true, verdict: dropped, counter: "dropped-collision"},
			{name: "the first one continues", in: wire{client: c, dst: v, tunnel: p.Addr()}, out: wire{client: c, dst: p}, verdict: untouched, counter: "tunnel-delivered"},
			{name: "and ends", in: reset, out: wire{client: c, dst: p, flags: "R"}, verdict: untouched},
			{name: "the second comes again", in: second, out: wire{client: c, dst: p, flags: "S"}, verdict: untouched, counter: "flow-made"},
		})
	})
}

// TestDatagramsThroughTwoVIPs: one client address and port uses both, like a resolver with few
// ports. The last VIP counts, unless a flow through the other one is established and in use.
func TestDatagramsThroughTwoVIPs(t *testing.T) {
	families(t, func(t *testing.T, v, p, _, c netip.AddrPort) {
		n := newNode(t)
		other := netip.AddrPortFrom(v.Addr().Next(), v.Port())
		n.set(t, entry(service.Tunnel, v, p, service.UDP), entry(service.Tunnel, other, p, service.UDP))
		in := func(vip netip.AddrPort) wire {
			return wire{client: c, dst: vip, udp: true, payload: "question", tunnel: p.Addr()}
		}
		out := wire{client: c, dst: p, udp: true, payload: "question"}
		answer := func(by netip.AddrPort) step {
			return step{name: "an answer", prog: dsrProgFromServer, in: wire{client: p, dst: c, udp: true, payload: "answer", ttl: 64},
				out: wire{client: by, dst: c, udp: true, payload: "answer"}, verdict: sent, counter: "restored-straight"}
		}
		n.steps(t, []step{
			{name: "the first", in: in(v), out: out, verdict: untouched, counter: "flow-made"},
			{name: "the second, before the answer", in: in(other), out: out, verdict: untouched, counter: "flow-made"},
			answer(other),
			{name: "the first again", in: in(v), out: out, verdict: untouched, counter: "flow-made"},
			answer(v),
			{name: "the first continues", in: in(v), out: out, verdict: untouched, counter: "tunnel-delivered"},
			{name: "the second while the first is in use", in: in(other), same: true, verdict: dropped, counter: "dropped-collision"},
		})
		n.idle(t, 10)
		n.steps(t, []step{
			{name: "the second after ten ticks", in: in(other), out: out, verdict: untouched, counter: "flow-made"},
			answer(other),
		})
	})
}

// idle makes all flows older by some ticks of the clock.
func (n *node) idle(t *testing.T, ticks uint32) {
	t.Helper()
	var key uint32
	var set dsrServerFlowSet
	sets := n.agent.obj.FlowTable.Iterate()
	for sets.Next(&key, &set) {
		for i := range set.Flow {
			set.Flow[i].Seen -= ticks
		}
		if err := n.agent.obj.FlowTable.Put(key, &set); err != nil {
			t.Fatal(err)
		}
	}
	if err := sets.Err(); err != nil {
		t.Fatal(err)
	}
}
