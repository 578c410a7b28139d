package dsr

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/features"
	"github.com/fairlead/fairlead/internal/tc"
	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/testkit/refusals"
	"github.com/fairlead/fairlead/lab/testnet"
)

func TestMain(m *testing.M) { refusals.Main(m) }

// The tests' addresses, each with its IPv6 counterpart.
var (
	vip, vip6       = ap("10.1.1.1:80"), ap("[2001:db8:1::1]:80")
	pod, pod6       = ap("172.16.1.2:8080"), ap("[2001:db8:16:1::2]:8080")
	second, second6 = ap("172.16.2.2:8081"), ap("[2001:db8:16:2::2]:8081")
	client, client6 = ap("192.168.0.7:40000"), ap("[2001:db8:c::7]:40000")
)

func ap(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// The verdicts of programs.
const (
	untouched = -1 // TC_ACT_UNSPEC
	dropped   = 2  // TC_ACT_SHOT
	sent      = 7  // TC_ACT_REDIRECT
)

// node is a namespace with an uplink and a pod's device, both with an address at the
// other end. The agent is open but not attached to any device.
type node struct {
	ns          *netns.NS
	agent       *Agent
	uplink, pod int
}

// newNode makes
//
//	192.168.0.0/24 ── 10.0.0.110 ── up0 [node 10.0.0.105] pod0 ── 172.16.1.2
func newNode(t testing.TB) *node {
	t.Helper()
	n := &node{ns: testkit.NetNS(t)}
	testkit.Do(t, n.ns, func() error {
		if err := errors.Join(testnet.Forward(), netns.WriteSysctl("net.ipv6.conf.default.accept_dad", "0")); err != nil {
			return err
		}
		var err error
		if n.uplink, err = addVeth("up0", "up1", "10.0.0.105/16", "2001:db8:0::105/64"); err != nil {
			return err
		}
		if n.pod, err = addVeth("pod0", "pod1"); err != nil {
			return err
		}
		return errors.Join(
			addRoute(n.uplink, "0.0.0.0/0", "10.0.0.110"), addRoute(n.uplink, "::/0", "2001:db8::110"),
			addRoute(n.pod, "172.16.1.2/32", ""), addRoute(n.pod, "2001:db8:16:1::2/128", ""),
		)
	})
	n.agent = openAgent(t, n.ns, Config{}, tc.Open)
	return n
}

// openAgent opens a DSR agent in a namespace, with the test's own pins, and detaches it at the
// end.
func openAgent(t testing.TB, ns *netns.NS, cfg Config, hook tc.Opener) *Agent {
	t.Helper()
	if cfg.PinDir == "" {
		cfg.PinDir = pinDir(t, ns)
	}
	cfg.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	var h *Agent
	testkit.Do(t, ns, func() (err error) {
		h, err = open(cfg, hook)
		return err
	})
	t.Cleanup(func() {
		if err := h.Detach(); err != nil && !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
	return h
}

func pinDir(t testing.TB, ns *netns.NS) string {
	return filepath.Join("/sys/fs/bpf", ns.Name())
}

// addVeth makes a pair in this namespace, both ends up. The near end has the MAC address
// of the tests' frames.
func addVeth(name, peer string, addrs ...string) (int, error) {
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, HardwareAddr: macs[1]}, PeerName: peer}
	if err := errors.Join(netlink.LinkAdd(veth), testnet.Address(name, addrs...), testnet.Address(peer)); err != nil {
		return 0, err
	}
	l, err := netlink.LinkByName(name)
	if err != nil {
		return 0, err
	}
	return l.Attrs().Index, nil
}

func addRoute(link int, dst, gw string) error {
	_, prefix, err := net.ParseCIDR(dst)
	if err != nil {
		return err
	}
	r := &netlink.Route{LinkIndex: link, Dst: prefix, Gw: net.ParseIP(gw)}
	if gw == "" {
		r.Scope = netlink.SCOPE_LINK
	}
	if err := netlink.RouteAdd(r); err != nil {
		return fmt.Errorf("route %s: %w", dst, err)
	}
	return nil
}

// set makes the agent serve entries, whose frontends also have backends on other nodes:
// those in the tests' lists.
func (n *node) set(t *testing.T, entries ...Entry) {
	t.Helper()
	all := slices.Clone(entries)
	for _, e := range entries {
		like := second
		if e.Server.Addr().Is6() {
			like = second6
		}
		for _, s := range append(servers(like, 5), like) {
			if e.Server.Port() == 0 || e.Protocol == service.SCTP {
				s = netip.AddrPortFrom(s.Addr(), e.Server.Port())
			}
			e.Server = s
			all = append(all, e)
		}
	}
	n.setOnly(t, all...)
}

func (n *node) setOnly(t *testing.T, entries ...Entry) {
	t.Helper()
	if err := n.agent.Set(entries); err != nil {
		t.Fatal(err)
	}
}

// run passes a frame to a program as if it passed a device.
func (n *node) run(t *testing.T, prog *ebpf.Program, ifindex int, frame []byte) (int, []byte) {
	t.Helper()
	return testnet.Run(t, n.ns, prog, ifindex, frame)
}

func entry(method service.Method, vip, server netip.AddrPort, proto service.Protocol) Entry {
	return Entry{Key: service.Key{VIP: vip.Addr(), Port: vip.Port(), Protocol: proto}, Method: method, Server: server}
}

func (n *node) count(t *testing.T, name string) uint64 {
	t.Helper()
	counters, err := n.agent.Counters()
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := counters[name]; !ok {
		t.Fatalf("no counter %s among %v", name, counters)
	}
	return counters[name]
}

// families runs a test for IPv4 and for IPv6.
func families(t *testing.T, f func(t *testing.T, v, p, s, c netip.AddrPort)) {
	t.Run("IPv4", func(t *testing.T) { f(t, vip, pod, second, client) })
	t.Run("IPv6", func(t *testing.T) { f(t, vip6, pod6, second6, client6) })
}

// step is one packet: in, verdict, out.
type step struct {
	name    string
	prog    string // to_server if empty
	in, out wire   // out is in if the packet is unmodified
	verdict int
	same    bool
	counter string // must have increased by one
}

func (n *node) steps(t *testing.T, steps []step) {
	t.Helper()
	for _, s := range steps {
		if s.prog == "" {
			s.prog = dsrProgToServer
		}
		if s.same {
			s.out = s.in
		}
		before := uint64(0)
		if s.counter != "" {
			before = n.count(t, s.counter)
		}
		verdict, out := n.run(t, n.agent.obj.hooked()[s.prog].Program, n.pod, s.in.bytes(t))
		if verdict != s.verdict {
			t.Errorf("%s: verdict %d, want %d", s.name, verdict, s.verdict)
		}
		if want := s.out.bytes(t); !bytes.Equal(out, want) {
			t.Errorf("%s:", s.name)
			wantFrame(t, out, want)
		}
		if s.counter != "" && n.count(t, s.counter) != before+1 {
			t.Errorf("%s: counter %s grew by %d, want 1", s.name, s.counter, n.count(t, s.counter)-before)
		}
	}
}

// TestFramesForOtherHosts: a switch floods frames, and only those for this host's MAC
// address are processed.
func TestFramesForOtherHosts(t *testing.T) {
	families(t, func(t *testing.T, v, p, s, c netip.AddrPort) {
		n := newNode(t)
		n.set(t, entry(service.DSRNAT, v, p, service.TCP))
		in := wire{client: c, dst: p, flags: "S", option: list{v}}.bytes(t)
		flooded := slices.Concat([]byte{2, 0, 0, 0, 0, 0x77}, in[6:])
		program := n.agent.obj.hooked()[dsrProgToHost].Program
		if verdict, _ := n.run(t, program, n.pod, in); verdict != sent {
			t.Errorf("for this host: verdict %d, want %d", verdict, sent)
		}
		if verdict, out := n.run(t, program, n.pod, flooded); verdict != untouched || !bytes.Equal(out, flooded) {
			t.Errorf("for another host: verdict %d, want %d", verdict, untouched)
		}
	})
}

func TestTunnel(t *testing.T) {
	families(t, func(t *testing.T, v, p, s, c netip.AddrPort) {
		n := newNode(t)
		n.set(t, entry(service.Tunnel, v, p, service.TCP), entry(service.Tunnel, v, p, service.UDP))
		c2, c3 := netip.AddrPortFrom(c.Addr(), 40002), netip.AddrPortFrom(c.Addr(), 40003)
		in := func(w wire) wire { w.dst, w.tunnel = v, p.Addr(); return w }
		out := func(w wire) wire { w.dst = p; return w }
		syn := wire{client: c, flags: "S", mss: 1460}
		data := wire{client: c, payload: "GET / HTTP/1.1\r\n"}
		unknown := wire{client: c2, payload: "of an earlier backend"}
		withOption := func(w wire) wire { w = in(w); w.tunnelOption = list{s}; return w }
		forwarded := in(unknown)
		forwarded.tunnel = s.Addr()
		udp, udpNoSum := wire{client: c, udp: true, payload: "question"}, wire{client: c, udp: true, payload: "odd", noSum: true}
		congested := in(wire{client: c, payload: "x", tos: 2})
		congested.tunnelTOS = 3
		marked := uint8(3)
		if refusals.Without(features.CongestionMarks) {
			marked = 2
		}
		n.steps(t, []step{
			{name: "SYN", in: in(syn), out: out(syn), verdict: untouched, counter: "flow-made"},
			{name: "data", in: in(data), out: out(data), verdict: untouched, counter: "tunnel-delivered"},
			{name: "known, with a second chance", in: withOption(data), out: out(data), verdict: untouched, counter: "tunnel-delivered"},
			{name: "unknown, with a second chance", in: withOption(unknown), out: forwarded, verdict: sent, counter: "second-chance"},
			{name: "unknown, no second chance", in: in(unknown), out: out(unknown), verdict: untouched, counter: "flow-made"},
			{name: "SYN with a second chance", in: withOption(wire{client: c3, flags: "S"}), out: out(wire{client: c3, flags: "S"}),
				verdict: untouched, counter: "flow-made"},
			{name: "UDP", in: in(udp), out: out(udp), verdict: untouched, counter: "flow-made"},
			{name: "UDP without a checksum", in: in(udpNoSum), out: out(udpNoSum), verdict: untouched, counter: "tunnel-delivered"},
			{name: "congestion met in the tunnel", in: congested, out: out(wire{client: c, payload: "x", tos: marked}), verdict: untouched},
		})
	})
}

// TestAddressesOfOneSum has a VIP and a backend with the same checksum: only the port
// changes it.
func TestAddressesOfOneSum(t *testing.T) {
	for _, tc := range []struct{ v, p, c netip.AddrPort }{
		{ap("173.17.0.1:80"), pod, client},
		{ap("[2001:db8:16:2::1]:80"), pod6, client6},
	} {
		n := newNode(t)
		n.set(t, entry(service.Tunnel, tc.v, tc.p, service.TCP), entry(service.Tunnel, tc.v, tc.p, service.UDP))
		for _, w := range []wire{{payload: "segment"}, {udp: true, payload: "datagram"}, {udp: true, noSum: true}} {
			in, out := w, w
			in.client, in.dst, in.tunnel = tc.c, tc.v, tc.p.Addr()
			out.client, out.dst = tc.c, tc.p
			back, restored := w, w
			back.client, back.dst, back.ttl = tc.p, tc.c, 64
			restored.client, restored.dst = tc.v, tc.c
			n.steps(t, []step{
				{name: "toward the server", in: in, out: out, verdict: untouched, counter: "tunnel-delivered"},
				{name: "back", prog: dsrProgFromServer, in: back, out: restored, verdict: sent, counter: "restored-straight"},
			})
		}
	}
}

func TestTunnelOfTheOtherFamily(t *testing.T) {
	for _, tc := range []struct {
		name             string
		v, p, outer, c   netip.AddrPort
		second, noAnswer netip.AddrPort
	}{
		{name: "4in6", v: vip, p: pod, outer: pod6, c: client, second: second6},
		{name: "6in4", v: vip6, p: pod6, outer: pod, c: client6, second: second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNode(t)
			e := entry(service.Tunnel, tc.v, tc.outer, service.TCP)
			e.Deliver = tc.p.Addr()
			n.set(t, e)
			syn := wire{client: tc.c, dst: tc.v, flags: "S", mss: 1400, tunnel: tc.outer.Addr(), payload: "early"}
			plain := wire{client: tc.c, dst: tc.p, flags: "S", mss: 1400, payload: "early"}
			withOption := syn
			withOption.tunnelOption = list{tc.second}
			n.steps(t, []step{
				{name: "SYN", in: syn, out: plain, verdict: untouched, counter: "tunnel-delivered"},
				{name: "SYN with a second chance", in: withOption, out: plain, verdict: untouched, counter: "tunnel-delivered"},
			})
		})
	}
}

