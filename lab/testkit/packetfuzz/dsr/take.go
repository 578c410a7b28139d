package dsr

import (
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// decision is what happens to a packet for a backend.
type decision int

const (
	take decision = iota
	sendOn
	collision // the backend has a flow with these ports through another VIP
	tableFull
	denied
)

// What has been seen of a flow, as in the table.
const (
	flowOpened      = 1
	flowAnswered    = 2
	flowConfirmed   = 4
	flowClientFin   = 8
	flowServerFin   = 16
	flowReset       = 32
	flowDoubted     = 64
	flowClientReset = 128
)

const tickShift = 30

// flow is a flow of a backend on this node.
type flow struct {
	wire.Tuple // as the backend sees it
	vip        wire.Endpoint
	overhead   int
	seen       uint32
	method     byte
	place      byte
	state      byte
	attempt    uint16 // of the SYN or INIT that bypassed the VIP
}

// table is sets of eight.
type table struct {
	sets [][8]*flow
	pool []flow
}

func (t *table) set(f *wire.Tuple) *[8]*flow {
	return &t.sets[uint64(tableHash(f))*uint64(len(t.sets))>>32]
}

// find returns a flow, however old.
func (t *table) find(f *wire.Tuple) *flow {
	for _, e := range t.set(f) {
		if e != nil && e.Tuple == *f {
			return e
		}
	}
	return nil
}

// forget removes a flow from the table.
func (t *table) forget(f *wire.Tuple) bool {
	set := t.set(f)
	for i, e := range set {
		if e != nil && e.Tuple == *f {
			set[i] = nil
			return true
		}
	}
	return false
}

// ended reports whether a flow's connection has ended.
func (f *flow) ended() bool {
	return f.state&(flowReset|flowClientReset) != 0 || f.state&(flowClientFin|flowServerFin) == flowClientFin|flowServerFin
}

// keep is how long a flow is worth keeping after its client's last packet, in ticks.
func (f *flow) keep() uint32 {
	switch {
	case f.state&(flowReset|flowClientReset) != 0:
		return 10
	case f.ended():
		return 60
	case f.state&flowAnswered == 0:
		return 28
	case f.state&flowConfirmed == 0:
		return 60
	case f.Proto == wire.UDP:
		return 280
	}
	return 840
}

func (f *flow) alive(now uint32) bool { return !f.ended() && now-f.seen < f.keep() }

// yields reports whether a flow gives way to one with the same ports through another VIP.
func (f *flow) yields(now uint32) bool {
	const inUse = 10
	return !f.alive(now) || f.Proto == wire.UDP && (!f.established() || now-f.seen >= inUse)
}

func (f *flow) established() bool {
	return f.state&flowAnswered != 0 && f.state&flowConfirmed != 0 && !f.ended()
}

// worth is the value of a place for a flow; the lowest is taken, none from kept on.
func worth(e *flow, f *wire.Tuple, now uint32) uint32 {
	const early, idle, kept = 3, 1 << 12, 1 << 13
	switch {
	case e == nil:
		return 1
	case e.Tuple == *f:
		return 0
	case now-e.seen >= e.keep():
		return 2
	case !e.established():
		return early + e.keep() - (now - e.seen)
	case now-e.seen < 60:
		return kept + e.keep() - (now - e.seen)
	}
	return idle + e.keep() - (now - e.seen)
}

// remember finds a place for a flow. It returns false if the set is full.
func (m *model) remember(f flow) bool {
	set := m.table.set(&f.Tuple)
	best, at := ^uint32(0), 0
	for i, e := range set {
		if w := worth(e, &f.Tuple, f.seen); w < best {
			best, at = w, i
		}
	}
	if best >= 1<<13 {
		return false
	}
	m.table.pool = append(m.table.pool, f)
	set[at] = &m.table.pool[len(m.table.pool)-1]
	m.count("FLOW_MADE")
	if best >= 3 {
		m.count("FLOW_EVICTED")
	}
	return true
}

func (m *model) now() uint32 { return uint32(m.ns >> tickShift) }

// stateOf returns what a client's packet means for the state of its flow.
func stateOf(p *wire.Packet) (state byte) {
	if p.Finishes() {
		state |= flowClientFin
	}
	if p.Resets() {
		state |= flowClientReset
	}
	return state
}

// decide determines what happens to a packet of a flow, as its backend would see it. more
// means that another backend might know the flow.
func (m *model) decide(t *wire.Tuple, p *wire.Packet, more bool, vip wire.Endpoint, r *row, overhead int) decision {
	if m.config.denied(t, vip, r) {
		return denied
	}
	f, now := m.table.find(t), m.now()
	same := f != nil && f.vip == vip
	if same && !p.Opens() && !(more && f.state&flowReset != 0) {
		f.seen = now
		m.note(f, flowConfirmed|stateOf(p))
		return take
	}
	switch {
	case same && p.Opens() && f.alive(now):
		f.seen = now
		f.state &^= flowDoubted
		return take
	case !p.Opens() && more:
		return sendOn
	case f != nil && !same && !f.yields(now):
		return collision
	}
	made := flow{Tuple: *t, vip: vip, overhead: overhead, seen: now, method: r.method, place: r.place, state: stateOf(p)}
	if p.Opens() {
		made.state |= flowOpened
	}
	if !m.remember(made) {
		return tableFull
	}
	return take
}

func (m *model) note(f *flow, state byte) {
	if f.state|state != f.state {
		m.saw.Saw(uint64(f.state)<<8 | uint64(state) | 1<<20)
	}
	f.state |= state
}

// next returns the first backend of a list, from an index on, that is not this one and is
// a backend of the row's frontend; and its index.
func (m *model) next(list []wire.Endpoint, first int, self, vip wire.Endpoint, r *row, proto byte, ports bool) (*wire.Endpoint, int) {
	for at := first; at < len(list); at++ {
		e := list[at]
		if e.Addr == self.Addr && (self.Port == 0 || self.Port == e.Port) {
			continue
		}
		if m.config.isServer(&e, vip, r, proto, ports) {
			return &e, at
		}
		m.count("SKIPPED_UNKNOWN_SERVER")
	}
	return nil, 0
}

// fate is what happened to a first fragment.
type fate byte

const (
	sentOn fate = iota + 1
	shortcutTaken
	answerRestored
)

type fragmentKey struct {
	src, dst wire.Addr
	id       uint32
	proto    byte
}

type fragment struct {
	vip  wire.Addr
	seen uint32
	fate fate
}

func keyOf(p *wire.Packet) fragmentKey { return fragmentKey{p.Src, p.Dst, p.ID, p.Proto} }

func (m *model) rememberFragment(p *wire.Packet, f fate, vip wire.Addr) {
	m.fragments[keyOf(p)] = &fragment{vip, m.now(), f}
}

func (m *model) fragmentOf(p *wire.Packet) *fragment {
	f := m.fragments[keyOf(p)]
	if f == nil || m.now()-f.seen >= 56 {
		return nil
	}
	return f
}

func (m *model) had(p *wire.Packet, want fate) bool {
	f := m.fragmentOf(p)
	return f != nil && f.fate == want
}
