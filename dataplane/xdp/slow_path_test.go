package xdp

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/core/service"
)

// rawRow is one slow path frame through the real program.
type rawRow struct {
	name    string
	in      []byte
	verdict verdict
	out     []byte // nil for nothing or, if the verdict is pass, unmodified
	drop    string
}

// untag removes the VLAN tags from a frame.
func untag(frame []byte) []byte {
	for frame[12] == 0x81 || frame[12] == 0x88 {
		frame = slices.Concat(frame[:12], frame[16:])
	}
	return frame
}

func (r rawRow) check(t *testing.T, n *testNet, d *DataPlane) {
	t.Helper()
	out := n.outcome(t, d, r.name, r.in, r.verdict, r.drop)
	if r.verdict == drop {
		return
	}
	want := r.out
	if want == nil {
		want = r.in
	} else if r.verdict == redirect {
		sumsFit(t, untag(out)[14:])
	}
	if !bytes.Equal(out, want) {
		t.Errorf("%s:\n got %s\nwant %s", r.name, hex.Dump(out[:min(len(out), 400)]), hex.Dump(want[:min(len(want), 400)]))
	}
}

// outside expects that a packet left to the gateway.
func outside(p packet) packet {
	sent(&p)
	return p
}

func openBoth(t *testing.T, n *testNet, method service.Method) *DataPlane {
	t.Helper()
	d := n.open(t, config())
	for _, v6 := range []bool{false, true} {
		both(t, d, frontend(method, vips[v6], 0, servers[v6]))
	}
	return d
}

func TestEcho(t *testing.T) {
	n := newNet(t)
	d := openBoth(t, n, service.Tunnel)
	for _, v6 := range []bool{false, true} {
		request, reply := byte(8), byte(0)
		if v6 {
			request, reply = 128, 129
		}
		for _, size := range []int{0, 1, 56, 1472, 3000, 8972} {
			body := bytes.Repeat([]byte{0xa5, 3, 0x77}, size)[:size]
			from := packet{src: addrOf(clients[v6]), dst: addrOf(vips[v6]), ttl: 3, tos: 0x28}
			to := packet{src: from.dst, dst: from.src, tos: from.tos, from: macEth0, to: macGateway}
			in := icmp{packet: from, kind: request, rest: 0x12340007, body: body}.bytes(t)
			out := icmp{packet: to, kind: reply, rest: 0x12340007, body: body}.bytes(t)
			name := fmt.Sprintf("echo of %d bytes, v6 %v", size, v6)
			rawRow{name: name, in: in, verdict: redirect, out: out}.check(t, n, d)
			for _, tags := range [][]uint16{{5}, {7, 9}} {
				rawRow{name: fmt.Sprintf("%s, in VLAN %v", name, tags), in: tagged(in, tags...), verdict: redirect, out: tagged(out, tags...)}.check(t, n, d)
			}
			if size < 56 {
				continue
			}
			ins, outs := fragments(in, 77, 40), fragments(out, 77, 40)
			for i := range ins {
				rawRow{name: fmt.Sprintf("%s, fragment %d", name, i), in: ins[i], verdict: redirect, out: outs[i]}.check(t, n, d)
			}
		}
		from := packet{src: addrOf(clients[v6]), dst: addrOf(vips[v6])}
		martian := from
		martian.src = map[bool]string{false: "127.0.0.1", true: "::1"}[v6]
		rawRow{name: "martian", in: icmp{packet: martian, kind: request}.bytes(t), verdict: drop, drop: "martian-source"}.check(t, n, d)
		rawRow{name: "a reply", in: icmp{packet: from, kind: reply}.bytes(t), verdict: drop, drop: "no-frontend"}.check(t, n, d)
		whole := icmp{packet: from, kind: request}.bytes(t)
		cut := whole[:len(whole)-2]
		rawRow{name: "cut", in: cut, verdict: drop, drop: "malformed"}.check(t, n, d)
	}
}

// errorKinds are ICMP types and codes that quote a flow, by family.
var errorKinds = map[bool][][2]byte{
	false: {{3, 1}, {3, 3}, {3, 4}, {11, 0}, {12, 0}},
	true:  {{1, 0}, {1, 4}, {2, 0}, {3, 0}, {4, 1}},
}

var routers = map[bool]string{false: "192.0.2.1", true: "2001:db8:99::1"}