func TestForeignTunnelPacketsStayUntouched(t *testing.T) {
	families(t, func(t *testing.T, v, p, s, c netip.AddrPort) {
		n := newNode(t)
		n.set(t, entry(service.Tunnel, v, p, service.TCP), entry(service.DSRNAT, v, p, service.UDP))
		base := wire{client: c, dst: v, tunnel: p.Addr(), payload: "x"}
		with := func(f func(*wire)) wire { w := base; f(&w); return w }
		n.steps(t, []step{
			{name: "another VIP", in: with(func(w *wire) { w.dst = s }), same: true, verdict: untouched, counter: "passed-foreign-tunnel"},
			{name: "another port", in: with(func(w *wire) { w.dst = netip.AddrPortFrom(v.Addr(), 81) }), same: true, verdict: untouched, counter: "passed-foreign-tunnel"},
			{name: "another server", in: with(func(w *wire) { w.tunnel = s.Addr() }), same: true, verdict: untouched, counter: "passed-foreign-tunnel"},
			{name: "another protocol", in: with(func(w *wire) { w.udp = true }), same: true, verdict: untouched, counter: "passed-foreign-tunnel"},
			{name: "our option inside", in: with(func(w *wire) { w.option = list{v} }), same: true, verdict: untouched},
			{name: "a pod's, where it comes in", prog: dsrProgToHost, in: base, same: true, verdict: untouched},
		})
		if flows, err := n.agent.Flows(); err != nil || len(flows) > 0 {
			t.Errorf("flows %v, %v; want none", flows, err)
		}
	})
}

