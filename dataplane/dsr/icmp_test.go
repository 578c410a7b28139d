package dsr

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/core/service"
)

// icmpError returns an ICMP or ICMPv6 error about a packet, with cut bytes embedded (0:
// all), and its checksum.
func icmpError(src, dst netip.Addr, about []byte, cut int) []byte {
	if cut > 0 && cut < len(about) {
		about = about[:cut]
	}
	if src.Is6() {
		b := append([]byte{1, 4, 0, 0, 0, 0, 0, 0}, about...) // port unreachable
		binary.BigEndian.PutUint16(b[2:], checksum(src, dst, 58, b))
		return b
	}
	b := append([]byte{3, 3, 0, 0, 0, 0, 0, 0}, about...)
	binary.BigEndian.PutUint16(b[2:], plainSum(b))
	return b
}

// plainSum is the checksum without pseudo-header.
func plainSum(b []byte) uint16 {
	sum := uint32(0)
	for i, x := range b {
		sum += uint32(x) << (8 * (1 - i%2))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

func icmpProto(a netip.Addr) byte {
	if a.Is6() {
		return 58
	}
	return 1
}

// icmpFrame is an error from src to dst about a packet of w.
func icmpFrame(t *testing.T, head ipHead, about wire, cut int, outer ...ipHead) []byte {
	t.Helper()
	embedded, _ := about.ip(t)
	head.proto = icmpProto(head.dst)
	return frame(head, icmpError(head.src, head.dst, embedded, cut), outer...)
}

// errorCases quote complete TCP, TCP with only the ports, and UDP.
func errorCases(f func(name string, udp bool, cut4, cut6 int)) {
	f("TCP", false, 0, 0)
	f("TCP cut to its ports", false, 20+8, 40+8)
	f("UDP", true, 0, 0)
}

func cutOf(v netip.AddrPort, cut4, cut6 int) int {
	if v.Addr().Is6() {
		return cut6
	}
	return cut4
}

// TestErrorsTowardTheServer: routers send errors about what the backend sent as the VIP.
func TestErrorsTowardTheServer(t *testing.T) {
	families(t, func(t *testing.T, v, p, s, c netip.AddrPort) {
		n := newNode(t)
		direct := netip.AddrPortFrom(p.Addr(), 9090)
		for _, proto := range []service.Protocol{service.TCP, service.UDP} {
			n.set(t, entry(service.Tunnel, v, p, proto), entry(service.DSRNAT, v, direct, proto))
		}
		n.set(t, entry(service.Tunnel, v, p, service.TCP), entry(service.Tunnel, v, p, service.UDP),
			entry(service.DSRNAT, v, direct, service.TCP), entry(service.DSRNAT, v, direct, service.UDP))
		router := s.Addr().Next()
		lb := ipHead{src: balancer4, dst: p.Addr(), ttl: 64}
		if v.Addr().Is6() {
			lb.src = balancer6
		}
		errorCases(func(name string, udp bool, cut4, cut6 int) {
			cut := cutOf(v, cut4, cut6)
			about := wire{client: v, dst: c, udp: udp, payload: "odd"}
			translated, rewritten, onward := about, about, about
			translated.client, rewritten.client, onward.client = p, direct, s
			toVIP := ipHead{src: router, dst: v.Addr(), ttl: 60}
			toPod := ipHead{src: router, dst: p.Addr(), ttl: 60}
			listed := lb
			listed.option = list{s, s}
			next := ipHead{src: lb.src, dst: s.Addr(), ttl: 64, option: list{s}}
			n.check(t, name+" in a tunnel, unknown, with a list", dsrProgToServer, icmpFrame(t, toVIP, about, cut, listed), sent,
				icmpFrame(t, toVIP, about, cut, next), "second-chance")
			n.check(t, name+" in a tunnel", dsrProgToServer, icmpFrame(t, toVIP, about, cut, lb), untouched,
				icmpFrame(t, toPod, translated, cut), "error-delivered")
			toPodListed, toNext := toPod, ipHead{src: router, dst: s.Addr(), ttl: 60, option: list{v}}
			toPodListed.option = list{v, s}
			n.check(t, name+" by dsr-nat, unknown, with a list", dsrProgToServer, icmpFrame(t, toPodListed, rewritten, cut), sent,
				icmpFrame(t, toNext, onward, cut), "second-chance")
			toPodListed.option = list{v}
			n.check(t, name+" by dsr-nat", dsrProgToServer, icmpFrame(t, toPodListed, rewritten, cut), untouched,
				icmpFrame(t, toPod, rewritten, cut), "error-delivered")
			foreign := about
			foreign.client = netip.AddrPortFrom(v.Addr(), 81)
			n.check(t, name+" of another port", dsrProgToServer, icmpFrame(t, toVIP, foreign, cut, lb), untouched,
				icmpFrame(t, toVIP, foreign, cut, lb), "passed-foreign-error")
		})
	})
}

// TestErrorsTowardADRServer has the VIP as destination.
func TestErrorsTowardADRServer(t *testing.T) {
	families(t, func(t *testing.T, v, p, s, c netip.AddrPort) {
		n := newNode(t)
		n.set(t, entry(service.DR, v, p, service.TCP))
		about := wire{client: v, dst: c, payload: "odd"}
		translated := about
		translated.client = p
		toVIP, toPod := ipHead{src: s.Addr(), dst: v.Addr(), ttl: 60}, ipHead{src: s.Addr(), dst: p.Addr(), ttl: 60}
		n.check(t, "dr", dsrProgToServer, icmpFrame(t, toVIP, about, 0), untouched, icmpFrame(t, toPod, translated, 0), "error-delivered")
	})
}

// TestErrorsFromTheServer: the backend, and the node for it, send errors about a client's
// packet: the client receives them from the VIP.
func TestErrorsFromTheServer(t *testing.T) {
	families(t, func(t *testing.T, v, p, s, c netip.AddrPort) {
		n := newNode(t)
		n.set(t, entry(service.Tunnel, v, p, service.TCP), entry(service.Tunnel, v, p, service.UDP))
		node := ap("10.0.0.105:0").Addr()
		if v.Addr().Is6() {
			node = ap("[2001:db8::105]:0").Addr()
		}
		errorCases(func(name string, udp bool, cut4, cut6 int) {
			cut := cutOf(v, cut4, cut6)
			n.run(t, n.agent.obj.ToServer, n.pod, wire{client: c, dst: v, udp: udp, flags: "S", tunnel: p.Addr()}.bytes(t))
			got, sent6 := wire{client: c, dst: p, udp: udp, payload: "odd"}, wire{client: c, dst: v, udp: udp, payload: "odd"}
			ofPod, ofVIP := ipHead{src: p.Addr(), dst: c.Addr(), ttl: 64}, ipHead{src: v.Addr(), dst: c.Addr(), ttl: 63}
			n.check(t, name+" of the pod", dsrProgFromServer, icmpFrame(t, ofPod, got, cut), sent, icmpFrame(t, ofVIP, sent6, cut), "error-restored")
			ofNode, own := ipHead{src: node, dst: c.Addr(), ttl: 64}, ipHead{src: v.Addr(), dst: c.Addr(), ttl: 64}
			n.check(t, name+" of the node", dsrProgFromNode, icmpFrame(t, ofNode, got, cut), untouched, icmpFrame(t, own, sent6, cut), "error-restored")
			n.check(t, name+" of a server on the node", dsrProgFromHost, icmpFrame(t, ofNode, got, cut), untouched, icmpFrame(t, own, sent6, cut), "error-restored")
			unknown := got
			unknown.client = netip.AddrPortFrom(c.Addr(), 1)
			verdict, out := n.run(t, n.agent.obj.FromServer, n.pod, icmpFrame(t, ofPod, unknown, cut))
			if verdict != untouched {
				t.Errorf("%s of no flow: verdict %d", name, verdict)
			}
			wantFrame(t, out, icmpFrame(t, ofPod, unknown, cut))
		})
	})
}

// TestFragments sends fragmented datagrams: to the backend in any order, and back.
func TestFragments(t *testing.T) {
	families(t, func(t *testing.T, v, p, s, c netip.AddrPort) {
		n := newNode(t)
		direct := netip.AddrPortFrom(p.Addr(), 9090)
		n.set(t, entry(service.Tunnel, v, p, service.UDP), entry(service.DSRNAT, v, direct, service.UDP))
		c2 := netip.AddrPortFrom(c.Addr(), 40002)
		piece := func(src, dst netip.AddrPort, first bool, f func(*ipHead)) (ipHead, []byte) {
			head := ipHead{src: src.Addr(), dst: dst.Addr(), ttl: 63, proto: 17, fragment: first, later: !first}
			if f != nil {
				f(&head)
			}
			if first {
				return head, wire{client: src, dst: dst, udp: true, payload: "12345678"}.l4(t)
			}
			return head, []byte("the rest of it..")
		}
		whole := func(src, dst netip.AddrPort, first bool, f func(*ipHead), outer ...ipHead) []byte {
			head, payload := piece(src, dst, first, f)
			return frame(head, payload, outer...)
		}
		lb := ipHead{src: balancer4, dst: p.Addr(), ttl: 64}
		if v.Addr().Is6() {
			lb.src = balancer6
		}
		listed, next := lb, ipHead{src: lb.src, dst: s.Addr(), ttl: 64}
		listed.option = list{s}
		n.check(t, "a later one before the first", dsrProgToServer, whole(c, v, false, nil, lb), untouched, whole(c, p, false, nil), "fragment-delivered")
		n.check(t, "the first", dsrProgToServer, whole(c, v, true, nil, lb), untouched, whole(c, p, true, nil), "flow-made")
		n.check(t, "a later one", dsrProgToServer, whole(c, v, false, nil, lb), untouched, whole(c, p, false, nil), "fragment-delivered")
		n.check(t, "the first of an unknown flow", dsrProgToServer, whole(c2, v, true, nil, listed), sent, whole(c2, v, true, nil, next), "second-chance")
		n.check(t, "its later one", dsrProgToServer, whole(c2, v, false, nil, listed), sent, whole(c2, v, false, nil, next), "second-chance")
		n.check(t, "a later one of no server", dsrProgToServer, whole(c, s, false, nil, lb), untouched, whole(c, s, false, nil, lb), "passed-fragment")

		vipOnly, both := func(h *ipHead) { h.option = list{v} }, func(h *ipHead) { h.option = list{v, s} }
		n.check(t, "dsr-nat, a later one before the first", dsrProgToServer, whole(c, direct, false, vipOnly), untouched,
			whole(c, direct, false, nil), "fragment-delivered")
		n.check(t, "dsr-nat, the first of an unknown flow", dsrProgToServer, whole(c2, direct, true, both), sent,
			whole(c2, s, true, vipOnly), "second-chance")
		n.check(t, "dsr-nat, its later one", dsrProgToServer, whole(c2, direct, false, both), sent, whole(c2, s, false, vipOnly), "second-chance")
		n.check(t, "dsr-nat, the first", dsrProgToServer, whole(c, direct, true, vipOnly), untouched, whole(c, direct, true, nil), "flow-made")

		less := func(h *ipHead) { h.ttl = 62 }
		n.check(t, "a later one of an answer, too early", dsrProgFromServer, whole(p, c, false, nil), untouched, whole(p, c, false, nil), "passed-fragment")
		n.check(t, "the first of an answer", dsrProgFromServer, whole(p, c, true, nil), sent, whole(v, c, true, less), "restored-straight")
		n.check(t, "a later one of an answer", dsrProgFromServer, whole(p, c, false, nil), sent, whole(v, c, false, less), "fragment-restored")
	})
}

// TestOuterFragmentsAreNotOurs leaves a tunnel's own fragments to the kernel.
func TestOuterFragmentsAreNotOurs(t *testing.T) {
	families(t, func(t *testing.T, v, p, _, c netip.AddrPort) {
		n := newNode(t)
		n.set(t, entry(service.Tunnel, v, p, service.TCP))
		inner, _ := wire{client: c, dst: v, flags: "S"}.ip(t)
		head := ipHead{src: balancer4, dst: p.Addr(), ttl: 64, proto: 4, fragment: true}
		if v.Addr().Is6() {
			head.src, head.proto = balancer6, 41
		}
		in := frame(head, inner)
		n.check(t, "the first", dsrProgToServer, in, untouched, in, "passed-outer-fragment")
	})
}