func TestICMPErrorsFindTheServer(t *testing.T) {
	n := newNet(t)
	for _, method := range []service.Method{service.Tunnel, service.DSRNAT} {
		d := openBoth(t, n, method)
		for _, v6 := range []bool{false, true} {
			for name, flow := range inKinds(v6) {
				if flow.flags == "S" {
					flow.flags = "SA"
				}
				answer := flow
				answer.src, answer.dst = flow.dst, flow.src
				quoted := answer.bytes(t)[14:]
				served := answer
				served.src = servers[v6]
				header := 20
				if v6 {
					header = 40
				}
				for _, length := range []int{header + 8, header + 18, len(quoted)} {
					length = min(length, len(quoted), 500)
					for _, kind := range errorKinds[v6] {
						m := icmp{packet: packet{src: routers[v6], dst: addrOf(vips[v6])}, kind: kind[0], code: kind[1], rest: 1400, body: quoted[:length]}
						in := m.bytes(t)
						var out []byte
						if method == service.Tunnel {
							o := outer{src: owns[v6], dst: addrOf(servers[v6]), ttl: 63, label: label(packet{src: flow.src, dst: flow.dst, udp: flow.udp})}
							out = slices.Concat(macGateway, macEth0, in[12:14], o.wrap(t, in[14:], v6, 0))
						} else {
							m.packet = outside(packet{src: m.src, dst: addrOf(servers[v6])})
							m.body = served.bytes(t)[14:][:length]
							out = m.bytes(t)
						}
						rawRow{name: fmt.Sprintf("%s, %s, %d bytes, type %v, v6 %v", method, name, length, kind, v6), in: in, verdict: redirect, out: out}.check(t, n, d)
					}
				}
			}
		}
		must(t, d.Detach())
		n.current = nil
	}
}

func TestICMPErrorsThatNameNoFlow(t *testing.T) {
	n := newNet(t)
	d := openBoth(t, n, service.DSRNAT)
	for _, v6 := range []bool{false, true} {
		answer := packet{src: vips[v6], dst: clients[v6]}
		kind := errorKinds[v6][1]
		header := 20
		if v6 {
			header = 40
		}
		for name, body := range map[string][]byte{
			"nothing":              nil,
			"half a header":        answer.bytes(t)[14:][:header/2],
			"seven bytes":          answer.bytes(t)[14:][:header+7],
			"another's packet":     packet{src: clients[v6], dst: vips[v6]}.bytes(t)[14:],
			"a port not served":    packet{src: answer.src + "1", dst: clients[v6]}.bytes(t)[14:],
			"another version":      edit(answer.bytes(t)[14:], 0, 0x15),
			"another protocol":     edit(answer.bytes(t)[14:], map[bool]int{false: 9, true: 6}[v6], 47),
			"a header length of 4": edit(answer.bytes(t)[14:], 0, map[bool]byte{false: 0x44, true: 0x10}[v6]),
		} {
			m := icmp{packet: packet{src: routers[v6], dst: addrOf(vips[v6])}, kind: kind[0], code: kind[1], body: body}
			rawRow{name: fmt.Sprintf("%s, v6 %v", name, v6), in: m.bytes(t), verdict: drop, drop: "no-frontend"}.check(t, n, d)
		}
	}
}

// tooBig is the answer to a frame that did not fit.
func tooBig(t *testing.T, frame []byte, vip, client string, mtu uint32) []byte {
	m := icmp{packet: packet{src: vip, dst: client, from: macEth0, to: macGateway, tos: 0xc0}, kind: 3, code: 4, rest: mtu}
	most := 576 - 28
	if is6(frame) {
		m.kind, m.code, m.tos, most = 2, 0, 0, 1280-48
	}
	quoted := frame[14:]
	m.body = quoted[:min(len(quoted), most)&^3]
	return m.bytes(t)
}

func TestTooBig(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	tunnel6 := frontend(service.Tunnel, "10.1.1.1:81", service.TCP, servers[true])
	upsert(t, d, tunnel6)
	for _, v6 := range []bool{false, true} {
		both(t, d, frontend(service.Tunnel, vips[v6], 0, servers[v6]))
	}
	upsert(t, d, frontend(service.DSRNAT, "10.1.1.2:80", service.TCP, servers[false]))
	upsert(t, d, frontend(service.DSRNAT, "[2001:db8:1::2]:80", service.TCP, servers[true]))
	for _, c := range []struct {
		name    string
		in      packet
		payload int // of a packet of 1500 bytes
		mtu     uint32
	}{
		{"tunnel", packet{src: clients[false], dst: vips[false]}, 1460, 1480},
		{"tunnel, UDP", packet{src: clients[false], dst: vips[false], udp: true}, 1472, 1480},
		{"tunnel, IPv4 in IPv6", packet{src: clients[false], dst: "10.1.1.1:81"}, 1460, 1460},
		{"tunnel, jumbo frame", packet{src: clients[false], dst: vips[false]}, 8960, 1480},
		{"tunnel, IPv6", packet{src: clients[true], dst: vips[true]}, 1440, 1460},
		{"tunnel, IPv6, jumbo frame", packet{src: clients[true], dst: vips[true]}, 8900, 1460},
		{"dsr-nat, SYN", packet{src: clients[false], dst: "10.1.1.2:80", flags: "S"}, 1460, 1492},
		{"dsr-nat, IPv6, SYN", packet{src: clients[true], dst: "[2001:db8:1::2]:80", flags: "S"}, 1440, 1476},
	} {
		in := c.in
		in.payload = c.payload
		frame := in.bytes(t)
		want := tooBig(t, frame, addrOf(in.dst), addrOf(in.src), c.mtu)
		rawRow{name: c.name, in: frame, verdict: redirect, out: want, drop: "too-big"}.check(t, n, d)
		rawRow{name: c.name + ", VLAN", in: tagged(frame, 5), verdict: redirect, out: tagged(want, 5), drop: "too-big"}.check(t, n, d)
	}
}

