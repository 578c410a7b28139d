// Package generate creates packets that could come next at the load balancer: of new and
// of known flows, answers, errors, handovers, and replies to cookies and challenges.
//
// What does not belong here: what must happen to them (model), and how packets are
// encoded (packetfuzz/wire).
package generate

import (
	"math/rand/v2"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/addresses"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/model"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// Generator creates packets that could come next: of new and of known flows, answers,
// errors about packets of this case, and packets handed over by other load balancers.
type Generator struct {
	model   *model.Model
	devices []model.Device
	aims    []aim
	focus   [2]int     // aims that this case uses more often than others
	fresh   bool       // focus must be selected
	seen    [16][]byte // IP packets of this case, input and output
	count   int
	frame   wire.Frame
	buffer  []byte
	memory  struct{ payload, options []byte }
	offers  [8]offer // SYN-ACKs of this case that the load balancer sent to clients
	offered int
}

// New returns a generator of packets for devices, which uses the flows of a model.
func New(m *model.Model, devices []model.Device) *Generator {
	return &Generator{model: m, devices: devices}
}

// offer is a cookie or a challenge.
type offer struct {
	wire.Tuple // the client's direction
	seq, ack   uint32
}

// aim is a destination of clients.
type aim struct {
	vip   wire.Addr
	ports []uint16
	proto byte // 0 means any
}

func (g *Generator) Reset() { g.count, g.offered, g.fresh = 0, 0, true }

// Enter takes the frontends of a world.
func (g *Generator) Enter(world []desired.Frontend) {
	g.aims = g.aims[:0]
	for _, f := range world {
		a := aim{vip: f.VIP.As16(), ports: []uint16{f.Port}, proto: byte(f.Protocol)}
		if f.Range() {
			a.ports = []uint16{f.Port, f.Port + 1, f.Last, f.Last + 1}
		}
		g.aims = append(g.aims, a)
	}
}

// One returns one of the aims.
func (g *Generator) One(rng *rand.Rand) int {
	if g.fresh {
		g.focus, g.fresh = [2]int{rng.IntN(len(g.aims)), rng.IntN(len(g.aims))}, false
	}
	if rng.IntN(3) > 0 {
		return g.focus[rng.IntN(2)]
	}
	return rng.IntN(len(g.aims))
}

// Came records input and output.
func (g *Generator) Came(in, out []byte, verdict int32) {
	for _, frame := range [][]byte{in, out} {
		if ip := wire.IPOf(frame); len(ip) > 0 {
			at := &g.seen[g.count%len(g.seen)]
			*at = append((*at)[:0], ip...)
			g.count++
			if verdict == model.Tx {
				g.offer(ip)
			}
		}
		if verdict == model.Drop {
			return
		}
	}
}

func (g *Generator) Next(rng *rand.Rand, hook uint8, b []byte) []byte {
	d := &g.devices[hook]
	f := &g.frame
	*f = wire.Frame{
		From: addresses.MacGateway, To: d.Macs[rng.IntN(len(d.Macs))], TTL: byte(2 + rng.IntN(200)), TOS: byte(rng.Uint32()),
		DF: rng.IntN(2) == 0, Label: rng.Uint32(), Payload: g.memory.payload[:0], Options: g.memory.options[:0],
	}
	if rng.IntN(100) == 0 {
		f.To = [][6]byte{{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, {1, 0, 0x5e, 0, 0, 1}, {2, 0, 0, 0, 0, 77}, addresses.MacEth0, addresses.MacEth1}[rng.IntN(5)]
	}
	handed := false
	switch n := rng.IntN(100); {
	case n < 18 && g.offered > 0:
		g.reply(rng)
	case n < 40:
		g.client(rng)
	case n < 62 && len(g.model.Known()) > 0:
		g.again(rng)
	case n < 75 && len(g.model.Known()) > 0:
		g.answer(rng)
	case n < 86 && g.count > 0:
		return g.error(rng, b)
	case n < 89:
		g.echo(rng)
	case n < 97:
		handed = true
		g.client(rng)
		if rng.IntN(3) == 0 && len(g.model.Known()) > 0 {
			g.again(rng)
		}
	default:
		g.client(rng)
		f.Dst = g.address(rng, !f.Dst.Is4())
	}
	f.Odd(rng)
	if handed {
		return g.handed(rng, b)
	}
	g.memory.payload, g.memory.options = f.Payload, f.Options
	return f.Append(b)
}

// transport sets the frame's transport.
func (g *Generator) transport(rng *rand.Rand, proto byte) {
	f := &g.frame
	f.Transport(rng, proto)
	switch f.Proto {
	case wire.TCP:
		f.Flags = []byte{0x02, 0x02, 0x10, 0x18, 0x11, 0x04, 0x12, byte(rng.Uint32())}[rng.IntN(8)]
		switch rng.IntN(8) {
		case 0, 1:
			f.TCPOptions = tcpOptions(rng)
		case 2, 3:
			f.TCPOptions = usualOptions(rng, f.Flags)
		}
		if rng.IntN(4) == 0 {
			f.Window = uint16(rng.Uint32())
		}
	case wire.UDP:
		f.NoCheck = rng.IntN(6) == 0
	case wire.SCTP:
		f.Flags = []byte{1, 1, 0, 4, 6, 14, 7, 2, 10}[rng.IntN(9)]
	}
}

// client creates a packet from one of a few clients to a frontend.
func (g *Generator) client(rng *rand.Rand) {
	f := &g.frame
	a := &g.aims[g.One(rng)]
	f.Dst = a.vip
	f.Src = wire.Addr(addresses.Nth(addresses.Clients[addresses.Family(!f.Dst.Is4())], rng.IntN(4)).As16())
	f.SPort, f.DPort = uint16(1024+rng.IntN(4)), a.ports[rng.IntN(len(a.ports))]
	g.transport(rng, a.proto)
	switch rng.IntN(40) {
	case 0:
		f.DPort = uint16(rng.Uint32())
	case 1:
		f.Src = g.address(rng, !f.Dst.Is4())
	case 2:
		f.V6 = rng.IntN(4) == 0 // IPv4 addresses in IPv6
		if !f.Dst.Is4() {
			f.Src = addresses.Addr("::ffff:192.168.0.1")
		}
	case 3:
		f.Proto = []byte{wire.TCP, wire.UDP, wire.SCTP, 47, 50, 2}[rng.IntN(6)]
	}
}

// again creates a packet of a flow that the model knows.
func (g *Generator) again(rng *rand.Rand) {
	e := &g.model.Known()[rng.IntN(len(g.model.Known()))]
	if e.Dst.Zero() { // a client's affinity
		g.client(rng)
		return
	}
	f := &g.frame
	f.Src, f.Dst, f.SPort, f.DPort = e.Src, e.Dst, e.SPort, e.DPort
	g.transport(rng, e.Proto)
}

// answer creates a packet of a backend.
func (g *Generator) answer(rng *rand.Rand) {
	f := &g.frame
	pool := g.model.Known()
	for i, first := 0, rng.IntN(len(pool)); i < len(pool); i++ {
		if e := &pool[(first+i)%len(pool)]; e.Holds {
			f.Src, f.Dst, f.SPort, f.DPort = e.Answer.Src, e.Answer.Dst, e.Answer.SPort, e.Answer.DPort
			g.transport(rng, e.Answer.Proto)
			g.ofProxied(rng, e)
			return
		}
	}
	g.client(rng)
}

// address returns any address with a meaning here.
func (g *Generator) address(rng *rand.Rand, v6 bool) wire.Addr {
	i := addresses.Family(v6)
	texts := [2][]string{
		{"172.16.0.2", "172.17.0.2", "127.0.0.1", "0.0.0.0", "224.0.0.5", "255.255.255.255", "172.16.0.9", "172.31.0.7", "10.1.1.77", addresses.Clients[0], "10.9.0.1"},
		{"fd00::2", "fd01::2", "::1", "::", "ff02::1", "fe80::1", "fd00::9", "fd31::7", "2001:db8:1::77", addresses.Clients[1], "::ffff:10.1.1.1", "::ffff:192.168.0.1"},
	}[i]
	return addresses.Addr(texts[rng.IntN(len(texts))])
}

// error creates an ICMP error about a packet of this case, or about the answer to it.
func (g *Generator) error(rng *rand.Rand, b []byte) []byte {
	f := &g.frame
	about := append(g.buffer[:0], g.seen[rng.IntN(min(g.count, len(g.seen)))]...)
	v6 := about[0]>>4 == 6
	if rng.IntN(2) == 0 {
		wire.Turn(about)
	}
	g.buffer = about
	from := addresses.Addr([2]string{"172.16.0.1", "fd00::1"}[addresses.Family(v6)])
	if rng.IntN(3) == 0 {
		from = dstOf(about)
	}
	f.Error(rng, about, from)
	if rng.IntN(12) == 0 {
		f.Dst = g.address(rng, v6)
	}
	if rng.IntN(4) == 0 {
		payload := append([]byte(nil), f.Payload...)
		f.Odd(rng)
		f.Payload = payload
	}
	return f.Append(b)
}

func dstOf(ip []byte) wire.Addr {
	if ip[0]>>4 == 6 {
		return wire.From6(ip[24:])
	}
	return wire.From4(ip[16:])
}

// echo creates an echo request, or other ICMP.
func (g *Generator) echo(rng *rand.Rand) {
	f := &g.frame
	g.client(rng)
	f.Proto = wire.ICMP
	kind := []byte{8, 8, 8, 0, 13, 3}[rng.IntN(6)]
	if !f.Dst.Is4() {
		f.Proto = wire.ICMPv6
		kind = []byte{128, 128, 128, 129, 135, 1}[rng.IntN(6)]
		if rng.IntN(6) == 0 {
			f.TTL = 255
		}
	}
	f.Payload = append(wire.Pattern(f.Payload, 8+rng.IntN(40))[:0], kind, 0, 0, 0, 1, 2, 3, 4)
	f.Payload = wire.Random(rng, f.Payload, rng.IntN(30))
}

// handed puts the frame into a tunnel, as another load balancer does for a handover.
func (g *Generator) handed(rng *rand.Rand, b []byte) []byte {
	inner := g.frame
	outer := &g.frame
	g.buffer = inner.AppendIP(g.buffer[:0])
	v6 := rng.IntN(2) == 0
	i := addresses.Family(v6)
	own := addresses.Addr([2]string{"172.16.0.2", "fd00::2"}[i])
	other := func() wire.Addr { return wire.Addr(addresses.Nth(addresses.PeerNets[i], rng.IntN(6)).As16()) }
	*outer = wire.Frame{To: inner.To, From: inner.From, VLANs: inner.VLANs, TTL: byte(1 + rng.IntN(255)), DF: true, Src: other(), Dst: own, Payload: g.buffer}
	if rng.IntN(12) == 0 {
		outer.Src = addresses.Addr(addresses.UnknownAddrs[i])
	}
	var list []wire.Endpoint
	for range []int{1, 1, 2, 3, 4, 5}[rng.IntN(6)] {
		list = append(list, wire.Endpoint{Addr: other()})
	}
	list[len(list)-1].Addr = own
	if len(list) > 1 && rng.IntN(3) > 0 {
		list[len(list)-1].Addr = other()
	}
	switch rng.IntN(20) {
	case 0:
		list[0].Addr = addresses.Addr(addresses.UnknownAddrs[i])
	case 1:
		list[0].Port = 7
	case 2:
		list = nil
	}
	outer.Proto = wire.IPIP
	if !inner.Dst.Is4() {
		outer.Proto = wire.IPv6
	}
	var tag []byte
	if rng.IntN(10) == 0 { // invalid, because this load balancer has no key
		tag = wire.Random(rng, nil, wire.TagBytes)
	}
	if v6 {
		if list != nil {
			option := wire.Option6(nil, list, 0, tag...)
			outer.Extensions = []wire.Extension{{Header: wire.DstOpts, Rest: option[1:]}}
		}
	} else if list != nil {
		outer.Options = wire.Option4(nil, list, tag...)
	}
	if rng.IntN(20) == 0 {
		outer.More = true
	}
	return outer.Append(b)
}
