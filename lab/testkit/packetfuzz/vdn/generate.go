package vdn

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"

	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// generator creates packets that could come next: from pods, to pods, and at the uplink.
type generator struct {
	target *Target
	others [2][]netip.Addr // some are in a slice, some not, by family
	seen   [16][]byte
	count  int
	frame  wire.Frame
}

func (g *generator) reset(t *Target) {
	g.target, g.count = t, 0
	if g.others[0] == nil {
		for _, text := range []string{
			"10.1.0.2", "10.1.0.3", "10.1.0.9", "10.1.1.0", "10.1.1.2", "10.2.0.2", "10.2.0.3", "10.3.0.1", "10.4.1.1", "10.1.0.241", "10.1.0.243", "10.5.0.1",
			"172.16.0.1", "172.18.0.1", "198.51.100.7", "192.0.2.1", "192.0.2.2", "203.0.113.9", "169.254.1.1", "224.0.0.1", "255.255.255.255", "0.0.0.0",
		} {
			g.others[0] = append(g.others[0], ip(text))
		}
		for _, text := range []string{
			"fd01::2", "fd01::9", "fd02::2", "fd02::3", "fd01:0:0:1::1", "fd02:0:0:1::1", "fd03::1", "fd04::1", "fd01::f1", "fd01::f3", "fd05::1",
			"2001:db8::7", "2001:db8:1::1", "2001:db9::1", "fe80::1", "ff02::1", "ff02::16", "ff02::1:ff00:2", "ff05::2", "::", "::1", "7fff::1", "::ffff:198.51.100.7", "::ffff:10.1.0.2",
		} {
			g.others[1] = append(g.others[1], ip(text))
		}
		for _, p := range t.pods {
			m := p.mac
			g.others[1] = append(g.others[1], netip.AddrFrom16([16]byte{0xfe, 0x80, 8: m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]}))
		}
	}
}

func (g *generator) came(frame []byte) {
	if b := wire.IPOf(frame); len(b) > 0 {
		at := &g.seen[g.count%len(g.seen)]
		*at = append((*at)[:0], b...)
		g.count++
	}
}

// Next implements packetfuzz.Target.
func (t *Target) Next(rng *rand.Rand, s *packetfuzz.Step) {
	switch n := rng.IntN(8000); {
	case n < 400:
		s.Kind, s.Arg = packetfuzz.Wait, rng.Uint64N([]uint64{2_000_000, 200_000_000, 10_000_000_000}[rng.IntN(3)])
	case n < 401:
		s.Kind, s.Arg = packetfuzz.Change, rng.Uint64()
	default:
		s.Kind = packetfuzz.Packet
		t.generator.next(rng, s)
	}
}

func (g *generator) next(rng *rand.Rand, s *packetfuzz.Step) {
	f := &g.frame
	*f = wire.Frame{From: [6]byte{2, 0, 0, 0, 0, 9}, To: [6]byte{2, 0, 0, 0, 0, 1}, TTL: byte(1 + rng.IntN(255)), TOS: byte(rng.Uint32()), DF: rng.IntN(2) == 0, Label: rng.Uint32()}
	s.Hook = uint8(rng.IntN(len(g.target.hooks)))
	h := &g.target.hooks[s.Hook]
	if rng.IntN(2) == 0 {
		s.Arg = uint64([]uint32{0, 6, major << 16, major<<16 | 3, major<<16 | rng.Uint32N(9), rng.Uint32()}[rng.IntN(6)])
	}
	g.origin(rng, s, h)
	p := h.pod
	if p == nil {
		p = pick(rng, g.target.pods)
	}
	switch {
	case h.pod != nil && h.way == sends:
		f.From = p.mac
	case h.pod != nil:
		f.To = p.mac
	}
	if rng.IntN(50) == 0 {
		f.From = pick(rng, g.target.pods).mac
	}
	switch n := rng.IntN(100); {
	case n < 45:
		g.packet(rng, s, h, p)
	case n < 58:
		s.Frame = g.arp(rng, s.Frame, p)
	case n < 78:
		g.discovery(rng, s, p)
	case n < 83:
		g.report(rng, s, p)
	case n < 97 && g.count > 0:
		g.error(rng, s, h, p)
	default:
		f.Src, f.Dst = ip("10.1.0.2").As16(), ip("10.1.0.3").As16()
		s.Frame = f.Append(s.Frame)
		binary.BigEndian.PutUint16(s.Frame[12:], pick(rng, []uint16{0x8100, 0x88a8, 0x88cc, 0x8864, 0, 60, uint16(rng.Uint32())}))
	}
}

