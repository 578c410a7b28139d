package balancer

import (
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// States of flows.
const (
	free uint8 = iota
	opening
	established
	finishing // the client, or somebody in its name, has sent a FIN or similar
	closed    // by a reset that is accepted
	udpOpening
	udp
	clientOpening
	client
	answered    // the backend has answered
	clientReset // like finishing, by a reset
	serverFin   // the backend has finished
	timeWait    // both have
)

// A tick of the flow table's clock is 2^30 ns.
const tickShift = 30

func ticks(seconds uint64) uint32 { return uint32(seconds * 1_000_000_000 >> tickShift) }

// lives are the timeouts of flows by state.
var lives = [16]uint32{
	opening: ticks(60), answered: ticks(60), established: ticks(900), udpOpening: ticks(300), udp: ticks(300),
	finishing: ticks(120), clientReset: ticks(120), serverFin: ticks(120), timeWait: ticks(120), closed: ticks(10),
}

// lingers is how long a flow that may not really have ended is still found after its
// timeout: in total as long as an established flow.
var lingers = ticks(900) - ticks(120)

// renew is how much of a timeout must have elapsed before it is renewed.
var renew = ticks(5)

// flow is an entry of the flow table: a flow, or a client's affinity.
type flow struct {
	wire.Tuple
	tag        uint64
	server     uint32
	generation uint32
	state      uint8
	nat        bool
	described  bool   // its entry in flow_data is written
	natPort    uint16 // for fullnat
	holds      bool   // an entry in flow_back
	answer     wire.Tuple
	expires    uint32
	client     clientKey // if this is a client's affinity
	// seq and ack are the numbers that prove an end, with direct return: those of the
	// first segment after the SYN; for SCTP the client's verification tag.
	seq, ack uint32
	way      int // its place in the table
	proxied  *proxied
}

type clientKey struct {
	addr     wire.Addr
	frontend uint32
}

// remembered is what the programs store about flows.
type remembered struct {
	pool        []flow // memory of one case
	sets        [][8]*flow
	flows       map[wire.Tuple]*flow
	clients     map[clientKey]*flow
	answersOf   map[wire.Tuple]*flow
	connections map[uint32]halves
	translated  bool      // some flow has had an entry in flow_back
	halved      [64]uint8 // by backend: how often its searches for ports were halved
	random      uint32    // the programs' random number
}

// halves are a backend's connections: active and ended.
type halves struct{ on, ended int64 }

func (h halves) weight(times int64) uint64 {
	if n := h.on*times + h.ended; n > 0 {
		return uint64(n)
	}
	return 0
}

func (m *model) now() uint32 { return uint32(m.ns >> tickShift) }

func (m *model) expired(f *flow) bool { return int32(f.expires-m.now()) <= 0 }

// found reports whether packets find a flow.
func (m *model) found(f *flow) bool {
	seems := f.state == finishing || f.state == clientReset
	return !m.expired(f) || seems && m.now()-f.expires < lingers
}

// alive returns a flow's backend, unless it is gone or its ID was reused.
func (m *model) alive(f *flow) *server {
	s := m.config.server(f.server)
	if !s.used || (s.generation^f.generation)&0x7f != 0 {
		return nil
	}
	return s
}

// weighs returns what a flow contributes to its backend's connections.
func (f *flow) weighs() halves {
	switch f.state {
	case opening, answered, established, udpOpening, udp:
		return halves{on: 1}
	case finishing, clientReset, serverFin, timeWait, closed:
		return halves{ended: 1}
	}
	return halves{}
}

func (m *model) addConnections(id uint32, h halves, sign int64) {
	c := m.connections[id]
	c.on += sign * h.on
	c.ended += sign * h.ended
	m.connections[id] = c
}

// opened is what is known about a packet's flow.
type opened struct {
	flow    *flow // its entry, nil if the table has none
	tag     uint64
	server  uint32
	fresh   bool
	natPort uint16
	// quoteShift is for the sequence number that an error quotes.
	quoteShift uint32
}

// arrival is how a packet without a flow may continue.
type arrival struct {
	asks     func() int32        // nil: no other load balancer can be asked
	protects func(e *flow) int32 // passes it to the protection from SYN floods; e is proxied, or nil
	isError  bool
}

// choiceOf returns the backend that gets the packet.
func (m *model) choiceOf(o *opened) choice {
	return choice{server: m.config.server(o.server), hash: uint32(o.tag >> 32), fresh: o.fresh, natPort: o.natPort}
}

// stateful assigns a backend to a packet's flow: its existing one, or a selected one. If
// it returns nil, the packet ends with that verdict.
func (m *model) stateful(p *packet, f *frontend, a arrival) (*opened, int32) {
	entry := m.flows[p.Tuple]
	o := &opened{flow: entry, tag: flowTag(&p.Tuple)}
	var before uint8
	var keep uint32
	if entry != nil {
		before = entry.state
		known, server := m.knows(entry, p, f)
		keep = server
		o.server, o.natPort = entry.server, entry.natPort
		switch {
		case known:
			m.sent(entry, p, f.nat)
			m.noteClient(p, f, o, before)
			return o, 0
		case keep != 0 && m.isProxied(entry, f) && a.isError:
			o.quoteShift = -entry.proxied.shift
			return o, 0
		case keep != 0 && m.isProxied(entry, f):
			return nil, a.protects(entry)
		}
	}
	how := m.underPressure(p, f)
	switch {
	case !a.isError && how == protected:
		return nil, a.protects(nil)
	case keep == 0 && a.asks != nil && m.mayAsk(p):
		return nil, a.asks()
	case a.isError: // it opens nothing
		return nil, m.refuse(noFrontend)
	case how == unremembered && f.nat:
		return nil, m.drop(synCookie)
	case how == unremembered:
		return m.unremembered(p, f, o)
	}
	return m.open(p, f, o, keep)
}

// mayAsk reports whether another load balancer may know the flow.
func (m *model) mayAsk(p *packet) bool {
	if p.flags&(opens|last) != 0 {
		return false
	}
	return p.flags&ask != 0 || m.config.asks
}

// knows reports whether a packet belongs to the flow of an entry. If only the return path
// is missing, because the forwarding mode has changed, it returns the backend to keep.
func (m *model) knows(e *flow, p *packet, f *frontend) (known bool, keep uint32) {
	if !m.found(e) || p.flags&opens != 0 && (e.state == timeWait || e.state == closed) || m.alive(e) == nil {
		return false, 0
	}
	if !f.nat || e.nat && e.proxied == nil && (e.natPort != 0) == f.full {
		return true, e.server
	}
	return false, e.server
}

// open creates a flow.
func (m *model) open(p *packet, f *frontend, o *opened, keep uint32) (*opened, int32) {
	v6 := !p.Dst.Is4()
	o.fresh, o.natPort = true, 0
	if f.full {
		if own := m.own(v6); own == emptyOf(v6) || own.Zero() {
			return nil, m.drop(noSource)
		}
		if isMartian(&p.Src) {
			return nil, m.drop(martianSource)
		}
	}
	if o.server = keep; keep == 0 {
		var why reason
		if o.server, why = m.chooseNew(p, f, false); why != "" {
			return nil, m.drop(why)
		}
	}
	s := m.config.server(o.server)
	if !s.used {
		return nil, m.drop(noBackend)
	}
	state := opening
	if p.Proto == wire.UDP {
		state = udpOpening
	}
	e := m.enter(o.tag, nil)
	if e == nil {
		return m.unremembered(p, f, o)
	}
	*e = flow{Tuple: p.Tuple, tag: o.tag, server: s.id, generation: s.generation & 0x7f, state: state, nat: f.nat, expires: m.now() + lives[state], way: e.way}
	m.flows[p.Tuple] = e
	o.flow = e
	m.addConnections(s.id, e.weighs(), 1)
	if f.nat && !m.openBack(e, p, f, s) {
		m.release(e)
		m.sets[e.way/8][e.way%8] = nil
		return nil, m.drop(noPort)
	}
	o.natPort = e.natPort
	m.noteClient(p, f, o, free)
	return o, 0
}

func emptyOf(v6 bool) wire.Addr {
	if v6 {
		return wire.Addr{}
	}
	return wire.From4(make([]byte, 4))
}

// release undoes what an entry was counted for.
func (m *model) release(e *flow) {
	if m.alive(e) != nil {
		m.addConnections(e.server, e.weighs(), -1)
	}
	if e.holds {
		delete(m.answersOf, e.answer)
		e.holds = false
	}
	delete(m.flows, e.Tuple)
	delete(m.clients, e.client)
}

// openBack reserves unique answers for a flow of nat or fullnat.
func (m *model) openBack(e *flow, p *packet, f *frontend, s *server) bool {
	v6 := !p.Dst.Is4()
	e.described, m.translated = true, true
	t := wire.Tuple{Src: s.Addr, Dst: p.Src, SPort: m.serverPort(s, p.DPort), DPort: p.SPort, Proto: p.Proto}
	if !f.full {
		return m.takeAnswer(e, t)
	}
	t.Dst = m.own(v6)
	halved := &m.halved[s.id%64]
	seed, tries := uint32(e.tag>>32), min(m.config.portCount, portTries>>*halved)
	if *halved > 0 { // fewer are tried, but others each time
		m.random = packetfuzz.NextRandom(m.random)
		seed = m.random
	}
	for i := range tries {
		t.DPort = uint16(m.config.portFirst + portSlot(seed, i, m.config.portCount))
		if m.takeAnswer(e, t) {
			e.natPort = t.DPort
			*halved -= min(*halved, 1)
			return true
		}
	}
	*halved = min(*halved+1, mostHalved)
	m.saw.Saw(uint64(*halved) | 5<<20)
	return false
}

// portTries is how many source ports are tried. Each search that fails halves that for its
// backend, and each that succeeds doubles it.
const (
	portTries  = 64
	mostHalved = 6
)

// portSlot is the i-th port that is tried.
func portSlot(seed, i, count uint32) uint32 {
	switch {
	case count <= portTries:
		return (slotOf(seed, count) + i) % count
	case i == 0:
		return slotOf(seed, count)
	}
	x := seed + i
	x = (x ^ x>>16) * 0x85ebca6b
	x = (x ^ x>>13) * 0xc2b2ae35
	return slotOf(x^x>>16, count)
}

func (m *model) takeAnswer(e *flow, t wire.Tuple) bool {
	if other := m.answersOf[t]; other != nil {
		if other.holds && m.found(other) && m.alive(other) != nil {
			if !m.expired(other) {
				return false
			}
			m.end(other) // it only lingered
		}
		other.holds = false
	}
	e.answer, e.holds = t, true
	m.answersOf[t] = e
	return true
}

// end leaves only the place of a flow.
func (m *model) end(f *flow) {
	m.addConnections(f.server, f.weighs(), -1)
	f.state, f.server, f.generation, f.expires = free, 0, 0, 0
}

// serverPort is the port on which a backend gets packets that were addressed to another
// port.
func (m *model) serverPort(s *server, addressed uint16) uint16 {
	if s.Port != 0 {
		return s.Port
	}
	return addressed
}

func (m *model) own(v6 bool) wire.Addr {
	if v6 {
		return m.config.own6
	}
	return m.config.own4
}

// mayAnswer reports whether a packet could be a backend's answer with nat or fullnat.
func (m *model) mayAnswer(t *wire.Tuple) bool {
	if t.Dst == m.config.own4 || t.Dst == m.config.own6 {
		return true
	}
	hash := addrHash(&t.Src)
	return m.config.anyNAT && m.natBits[(hash>>6&1023)*8+hash&63/8]>>(hash&7)&1 != 0
}

// answered returns the flow that a packet answers.
func (m *model) answered(t *wire.Tuple) *flow {
	f := m.answersOf[*t]
	if f == nil || !f.holds || !f.nat || !m.found(f) || m.alive(f) == nil {
		return nil
	}
	return f
}
