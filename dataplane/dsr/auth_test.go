package dsr

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/nodekey"
	"github.com/fairlead/fairlead/internal/tc"
)

var (
	keyA = nodekey.Key{K0: 0x0123456789abcdef, K1: 0xfedcba9876543210, ID: 0x5f}
	keyB = nodekey.Key{K0: 0x1111222233334444, K1: 0x5555666677778888, ID: 0xa3}
	keyC = nodekey.Key{K0: 0x9999aaaabbbbcccc, K1: 0xddddeeeeffff0000, ID: 0x5f} // with the ID of keyA
)

// newKeyedNode is a node with keys.
func newKeyedNode(t *testing.T, require bool, keys ...nodekey.Key) *node {
	t.Helper()
	n := newNode(t)
	if err := n.agent.Close(); err != nil {
		t.Fatal(err)
	}
	n.agent = openAgent(t, n.ns, Config{Auth: nodekey.Auth{Keys: keys, Require: require}}, tc.Open)
	return n
}

// judge checks the handling of a packet by its tag: that of the first step is valid.
func (n *node) judge(t *testing.T, name string, in, out wire, verdict int, counter string, required bool) {
	t.Helper()
	with := func(k nodekey.Key) wire { w := in; w.key = k; return w }
	taken := step{out: out, verdict: verdict, counter: counter}
	for _, k := range []nodekey.Key{keyA, keyB} {
		s := taken
		s.name, s.in = fmt.Sprintf("%s, key %s", name, k), with(k)
		if verdict == sent { // with the first key, whichever it arrived with
			s.out.key = keyA
		}
		n.steps(t, []step{s})
	}
	for why, w := range map[string]wire{"no-auth-tag": in, "wrong-auth-tag": with(keyC)} {
		s := taken
		if s.name, s.in, s.counter = name+", "+why, w, "accepted-"+why; required {
			s.same, s.verdict, s.counter = true, dropped, "dropped-"+why
		}
		n.steps(t, []step{s})
	}
}

// TestTags sends packets of every forwarding mode, with lists of every length, with a
// valid tag, an invalid one and none, while tags are required and while they are not.
func TestTags(t *testing.T) {
	for _, required := range []bool{true, false} {
		t.Run(fmt.Sprintf("required %v", required), func(t *testing.T) {
			families(t, func(t *testing.T, v, p, s, c netip.AddrPort) { tags(t, required, v, p, s, c) })
		})
	}
}

func tags(t *testing.T, required bool, v, p, s, c netip.AddrPort) {
	n := newKeyedNode(t, required, keyA, keyB)
	direct := netip.AddrPortFrom(p.Addr(), 9090)
	var entries []Entry
	for _, proto := range []service.Protocol{service.TCP, service.UDP} {
		entries = append(entries, entry(service.Tunnel, v, p, proto), entry(service.DSRNAT, v, direct, proto))
	}
	n.set(t, entries...)
	port := c.Port()
	for length := 0; length <= 5; length++ {
		older := servers(s, length)
		for _, udp := range []bool{false, true} {
			port++
			w := wire{client: netip.AddrPortFrom(c.Addr(), port), dst: v, udp: udp, payload: "odd"}
			for _, gue := range []bool{false, true} {
				in := w
				in.tunnel, in.tunnelOption, in.gue = p.Addr(), older, gue
				out, verdict := wire{client: w.client, dst: p, udp: udp, payload: "odd"}, untouched
				if length > 0 {
					out, verdict = in, sent
					out.tunnel, out.tunnelOption = older[0].Addr(), older[1:]
				}
				n.judge(t, fmt.Sprintf("tunnel, gue %v, udp %v, %d listed", gue, udp, length), in, out, verdict, "", required)
			}
			if length == 5 && v.Addr().Is4() {
				continue // no room for this
			}
			in := w
			in.dst, in.option = direct, append(list{v}, older...)
			out, verdict := w, untouched
			out.dst = direct
			if length > 0 {
				out, verdict = in, sent
				out.dst, out.option = older[0], append(list{v}, older[1:]...)
			}
			n.judge(t, fmt.Sprintf("dsr-nat, udp %v, %d listed", udp, length), in, out, verdict, "", required)
		}
	}
}