func TestDSRNAT(t *testing.T) {
	families(t, func(t *testing.T, v, p, s, c netip.AddrPort) {
		n := newNode(t)
		n.set(t, entry(service.DSRNAT, v, p, service.TCP), entry(service.DSRNAT, v, p, service.UDP))
		c2, c3 := netip.AddrPortFrom(c.Addr(), 40002), netip.AddrPortFrom(c.Addr(), 40003)
		plain := wire{client: c, dst: p}
		with := func(f func(*wire)) wire { w := plain; f(&w); return w }
		n.steps(t, []step{
			{name: "SYN", in: with(func(w *wire) { w.flags, w.option, w.mss = "S", list{v}, 1460 }),
				out: with(func(w *wire) { w.flags, w.mss = "S", 1460 }), verdict: untouched, counter: "flow-made"},
			{name: "data", in: plain, same: true, verdict: untouched},
			{name: "known, with a second chance", in: with(func(w *wire) { w.option, w.payload = list{v, s}, "data" }),
				out: with(func(w *wire) { w.payload = "data" }), verdict: untouched, counter: "dsr-nat-delivered"},
			{name: "unknown, with a second chance", in: with(func(w *wire) { w.client, w.option, w.payload = c2, list{v, s}, "odd" }),
				out: wire{client: c2, dst: s, option: list{v}, payload: "odd"}, verdict: sent, counter: "second-chance"},
			{name: "unknown here too, with the VIP in the option", in: wire{client: c3, dst: p, option: list{v}, payload: "odd"},
				out: wire{client: c3, dst: p, payload: "odd"}, verdict: untouched, counter: "flow-made"},
			{name: "UDP", in: with(func(w *wire) { w.udp, w.option, w.payload = true, list{v}, "q" }),
				out: with(func(w *wire) { w.udp, w.payload = true, "q" }), verdict: untouched, counter: "flow-made"},
			{name: "UDP without a checksum", in: with(func(w *wire) { w.udp, w.option, w.noSum = true, list{v}, true }),
				out: with(func(w *wire) { w.udp, w.noSum = true, true }), verdict: untouched, counter: "dsr-nat-delivered"},
			{name: "a SYN that claims another VIP", in: with(func(w *wire) { w.flags, w.option = "S", list{s} }), same: true, verdict: untouched,
				counter: "passed-foreign-option"},
			{name: "UDP that claims another VIP", in: with(func(w *wire) { w.udp, w.option = true, list{s} }), same: true, verdict: untouched,
				counter: "passed-foreign-option"},
			{name: "a second chance for no server of ours", in: with(func(w *wire) { w.dst, w.option = netip.AddrPortFrom(p.Addr(), 22), list{v, s} }),
				same: true, verdict: untouched, counter: "passed-foreign-option"},
			{name: "a SYN where it comes in", prog: dsrProgToHost, in: with(func(w *wire) { w.flags, w.option = "S", list{v} }),
				out: with(func(w *wire) { w.flags, w.option, w.ttl = "S", list{v}, 62 }), verdict: sent, counter: "shortcut"},
			{name: "a second chance where it comes in", prog: dsrProgToHost, in: with(func(w *wire) { w.option = list{v, s} }),
				out: with(func(w *wire) { w.option, w.ttl = list{v, s}, 62 }), verdict: sent, counter: "shortcut"},
			{name: "data where it comes in", prog: dsrProgToHost, in: plain,
				out: with(func(w *wire) { w.ttl = 62 }), verdict: sent, counter: "shortcut"},
			{name: "data where it comes in, at its last hop", prog: dsrProgToHost, in: with(func(w *wire) { w.ttl = 1 }), same: true, verdict: untouched},
			{name: "data of no flow where it comes in", prog: dsrProgToHost, in: with(func(w *wire) { w.client = netip.AddrPortFrom(c.Addr(), 1) }),
				same: true, verdict: untouched},
		})
	})
}

