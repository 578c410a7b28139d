package xdp

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
)

// cookieFlow is a connection opened by a cookie and accepted by its backend.
type cookieFlow struct {
	*cookieClient
	server, from string // the backend, and the client's address as it sees it
	cookie, isn  uint32 // of the SYN-ACK that the client has, and of the backend's
}

func openCookieFlow(t *testing.T, n *testNet, d *DataPlane, f string, v6 bool) cookieFlow {
	t.Helper()
	c := &cookieClient{t, n, d, clients[v6], f, 70000, []layers.TCPOption{mssOption(1400)}}
	k := c.syn().tcp.Seq
	first := c.send(tcpSeg{tcp: layers.TCP{ACK: true, Seq: c.isn + 1, Ack: k + 1}}, redirect)
	flow := cookieFlow{cookieClient: c, server: servers[v6], from: first.src, cookie: k, isn: 3_000_000_000}
	flow.answer(tcpSeg{tcp: layers.TCP{SYN: true, ACK: true, Seq: flow.isn, Ack: c.isn + 1, Window: 500}})
	return flow
}

// answer sends a backend's segment, and returns what the client receives.
func (c cookieFlow) answer(s tcpSeg) tcpSeg {
	c.Helper()
	s.src, s.dst = c.server, c.from
	return c.net.exchangeSeg(c.T, c.d, s, redirect)
}

// Errors about a connection opened by a cookie quote the numbers that their receiver has
// sent: otherwise TCP takes them for forged (RFC 5927, 4.1).
func TestErrorsAboutCookieFlows(t *testing.T) {
	for _, method := range natMethods {
		for _, v6 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, v6 %v", method, v6), func(t *testing.T) {
				n := newNet(t)
				d := n.open(t, config())
				f := frontend(method, vips[v6], service.TCP, servers[v6])
				upsert(t, d, f)
				putUnderPressure(t, d, f.Key)
				flow := openCookieFlow(t, n, d, vips[v6], v6)
				header, kind := 20, []byte{3, 4}
				if v6 {
					header, kind = 40, []byte{2, 0}
				}
				errorOf := func(router, to string, quoted tcpSeg, length int) (uint32, string) {
					t.Helper()
					body := quoted.frame(t)[14:]
					m := icmp{packet: packet{src: router, dst: addrOf(to)}, kind: kind[0], code: kind[1], rest: 1400, body: body[:min(length, len(body))]}
					v, out := n.run(t, d, m.bytes(t))
					if v != redirect {
						t.Fatalf("an error that quotes %d bytes: %v, %v", length, v, d.Describe().Drops)
					}
					sumsFit(t, out[14:])
					l4 := out[14+header+8+header:]
					return binary.BigEndian.Uint32(l4[4:]), destOf(out, v6)
				}
				for _, length := range []int{header + 8, header + 20, 500} {
					// From the client's side: about what the backend
					// has sent.
					sent := tcpSeg{src: vips[v6], dst: flow.src, payload: strings.Repeat("x", 400), tcp: layers.TCP{ACK: true, Seq: flow.cookie + 1 + 77, Ack: flow.cookieClient.isn + 1}}
					if seq, to := errorOf(routers[v6], vips[v6], sent, length); seq != flow.isn+1+77 || to != addrOf(flow.server) {
						t.Errorf("%s gets an error about its byte %d, not 77 (%d bytes quoted)", to, seq-flow.isn-1, length)
					}
					// From the backend's side: about what the client
					// has sent.
					sent = tcpSeg{src: flow.from, dst: flow.server, payload: strings.Repeat("x", 400), tcp: layers.TCP{ACK: true, Seq: flow.cookieClient.isn + 1 + 55, Ack: flow.isn + 1}}
					if seq, to := errorOf(routers[v6], flow.from, sent, length); seq != flow.cookieClient.isn+1+55 || to != addrOf(flow.src) {
						t.Errorf("%s gets an error about its byte %d, not 55 (%d bytes quoted)", to, seq-flow.cookieClient.isn-1, length)
					}
				}
			})
		}
	}
}

// destOf is the destination of a frame's packet.
func destOf(frame []byte, v6 bool) string {
	at := frame[14+16 : 14+20]
	if v6 {
		at = frame[14+24 : 14+40]
	}
	addr, _ := netip.AddrFromSlice(at)
	return addr.String()
}

