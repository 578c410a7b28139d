package xdp

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/internal/nodekey"
	"github.com/fairlead/fairlead/lab/testkit"
)

// pair is two load balancers, the second of which drains and has this MTU, and a packet
// of a flow that only it knows. They are on different segments.
type pair struct {
	stays, leaves *testNet
	b, d          *DataPlane
	own           [2]string
	known         packet
}

func newPair(t *testing.T, method service.Method, v6 bool, mtu int) *pair {
	t.Helper()
	return newPairOf(t, method, v6, mtu, [2]nodekey.Auth{})
}

// newPairOf makes them with keys.
func newPairOf(t *testing.T, method service.Method, v6 bool, mtu int, auths [2]nodekey.Auth) *pair {
	t.Helper()
	own := map[bool][2]string{false: {"172.18.0.66", "172.18.0.77"}, true: {"fd18::66", "fd18::77"}}[v6]
	var planes [2]*DataPlane
	var nets [2]*testNet
	for i := range planes {
		c := config()
		c.PinDir, c.Auth = fmt.Sprint("/sys/fs/bpf/test", i), auths[i]
		c.SourceV4, c.SourceV6 = netip.MustParseAddr(own[i]), netip.Addr{}
		if v6 {
			c.SourceV4, c.SourceV6 = c.SourceV6, c.SourceV4
		}
		nets[i] = newNet(t)
		planes[i] = nets[i].open(t, c)
		f := frontend(method, vips[v6], 0, servers[v6])
		f.Survival = service.FlowTable
		both(t, planes[i], f)
	}
	p := &pair{stays: nets[0], leaves: nets[1], b: planes[0], d: planes[1], own: own, known: packet{src: clients[v6], dst: vips[v6], flags: "S"}}
	testkit.Do(t, p.leaves.balancer, func() error {
		return netlink.LinkSetMTU(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: int(p.leaves.eth0)}}, mtu)
	})
	if v, _ := p.leaves.run(t, p.d, p.known.bytes(t)); v != redirect {
		t.Fatalf("opens: %v, %v", v, p.d.Describe().Drops)
	}
	p.known.flags = "A"
	must(t, p.d.Prepare())
	stays, leaves := []netip.Addr{netip.MustParseAddr(own[0])}, []netip.Addr{netip.MustParseAddr(own[1])}
	must(t, p.b.SetBalancers(leaves, leaves))
	must(t, p.d.SetBalancers(stays, nil))
	return p
}

// unknownFlow is the same packet of a flow that neither knows.
func (p *pair) unknownFlow(sport uint16) packet {
	in := p.known
	in.src = netip.AddrPortFrom(netip.MustParseAddr(addrOf(in.src)), sport).String()
	return in
}

// delivered returns a frame as a router delivers it to another load balancer.
func delivered(frame []byte) []byte {
	return slices.Concat(macEth0, macGateway, frame[12:])
}

// same checks that a handed-over frame is processed as if it had arrived at the draining
// load balancer itself.
func (p *pair) same(t *testing.T, name string, frame []byte) {
	t.Helper()
	want, wantOut := p.leaves.run(t, p.d, frame)
	v, handed := p.stays.run(t, p.b, frame)
	if v != redirect || bytes.Equal(handed, frame) {
		t.Errorf("%s: %v, %v", name, v, p.b.Describe().Drops)
		return
	}
	got, out := p.leaves.run(t, p.d, delivered(handed))
	if got != want || got != redirect || !bytes.Equal(out, wantOut) {
		t.Errorf("%s: %v, want %v\n got %x\nwant %x\nhanded %x, drops %v", name, got, want, out, wantOut, handed, p.d.Describe().Drops)
	}
}

func bothFamilies(t *testing.T, test func(t *testing.T, v6 bool)) {
	for _, v6 := range []bool{false, true} {
		t.Run(fmt.Sprintf("v6 %v", v6), func(t *testing.T) { test(t, v6) })
	}
}