// origin sets whose socket sent a frame and whether it has passed its pod's device: most
// often as in reality.
func (g *generator) origin(rng *rand.Rand, s *packetfuzz.Step, h *hook) {
	sender, stamped := uint64(0), uint64(0)
	if h.pod == nil && rng.IntN(4) == 0 {
		sender = 1 + rng.Uint64N(3)
		stamped = 1
	}
	if h.port || h.pod != nil && h.way == receives {
		stamped = 1
	}
	if rng.IntN(8) == 0 {
		stamped = rng.Uint64N(4)
	}
	s.Arg = s.Arg&0xffffffff | sender<<32 | stamped<<34
}

// other returns any address of a family.
func (g *generator) other(rng *rand.Rand, v6 bool) netip.Addr {
	if v6 {
		return pick(rng, g.others[1])
	}
	return pick(rng, g.others[0])
}

// own returns an address of a pod, if it has one of the family.
func (g *generator) own(rng *rand.Rand, p *pod, v6 bool) netip.Addr {
	for range 4 {
		if a := pick(rng, p.addrs); a.Is6() == v6 {
			return a
		}
	}
	return g.other(rng, v6)
}

// ends chooses sender and receiver: most often the pod.
func (g *generator) ends(rng *rand.Rand, h *hook, p *pod, v6 bool) {
	f := &g.frame
	src, dst := g.own(rng, p, v6), g.other(rng, v6)
	if h.pod != nil && h.way == receives || h.pod == nil && rng.IntN(2) == 0 {
		src, dst = dst, src
	}
	if rng.IntN(12) == 0 {
		src = g.other(rng, v6)
	}
	f.Src, f.Dst, f.V6 = src.As16(), dst.As16(), v6
}

func (g *generator) packet(rng *rand.Rand, s *packetfuzz.Step, h *hook, p *pod) {
	f := &g.frame
	g.ends(rng, h, p, rng.IntN(2) == 0)
	f.Proto = pick(rng, []byte{wire.TCP, wire.UDP, wire.SCTP, 47, wire.ICMP, wire.ICMPv6})
	f.SPort, f.DPort = uint16(rng.Uint32()), uint16(rng.Uint32())
	f.Payload = wire.Pattern(f.Payload, pick(rng, []int{0, 1, rng.IntN(60), rng.IntN(1400)}))
	if f.Proto == wire.ICMP || f.Proto == wire.ICMPv6 {
		f.Payload = wire.Random(rng, f.Payload[:0], 8+rng.IntN(60))
		f.Payload[0] = pick(rng, []byte{0, 8, 128, 129, 133, 135, 143, 3, 1})
	}
	if rng.IntN(8) == 0 {
		f.TTL = 255
	}
	v6 := f.V6
	f.Odd(rng)
	f.V6 = v6
	s.Frame = f.Append(s.Frame)
}

func (g *generator) mac(rng *rand.Rand, p *pod) [6]byte {
	switch rng.IntN(8) {
	case 0:
		return pick(rng, g.target.pods).mac
	case 1:
		return [6]byte{2, 0, 0, 0, 0, byte(rng.Uint32())}
	}
	return p.mac
}

func (g *generator) arp(rng *rand.Rand, b []byte, p *pod) []byte {
	f := &g.frame
	b = append(append(append(b, f.To[:]...), f.From[:]...), 0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, byte(1+rng.IntN(2)))
	mac, other := g.mac(rng, p), g.mac(rng, p)
	sender, target := g.own(rng, p, false).As4(), g.other(rng, false).As4()
	switch rng.IntN(8) {
	case 0:
		sender = [4]byte{}
	case 1:
		sender = g.other(rng, false).As4()
	case 2:
		target = sender
	}
	b = append(append(b, mac[:]...), sender[:]...)
	b = append(append(b, other[:]...), target[:]...)
	if rng.IntN(2) == 0 {
		b = append(b, make([]byte, 18)...) // to the minimum length of a frame
	}
	if rng.IntN(12) == 0 {
		b[14+rng.IntN(8)] ^= 1 << rng.IntN(8)
	}
	return b
}

