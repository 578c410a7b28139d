package xdp

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/core/service"
)

// natFlow is one nat or fullnat flow, from each side.
type natFlow struct {
	method   service.Method
	v6       bool
	protocol string
	// What the client sends and the backend receives, what the backend sends and the
	// client receives.
	sent, got, answer, answered packet
}

// natFlows opens one flow of each kind.
func natFlows(t *testing.T, n *testNet, visit func(*DataPlane, natFlow)) {
	t.Helper()
	for _, method := range []service.Method{service.NAT, service.FullNAT} {
		d := openBoth(t, n, method)
		for _, v6 := range []bool{false, true} {
			for _, udp := range []bool{false, true} {
				in := packet{src: clients[v6], dst: vips[v6], udp: udp, flags: "S", payload: 300}
				f := natFlow{method: method, v6: v6, protocol: "TCP", sent: in, got: in}
				if udp {
					f.protocol = "UDP"
				}
				f.got.dst = servers[v6]
				if method == service.FullNAT {
					f.got.src = netip.AddrPortFrom(netip.MustParseAddr(owns[v6]), portOf(t, d, in)).String()
				}
				row{name: "opens", in: in, verdict: redirect, out: func(p *packet) { *p = outside(f.got) }}.check(t, n, d)
				f.sent.flags, f.got.flags = "A", "A"
				f.answer, f.answered = f.got, f.sent
				f.answer.src, f.answer.dst = f.got.dst, f.got.src
				f.answered.src, f.answered.dst = f.sent.dst, f.sent.src
				visit(d, f)
			}
		}
		must(t, d.Detach())
		n.current = nil
	}
}

func (f natFlow) String() string { return fmt.Sprintf("%s, %s, v6 %v", f.method, f.protocol, f.v6) }

// ways returns both directions: input and output.
func (f natFlow) ways() map[string][2]packet {
	return map[string][2]packet{"forth": {f.sent, f.got}, "back": {f.answer, f.answered}}
}

// Options, extension headers, tags and fragments stay unchanged in both directions.
func TestOddPacketsByNAT(t *testing.T) {
	n := newNet(t)
	id := uint16(300)
	natFlows(t, n, func(d *DataPlane, f natFlow) {
		for way, p := range f.ways() {
			in, out := p[0].bytes(t), outside(p[1]).bytes(t)
			outs := dressed(out)
			for dress, frame := range dressed(in) {
				name := fmt.Sprintf("%s, %s, %s", f, way, dress)
				rawRow{name: name, in: frame, verdict: redirect, out: outs[dress]}.check(t, n, d)
				rawRow{name: name + ", VLAN", in: tagged(frame, 4), verdict: redirect, out: tagged(outs[dress], 4)}.check(t, n, d)
			}
			id++
			pieces := fragments(out, id, 104)
			for i, frame := range fragments(in, id, 104) {
				rawRow{name: fmt.Sprintf("%s, %s, fragment %d", f, way, i), in: frame, verdict: redirect, out: pieces[i]}.check(t, n, d)
			}
		}
	})
}

// Errors go to the sender of the packet they quote, and quote it as that one has sent it.
func TestICMPErrorsByNAT(t *testing.T) {
	n := newNet(t)
	natFlows(t, n, func(d *DataPlane, f natFlow) {
		header := 20
		if f.v6 {
			header = 40
		}
		// The quoted packet has been sent, so it is from the other end's view.
		for way, q := range map[string][2]packet{"to the server": {f.answered, f.answer}, "to the client": {f.got, f.sent}} {
			for _, length := range []int{header + 8, header + 100} {
				for _, kind := range errorKinds[f.v6] {
					for _, by := range []string{routers[f.v6], addrOf(q[0].dst)} {
						m := icmp{packet: packet{src: by, dst: addrOf(q[0].src)}, kind: kind[0], code: kind[1], rest: 1400, body: q[0].bytes(t)[14:][:length]}
						in := m.bytes(t)
						m.packet = outside(packet{src: by, dst: addrOf(q[1].src)})
						switch {
						case way == "to the server" && f.method == service.FullNAT, by == addrOf(q[0].dst):
							m.src = addrOf(q[1].dst)
						}
						m.body = q[1].bytes(t)[14:][:length]
						rawRow{name: fmt.Sprintf("%s, %s, from %s, %d bytes, type %v", f, way, by, length, kind), in: in, verdict: redirect, out: m.bytes(t)}.check(t, n, d)
					}
				}
			}
		}
	})
}

// Packets to our own address that are no replies go to the kernel.
func TestOddPacketsForTheKernel(t *testing.T) {
	n := newNet(t)
	d := openBoth(t, n, service.FullNAT)
	for _, v6 := range []bool{false, true} {
		own := netip.AddrPortFrom(netip.MustParseAddr(owns[v6]), 179).String()
		for dress, frame := range dressed(packet{src: clients[v6], dst: own}.bytes(t)) {
			rawRow{name: dress, in: frame, verdict: pass}.check(t, n, d)
		}
		for i, frame := range fragments(packet{src: clients[v6], dst: own, udp: true, payload: 300}.bytes(t), 7, 200) {
			rawRow{name: fmt.Sprintf("fragment %d", i), in: frame, verdict: pass}.check(t, n, d)
		}
		kind := errorKinds[v6][0]
		quoted := packet{src: own, dst: clients[v6]}.bytes(t)[14:]
		m := icmp{packet: packet{src: routers[v6], dst: owns[v6]}, kind: kind[0], code: kind[1], body: quoted}
		rawRow{name: "error about our own packet", in: m.bytes(t), verdict: pass}.check(t, n, d)
		m.kind = map[bool]byte{false: 8, true: 128}[v6]
		rawRow{name: "ping", in: m.bytes(t), verdict: pass}.check(t, n, d)
	}
}

// Packets that exceed the path MTU are answered by us, in both directions.
func TestTooBigByNAT(t *testing.T) {
	n := newNet(t)
	natFlows(t, n, func(d *DataPlane, f natFlow) {
		for way, p := range f.ways() {
			in := p[0]
			in.payload = 1600
			frame := in.bytes(t)
			from := addrOf(in.dst)
			if way == "back" {
				from = owns[f.v6]
			}
			want := tooBig(t, frame, from, addrOf(in.src), 1500)
			rawRow{name: fmt.Sprintf("%s, %s", f, way), in: frame, verdict: redirect, out: want, drop: "too-big"}.check(t, n, d)
		}
	})
}