// A flow known to the draining load balancer stays there, and an unknown one starts where
// it arrived.
func TestHandover(t *testing.T) {
	bothFamilies(t, func(t *testing.T, v6 bool) {
		p := newPair(t, service.FullNAT, v6, 1500)
		p.same(t, "what the draining one knows", p.known.bytes(t))

		in := p.unknownFlow(999)
		_, handed := p.stays.run(t, p.b, in.bytes(t))
		v, back := p.leaves.run(t, p.d, delivered(handed))
		if v != redirect {
			t.Fatalf("a flow unknown to both: %v, %v", v, p.d.Describe().Drops)
		}
		v, out := p.stays.run(t, p.b, delivered(back))
		want := in
		forth(p.own[0], portOf(t, p.b, in), servers[v6])(&want)
		if wantBytes := want.bytes(t); v != redirect || string(out) != string(wantBytes) {
			t.Errorf("a flow unknown to both: %v\n got %x\nwant %x\nback %x", v, out, wantBytes, back)
		}
		here := func(name string, in packet) {
			row{name: name, in: in, verdict: redirect, out: forth(p.own[0], portOf(t, p.b, in), servers[v6])}.check(t, p.stays, p.b)
		}
		here("known from then on", in)
		in = p.unknownFlow(998)
		in.flags = "S"
		here("a new one stays", in)
		must(t, p.b.SetBalancers([]netip.Addr{netip.MustParseAddr(p.own[1])}, nil))
		here("no load balancer drains", p.unknownFlow(997))
	})
}

// The program is not loaded before it may be needed: until then handed-over packets go to
// the kernel, like any other packet in a tunnel to this host. Once loaded, it stays
// loaded across agent restarts.
func TestHandoverIsLoadedWhenItMayBeNeeded(t *testing.T) {
	bothFamilies(t, func(t *testing.T, v6 bool) {
		p := newPair(t, service.FullNAT, v6, 1500)
		_, handed := p.stays.run(t, p.b, p.known.bytes(t))
		n, c := newNet(t), p.d.config
		c.PinDir = "/sys/fs/bpf/new"
		d := n.open(t, c)
		f := frontend(service.FullNAT, vips[v6], 0, servers[v6])
		f.Survival = service.FlowTable
		both(t, d, f)
		must(t, d.SetBalancers([]netip.Addr{netip.MustParseAddr(p.own[0])}, nil))
		inTunnel := p.known
		inTunnel.outer = &outer{src: p.own[0], dst: p.own[1], ttl: 9}
		again := func(n *testNet, d *DataPlane) *DataPlane {
			must(t, d.Close())
			return n.open(t, d.config)
		}
		is := func(when string, loaded bool) {
			t.Helper()
			var program uint32
			if err := d.kernel.Steps.Lookup(uint32(bpf.BalancerStepSTEP_HANDOVER), &program); (err == nil) != loaded {
				t.Errorf("%s: the program: %v", when, err)
			}
			rawRow{name: when + ": in a tunnel", in: inTunnel.bytes(t), verdict: pass}.check(t, n, d)
			if !loaded {
				rawRow{name: when + ": handed over", in: delivered(handed), verdict: pass}.check(t, n, d)
				return
			}
			if v, out := n.run(t, d, delivered(handed)); v != redirect || !bytes.Contains(out, handed[len(handed)-20:]) {
				t.Errorf("%s: handed over: %v, %v\n got %x", when, v, d.Describe().Drops, out)
			}
		}
		is("at first", false)
		d = again(n, d)
		is("when the agent is another", false)
		must(t, d.Prepare())
		is("prepared", true)
		d = again(n, d)
		is("when the agent is another after that", true)

		p.b = again(p.stays, p.b)
		p.same(t, "who hands over, when the agent is another", p.known.bytes(t))
	})
}