// discovery creates a neighbor discovery message.
func (g *generator) discovery(rng *rand.Rand, s *packetfuzz.Step, p *pod) {
	f := &g.frame
	f.V6, f.TTL, f.Proto = true, 255, wire.ICMPv6
	local := g.others[1][len(g.others[1])-len(g.target.pods):]
	src := pick(rng, []netip.Addr{g.own(rng, p, true), g.own(rng, p, true), ip("::"), pick(rng, local), g.other(rng, true)})
	dst := pick(rng, []netip.Addr{ip("ff02::1"), ip("ff02::1:ff00:2"), g.other(rng, true), g.other(rng, true)})
	target := pick(rng, []netip.Addr{g.own(rng, p, true), g.other(rng, true), g.other(rng, true), pick(rng, local)}).As16()
	f.Src, f.Dst = src.As16(), dst.As16()
	kind := pick(rng, []byte{133, 134, 135, 135, 135, 136, 136, 137})
	f.Payload = append(f.Payload[:0], kind, 0, 0, 0, 0, 0, 0, 0)
	if kind != 133 {
		f.Payload = append(f.Payload, target[:]...)
	}
	for range pick(rng, []int{0, 1, 1, 1, 2}) {
		mac := g.mac(rng, p)
		f.Payload = append(append(f.Payload, pick(rng, []byte{1, 2, 14, byte(rng.Uint32())}), 1), mac[:]...)
	}
	if rng.IntN(12) == 0 {
		f.TTL = 254
	}
	if rng.IntN(12) == 0 {
		f.Extensions = wire.RandomExtensions(rng)
	}
	s.Frame = f.Append(s.Frame)
	if rng.IntN(16) == 0 { // a wrong length in the header
		s.Frame[18+rng.IntN(2)] ^= 1 << rng.IntN(8)
	}
}

// report creates an MLD report.
func (g *generator) report(rng *rand.Rand, s *packetfuzz.Step, p *pod) {
	f := &g.frame
	f.V6, f.TTL, f.Proto = true, 1, wire.ICMPv6
	local := g.others[1][len(g.others[1])-len(g.target.pods):]
	f.Src = pick(rng, []netip.Addr{ip("::"), g.own(rng, p, true), pick(rng, local), g.other(rng, true)}).As16()
	f.Dst = ip("ff02::16").As16()
	f.Extensions = append(f.Extensions[:0], wire.Extension{Header: wire.HopOpts, Rest: []byte{0, 5, 2, 0, 0, 1, 0}})
	f.Payload = append(f.Payload[:0], 143, 0, 0, 0, 0, 0, 0, 1, 4, 0, 0, 0)
	group := g.other(rng, true).As16()
	f.Payload = append(f.Payload, group[:]...)
	switch rng.IntN(10) {
	case 0:
		f.TTL = 2
	case 1:
		f.Dst = g.other(rng, true).As16()
	case 2:
		f.Payload[0] = 131
	case 3:
		f.Extensions[0].Header = wire.DstOpts
	case 4:
		f.Extensions[0].Rest = append([]byte{1}, make([]byte, 14)...)
	}
	s.Frame = f.Append(s.Frame)
}

// error creates an ICMP error about a packet of this case, from any sender.
func (g *generator) error(rng *rand.Rand, s *packetfuzz.Step, h *hook, p *pod) {
	f := &g.frame
	about := append([]byte(nil), g.seen[rng.IntN(min(g.count, len(g.seen)))]...)
	if rng.IntN(2) == 0 {
		wire.Turn(about)
	}
	v6 := about[0]>>4 == 6
	f.Error(rng, about, g.other(rng, v6).As16())
	f.V6 = v6
	if rng.IntN(3) == 0 && h.pod != nil {
		f.Dst = g.own(rng, p, v6).As16()
	}
	if rng.IntN(8) == 0 {
		f.Odd(rng)
		f.V6 = v6
	}
	s.Frame = f.Append(s.Frame)
	if h.pod != nil && h.way == receives {
		copy(s.Frame, p.mac[:])
	}
}
