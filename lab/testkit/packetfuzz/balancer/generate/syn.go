package generate

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/addresses"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/model"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/segment"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// offer records a SYN-ACK that the load balancer has sent.
func (g *Generator) offer(ip []byte) {
	v6 := ip[0]>>4 == 6
	v, ok := wire.ReadIP(ip, 0, len(ip), v6, false)
	if !ok || v.Broken || v.IsFragment() || v.Proto != wire.TCP || v.Room() < 20 {
		return
	}
	tcp := ip[v.L4:]
	if tcp[13] != segment.SYN|segment.ACK {
		return
	}
	g.offers[g.offered%len(g.offers)] = offer{
		Tuple: wire.Tuple{Src: v.Dst, Dst: v.Src, SPort: binary.BigEndian.Uint16(tcp[2:]), DPort: binary.BigEndian.Uint16(tcp), Proto: wire.TCP},
		seq:   binary.BigEndian.Uint32(tcp[4:]), ack: binary.BigEndian.Uint32(tcp[8:]),
	}
	g.offered++
}

// reply creates what a client sends after a cookie or a challenge, or what an attacker
// might send in its place.
func (g *Generator) reply(rng *rand.Rand) {
	f := &g.frame
	o := &g.offers[rng.IntN(min(g.offered, len(g.offers)))]
	f.Src, f.Dst, f.SPort, f.DPort = o.Src, o.Dst, o.SPort, o.DPort
	g.transport(rng, wire.TCP)
	f.Seq, f.Ack = o.ack, o.seq+1
	f.Flags = []byte{segment.ACK, 0x18, segment.ACK | segment.FIN}[min(rng.IntN(3), rng.IntN(3))]
	if o.seq == o.ack { // a challenge: the client resets, and tries again
		f.Ack = 0
		f.Flags = []byte{segment.RST, segment.RST, segment.SYN, segment.RST | segment.ACK}[rng.IntN(4)]
	}
	switch rng.IntN(16) {
	case 0, 1:
		f.Seq-- // a probe of the zero window
	case 2:
		f.Seq += uint32(rng.IntN(5)) - 2
	case 3:
		f.Ack += uint32(rng.IntN(5)) - 2
	case 4:
		f.Ack ^= 1 << rng.IntN(32)
	case 5:
		f.SPort++
	case 6:
		f.Src = wire.Addr(addresses.Nth(addresses.Clients[addresses.Family(!f.Dst.Is4())], rng.IntN(4)).As16())
	case 7:
		f.Flags = byte(rng.Uint32())
	}
}

// ofProxied makes a backend's packet often one that matters to a connection which was
// opened with a cookie.
func (g *Generator) ofProxied(rng *rand.Rand, e *model.Flow) {
	f := &g.frame
	if e.Proxied == nil || rng.IntN(4) == 0 {
		return
	}
	f.Ack = e.Proxied.Seq + 1
	if !e.Proxied.Answered || rng.IntN(6) == 0 {
		f.Flags = segment.SYN | segment.ACK
	}
	if rng.IntN(2) == 0 {
		f.TCPOptions = usualOptions(rng, f.Flags)
	}
}

// usualOptions returns the options of common systems.
func usualOptions(rng *rand.Rand, flags byte) []byte {
	stamps := binary.BigEndian.AppendUint32([]byte{8, 10}, rng.Uint32())
	stamps = binary.BigEndian.AppendUint32(stamps, rng.Uint32())
	if flags&segment.SYN == 0 {
		return append([]byte{1, 1}, stamps...)
	}
	opening := append([]byte{2, 4, 5, 0xb4, 4, 2}, stamps...)
	return append(opening, 1, 3, 3, byte(rng.IntN(15)))
}

// tcpOptions returns some options, most of them valid.
func tcpOptions(rng *rand.Rand) (b []byte) {
	for range 1 + rng.IntN(4) {
		switch rng.IntN(8) {
		case 0, 1:
			sizes := []uint16{0, 535, 536, 1219, 1220, 1300, 1399, 1400, 1440, 1460, 8939, 8940, 0xffff}
			b = binary.BigEndian.AppendUint16(append(b, 2, 4), sizes[rng.IntN(len(sizes))])
		case 2:
			b = append(b, 3, 3, byte(rng.IntN(17)))
		case 3:
			b = append(b, 4, 2)
		case 4, 5:
			b = append(b, 8, 10)
			b = binary.BigEndian.AppendUint32(b, rng.Uint32())
			b = binary.BigEndian.AppendUint32(b, rng.Uint32())
		case 6:
			n := 4 * rng.IntN(9)
			b = wire.Random(rng, append(b, 5, byte(2+n)), n)
		case 7:
			b = append(b, []byte{0, 1, 1, 1, 30, 5, 8, byte(rng.Uint32())}[rng.IntN(8)])
		}
	}
	return b[:min(len(b), 40)]
}