// Slow path packets are handed over as well, and come back if nobody knows them.
func TestHandoverOfOddPackets(t *testing.T) {
	for _, method := range []service.Method{service.FullNAT, service.Tunnel} {
		bothFamilies(t, func(t *testing.T, v6 bool) {
			p := newPair(t, method, v6, 1500)
			p.known.payload = 300
			frames := dressed(p.known.bytes(t))
			for i, f := range fragments(p.known.bytes(t), 7, 104) {
				frames[fmt.Sprintf("fragment %d", i)] = f
			}
			answer := packet{src: p.known.dst, dst: p.known.src, flags: "A"}.bytes(t)[14:]
			kind := errorKinds[v6][2]
			frames["ICMP error"] = icmp{packet: packet{src: routers[v6], dst: addrOf(vips[v6])}, kind: kind[0], code: kind[1], rest: 1400, body: answer}.bytes(t)
			for _, name := range slices.Sorted(maps.Keys(frames)) {
				p.same(t, name, frames[name])
			}
			sport := uint16(900)
			for name := range dressed(p.known.bytes(t)) {
				sport++
				frame := dressed(p.unknownFlow(sport).bytes(t))[name]
				_, handed := p.stays.run(t, p.b, frame)
				_, back := p.leaves.run(t, p.d, delivered(handed))
				v, out := p.stays.run(t, p.b, delivered(back))
				again, direct := p.stays.run(t, p.b, frame)
				if v != redirect || again != redirect || !bytes.Equal(out, direct) {
					t.Errorf("%s that nobody knows: %v, then %v\n got %x\nthen %x", name, v, again, out, direct)
				}
			}
			answer = packet{src: p.known.dst, dst: p.unknownFlow(899).src, flags: "A"}.bytes(t)[14:]
			lost := icmp{packet: packet{src: routers[v6], dst: addrOf(vips[v6])}, kind: kind[0], code: kind[1], body: answer}
			_, handed := p.stays.run(t, p.b, lost.bytes(t))
			_, back := p.leaves.run(t, p.d, delivered(handed))
			rawRow{name: "an error about a flow that nobody knows", in: delivered(back), verdict: drop, drop: "no-frontend"}.check(t, p.stays, p.b)
		})
	}
}

// Packets that are too big are answered by the load balancer that finds so: for the path
// to the draining one, with room for the list, or for that one's path to the backend.
func TestHandoverTooBig(t *testing.T) {
	for _, method := range []service.Method{service.FullNAT, service.Tunnel} {
		bothFamilies(t, func(t *testing.T, v6 bool) {
			p := newPair(t, method, v6, 1400)
			headers, list, wrapped := 40, uint32(20+8), uint32(20)
			if v6 {
				headers, list, wrapped = 60, 40+24, 40
			}
			in := p.known
			in.payload = 1500 - headers
			frame := in.bytes(t)
			want := tooBig(t, frame, addrOf(in.dst), addrOf(in.src), 1500-list)
			rawRow{name: "for the way to the other", in: frame, verdict: redirect, out: want, drop: "too-big"}.check(t, p.stays, p.b)

			in.payload = int(1500-list) - headers
			frame = in.bytes(t)
			_, handed := p.stays.run(t, p.b, frame)
			handed = slices.Concat(frame[:12], handed[12:]) // as the router forwards it
			fits := uint32(1400)
			if method == service.Tunnel {
				fits -= wrapped
			}
			want = tooBig(t, frame, addrOf(in.dst), addrOf(in.src), fits)
			rawRow{name: "for the way to the server", in: delivered(handed), verdict: redirect, out: want, drop: "too-big"}.check(t, p.leaves, p.d)
		})
	}
}

// handed is a packet as a load balancer hands it over: from this address, with a list of
// those to query next.
func (p *pair) handed(t *testing.T, inner []byte, from string, next ...string) []byte {
	t.Helper()
	o := outer{src: from, dst: p.own[1], ttl: 60}
	for _, a := range next {
		o.option += " " + netip.AddrPortFrom(netip.MustParseAddr(a), 0).String()
	}
	o.option = o.option[1:]
	proto := map[bool][]byte{false: {8, 0}, true: {0x86, 0xdd}}[is6(inner)]
	return slices.Concat(inner[:12], proto, o.wrap(t, inner[14:], is6(inner), 0))
}

