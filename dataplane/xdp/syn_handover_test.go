package xdp

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"github.com/fairlead/fairlead/core/service"
)

// A packet of an unknown flow to a frontend under pressure that is too big to be handed
// over is answered. It does not go round the programs until they end it.
func TestTooBigToHandOverUnderPressure(t *testing.T) {
	bothFamilies(t, func(t *testing.T, v6 bool) {
		p := newPair(t, service.FullNAT, v6, 1500)
		f := frontend(service.FullNAT, vips[v6], service.TCP, servers[v6])
		putUnderPressure(t, p.b, f.Key)
		in, headers, list := p.known, 40, uint32(20+8)
		if v6 {
			headers, list = 60, 40+24
		}
		in.payload = 1500 - headers
		frame := in.bytes(t)
		want := tooBig(t, frame, addrOf(in.dst), addrOf(in.src), 1500-list)
		rawRow{name: "too big", in: frame, verdict: redirect, out: want, drop: "too-big"}.check(t, p.stays, p.b)
	})
}

// No reset is sent to an address that no host has (RFC 1122, 3.2.1.3).
func TestNoResetForMartians(t *testing.T) {
	bothFamilies(t, func(t *testing.T, v6 bool) {
		n := newNet(t)
		d := n.open(t, config())
		f := frontend(service.NAT, vips[v6], service.TCP, servers[v6])
		upsert(t, d, f)
		putUnderPressure(t, d, f.Key)
		for _, src := range map[bool][]string{false: {"224.0.0.5:7", "0.0.0.0:7", "127.0.0.1:7"}, true: {"[ff02::1]:7", "[::]:7", "[::1]:7"}}[v6] {
			rawRow{name: src, in: packet{src: src, dst: vips[v6], flags: "A"}.bytes(t), verdict: drop, drop: "syn-cookie"}.check(t, n, d)
		}
	})
}

// What arrives after a handed-over packet of a connection that a cookie opened is not taken
// for handed over: a frame without IP is for the kernel.
func TestAfterHandedOverCookieFlow(t *testing.T) {
	bothFamilies(t, func(t *testing.T, v6 bool) {
		p := newPair(t, service.FullNAT, v6, 1500)
		f := frontend(service.FullNAT, vips[v6], service.TCP, servers[v6])
		putUnderPressure(t, p.d, f.Key)
		c := &cookieClient{t, p.leaves, p.d, p.unknownFlow(999).src, vips[v6], 1000, nil}
		k := c.syn().tcp.Seq
		ack := tcpSeg{tcp: layers.TCP{ACK: true, Seq: c.isn + 1, Ack: k + 1}}
		c.send(ack, redirect)
		ack.src, ack.dst = c.src, c.vip
		_, handed := p.stays.run(t, p.b, ack.frame(t))
		other := slices.Concat(macEth0, macGateway, []byte{0x81, 0}, binary.BigEndian.AppendUint16(nil, 7), []byte{0x08, 0x06}, make([]byte, 46))
		for range 20 { // on any CPU
			if v, _ := p.leaves.run(t, p.d, delivered(handed)); v != redirect {
				t.Fatalf("handed over: %v, %v", v, p.d.Describe().Drops)
			}
			if v, _ := p.leaves.run(t, p.d, other); v != pass {
				t.Fatalf("a frame without IP: %v, %v", v, p.d.Describe().Drops)
			}
		}
	})
}
