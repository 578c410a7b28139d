package xdpbench

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/pktgen"
)

// load is the traffic of a measurement.
type load struct {
	name  string
	flows uint64 // a power of two; 0: every packet starts a new flow
	vips  int
}

// manyVIPs is the maximum number of VIPs in a load, wideRing the Maglev table size of
// each of them, with a hundred backends.
const (
	manyVIPs     = 10000
	wideRing     = 7253
	firstVIP     = 0x0a400001 // 10.64.0.1
	firstBackend = 0xac100801 // 172.16.8.1
)

var (
	one   = load{"1 flow", 1, 1}
	thou  = load{"1 k flows", 1 << 10, 1}
	sixty = load{"64 k flows", 1 << 16, 1}
	mill  = load{"1 M flows", 1 << 20, 1}
	fresh = load{"every packet new", 0, 1}
	broad = load{"1 k VIPs and 1 M flows", 1 << 20, 1000}
	many  = load{"10 k VIPs and 1 M flows", 1 << 20, manyVIPs}

	few = []load{one, mill, fresh} // the loads named by the goals
	all = []load{one, thou, sixty, mill, fresh}
)

// The floors of bpf/bench/harness.c: lower bounds for the cost of any load balancer.
const (
	floorTX    = "floor_tx"
	floorParse = "floor_parse"
	floorBare  = "floor_bare"       // a bare stateless load balancer
	floorRings = "floor_bare_rings" // the same, with as many VIPs and Maglev tables of the same size
	floorFlows = "floor_bare_flows" // a bare load balancer with a flow table
)

// subject is what is measured: a program and its frontends.
type subject struct {
	name      string
	floor     string // measured instead of the load balancer
	method    service.Method
	scheduler service.Scheduler
	gue       bool
	chain     bool // every slot has previous owners
	servers   int  // per frontend, shared by all; 0: four separate ones each
	v6, udp   bool
	flowTable int    // number of entries; 0: the default
	aged      bool   // the flow table has been filled several times over
	flood     bool   // as many packets that open a flow are sent in between, and not counted
	both      bool   // the backends' replies are sent, too
	keyed     bool   // packets to backends have an authentication tag
	away      uint16 // another port, which has no frontend
	elsewhere bool   // another address, which is not a VIP
	want      verdict
	loads     []load
	also      string    // another floor in addition to floorBare
	goals     []float64 // ratios to floorBare, by load
}

// verdict is the return code of a program.
type verdict uint32

const (
	drop verdict = 1
	pass verdict = 2
	tx   verdict = 3
)

// tableSize is the size of flow tables with goals, the same as that of floorFlows.
const tableSize = 1 << 21

// subjects returns all subjects: the floors, those with goals, and others.
func subjects() []subject {
	return slices.Concat([]subject{
		{name: "floor: return XDP_TX", floor: floorTX, want: tx, loads: all[:1]},
		{name: "floor: parse", floor: floorParse, want: tx, loads: all[:1]},
		{name: "floor: a bare stateless balancer", floor: floorBare, want: tx, loads: few},
		{name: "floor: a bare balancer with a flow table", floor: floorFlows, want: tx, loads: all},
		{name: "floor: a bare balancer with many rings", floor: floorRings, want: tx, loads: []load{many}},
	}, stateless(), remembering(), others())
}

var tunnel = subject{method: service.Tunnel, scheduler: service.Maglev, want: tx, loads: few}

func (s subject) with(name string, change func(*subject)) subject {
	s.name = name
	change(&s)
	return s
}

// goal sets one goal for all loads.
func (s *subject) goal(times float64) { s.goals = slices.Repeat([]float64{times}, len(s.loads)) }

func stateless() []subject {
	return []subject{
		tunnel.with("second chance", func(s *subject) {
			s.loads = all
			s.goal(1.4)
		}),
		tunnel.with("second chance, a chain in every slot", func(s *subject) {
			s.chain = true
			s.goal(1.4)
		}),
		tunnel.with("second chance", func(s *subject) {
			s.loads, s.also = []load{broad}, floorRings
		}),
		tunnel.with("second chance, 100 servers", func(s *subject) {
			s.servers, s.loads, s.also = 100, []load{many}, floorRings
			s.goal(3.6)
		}),
		tunnel.with("not a VIP", func(s *subject) {
			s.elsewhere, s.want = true, pass
			s.goal(0.55)
		}),
		tunnel.with("GUE", func(s *subject) {
			s.gue = true
			s.goal(1.65)
		}),
		tunnel.with("GUE, a chain in every slot", func(s *subject) {
			s.gue, s.chain = true, true
			s.goal(1.65)
		}),
	}
}

// remembering returns the subjects with a flow table.
func remembering() []subject {
	table := tunnel.with("flow table", func(s *subject) {
		s.scheduler, s.flowTable, s.loads, s.also = service.RoundRobin, tableSize, all, floorFlows
		s.goals = []float64{1.8, 1.8, 3.9, 5.5, 5.5}
	})
	return []subject{
		table,
		table.with("flow table, aged", func(s *subject) {
			s.aged, s.loads, s.goals = true, []load{sixty, mill}, []float64{3.9, 5.5}
		}),
		table.with("flow table, in a flood", func(s *subject) {
			s.flood, s.also, s.loads, s.goals = true, "", []load{thou}, nil
		}),
		tunnel.with("fullnat, both ways", func(s *subject) {
			s.method, s.flowTable, s.both = service.FullNAT, tableSize, true
			s.loads, s.goals = []load{one, thou}, []float64{4.1, 5.5}
		}),
	}
}