// Anyone who can reach a load balancer can send it packets that look handed over. It
// accepts them only from load balancers, forwards only to load balancers, and never to
// itself.
func TestHandoverIsAcceptedFromBalancersAlone(t *testing.T) {
	for _, method := range []service.Method{service.FullNAT, service.Tunnel} {
		bothFamilies(t, func(t *testing.T, v6 bool) {
			p := newPair(t, method, v6, 1500)
			other := map[bool]string{false: "172.18.0.88", true: "fd18::88"}[v6]
			victim := addrOf(clients[v6])
			must(t, p.d.SetBalancers([]netip.Addr{netip.MustParseAddr(p.own[0]), netip.MustParseAddr(other)}, nil))
			p.known.payload = 300
			inner := map[string][]byte{"known flow": p.known.bytes(t), "unknown flow": p.unknownFlow(999).bytes(t)}
			for name, frame := range dressed(inner["known flow"]) {
				inner[name] = frame
			}
			for i, f := range fragments(inner["known flow"], 7, 104)[:1] {
				inner[fmt.Sprint("fragment ", i)] = f
			}
			for name, frame := range inner {
				for _, c := range []struct {
					what, from string
					next       []string
					accepted   bool
				}{
					{"from a load balancer", p.own[0], []string{p.own[0]}, true},
					{"from a load balancer, with others to query", p.own[0], []string{other, p.own[0]}, true},
					{"from an unknown sender", victim, []string{p.own[0]}, false},
					{"from an unknown sender, as the last", victim, []string{p.own[1]}, false},
					{"from ourselves", p.own[1], []string{p.own[0]}, false},
					{"for an unknown address", p.own[0], []string{victim}, false},
					{"for an unknown address after a load balancer", p.own[0], []string{other, victim}, false},
					{"for ourselves after a load balancer", p.own[0], []string{other, p.own[1]}, false},
					{"for ourselves before a load balancer", p.own[0], []string{p.own[1], other}, false},
				} {
					in := p.handed(t, frame, c.from, c.next...)
					if !c.accepted {
						rawRow{name: name + ": " + c.what, in: in, verdict: drop, drop: "unknown-balancer"}.check(t, p.leaves, p.d)
					} else if v, _ := p.leaves.run(t, p.d, in); v != redirect {
						t.Errorf("%s: %s: %v, %v", name, c.what, v, p.d.Describe().Drops)
					}
				}
			}
			must(t, p.d.SetBalancers(nil, nil))
			in := p.handed(t, inner["known flow"], p.own[0], p.own[0])
			rawRow{name: "from a load balancer that is gone", in: in, verdict: drop, drop: "unknown-balancer"}.check(t, p.leaves, p.d)
		})
	}
}

// A tunnel does not bypass a frontend's policy.
func TestHandoverAppliesPolicy(t *testing.T) {
	for _, method := range []service.Method{service.FullNAT, service.Tunnel} {
		bothFamilies(t, func(t *testing.T, v6 bool) {
			p := newPair(t, method, v6, 1500)
			f := frontend(method, vips[v6], 0, servers[v6])
			f.Survival = service.FlowTable
			f.Deny = []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr(addrOf(clients[v6])), map[bool]int{false: 24, true: 64}[v6])}
			both(t, p.d, f)
			frames := dressed(p.known.bytes(t))
			frames["plain"] = p.known.bytes(t)
			for name, frame := range frames {
				for what, next := range map[string]string{"to be handed on": p.own[0], "the last": p.own[1]} {
					in := p.handed(t, frame, p.own[0], next)
					rawRow{name: name + ", " + what, in: in, verdict: drop, drop: "source-denied"}.check(t, p.leaves, p.d)
				}
			}
			f.Deny, f.Limits.ClientPackets = nil, 10
			both(t, p.d, f)
			limited := func(next string) bool {
				for range 100 {
					if v, _ := p.leaves.run(t, p.d, p.handed(t, p.known.bytes(t), p.own[0], next)); v == drop {
						return true
					}
				}
				return false
			}
			if limited(p.own[1]) {
				t.Errorf("what comes back is charged twice: %v", p.d.Describe().Drops)
			}
			if !limited(p.own[0]) {
				t.Errorf("what is handed over has no limit: %v", p.d.Describe().Drops)
			}
		})
	}
}
