package services

import (
	"encoding/binary"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/proxied"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// place is where a packet is handled.
type place int

const (
	outside place = iota // it arrives from the network
	inside               // it arrives from a pod on this node
	leaving              // it leaves
)

// hook is a program at a device.
type hook struct {
	name    string // of the hook
	device  string
	program string
	place   place
	ifindex uint32
	ingress uint32 // for forwarded packets: the device on which they arrived
}

const untouched = int32(packetfuzz.ActUnspec)

// Properties of a flow's half.
const (
	isAnswer  = 1
	isMasked  = 2  // the endpoint sees this node's address
	isOwn     = 4  // the client is this node itself
	isBridged = 8  // endpoint and client are ports of one bridge
	isLooped  = 16 // endpoint and client are both this node itself
	isCut     = 32 // for fragments: the packet exceeds the MTU of its route
)

// What has been seen of a flow.
const (
	answered  = 1
	confirmed = 2
	clientFin = 4
	targetFin = 8
	reset     = 16
	doubted   = 32 // a SYN bypassed the service
)

// half is one direction of a flow: what its packets get.
type half struct {
	to         wire.Tuple // its protocol is that of the key
	kind       byte
	fromInside bool
	state      byte
	attempt    byte // of a SYN or INIT that bypassed the service: its digest
	seen       uint32
}

// digest is the stored part of an attempt's number.
func digest(n uint32) byte {
	return byte(n) ^ byte(n>>8) ^ byte(n>>16) ^ byte(n>>24)
}

// model is what the programs must do.
type model struct {
	config *config
	routes *packetfuzz.Routes
	saw    *packetfuzz.Features

	ns       uint64
	random   uint32
	frame    []byte
	hook     *hook
	v        wire.Packet
	expected packetfuzz.Expected
	changed  bool
	redirect redirection
	mtu      uint32 // of a route with a small MTU
	counters map[string]uint64

	flows      map[wire.Tuple]*half
	affinities map[clientKey]*affinity
	fragments  map[fragmentKey]*half
	// connections counts the flows of each service, by its ID.
	connections map[uint32]uint64
}

// redirection is how a program must have redirected the frame.
type redirection struct {
	helper  uint32
	ifindex uint32
	flags   uint64
	family  uint32
	to      wire.Addr
}

type clientKey struct {
	client wire.Addr
	id     uint32 // of the service
}

type affinity struct {
	target wire.Endpoint
	used   uint64
}

type fragmentKey struct {
	src, dst wire.Addr
	id       uint32
	proto    byte
	leaving  bool
}

func (m *model) count(what string) { m.counters[what]++ }

func (m *model) pass(why string) int32 {
	m.count("PASSED_" + why)
	return untouched
}

func (m *model) drop(why string) int32 {
	m.count("DROPPED_" + why)
	return packetfuzz.ActShot
}

func (m *model) now() uint32 { return uint32(m.ns >> 30) }

func (m *model) nextRandom() uint32 {
	m.random = packetfuzz.NextRandom(m.random)
	return m.random
}

// packet returns the verdict on a frame.
func (m *model) packet(frame []byte, h *hook) int32 {
	m.frame, m.hook, m.changed, m.redirect = frame, h, false, redirection{}
	kind := binary.BigEndian.Uint16(frame[12:])
	if kind != 0x0800 && kind != 0x86dd {
		return untouched
	}
	if h.place == outside && frame[0]&1 == 0 && [6]byte(frame[:6]) != macs[h.device] {
		return untouched
	}
	m.v = wire.ReadSKB(frame, 14, kind == 0x86dd)
	switch m.v.Kind {
	case wire.Malformed:
		return m.pass("MALFORMED")
	case wire.Transport:
		return m.transport()
	case wire.Later:
		return m.later()
	case wire.Error:
		return m.error()
	}
	return untouched
}

// keep is the timeout of a flow, in ticks.
func (h *half) keep(proto byte) uint32 {
	switch {
	case proto == wire.UDP && h.state&answered != 0:
		return 168
	case proto == wire.UDP:
		return 28
	case h.state&reset != 0:
		return 10
	case h.state&(clientFin|targetFin) == clientFin|targetFin:
		return 60
	case h.state&(clientFin|targetFin) != 0:
		return 3352
	case h.state&confirmed != 0:
		return 80466
	}
	return 60
}

func (h *half) over() bool {
	return h.state&reset != 0 || h.state&(clientFin|targetFin) == clientFin|targetFin
}

// find returns the flow of a packet, unless it has expired.
func (m *model) find(t *wire.Tuple) *half {
	h := m.flows[*t]
	if h == nil || m.now()-h.seen >= h.keep(t.Proto) {
		return nil
	}
	return h
}

// other is the key of the other half.
func (h *half) other(proto byte) wire.Tuple {
	t := h.to.Turned()
	t.Proto = proto
	return t
}

// turned returns what packets of the other half get, if packets of this half have the key
// t.
func (h *half) turned(t *wire.Tuple) *half {
	o := *h
	o.to = t.Turned()
	o.to.Proto = 0
	o.kind ^= isAnswer
	return &o
}

func (m *model) forget(t *wire.Tuple) {
	h := m.flows[*t]
	if h == nil {
		return
	}
	delete(m.flows, h.other(t.Proto))
	delete(m.flows, *t)
}

// isPlaceOf reports whether packets of an entry are rewritten at this hook.
func (m *model) isPlaceOf(kind byte) bool {
	last := kind&isOwn != 0
	if kind&isAnswer != 0 {
		last = kind&(isMasked|isOwn) == 0 || kind&isLooped != 0
	}
	return last == (m.hook.place == leaving)
}

func (m *model) transport() int32 {
	v := &m.v
	if h := m.find(&v.Tuple); h != nil {
		switch {
		case !m.isPlaceOf(h.kind):
			return untouched
		case m.isPastAnswer(h):
			return untouched
		case m.goesOn(h):
			return m.leave(*h)
		}
		m.forget(&v.Tuple)
		m.count("FLOW_MOVED")
	}
	if m.hook.place == leaving && m.hook.ingress != 0 {
		return untouched
	}
	return m.begin()
}

// isPastAnswer reports whether a packet answers an attempt that bypassed the service. If
// its sender accepts the attempt, the flow has ended.
func (m *model) isPastAnswer(h *half) bool {
	attempt, may, ends := m.v.Answers(m.frame)
	if h.kind&isAnswer == 0 || h.state&doubted == 0 || !may || h.attempt != digest(attempt) {
		return false
	}
	if ends {
		m.forget(&m.v.Tuple)
	}
	return true
}

// goesOn reports whether a packet keeps the destination of its flow.
func (m *model) goesOn(h *half) bool {
	v := &m.v
	if h.kind&isAnswer != 0 {
		m.note(h)
		return true
	}
	if v.Opens() {
		if h.over() || !m.isServed(h) {
			return false
		}
		if o := m.flows[h.other(v.Proto)]; o != nil {
			o.state &^= doubted
		}
	}
	later := m.note(h)
	return v.Proto != wire.UDP || !later || m.isServed(h)
}

// note records a packet of a flow, in both halves. It reports whether the flow had not
// been seen for a while.
func (m *model) note(h *half) (later bool) {
	v := &m.v
	state := h.state &^ reset
	if v.Resets() {
		state |= reset
	}
	switch isFin := v.Finishes(); {
	case h.kind&isAnswer != 0:
		state |= answered
		if isFin {
			state |= targetFin
		}
	default:
		if h.state&answered != 0 {
			state |= confirmed
		}
		if isFin {
			state |= clientFin
		}
	}
	later = h.seen != m.now()
	if !later && state == h.state {
		return false
	}
	m.saw.Saw(uint64(h.state)<<8 | uint64(state) | uint64(h.kind)<<16)
	h.seen, h.state = m.now(), state
	key := h.other(v.Proto)
	if o := m.flows[key]; o != nil {
		o.seen, o.state = h.seen, h.state|o.state&^reset
	} else {
		m.flows[key] = h.turned(&v.Tuple)
	}
	return later
}

// asked returns the frontend that a packet addresses.
func (m *model) asked() *proxy.Frontend {
	v := &m.v
	k := proxied.Key{Endpoint: wire.Endpoint{Addr: v.Dst, Port: v.DPort}, Proto: v.Proto}
	if f := m.config.ByKey[k]; f != nil {
		return f
	}
	if !m.config.nodes[v.Dst] {
		return nil
	}
	k.Addr = proxied.AnyOf(v.Dst.Is4())
	return m.config.ByKey[k]
}

func choiceOf(f *proxy.Frontend, inside bool) *proxy.Choice {
	if inside {
		return &f.Inside
	}
	return &f.Outside
}

// isServed reports whether a flow's endpoint still belongs to its service.
func (m *model) isServed(h *half) bool {
	f := m.asked()
	if f == nil {
		return false
	}
	c := choiceOf(f, h.fromInside)
	e := wire.Endpoint{Addr: h.to.Dst, Port: h.to.DPort}
	return proxied.Find(c.Targets, e) != nil || proxied.Find(c.Keeps, e) != nil
}