// A packet of such a connection that does not fit is answered like any other, and with
// the same rate.
func TestCookieFlowsTooBig(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		n := newNet(t)
		d := n.open(t, config())
		f := frontend(service.NAT, vips[v6], service.TCP, servers[v6])
		upsert(t, d, f)
		putUnderPressure(t, d, f.Key)
		flow := openCookieFlow(t, n, d, vips[v6], v6)
		big := strings.Repeat("x", 4000)
		forth := tcpSeg{src: flow.src, dst: vips[v6], payload: big, tcp: layers.TCP{ACK: true, Seq: flow.cookieClient.isn + 1, Ack: flow.cookie + 1}}
		back := tcpSeg{src: flow.server, dst: flow.from, payload: big, tcp: layers.TCP{ACK: true, Seq: flow.isn + 1, Ack: flow.cookieClient.isn + 1}}
		for name, s := range map[string]tcpSeg{addrOf(vips[v6]): forth, owns[v6]: back} {
			rawRow{
				name: "to " + s.dst, in: s.frame(t), verdict: redirect, drop: "too-big",
				out: tooBig(t, s.frame(t), name, addrOf(s.src), 1500),
			}.check(t, n, d)
		}
		// In a VLAN the next hop is unknown: one drop, however often programs
		// call each other.
		before := d.Describe().Drops["syn-odd"]
		forth.payload, forth.vlan = "x", 5
		if v, _ := n.run(t, d, forth.frame(t)); v != drop || d.Describe().Drops["syn-odd"] != before+1 {
			t.Errorf("a packet in a VLAN: %v, %v", v, d.Describe().Drops)
		}
		must(t, d.Detach())
		n.current = nil
	}
}

// Traces describe the protection's actions in text, and change nothing.
func TestTracesOfProtection(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	d.sweeper.close() // it writes, too
	nat := frontend(service.FullNAT, vips[false], service.TCP, servers[false])
	tunnel := frontend(service.Tunnel, "10.1.1.1:81", service.TCP, servers[false])
	for _, f := range []desired.Frontend{nat, tunnel} {
		upsert(t, d, f)
		putUnderPressure(t, d, f.Key)
	}
	c := &cookieClient{t, n, d, clients[false], vips[false], 70000, nil}
	syn := tcpSeg{src: c.src, dst: c.vip, tcp: layers.TCP{SYN: true, Seq: c.isn}}
	forged := tcpSeg{src: c.src, dst: c.vip, tcp: layers.TCP{ACK: true, Seq: c.isn + 1, Ack: 9}}
	ack := forged
	ack.tcp.Ack = c.syn().tcp.Seq + 1
	challenged := syn
	challenged.src, challenged.dst = "198.51.100.7:4000", "10.1.1.1:81"
	rst := challenged
	rst.tcp = layers.TCP{RST: true, Seq: n.exchangeSeg(t, d, challenged, redirect).tcp.Ack}
	validated := challenged
	validated.src = clientOf(9)
	answer := validated
	answer.tcp = layers.TCP{RST: true, Seq: n.exchangeSeg(t, d, validated, redirect).tcp.Ack}
	n.exchangeSeg(t, d, answer, drop)

	before := contentsOf(t, d)
	for _, c := range []struct {
		in   tcpSeg
		want string
	}{
		{syn, "answered with a SYN cookie"}, {forged, "no valid cookie"}, {ack, "a valid cookie; selected"},
		{challenged, "answered with a challenge"}, {rst, "the RST answers a challenge"}, {validated, "source is validated"},
	} {
		got := n.trace(t, d, TraceRequest{Frame: c.in.frame(t)})
		if !slices.ContainsFunc(got.Steps, func(step TraceStep) bool { return step.Note == "syn" && strings.Contains(step.Text, c.want) }) {
			t.Errorf("a trace of %s to %s does not say %q:\n%v", c.in.flags(), c.in.dst, c.want, got.Steps)
		}
	}
	if differ := before.differences(contentsOf(t, d)); len(differ) > 0 {
		t.Errorf("traces have changed\n%s", strings.Join(differ, "\n"))
	}

	// Packets of a connection opened by a cookie, before and after the backend
	// accepts it.
	first := c.send(tcpSeg{tcp: ack.tcp}, redirect)
	accept := tcpSeg{src: servers[false], dst: first.src, tcp: layers.TCP{SYN: true, ACK: true, Seq: 1, Ack: c.isn + 1}}
	before = contentsOf(t, d)
	if got := n.trace(t, d, TraceRequest{Frame: ack.frame(t)}); parsed(t, got.Out).flags() != "S" {
		t.Errorf("before the server has accepted an ACK becomes %s", parsed(t, got.Out).flags())
	}
	if got := n.trace(t, d, TraceRequest{Frame: accept.frame(t)}); parsed(t, got.Out).flags() != "A" {
		t.Errorf("the server's SYN-ACK becomes %s", parsed(t, got.Out).flags())
	}
	if differ := before.differences(contentsOf(t, d)); len(differ) > 0 {
		t.Errorf("traces of its handshake have changed\n%s", strings.Join(differ, "\n"))
	}
	n.exchangeSeg(t, d, accept, redirect)
	before = contentsOf(t, d)
	if got := n.trace(t, d, TraceRequest{Frame: ack.frame(t)}); parsed(t, got.Out).tcp.Ack != 2 {
		t.Errorf("an ACK becomes %s of %d", parsed(t, got.Out).flags(), parsed(t, got.Out).tcp.Ack)
	}
	if differ := before.differences(contentsOf(t, d)); len(differ) > 0 {
		t.Errorf("traces of it have changed\n%s", strings.Join(differ, "\n"))
	}
}