func TestFromServer(t *testing.T) {
	families(t, func(t *testing.T, v, p, _, c netip.AddrPort) {
		n := newNode(t)
		n.set(t, entry(service.Tunnel, v, p, service.TCP), entry(service.Tunnel, v, p, service.UDP))
		overhead := uint16(20 + 32) // the outer header, and a list of five
		if v.Addr().Is6() {
			overhead = 40 + 96
		}
		for _, udp := range []bool{false, true} {
			n.run(t, n.agent.obj.ToServer, n.pod, wire{client: c, dst: v, udp: udp, flags: "S", tunnel: p.Addr()}.bytes(t))
		}
		back := func(f func(*wire)) wire { w := wire{client: p, dst: c, ttl: 64}; f(&w); return w }
		out := func(f func(*wire)) wire { w := wire{client: v, dst: c, ttl: 63}; f(&w); return w }
		n.steps(t, []step{
			{name: "SYN-ACK", prog: dsrProgFromServer, in: back(func(w *wire) { w.flags, w.mss = "SA", 1460 }),
				out: out(func(w *wire) { w.flags, w.mss = "SA", 1460-overhead }), verdict: sent, counter: "restored-straight"},
			{name: "data", prog: dsrProgFromServer, in: back(func(w *wire) { w.payload = "odd" }),
				out: out(func(w *wire) { w.payload = "odd" }), verdict: sent, counter: "restored-straight"},
			{name: "reset", prog: dsrProgFromServer, in: back(func(w *wire) { w.flags = "RA" }),
				out: out(func(w *wire) { w.flags = "RA" }), verdict: sent},
			{name: "UDP", prog: dsrProgFromServer, in: back(func(w *wire) { w.udp, w.payload = true, "a" }),
				out: out(func(w *wire) { w.udp, w.payload = true, "a" }), verdict: sent},
			{name: "the last hop", prog: dsrProgFromServer, in: back(func(w *wire) { w.ttl = 1 }), same: true, verdict: untouched, counter: "passed-ttl"},
			{name: "another client", prog: dsrProgFromServer, in: back(func(w *wire) { w.dst = netip.AddrPortFrom(c.Addr(), 1) }), same: true, verdict: untouched},
			{name: "another port of the server", prog: dsrProgFromServer, in: back(func(w *wire) { w.client = netip.AddrPortFrom(p.Addr(), 22) }), same: true, verdict: untouched},
			{name: "the node's own answer", prog: dsrProgFromHost, in: back(func(w *wire) { w.payload = "x" }),
				out: out(func(w *wire) { w.payload, w.ttl = "x", 64 }), verdict: untouched, counter: "restored-straight"},
		})
	})
}

