package services

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// generator creates packets that could come next: from clients and endpoints, and errors
// about packets of this case.
type generator struct {
	target *Target
	aims   []proxy.Frontend
	focus  int // one frontend that this case uses more often than others
	keys   []wire.Tuple
	seen   [16][]byte
	count  int
	frame  wire.Frame
}

func (g *generator) enter(t *Target) {
	g.target = t
	g.aims = append(g.aims[:0], t.world...)
}

func (g *generator) reset() { g.count, g.focus = 0, -1 }

func (g *generator) came(frame []byte) {
	if ip := wire.IPOf(frame); len(ip) > 0 {
		at := &g.seen[g.count%len(g.seen)]
		*at = append((*at)[:0], ip...)
		g.count++
	}
}

// Numbers of hooks.
const (
	fromNetwork = iota
	fromPod
	fromPort
	toNetwork
	forwarded
	toPod
	onToPod
	toBridge
)

// Next implements packetfuzz.Target.
func (t *Target) Next(rng *rand.Rand, s *packetfuzz.Step) {
	switch n := rng.IntN(4000); {
	case n < 200:
		s.Kind, s.Arg = packetfuzz.Wait, packetfuzz.RandomWait(rng)
		if rng.IntN(16) == 0 {
			s.Arg = []uint64{3_600_000_000_000, 86_400_000_000_000}[rng.IntN(2)]
		}
	case n < 202:
		s.Kind, s.Arg = packetfuzz.Change, rng.Uint64()&^0xffff|uint64(t.generator.one(rng))
	default:
		s.Kind = packetfuzz.Packet
		t.generator.next(rng, s)
	}
}

func (g *generator) next(rng *rand.Rand, s *packetfuzz.Step) {
	f := &g.frame
	*f = wire.Frame{From: [6]byte{2, 0, 0, 0, 0, 1}, TTL: byte(2 + rng.IntN(200)), TOS: byte(rng.Uint32()), DF: rng.IntN(2) == 0, Label: rng.Uint32()}
	flows := g.target.model.flows
	switch n := rng.IntN(100); {
	case n < 45 || len(flows) == 0:
		g.toward(rng, s)
	case n < 85:
		g.known(rng, s)
	case n < 95 && g.count > 0:
		g.error(rng, s)
	default:
		g.past(rng, s)
	}
}

// one returns one of the aims.
func (g *generator) one(rng *rand.Rand) int {
	if g.focus < 0 {
		g.focus = rng.IntN(len(g.aims))
	}
	if rng.IntN(2) == 0 {
		return g.focus
	}
	return rng.IntN(len(g.aims))
}

func (g *generator) send(s *packetfuzz.Step) {
	g.frame.To = macs[g.target.hooks[s.Hook].device]
	s.Frame = g.frame.Append(s.Frame)
}

// transport sets the frame's transport.
func (g *generator) transport(rng *rand.Rand, proto byte) {
	f := &g.frame
	f.Transport(rng, proto)
	switch f.Proto {
	case wire.TCP:
		f.Flags = []byte{0x02, 0x02, 0x02, 0x10, 0x10, 0x18, 0x11, 0x04, 0x12, byte(rng.Uint32())}[rng.IntN(10)]
		if rng.IntN(8) == 0 {
			f.TCPOptions = []byte{2, 4, 5, 0xb4}
		}
	case wire.UDP:
		f.NoCheck = rng.IntN(6) == 0
	case wire.SCTP:
		f.Flags = []byte{1, 1, 0, 4, 6, 14, 7, 2, 8}[rng.IntN(9)]
	}
}

// placeOf returns a client and the hook where its packets arrive.
func (g *generator) placeOf(rng *rand.Rand, v6 bool) (client wire.Addr, hook uint8) {
	local := locals[family(v6)]
	switch rng.IntN(8) {
	case 0, 1, 2:
		return addr(pick(rng, clients[family(v6)])), fromNetwork
	case 3:
		return addr(local[rng.IntN(2)]), fromPod
	case 4:
		return addr(local[2+rng.IntN(2)]), fromPort
	case 5:
		return addr(nodes[family(v6)][0]), []uint8{toNetwork, toNetwork, toPod}[rng.IntN(3)]
	case 6:
		return addr(pick(rng, clients[family(v6)])), []uint8{forwarded, onToPod, toBridge}[rng.IntN(3)]
	}
	return addr(pick(rng, unknownAddrs[family(v6)])), uint8(rng.IntN(8))
}