// A flood of packets that are too big is answered with a rate limit.
func TestTooBigAnswersAreFew(t *testing.T) {
	n := newNet(t)
	d := openBoth(t, n, service.Tunnel)
	frame := packet{src: clients[false], dst: vips[false], payload: 1460}.bytes(t)
	answered := 0
	for range 3000 {
		if v, _ := n.run(t, d, frame); v == redirect {
			answered++
		}
	}
	if answered == 0 || answered == 3000 {
		t.Errorf("%d of 3000 were answered", answered)
	}
	if dropped := d.Describe().Drops["too-big"]; dropped != 3000 {
		t.Errorf("%d of 3000 were counted", dropped)
	}
}

// someOptions are options that a client may send: a router alert, a record route with
// room for two, padding.
var someOptions = map[string][]byte{
	"router alert": {148, 4, 0, 0},
	"record route": {7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0},
	"forty bytes":  slices.Concat([]byte{68, 36, 5, 0}, make([]byte, 32), []byte{1, 1, 1, 0}),
	"forged":       {0x9e, 8, 9, 9, 9, 9, 0, 9},
}

// padOption is a PadN of this total size.
func padOption(bytes int) []byte {
	return append([]byte{1, byte(bytes - 2)}, make([]byte, bytes-2)...)
}

// someExtensions are chains of extension headers, the one next to the transport first.
var someExtensions = map[string][]func([]byte) []byte{
	"hop by hop":          {extension(0, padOption(6))},
	"destination":         {extension(60, padOption(14))},
	"forged":              {extension(60, append(append([]byte{0x1e, 18}, make([]byte, 18)...), 1, 0))},
	"routing, at its end": {extension(43, []byte{4, 0, 0, 0, 0, 0})},
	"three":               {extension(60, padOption(6)), extension(43, []byte{0, 0, 0, 0, 0, 0}), extension(0, padOption(14))},
	"eight": {extension(60, padOption(6)), extension(60, padOption(6)), extension(60, padOption(6)), extension(60, padOption(6)),
		extension(60, padOption(6)), extension(60, padOption(6)), extension(60, padOption(6)), extension(0, padOption(6))},
}

func extension(kind byte, data []byte) func([]byte) []byte {
	return func(frame []byte) []byte {
		return withExtension(frame, kind, append([]byte{0, byte((len(data)+2)/8 - 1)}, data...)...)
	}
}

// dressed returns a frame in every slow path variant of its family.
func dressed(frame []byte) map[string][]byte {
	out := map[string][]byte{}
	if is6(frame) {
		for name, chain := range someExtensions {
			f := frame
			for _, put := range chain {
				f = put(f)
			}
			out[name] = f
		}
		return out
	}
	for name, options := range someOptions {
		out[name] = withOptions(frame, options...)
	}
	return out
}

// In a tunnel options and extension headers stay. If our option is in the packet's own
// header, they are removed.
func TestOptions(t *testing.T) {
	n := newNet(t)
	for _, method := range []service.Method{service.Tunnel, service.DSRNAT} {
		d := openBoth(t, n, method)
		for _, v6 := range []bool{false, true} {
			for kind, in := range inKinds(v6) {
				for dress, frame := range dressed(in.bytes(t)) {
					var out []byte
					if method == service.Tunnel {
						o := outer{src: owns[v6], dst: addrOf(servers[v6]), ttl: 63, label: label(in)}
						out = slices.Concat(macGateway, macEth0, frame[12:14], o.wrap(t, frame[14:], v6, in.tos))
					} else {
						p := in
						p.dst = servers[v6]
						if in.udp || in.flags == "S" {
							p.option = vips[v6]
						}
						out = outside(p).bytes(t)
					}
					name := fmt.Sprintf("%s, %s, %s, v6 %v", method, kind, dress, v6)
					rawRow{name: name, in: frame, verdict: redirect, out: out}.check(t, n, d)
					// A tagged packet goes back to the router.
					rawRow{name: name + ", VLAN", in: tagged(frame, 4, 5), verdict: redirect, out: tagged(out, 4, 5)}.check(t, n, d)
				}
			}
		}
		must(t, d.Detach())
		n.current = nil
	}
}