func TestFromServerWithoutARoute(t *testing.T) {
	families(t, func(t *testing.T, v, p, _, c netip.AddrPort) {
		n := newNode(t)
		n.set(t, entry(service.Tunnel, v, p, service.TCP))
		n.run(t, n.agent.obj.ToServer, n.pod, wire{client: c, dst: v, flags: "S", tunnel: p.Addr()}.bytes(t))
		testkit.Do(t, n.ns, func() error {
			l, err := netlink.LinkByIndex(n.uplink)
			if err != nil {
				return err
			}
			return netlink.LinkSetDown(l)
		})
		n.steps(t, []step{{name: "left to the kernel", prog: dsrProgFromServer, in: wire{client: p, dst: c}, out: wire{client: v, dst: c},
			verdict: untouched, counter: "restored-passed"}})
	})
}

func TestDirectConnectionForgetsTheFlow(t *testing.T) {
	families(t, func(t *testing.T, v, p, _, c netip.AddrPort) {
		n := newNode(t)
		n.set(t, entry(service.Tunnel, v, p, service.TCP))
		n.run(t, n.agent.obj.ToServer, n.pod, wire{client: c, dst: v, flags: "S", tunnel: p.Addr()}.bytes(t))
		n.steps(t, []step{
			{name: "direct SYN", in: wire{client: c, dst: p, flags: "S", seq: 77}, same: true, verdict: untouched},
			{name: "direct answer", prog: dsrProgFromServer, in: wire{client: p, dst: c, flags: "SA", ack: 78, mss: 1460}, same: true, verdict: untouched, counter: "flow-forgotten"},
			{name: "the direct connection continues", prog: dsrProgFromServer, in: wire{client: p, dst: c}, same: true, verdict: untouched},
		})
	})
}