// TestTagsOfDR has a node that does not have the VIP: only tagged packets from a load
// balancer may open a flow, and a packet without a list must belong to a known one.
func TestTagsOfDR(t *testing.T) {
	families(t, func(t *testing.T, v, p, s, c netip.AddrPort) {
		n := newKeyedNode(t, true, keyA)
		n.setOnly(t, entry(service.DR, v, p, service.TCP))
		in := wire{client: c, dst: v, flags: "S", option: list{v}}
		tagged, out := in, wire{client: c, dst: p, flags: "S"}
		tagged.key = keyA
		bare := wire{client: c, dst: v, payload: "x"}
		n.steps(t, []step{
			{name: "a client, without a list", in: bare, same: true, verdict: dropped, counter: "dropped-no-auth-tag"},
			{name: "a client, with a list", in: in, same: true, verdict: dropped, counter: "dropped-no-auth-tag"},
			{name: "a load balancer", in: tagged, out: out, verdict: untouched, counter: "dr-delivered"},
			{name: "of a known flow, without a list", in: bare, out: wire{client: c, dst: p, payload: "x"}, verdict: untouched, counter: "dr-delivered"},
			{name: "of a known flow, with a list", in: in, same: true, verdict: dropped, counter: "dropped-no-auth-tag"},
		})
	})
}

// TestTagsCoverThePacket changes every part of a packet that a tag covers, as an attacker
// could who has seen one.
func TestTagsCoverThePacket(t *testing.T) {
	families(t, func(t *testing.T, v, p, s, c netip.AddrPort) {
		n := newKeyedNode(t, true, keyA)
		n.set(t, entry(service.Tunnel, v, p, service.TCP), entry(service.Tunnel, v, p, service.UDP),
			entry(service.Tunnel, netip.AddrPortFrom(v.Addr(), 81), p, service.TCP))
		balancer, other := balancerOf(p.Addr())
		sent := wire{client: c, dst: v, payload: "x", tunnel: p.Addr(), tunnelFrom: balancer, tunnelOption: list{s}, key: keyA}
		for name, change := range map[string]func(*wire){
			"client":      func(w *wire) { w.client = netip.AddrPortFrom(c.Addr().Next(), c.Port()) },
			"client port": func(w *wire) { w.client = netip.AddrPortFrom(c.Addr(), c.Port()+1) },
			"port":        func(w *wire) { w.dst = netip.AddrPortFrom(v.Addr(), 81) },
			"protocol":    func(w *wire) { w.udp = true },
			"sender":      func(w *wire) { w.tunnelFrom = other },
			"list":        func(w *wire) { w.tunnelOption = list{netip.AddrPortFrom(s.Addr().Next(), s.Port())} },
			"list's port": func(w *wire) { w.tunnelOption = list{netip.AddrPortFrom(s.Addr(), s.Port()+1)} },
			"shorter":     func(w *wire) { w.tunnelOption = nil },
			"longer":      func(w *wire) { w.tunnelOption = list{s, s} },
			"by GUE":      func(w *wire) { w.gue = true },
		} {
			forged := sent
			change(&forged)
			// The changed packet with the tag of the original one.
			right, wrong := forged.bytes(t), sent.bytes(t)
			at, from := tagAt(t, right), tagAt(t, wrong)
			frame := slices.Clone(right)
			copy(frame[at:], wrong[from:from+8])
			fixIPv4(frame)
			before := n.count(t, "dropped-wrong-auth-tag")
			if verdict, _ := n.run(t, n.agent.obj.ToServer, n.pod, frame); verdict != dropped || n.count(t, "dropped-wrong-auth-tag") != before+1 {
				t.Errorf("another %s: verdict %d", name, verdict)
			}
		}
	})
}

