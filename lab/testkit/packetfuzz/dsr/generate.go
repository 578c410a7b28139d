package dsr

import (
	"math/rand/v2"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/dsr"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// generator creates packets that could come next: from load balancers, clients and
// backends, and errors about packets of this case.
type generator struct {
	target *Target
	aims   []dsr.Entry
	focus  int // one entry that this case uses more often than others
	seen   [16][]byte
	count  int
	frame  wire.Frame
	buffer []byte
}

func (g *generator) enter(t *Target) {
	g.target = t
	g.aims = append(g.aims[:0], t.entries...)
}

func (g *generator) reset() { g.count, g.focus = 0, -1 }

func (g *generator) came(frames ...[]byte) {
	for _, frame := range frames {
		if ip := wire.IPOf(frame); len(ip) > 0 {
			at := &g.seen[g.count%len(g.seen)]
			*at = append((*at)[:0], ip...)
			g.count++
		}
	}
}

// Numbers of hooks.
const (
	toServer = iota
	toHost
	fromServer
	fromHost
	fromNode
)

// Next implements packetfuzz.Target.
func (t *Target) Next(rng *rand.Rand, s *packetfuzz.Step) {
	switch n := rng.IntN(4000); {
	case n < 160:
		s.Kind, s.Arg = packetfuzz.Wait, packetfuzz.RandomWait(rng)
	case n < 161 && len(t.generator.aims) > 0:
		s.Kind, s.Arg = packetfuzz.Change, rng.Uint64()&^0xffff|uint64(t.generator.one(rng))
	default:
		s.Kind = packetfuzz.Packet
		t.generator.next(rng, s)
	}
}

func (g *generator) next(rng *rand.Rand, s *packetfuzz.Step) {
	if len(g.aims) == 0 {
		s.Frame = append(s.Frame, make([]byte, 60)...)
		return
	}
	f := &g.frame
	*f = wire.Frame{From: macGateway, TTL: byte(2 + rng.IntN(200)), TOS: byte(rng.Uint32()), DF: rng.IntN(2) == 0, Label: rng.Uint32()}
	switch n := rng.IntN(100); {
	case n < 55:
		g.toward(rng, s)
	case n < 65 && len(g.target.model.table.pool) > 0:
		g.known(rng, s)
	case n < 85 && len(g.target.model.table.pool) > 0:
		g.answer(rng, s)
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

func (g *generator) entry(rng *rand.Rand) *dsr.Entry { return &g.aims[g.one(rng)] }

// transport sets the frame's transport.
func (g *generator) transport(rng *rand.Rand, proto byte) {
	f := &g.frame
	f.Transport(rng, proto)
	switch f.Proto {
	case wire.TCP:
		f.Flags = []byte{0x02, 0x02, 0x10, 0x10, 0x18, 0x11, 0x04, 0x12, byte(rng.Uint32())}[rng.IntN(9)]
		if rng.IntN(4) == 0 {
			f.TCPOptions = [][]byte{{2, 4, 5, 0xb4}, {1, 1, 2, 4, 5, 0xb4}, {1, 2, 4, 5, 0xb4}, {2, 4, 2, 0x18}, {8, 10, 0, 0, 0, 0, 0, 0, 0, 0, 2, 4, 5, 0xb4}, {2, 4}, {0, 2, 4, 5, 0xb4}, {3, 0}}[rng.IntN(8)]
		}
	case wire.UDP:
		f.NoCheck = rng.IntN(6) == 0
	case wire.SCTP:
		f.Flags = []byte{1, 1, 0, 4, 6, 14, 7, 2, 8}[rng.IntN(9)]
	}
}

// hookOf returns where a packet to a backend arrives.
func hookOf(rng *rand.Rand, server wire.Addr) uint8 {
	own := server == addr(locals[0][2]) || server == addr(locals[1][2])
	if own == (rng.IntN(8) > 0) {
		return toHost
	}
	return toServer
}

// toward creates a client's packet as a load balancer forwards it.
func (g *generator) toward(rng *rand.Rand, s *packetfuzz.Step) {
	e, f := g.entry(rng), &g.frame
	v6 := e.VIP.Is6()
	f.Src, f.Dst = addr(pick(rng, clients[family(v6)])), wire.Addr(e.VIP.As16())
	f.SPort, f.DPort = uint16(1024+rng.IntN(3)), e.Port
	if e.Range() {
		f.DPort = []uint16{e.Port, e.Port + 7, e.Last, e.Last + 1}[rng.IntN(4)]
	}
	g.transport(rng, byte(e.Protocol))
	if rng.IntN(24) == 0 {
		f.Src = addr(pick(rng, unknownAddrs[family(v6)]))
	}
	server := wire.Endpoint{Addr: e.Server.Addr().As16(), Port: e.Server.Port()}
	s.Hook = hookOf(rng, server.Addr)
	f.To = macs[g.target.hooks[s.Hook].name]
	if rng.IntN(50) == 0 {
		f.To = [6]byte{2, 0, 0, 0, 0, 77}
	}
	list := g.list(rng, e)
	switch e.Method {
	case service.Tunnel:
		f.Odd(rng)
		g.wrap(rng, s, server.Addr, list)
		return
	case service.DSRNAT:
		list = append([]wire.Endpoint{{Addr: f.Dst, Port: f.DPort}}, list...)
		f.Dst = server.Addr
		if server.Port != 0 {
			f.DPort = server.Port
		}
		if rng.IntN(3) == 0 && f.Flags&2 == 0 {
			list = nil
		}
	default:
		if len(list) > 0 || rng.IntN(2) == 0 {
			list = append([]wire.Endpoint{{Addr: f.Dst, Port: f.DPort}}, list...)
		}
	}
	f.Odd(rng)
	g.addList(rng, list[:min(len(list), 6)])
	s.Frame = f.Append(s.Frame)
}

// list returns other backends that may have a packet's flow.
func (g *generator) list(rng *rand.Rand, e *dsr.Entry) (list []wire.Endpoint) {
	for range []int{0, 0, 1, 1, 2, 3, 5}[rng.IntN(7)] {
		o := &g.aims[rng.IntN(len(g.aims))]
		for range 8 { // most are backends of the same frontend
			if o.Key == e.Key {
				break
			}
			o = &g.aims[rng.IntN(len(g.aims))]
		}
		if o.Server.Addr().Is4() == e.Server.Addr().Is4() {
			list = append(list, wire.Endpoint{Addr: o.Server.Addr().As16(), Port: o.Server.Port()})
		}
		if rng.IntN(12) == 0 && len(list) > 0 {
			list[0] = wire.Endpoint{Addr: addr(pick(rng, unknownAddrs[family(e.Server.Addr().Is6())])), Port: 80}
		}
	}
	return list
}

// tag returns an authentication tag for a few lists. It is invalid, because no node has a
// key.
func tag(rng *rand.Rand) []byte {
	if rng.IntN(8) > 0 {
		return nil
	}
	return wire.Random(rng, nil, wire.TagBytes)
}

// addList adds a list to the frame's own header.
func (g *generator) addList(rng *rand.Rand, list []wire.Endpoint) {
	f, tag := &g.frame, tag(rng)
	if len(list)+len(tag) == 0 {
		return
	}
	if f.Dst.Is4() {
		f.Options = append(wire.Option4(nil, list, tag...), f.Options...)
		f.Options = f.Options[:min(len(f.Options), 40)]
		return
	}
	f.Extensions = append([]wire.Extension{{Header: wire.DstOpts, Rest: wire.Option6(nil, list, 0, tag...)[1:]}}, f.Extensions...)
}

// wrap puts the frame into a tunnel to a backend, with IP in IP or GUE.
func (g *generator) wrap(rng *rand.Rand, s *packetfuzz.Step, server wire.Addr, list []wire.Endpoint) {
	inner := g.frame
	inner.VLANs = nil
	g.buffer = inner.AppendIP(g.buffer[:0])
	f := &g.frame
	*f = wire.Frame{To: inner.To, From: inner.From, VLANs: g.frame.VLANs, TTL: byte(1 + rng.IntN(100)), TOS: byte(rng.Uint32()), DF: true, Dst: server, Payload: g.buffer}
	f.Src = addr(pick(rng, g.target.balancers[family(!server.Is4())]))
	if rng.IntN(16) == 0 {
		f.Src = addr(pick(rng, unknownAddrs[family(!server.Is4())]))
	}
	list = list[:min(len(list), 5)]
	proto := byte(wire.IPIP)
	if inner.Dst.Is4() == inner.V6 || !inner.Dst.Is4() {
		proto = wire.IPv6
	}
	if rng.IntN(2) == 0 {
		f.Proto = proto
		g.addList(rng, list)
		if rng.IntN(16) == 0 {
			f.Odd(rng)
			f.Payload = g.buffer
		}
		s.Frame = f.Append(s.Frame)
		return
	}
	head := []byte{0, proto, 0, 0}
	if tag := tag(rng); len(list)+len(tag) > 0 {
		head = wire.List(append(head, 0x9e, byte(len(list)), byte(len(tag)/4), 0), list, !server.Is4())
		head = append(head, tag...)
		for len(head)%4 != 0 {
			head = append(head, 0)
		}
		head[0] = byte(len(head)/4 - 1)
	}
	f.Proto, f.SPort, f.DPort, f.NoCheck = wire.UDP, uint16(49152+rng.IntN(9)), guePort, rng.IntN(4) > 0
	f.Payload = append(head, g.buffer...)
	s.Frame = f.Append(s.Frame)
}

// known creates a packet of a tracked flow that addresses the backend directly.
func (g *generator) known(rng *rand.Rand, s *packetfuzz.Step) {
	pool := g.target.model.table.pool
	e, f := &pool[rng.IntN(len(pool))], &g.frame
	f.Src, f.Dst, f.SPort, f.DPort = e.Src, e.Dst, e.SPort, e.DPort
	s.Hook = hookOf(rng, e.Dst)
	f.To = macs[g.target.hooks[s.Hook].name]
	g.transport(rng, e.Proto)
	f.Odd(rng)
	s.Frame = f.Append(s.Frame)
}

// answer creates a packet of a backend.
func (g *generator) answer(rng *rand.Rand, s *packetfuzz.Step) {
	pool := g.target.model.table.pool
	e, f := &pool[rng.IntN(len(pool))], &g.frame
	f.Src, f.Dst, f.SPort, f.DPort = e.Dst, e.Src, e.DPort, e.SPort
	s.Hook = fromServer
	if (e.place == host) == (rng.IntN(8) > 0) {
		s.Hook = fromHost
	}
	g.transport(rng, e.Proto)
	if f.Proto == wire.TCP && rng.IntN(3) == 0 {
		f.Flags, f.TCPOptions = 0x12, []byte{2, 4, 5, 0xb4}
	}
	f.Odd(rng)
	s.Frame = f.Append(s.Frame)
}

// past creates a packet that belongs to no frontend, or not correctly.
func (g *generator) past(rng *rand.Rand, s *packetfuzz.Step) {
	v6 := rng.IntN(2) == 0
	f := &g.frame
	all := append(append(append([]string{}, locals[family(v6)]...), vips[family(v6)]...), unknownAddrs[family(v6)]...)
	f.Src, f.Dst = addr(pick(rng, clients[family(v6)])), addr(pick(rng, all))
	f.SPort, f.DPort = uint16(1024+rng.IntN(3)), uint16(78+rng.IntN(12))
	s.Hook = uint8(rng.IntN(5))
	f.To = macs[g.target.hooks[s.Hook].name]
	g.transport(rng, 0)
	if rng.IntN(8) == 0 {
		f.Proto = []byte{47, 50, wire.ICMP, wire.ICMPv6, 89}[rng.IntN(5)]
	}
	f.Odd(rng)
	s.Frame = f.Append(s.Frame)
}

// error creates an ICMP error about a packet of this case, or about the answer to it.
func (g *generator) error(rng *rand.Rand, s *packetfuzz.Step) {
	f := &g.frame
	about := append([]byte(nil), g.seen[rng.IntN(min(g.count, len(g.seen)))]...)
	v6 := about[0]>>4 == 6
	if rng.IntN(2) == 0 {
		wire.Turn(about)
	}
	from := addr([2]string{"10.0.0.110", "2001:db8::110"}[family(v6)])
	if rng.IntN(3) == 0 && v6 {
		from = wire.From6(about[24:])
	} else if rng.IntN(3) == 0 && !v6 {
		from = wire.From4(about[16:])
	}
	f.Error(rng, about, from)
	s.Hook = uint8(rng.IntN(5))
	f.To = macs[g.target.hooks[s.Hook].name]
	if rng.IntN(3) > 0 { // on its way to a backend, as a load balancer forwards it
		e := g.entry(rng)
		s.Hook = hookOf(rng, e.Server.Addr().As16())
		f.To = macs[g.target.hooks[s.Hook].name]
		if e.Method == service.Tunnel {
			g.wrap(rng, s, e.Server.Addr().As16(), g.list(rng, e))
			return
		}
		if rng.IntN(2) == 0 {
			g.addList(rng, append([]wire.Endpoint{{Addr: e.VIP.As16(), Port: e.Port}}, g.list(rng, e)...)[:1])
		}
	}
	s.Frame = f.Append(s.Frame)
}