// A SYN directly to the backend, which anyone can send in the name of a client that is
// connecting through the VIP, does not end that connection: the backend's SYN-ACK shows
// which of the two SYNs it has accepted.
func TestForgedSYNDuringAHandshake(t *testing.T) {
	families(t, func(t *testing.T, v, p, s, c netip.AddrPort) {
		for name, answered := range map[string]bool{"before the answer": false, "after it": true} {
			t.Run(name, func(t *testing.T) {
				n := newNode(t)
				n.set(t, entry(service.Tunnel, v, p, service.TCP))
				accepts := wire{client: p, dst: c, flags: "SA", ack: 1001}
				steps := []step{
					{name: "SYN", in: wire{client: c, dst: v, flags: "S", seq: 1000, tunnel: p.Addr()},
						out: wire{client: c, dst: p, flags: "S", seq: 1000}, verdict: untouched},
					{name: "SYN-ACK", prog: dsrProgFromServer, in: accepts, out: wire{client: v, dst: c, flags: "SA", ack: 1001, ttl: 62}, verdict: sent},
					{name: "a forged SYN", in: wire{client: c, dst: p, flags: "S", seq: 666}, same: true, verdict: untouched},
					{name: "the server challenges it", prog: dsrProgFromServer, in: wire{client: p, dst: c, ack: 1001},
						out: wire{client: v, dst: c, ack: 1001, ttl: 62}, verdict: sent},
					{name: "SYN-ACK again", prog: dsrProgFromServer, in: accepts, out: wire{client: v, dst: c, flags: "SA", ack: 1001, ttl: 62}, verdict: sent},
					{name: "the client's ACK, that somebody else might know", in: wire{client: c, dst: v, tunnel: p.Addr(), tunnelOption: list{s}},
						out: wire{client: c, dst: p}, verdict: untouched, counter: "tunnel-delivered"},
				}
				if !answered {
					steps = slices.Delete(steps, 1, 2)
				}
				n.steps(t, steps)
			})
		}
	})
}

