// Package model predicts what the programs of bpf/balancer.c do to each packet: verdict,
// output, and the state afterwards. It is written from the documentation and shares no
// code with the programs.
//
// A target calls Begin for each case and Packet for each frame, and compares Compare and
// the exported state with what the programs did.
//
// What does not belong here: the programs' maps, which the target reads and compares
// (balancer); what the agent has written for them (programmed); hashes (hashes) and
// keyed numbers (cookie); how segments look (segment).
package model

import (
	"encoding/binary"

	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/hashes"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/programmed"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// Verdicts of XDP programs (linux/bpf.h).
const (
	aborted  = 0
	Drop     = 1
	pass     = 2
	Tx       = 3
	Redirect = 4
)

// reason is why a packet was dropped: the C name after DROP_.
type reason = string

// The reasons that the model knows.
const (
	malformed       reason = "MALFORMED"
	noBackend       reason = "NO_BACKEND"
	noSource        reason = "NO_SOURCE"
	noRoute         reason = "NO_ROUTE"
	tooBig          reason = "TOO_BIG"
	ttlExpired      reason = "TTL_EXPIRED"
	martianSource   reason = "MARTIAN_SOURCE"
	noPort          reason = "NO_PORT"
	noHeadroom      reason = "NO_HEADROOM"
	noFrontend      reason = "NO_FRONTEND"
	noNeighbor      reason = "NO_NEIGHBOR"
	full            reason = "FULL"
	sourceDenied    reason = "SOURCE_DENIED"
	rateLimited     reason = "RATE_LIMITED"
	sourceRoute     reason = "SOURCE_ROUTE"
	tinyFragment    reason = "TINY_FRAGMENT"
	fragmentLost    reason = "FRAGMENT_LOST"
	flowsFull       reason = "FLOWS_FULL"
	sctpFragment    reason = "SCTP_FRAGMENT"
	unknownBalancer reason = "UNKNOWN_BALANCER"
	synCookie       reason = "SYN_COOKIE"
	synOdd          reason = "SYN_ODD"
)

// packet is a complete TCP, UDP or SCTP packet or a first fragment; for an ICMP error,
// the flow that it is about; for a later fragment, what its first one has left.
type packet struct {
	wire.Tuple
	length    int // of the IP packet
	flags     flags
	ttl, tos  byte
	malformed bool
	// seq and ack are the numbers of a TCP header; for SCTP both are the verification
	// tag.
	seq, ack uint32
	payload  bool // TCP: it has data
}

// number reads a packet's position in its connection.
func (p *packet) number(l4 []byte, room int) {
	switch p.Proto {
	case wire.TCP:
		p.seq, p.ack = binary.BigEndian.Uint32(l4[4:]), binary.BigEndian.Uint32(l4[8:])
		p.payload = room > int(l4[12]>>4)*4
	case wire.SCTP:
		p.seq = binary.BigEndian.Uint32(l4[4:])
		p.ack = p.seq
	}
}

// flags are what a segment or chunk means for its connection's state.
type flags uint8

const (
	opens     flags = 1 << iota // SYN without ACK, INIT
	finishes                    // FIN or RST, ABORT, SHUTDOWN COMPLETE
	continues                   // ACK without SYN, any other chunk
	resets                      // RST, ABORT, SHUTDOWN COMPLETE
	ask                         // handed over, and another load balancer may know the flow
	last                        // handed over, and no other one may
	admitted                    // it has passed the protection from SYN floods
)

func tcpFlags(b byte) (f flags) {
	fin, syn, rst, ack := b&1 != 0, b&2 != 0, b&4 != 0, b&16 != 0
	if syn && !ack {
		f |= opens
	}
	if ack && !syn {
		f |= continues
	}
	if fin || rst {
		f |= finishes
	}
	if rst {
		f |= resets
	}
	return f
}

func sctpFlags(chunk byte) flags {
	switch chunk {
	case 1:
		return opens
	case 2:
		return 0
	case 6, 14:
		return finishes | resets
	}
	return continues
}

// Model is what the programs must do, written from the documentation: one path for every
// packet, where the programs have several. It stores what they must store.
type Model struct {
	config *programmed.Config
	routes *packetfuzz.Routes
	saw    *packetfuzz.Features
	device *Device
	ports  map[uint32]bool // devices that packets may be redirected to

	Ns, Jiffies uint64 // the kernel's clocks

	frame    []byte // unchanged if the packet was not rewritten
	expected packetfuzz.Expected
	changed  bool // Expected is the output, not frame
	Egress   uint32
	Drops    map[reason]uint64
	counts   map[uint32]traffic // by frontend
	Orphans  int

	work      oddPacket
	list      []wire.Endpoint // memory for lists
	handed    []wire.Endpoint // the list of a packet that was handed over
	unwrapped []byte

	remembered
	limited
	Fragments map[hashes.Datagram]*Fragment
	rejected  [64]rejection
	answers   allowance
	natBits   []byte
	protecting
}

type traffic struct{ packets, bytes, flows uint64 }

// Packet returns the verdict on a frame.
func (m *Model) Packet(frame []byte, d *Device) int32 {
	m.frame, m.device, m.changed, m.Egress = frame, d, false, 0
	if len(frame) < 14 || !d.takes(frame) {
		return pass
	}
	switch binary.BigEndian.Uint16(frame[12:]) {
	case 0x0800:
		return m.plain(false)
	case 0x86dd:
		return m.plain(true)
	case 0x8100, 0x88a8:
		return m.odd(0)
	}
	return pass
}

// Device is where frames arrive.
type Device struct {
	Index uint32
	MTU   int
	Macs  [][6]byte // of frames for this host
}

// takes reports whether a frame is for this host.
func (d *Device) takes(frame []byte) bool {
	for _, mac := range d.Macs {
		if [6]byte(frame[:6]) == mac {
			return true
		}
	}
	return false
}

// drop counts a packet that ends here.
func (m *Model) drop(why reason) int32 {
	m.Drops[why]++
	return Drop
}

// change starts the expected output.
func (m *Model) change() *packetfuzz.Expected {
	m.expected.Begin(m.frame)
	m.changed = true
	return &m.expected
}

// readPlain reads a packet without options, extension headers and fragmentation, at l3. If
// it returns false, the packet takes the slow path.
func readPlain(b []byte, l3 int, v6 bool) (p packet, ok bool) {
	header := 20
	if v6 {
		header = 40
	}
	if l3+header > len(b) {
		return p, false
	}
	v, ok := wire.ReadIP(b, l3, len(b), v6, false)
	if !ok || v.L4 != l3+header || v.IsFragment() || !wire.HasPorts(v.Proto) || v6 && v.Fragment != 0 {
		return p, false
	}
	p = packet{Tuple: wire.Tuple{Src: v.Src, Dst: v.Dst, Proto: v.Proto}, length: v.Claimed - l3, ttl: v.TTL, tos: v.TOS}
	p.malformed = v.Claimed > len(b) || p.length < header+8 || p.length > 0xffff
	room := p.length - header
	l4 := b[v.L4:]
	if len(l4) < leastHeader(v.Proto) {
		return p, false
	}
	p.SPort, p.DPort = binary.BigEndian.Uint16(l4), binary.BigEndian.Uint16(l4[2:])
	p.number(l4, room)
	switch v.Proto {
	case wire.TCP:
		offset := int(l4[12]>>4) * 4
		p.flags = tcpFlags(l4[13])
		p.malformed = p.malformed || offset < 20 || offset > room
	case wire.UDP:
		length := int(binary.BigEndian.Uint16(l4[4:]))
		p.malformed = p.malformed || length < 8 || length > room
	case wire.SCTP:
		p.flags = sctpFlags(l4[12])
		p.malformed = p.malformed || room < 16
	}
	return p, true
}

// leastHeader is the minimum length of a transport header.
func leastHeader(proto byte) int {
	switch proto {
	case wire.TCP:
		return 20
	case wire.UDP:
		return 8
	}
	return 16
}

// isMapped reports whether an IPv6 packet has an IPv4 address: such packets are not sent
// on any wire, and must not be taken for IPv4.
func isMapped(v6 bool, src, dst *wire.Addr) bool { return v6 && (src.Is4() || dst.Is4()) }

// plain handles a packet without a VLAN tag, on the fast path if possible.
func (m *Model) plain(v6 bool) int32 {
	p, ok := readPlain(m.frame, 14, v6)
	if !ok {
		return m.odd(0)
	}
	if isMapped(v6, &p.Src, &p.Dst) {
		return pass
	}
	if m.config.Exact(&p.Tuple) == nil && m.MayAnswer(&p.Tuple) {
		if f := m.answered(&p.Tuple); f != nil && f.Proxied == nil {
			return m.answerPlain(&p, f)
		}
	}
	f, vip := m.config.Find(&p.Tuple)
	switch {
	case !vip && p.Proto == wire.TCP && m.MayAnswer(&p.Tuple):
		return m.protect(14, v6)
	case !vip:
		return pass
	case f == nil:
		return m.unserved(&p, v6)
	case p.malformed:
		return m.drop(malformed)
	case p.ttl <= 1:
		return pass
	case f.Guarded && !m.guard(&p, f, 0):
		return Drop
	}
	return m.servePlain(&p, f)
}

// staysHere reports whether the kernel would not forward a packet. It never forwards
// link-local packets (rt6_need_strict in include/net/ip6_route.h).
func (m *Model) staysHere(src, dst *wire.Addr, v6 bool) bool {
	if v6 && (src[0] == 0xff || src[0] == 0xfe && src[1]&0xc0 == 0x80 || *src == wire.Addr{15: 1}) {
		return true
	}
	switch m.routes.To(m.device.Index, v6, *dst).Answer {
	case packetfuzz.RouteNotForwarded, packetfuzz.RouteForwardingOff:
		return true
	}
	return false
}

// unserved handles a packet to a VIP that belongs to none of its frontends.
func (m *Model) unserved(p *packet, v6 bool) int32 {
	if p.ttl <= 1 || m.staysHere(&p.Src, &p.Dst, v6) {
		return pass
	}
	return m.drop(noFrontend)
}

// servePlain sends a packet to its frontend's backend.
func (m *Model) servePlain(p *packet, f *programmed.Frontend) int32 {
	v6 := !p.Dst.Is4()
	var c choice
	if f.Stateful {
		o, verdict := m.stateful(p, f, arrival{asks: func() int32 { return m.ask(p, v6) }, protects: func(*Flow) int32 { return m.protect(14, v6) }})
		if o == nil {
			return verdict
		}
		c = m.choiceOf(o)
		if !c.server.Used {
			return m.drop(noBackend)
		}
	} else if f.Pressure.Guarded && p.concerns() {
		return m.protect(14, v6)
	} else if c = m.choose(p, f); c.server == nil {
		return m.drop(noBackend)
	}
	view, _ := wire.ReadIP(m.frame, 14, len(m.frame), v6, false)
	return m.send(&sending{packet: p, view: &view, frontend: f, choice: c, plain: true})
}

// ask hands a packet over to the draining load balancers. The slow path handles it if it
// is too big.
func (m *Model) ask(p *packet, v6 bool) int32 {
	list := m.peers()
	if list == nil {
		return m.drop(noBackend)
	}
	return m.handOn(p, list, v6, admitted)
}