// others returns the subjects without goals.
func others() []subject {
	return []subject{
		tunnel.with("tunnel, IPv6", func(s *subject) { s.v6 = true }),
		tunnel.with("dsr-nat", func(s *subject) { s.method = service.DSRNAT }),
		tunnel.with("with a tag: second chance", func(s *subject) { s.keyed = true }),
		tunnel.with("with a tag: second chance, a chain in every slot", func(s *subject) { s.keyed, s.chain = true, true }),
		tunnel.with("with a tag: GUE", func(s *subject) { s.keyed, s.gue = true, true }),
		tunnel.with("with a tag: tunnel, IPv6", func(s *subject) { s.keyed, s.v6 = true, true }),
		tunnel.with("with a tag: dsr-nat", func(s *subject) { s.keyed, s.method = true, service.DSRNAT }),
		tunnel.with("with a tag: dr", func(s *subject) { s.keyed, s.method = true, service.DR }),
		tunnel.with("dr", func(s *subject) { s.method = service.DR }),
		tunnel.with("tunnel, rr, UDP", func(s *subject) {
			s.scheduler, s.udp, s.flowTable, s.also = service.RoundRobin, true, tableSize, floorFlows
		}),
		tunnel.with("fullnat, UDP", func(s *subject) { s.method, s.udp, s.loads = service.FullNAT, true, []load{one, thou} }),
		tunnel.with("not served", func(s *subject) { s.away, s.want, s.loads = 81, drop, all[:1] }),
	}
}

func (s subject) vip(i int) netip.Addr {
	low := binary.BigEndian.AppendUint32(nil, uint32(firstVIP+i))
	if !s.v6 {
		return netip.AddrFrom4([4]byte(low))
	}
	a := [16]byte{0x20, 0x01, 0x0d, 0xb8, 0, 1}
	copy(a[12:], low)
	return netip.AddrFrom16(a)
}

// server returns the n-th backend.
func (s subject) server(n int) netip.AddrPort {
	port := uint16(8080)
	if s.method == service.DR {
		port = 80
	}
	if s.v6 {
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte{0xfd, 5, 13: 1, 14: byte(n >> 8), 15: byte(n)}), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 16, 8 + byte(n>>8), byte(n)}), port)
}

// ringSlots returns the Maglev table size for this number of VIPs.
func (s subject) ringSlots(vips int) int {
	switch {
	case s.servers > 0:
		return wideRing
	case vips > 1:
		return 1021
	}
	return ringSize
}

// frontend returns the i-th frontend. Unless backends are shared, it has four of its own.
func (s subject) frontend(i, vips int) desired.Frontend {
	f := desired.Frontend{
		Key:    service.Key{VIP: s.vip(i), Port: 80, Protocol: service.TCP},
		Method: s.method, Scheduler: s.scheduler, RingSize: s.ringSlots(vips),
	}
	if s.udp {
		f.Protocol = service.UDP
	}
	if s.gue {
		f.Encapsulation = service.GUE
	}
	first, n := 8*i, 4
	switch {
	case s.servers > 0:
		first, n = 0, s.servers
	case s.both:
		n = 1 // so that replies can be distinguished by their ports
	case s.chain:
		n = 8
	}
	for j := range n {
		b := service.Backend{Addr: s.server(1 + first + j), Weight: 1}
		if s.chain { // four old backends that drain, so that each slot has a younger owner
			b.Since = time.Unix(1000, 0)
			if j < 4 {
				b.Weight, b.Since = 0, time.Unix(0, 0)
			}
		}
		f.Backends = append(f.Backends, b)
	}
	f.Backends = service.SortBackends(f.Backends)
	return f
}

// state returns the harness's state for a load.
func (s subject) state(l load) (harnessBench, error) {
	client := netip.MustParseAddr(firstClient)
	p := pktgen.Packet{
		To: netip.AddrPortFrom(s.vip(0), max(80, s.away)), Protocol: "tcp", Payload: 26,
	}
	out := harnessBench{Flows: l.flows - 1, Vips: uint64(l.vips), Vip: firstVIP}
	if s.v6 {
		client, p.Payload, out.V6 = netip.MustParseAddr("2001:db8:b::"), 6, 1
	}
	p.From = netip.AddrPortFrom(client, 1024)
	if l.flows == 0 {
		p.Flags = []string{"SYN"}
	}
	if s.udp {
		p.Protocol, p.Flags, p.Payload = "udp", nil, p.Payload+12
	}
	if s.elsewhere {
		out.Vip += 1 << 20
	}
	return out, setFrame(&out, p)
}

// setFrame sets the packet that the harness sends.
func setFrame(h *harnessBench, p pktgen.Packet) error {
	frame, err := p.Frame()
	if err != nil {
		return err
	}
	copy(frame, macBalancer)
	for i := range h.Frame {
		h.Frame[i] = binary.NativeEndian.Uint64(frame[i*8:])
	}
	return nil
}