// Anyone can send a SYN or RST with a client's address. An established flow continues
// after either as long as its backend continues it, and ends when the backend accepts the
// SYN.
func TestForgedSegmentsEndNoFlow(t *testing.T) {
	for _, method := range []service.Method{service.Tunnel, service.DSRNAT} {
		families(t, func(t *testing.T, v, p, s, c netip.AddrPort) {
			n := newNode(t)
			n.set(t, entry(method, v, p, service.TCP))
			in := func(w wire) wire { // as the load balancer sends it
				if method == service.Tunnel {
					w.tunnel = p.Addr()
				} else {
					w.dst, w.option = p, list{v}
				}
				return w
			}
			listed := in(wire{client: c, dst: v, payload: "data"})
			if method == service.Tunnel {
				listed.tunnelOption = list{s}
			} else {
				listed.option = list{v, s}
			}
			made := map[service.Method]string{service.Tunnel: "tunnel-delivered", service.DSRNAT: "dsr-nat-delivered"}[method]
			back := func(flags string) wire { return wire{client: p, dst: c, flags: flags} }
			restored := func(flags string) wire { return wire{client: v, dst: c, flags: flags, ttl: 62} }
			for _, w := range []wire{in(wire{client: c, dst: v, flags: "S"}), in(wire{client: c, dst: v})} {
				n.run(t, n.agent.obj.ToServer, n.pod, w.bytes(t))
				n.run(t, n.agent.obj.FromServer, n.pod, back("SA").bytes(t))
			}
			syn, delivered := wire{client: c, dst: p, flags: "S"}, wire{client: c, dst: p, payload: "data"}
			n.steps(t, []step{
				{name: "SYN straight to the server", in: syn, same: true, verdict: untouched},
				{name: "challenge ACK", prog: dsrProgFromServer, in: back("A"), out: restored("A"), verdict: sent},
				{name: "data, with a second chance", in: listed, out: delivered, verdict: untouched, counter: made},
				{name: "RST", in: in(wire{client: c, dst: v, flags: "R"}), out: wire{client: c, dst: p, flags: "R"}, verdict: untouched},
				{name: "data at once", in: listed, out: delivered, verdict: untouched, counter: made},
				{name: "the server continues", prog: dsrProgFromServer, in: back("A"), out: restored("A"), verdict: sent},
			})
			if flows, err := n.agent.Flows(); err != nil || len(flows) != 1 || flows[0].State != "established" {
				t.Errorf("flows %v, %v; want one that is established", flows, err)
			}
			n.steps(t, []step{
				{name: "SYN by the VIP", in: in(wire{client: c, dst: v, flags: "S"}), out: syn, verdict: untouched},
				{name: "SYN-ACK by the VIP", prog: dsrProgFromServer, in: back("SA"), out: restored("SA"), verdict: sent},
				{name: "SYN straight to the server again", in: syn, same: true, verdict: untouched},
				{name: "accepted", prog: dsrProgFromServer, in: wire{client: p, dst: c, flags: "SA", ack: tcpSequence + 1}, same: true, verdict: untouched, counter: "flow-forgotten"},
				{name: "the direct connection continues", prog: dsrProgFromServer, in: back("A"), same: true, verdict: untouched},
			})
		})
	}
}

func TestMSSIsKeptWhereAsked(t *testing.T) {
	n := newNode(t)
	if err := n.agent.Close(); err != nil {
		t.Fatal(err)
	}
	n.agent = openAgent(t, n.ns, Config{KeepMSS: true}, tc.Open)
	n.set(t, entry(service.Tunnel, vip, pod, service.TCP))
	n.run(t, n.agent.obj.ToServer, n.pod, wire{client: client, dst: vip, flags: "S", tunnel: pod.Addr()}.bytes(t))
	n.steps(t, []step{{name: "SYN-ACK", prog: dsrProgFromServer, in: wire{client: pod, dst: client, flags: "SA", mss: 1460},
		out: wire{client: vip, dst: client, flags: "SA", mss: 1460, ttl: 62}, verdict: sent}})
}

// TestCutFrames passes every shorter prefix of a valid frame to every program.
func TestCutFrames(t *testing.T) {
	families(t, func(t *testing.T, v, p, s, c netip.AddrPort) {
		n := newNode(t)
		n.set(t, entry(service.Tunnel, v, p, service.TCP), entry(service.DSRNAT, v, p, service.UDP))
		shortest := 14 + 20 // the kernel's minimum for test runs
		if v.Addr().Is6() {
			shortest = 14 + 40
		}
		for _, w := range []wire{
			{client: c, dst: v, flags: "S", mss: 1460, tunnel: p.Addr(), tunnelOption: list{s}, payload: "data"},
			{client: c, dst: p, udp: true, option: list{v, s}[:1], payload: "data"},
		} {
			whole := w.bytes(t)
			for cut := shortest; cut < len(whole); cut++ {
				for _, prog := range []*ebpf.Program{n.agent.obj.ToServer, n.agent.obj.FromServer, n.agent.obj.ToHost, n.agent.obj.FromHost} {
					verdict, out := n.run(t, prog, n.pod, whole[:cut])
					if verdict != untouched || !bytes.Equal(out, whole[:cut]) {
						t.Fatalf("cut to %d of %d bytes: verdict %d\n%s", cut, len(whole), verdict, decode(out))
					}
				}
			}
		}
		if flows, err := n.agent.Flows(); err != nil || len(flows) > 0 {
			t.Errorf("flows %v, %v; want none", flows, err)
		}
	})
}