// tagAt finds the tag with keyA's ID in a frame's first header.
func tagAt(t *testing.T, frame []byte) int {
	t.Helper()
	end := 14 + 20 + 40
	if frame[12] == 0x86 {
		end = 14 + 40 + 130
	}
	last := -1
	for i := 14 + 20; i < min(end, len(frame)-8); i++ {
		if frame[i] == keyA.ID {
			last = i
			break
		}
	}
	if last < 0 {
		t.Fatalf("no tag in %x", frame)
	}
	return last
}

// fixIPv4 corrects the checksum of a frame's IPv4 header.
func fixIPv4(frame []byte) {
	if frame[12] != 0x08 {
		return
	}
	head := frame[14 : 14+int(frame[14]&15)*4]
	head[10], head[11] = 0, 0
	sum := uint32(0)
	for i := 0; i < len(head); i += 2 {
		sum += uint32(head[i])<<8 | uint32(head[i+1])
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	head[10], head[11] = byte(^sum>>8), byte(^sum)
}

// TestTagsOfOddPackets sends fragments and errors, for which a tag covers the addresses.
func TestTagsOfOddPackets(t *testing.T) {
	families(t, func(t *testing.T, v, p, s, c netip.AddrPort) {
		n := newKeyedNode(t, true, keyA)
		n.set(t, entry(service.Tunnel, v, p, service.UDP), entry(service.Tunnel, v, p, service.TCP))
		for _, gue := range []bool{false, true} {
			for name, w := range map[string]wire{"first": {fragment: true}, "later": {later: true}} {
				w.client, w.dst, w.udp, w.payload, w.tunnel, w.gue, w.key = c, v, true, "odd", p.Addr(), gue, keyA
				if verdict, _ := n.run(t, n.agent.obj.ToServer, n.pod, w.bytes(t)); verdict != untouched {
					t.Errorf("%s fragment, gue %v: verdict %d", name, gue, verdict)
				}
				w.key = keyC
				n.steps(t, []step{{name: fmt.Sprintf("%s fragment, gue %v, forged", name, gue), in: w, same: true, verdict: dropped, counter: "dropped-wrong-auth-tag"}})
			}
		}
		balancer, _ := balancerOf(p.Addr())
		error := tunnelCases(t, v, p, s, c, netip.AddrPortFrom(balancer, 0))["ICMP error"]
		n.check(t, "an ICMP error without a tag", dsrProgToServer, error, dropped, error, "dropped-no-auth-tag")
	})
}

// TestTagsWithoutKeys has a node without keys, as before a rollout: it accepts packets
// with a tag, and forwards them without.
func TestTagsWithoutKeys(t *testing.T) {
	families(t, func(t *testing.T, v, p, s, c netip.AddrPort) {
		n := newNode(t)
		direct := netip.AddrPortFrom(p.Addr(), 9090)
		n.set(t, entry(service.Tunnel, v, p, service.TCP), entry(service.DSRNAT, v, direct, service.TCP))
		for _, gue := range []bool{false, true} {
			in := wire{client: c, dst: v, payload: "x", tunnel: p.Addr(), tunnelOption: list{s}, gue: gue, key: keyA}
			out := in
			out.tunnel, out.tunnelOption, out.key = s.Addr(), nil, nodekey.Key{}
			n.steps(t, []step{{name: "sent on", in: in, out: out, verdict: sent, counter: "second-chance"}})
		}
		in := wire{client: c, dst: direct, payload: "x", option: list{v}, key: keyA}
		n.steps(t, []step{{name: "dsr-nat", in: in, out: wire{client: c, dst: direct, payload: "x"}, verdict: untouched, counter: "dsr-nat-delivered"}})
		in = wire{client: c, dst: v, payload: "x", tunnel: p.Addr(), key: keyA}
		n.steps(t, []step{{name: "tunnel", in: in, out: wire{client: c, dst: p, payload: "x"}, verdict: untouched, counter: "tunnel-delivered"}})
		if err := n.agent.SetKeys(nodekey.Keys{keyA}); err == nil {
			t.Error("keys where there were none: no error")
		}
	})
}

// TestKeysRotate changes keys while packets with both of them arrive: none is dropped.
// What a node forwards has one of the two keys.
func TestKeysRotate(t *testing.T) {
	n := newKeyedNode(t, true, keyA)
	n.set(t, entry(service.Tunnel, vip, pod, service.TCP))
	in := wire{client: client, dst: vip, payload: "x", tunnel: pod.Addr(), key: keyA}
	taken := wire{client: client, dst: pod, payload: "x"}
	by := func(k nodekey.Key, name string, ok bool) {
		t.Helper()
		s := step{name: name, in: in, out: taken, verdict: untouched}
		if s.in.key = k; !ok {
			s.same, s.verdict, s.counter = true, dropped, "dropped-wrong-auth-tag"
		}
		n.steps(t, []step{s})
	}
	set := func(keys ...nodekey.Key) {
		t.Helper()
		if err := n.agent.SetKeys(keys); err != nil {
			t.Fatal(err)
		}
	}
	by(keyB, "the next key, before it is known", false)
	set(keyA, keyB)
	by(keyB, "the next key", true)
	// At most one change starts per packet: a program that is interrupted still has
	// its keys after a few, and they are never changed more often.
	turns, ended := make(chan struct{}), sync.WaitGroup{}
	ended.Go(func() {
		i := 0
		for range turns {
			i++
			if err := n.agent.SetKeys([]nodekey.Keys{{keyB, keyA}, {keyA, keyB}}[i%2]); err != nil {
				t.Error(err)
			}
		}
	})
	for i := range 4000 {
		select {
		case turns <- struct{}{}:
		default: // the change is still in progress
		}
		by([]nodekey.Key{keyA, keyB}[i%2], "a key while they change", true)
		if t.Failed() {
			break
		}
	}
	close(turns)
	ended.Wait()
	set(keyB)
	by(keyA, "the former key", false)
	by(keyB, "the new one", true)
	for _, keys := range [][]nodekey.Key{{}, {keyA, keyB, keyC}} {
		if err := n.agent.SetKeys(keys); err == nil {
			t.Errorf("%d keys: no error", len(keys))
		}
	}
}

// TestTagsTakeRoom: clients send segments that are shorter by the size of tags.
func TestTagsTakeRoom(t *testing.T) {
	families(t, func(t *testing.T, v, p, s, c netip.AddrPort) {
		for _, tc := range []struct {
			method     service.Method
			gue        bool
			v4, v6     int
			key4, key6 int
		}{
			{service.Tunnel, false, 52, 136, 60, 144}, {service.Tunnel, true, 68, 148, 76, 156}, {service.DSRNAT, false, 40, 112, 40, 120},
		} {
			for _, keyed := range []bool{false, true} {
				n, w := newNode(t), wire{client: c, dst: v, flags: "S", mss: 1460}
				if keyed {
					n = newKeyedNode(t, true, keyA)
					w.key = keyA
				}
				n.set(t, entry(tc.method, v, p, service.TCP))
				if w.gue = tc.gue; tc.method == service.Tunnel {
					w.tunnel = p.Addr()
				} else {
					w.dst, w.option = p, list{v}
				}
				if verdict, _ := n.run(t, n.agent.obj.ToServer, n.pod, w.bytes(t)); verdict != untouched {
					t.Fatalf("verdict %d", verdict)
				}
				want := map[bool]map[bool]int{false: {false: tc.v4, true: tc.key4}, true: {false: tc.v6, true: tc.key6}}[v.Addr().Is6()][keyed]
				answer := wire{client: p, dst: c, flags: "SA", mss: 1460}
				clamped := wire{client: v, dst: c, flags: "SA", mss: 1460 - uint16(want), ttl: 62}
				n.steps(t, []step{{name: fmt.Sprintf("%s, gue %v, keyed %v", tc.method, tc.gue, keyed), prog: dsrProgFromServer, in: answer, out: clamped, verdict: sent}})
			}
		}
	})
}