func TestOptionsRefused(t *testing.T) {
	n := newNet(t)
	d := openBoth(t, n, service.Tunnel)
	four := packet{src: clients[false], dst: vips[false], flags: "S"}.bytes(t)
	six := packet{src: clients[true], dst: vips[true], flags: "S"}.bytes(t)
	nine := six
	for range 9 {
		nine = extension(60, padOption(6))(nine)
	}
	for name, r := range map[string]rawRow{
		"loose source route":     {in: withOptions(four, 131, 7, 4, 10, 0, 0, 1), drop: "source-route"},
		"strict source route":    {in: withOptions(four, 1, 137, 7, 8, 10, 0, 0, 1), drop: "source-route"},
		"routing header":         {in: extension(43, []byte{0, 1, 0, 0, 0, 0})(six), drop: "source-route"},
		"option of no length":    {in: withOptions(four, 7, 0, 0, 0), drop: "malformed"},
		"option of length 1":     {in: withOptions(four, 7, 1, 0, 0), drop: "malformed"},
		"option past the end":    {in: withOptions(four, 7, 5, 0, 0), drop: "malformed"},
		"option cut":             {in: withOptions(four, 1, 1, 1, 7), drop: "malformed"},
		"extension past the end": {in: edit(extension(60, padOption(6))(six), 55, 99), drop: "malformed"},
		"too many extensions":    {in: nine, drop: "malformed"},
	} {
		r.name, r.verdict = name, drop
		r.check(t, n, d)
	}
}

// A tag stays, and the packet goes back to the router that sent it.
func TestVLAN(t *testing.T) {
	n := newNet(t)
	d := openBoth(t, n, service.Tunnel)
	for _, v6 := range []bool{false, true} {
		for kind, in := range inKinds(v6) {
			p := in
			p.outer = &outer{src: owns[v6], dst: addrOf(servers[v6]), ttl: 64, label: label(in)}
			out := outside(p).bytes(t)
			for _, tags := range [][]uint16{{1}, {4095, 0x8123}} {
				rawRow{name: fmt.Sprintf("%s, v6 %v, VLAN %v", kind, v6, tags), in: tagged(in.bytes(t), tags...), verdict: redirect, out: tagged(out, tags...)}.check(t, n, d)
			}
		}
		elsewhere := packet{src: clients[v6], dst: map[bool]string{false: "10.1.1.9:80", true: "[2001:db8:1::9]:80"}[v6]}.bytes(t)
		rawRow{name: "to another address", in: tagged(elsewhere, 3), verdict: pass}.check(t, n, d)
		served := packet{src: clients[v6], dst: vips[v6]}.bytes(t)
		rawRow{name: "three tags", in: tagged(tagged(served, 3), 4, 5), verdict: pass}.check(t, n, d)
		rawRow{name: "cut in the tag", in: tagged(served, 3)[:16], verdict: pass}.check(t, n, d)
	}
}

// All packets of a tracked flow take the same path to its backend, fast or slow path.
func TestOddPacketsOfAFlowSpreadAlike(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	for _, v6 := range []bool{false, true} {
		for _, encapsulation := range []service.Encapsulation{service.GUE, service.IPIP} {
			f := frontend(service.Tunnel, vips[v6], service.TCP, servers[v6])
			f.Encapsulation, f.Survival = encapsulation, service.FlowTable
			upsert(t, d, f)
			in := packet{src: clients[v6], dst: vips[v6], flags: "A"}.bytes(t)
			_, plain := n.run(t, d, in)
			for dress, frame := range dressed(in) {
				_, odd := n.run(t, d, frame)
				first, port := 14+4, 14+20 // IPv4 has no flow label
				if v6 {
					first, port = 14, 14+40
				}
				if !bytes.Equal(odd[first:14+4], plain[first:14+4]) || encapsulation == service.GUE && !bytes.Equal(odd[port:port+2], plain[port:port+2]) {
					t.Errorf("%s, %s, v6 %v: other than its flow\n%x\n%x", dress, encapsulation, v6, odd[:60], plain[:60])
				}
			}
		}
	}
}