// toward creates a client's packet to a service.
func (g *generator) toward(rng *rand.Rand, s *packetfuzz.Step) {
	e, f := &g.aims[g.one(rng)], &g.frame
	v6 := e.Addr.Is6()
	f.Src, s.Hook = g.placeOf(rng, v6)
	f.Dst = wire.Addr(e.Addr.As16())
	if e.Kind == proxy.NodePort {
		f.Dst = addr(pick(rng, nodes[family(v6)]))
	}
	f.SPort, f.DPort = uint16(1024+rng.IntN(3)), e.Port
	g.transport(rng, byte(e.Protocol))
	f.Odd(rng)
	g.send(s)
}

// some returns one of the flows' keys.
func (g *generator) some(rng *rand.Rand) wire.Tuple {
	g.keys = g.keys[:0]
	for k := range g.target.model.flows {
		g.keys = append(g.keys, k)
	}
	// Iteration over the map would not be reproducible.
	best := g.keys[0]
	salt := rng.Uint64() | 1
	for _, k := range g.keys[1:] {
		if hash(&k)*salt < hash(&best)*salt {
			best = k
		}
	}
	return best
}

func hash(t *wire.Tuple) uint64 {
	h := uint64(t.SPort)<<32 | uint64(t.DPort)<<8 | uint64(t.Proto)
	for i := 0; i < 16; i += 4 {
		h = h*0x9e3779b97f4a7c15 + uint64(binary.BigEndian.Uint32(t.Src[i:]))<<7 + uint64(binary.BigEndian.Uint32(t.Dst[i:]))
	}
	return h ^ h>>29
}

// known creates a packet of a flow, from either end, mostly at the hook where it belongs.
func (g *generator) known(rng *rand.Rand, s *packetfuzz.Step) {
	k, f := g.some(rng), &g.frame
	h := g.target.model.flows[k]
	f.Src, f.Dst, f.SPort, f.DPort = k.Src, k.Dst, k.SPort, k.DPort
	s.Hook = []uint8{fromNetwork, fromPod, fromPort}[rng.IntN(3)]
	answer, masked, own := h.kind&isAnswer != 0, h.kind&isMasked != 0, h.kind&isOwn != 0
	if !answer && own || answer && !masked && !own || h.kind&isLooped != 0 {
		s.Hook = []uint8{toNetwork, toPod, forwarded, onToPod, toBridge}[rng.IntN(5)]
	}
	if rng.IntN(16) == 0 {
		s.Hook = uint8(rng.IntN(8))
	}
	g.transport(rng, k.Proto)
	f.Odd(rng)
	g.send(s)
}

// past creates a packet for no service, or one straight to an endpoint.
func (g *generator) past(rng *rand.Rand, s *packetfuzz.Step) {
	v6 := rng.IntN(2) == 0
	f := &g.frame
	f.Src, s.Hook = g.placeOf(rng, v6)
	all := append(append(append([]string{}, locals[family(v6)]...), services[family(v6)]...), unknownAddrs[family(v6)]...)
	f.Dst = addr(pick(rng, all))
	f.SPort, f.DPort = uint16(1024+rng.IntN(3)), []uint16{8080, uint16(78 + rng.IntN(12))}[rng.IntN(2)]
	if rng.IntN(2) == 0 && len(g.target.model.flows) > 0 { // like a client that bypasses the service
		k := g.some(rng)
		f.Src, f.Dst, f.SPort, f.DPort = k.Dst, k.Src, k.DPort, k.SPort
		s.Hook = uint8(rng.IntN(3))
	}
	g.transport(rng, 0)
	if rng.IntN(8) == 0 {
		f.Proto = []byte{47, 50, wire.ICMP, wire.ICMPv6, 89}[rng.IntN(5)]
	}
	f.Odd(rng)
	g.send(s)
}

// error creates an ICMP error about a packet of this case, or about its answer.
func (g *generator) error(rng *rand.Rand, s *packetfuzz.Step) {
	f := &g.frame
	about := append([]byte(nil), g.seen[rng.IntN(min(g.count, len(g.seen)))]...)
	v6 := about[0]>>4 == 6
	if rng.IntN(3) == 0 {
		wire.Turn(about)
	}
	from := addr(gateways[family(v6)])
	if rng.IntN(2) == 0 {
		if from = wire.From6(append(about, make([]byte, 40)...)[24:]); !v6 {
			from = wire.From4(about[16:])
		}
	}
	f.Error(rng, about, from)
	s.Hook = uint8(rng.IntN(8))
	if rng.IntN(8) == 0 {
		f.Odd(rng)
	}
	g.send(s)
}
