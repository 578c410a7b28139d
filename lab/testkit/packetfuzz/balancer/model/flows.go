package model

import (
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/hashes"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/programmed"
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

// Flow is an entry of the flow table: a flow, or a client's affinity.
type Flow struct {
	wire.Tuple
	Tag        uint64
	Server     uint32
	Generation uint32
	State      uint8
	Nat        bool
	Described  bool   // its entry in flow_data is written
	NatPort    uint16 // for fullnat
	Holds      bool   // an entry in flow_back
	Answer     wire.Tuple
	Expires    uint32
	client     ClientKey // if this is a client's affinity
	// Seq and ack are the numbers that prove an end, with direct return: those of the
	// first segment after the SYN; for SCTP the client's verification tag.
	Seq, Ack uint32
	Way      int // its place in the table
	Proxied  *proxied
}

type ClientKey struct {
	Addr     wire.Addr
	Frontend uint32
}

// remembered is what the programs store about flows.
type remembered struct {
	pool        []Flow // memory of one case
	sets        [][8]*Flow
	Flows       map[wire.Tuple]*Flow
	Clients     map[ClientKey]*Flow
	answersOf   map[wire.Tuple]*Flow
	Connections map[uint32]Halves
	Translated  bool        // some flow has had an entry in flow_back
	Halved      [64]uint8   // by backend: how often its searches for ports were halved
	failed      [64]attempt // single ones that failed
	Random      uint32      // the programs' random number
}

// Halves are a backend's connections: active and ended.
type Halves struct{ On, Ended int64 }

func (h Halves) weight(times int64) uint64 {
	if n := h.On*times + h.Ended; n > 0 {
		return uint64(n)
	}
	return 0
}

func (m *Model) now() uint32 { return uint32(m.Ns >> tickShift) }

func (m *Model) expired(f *Flow) bool { return int32(f.Expires-m.now()) <= 0 }

// found reports whether packets find a flow.
func (m *Model) found(f *Flow) bool {
	seems := f.State == finishing || f.State == clientReset
	return !m.expired(f) || seems && m.now()-f.Expires < lingers
}

// alive returns a flow's backend, unless it is gone or its ID was reused.
func (m *Model) alive(f *Flow) *programmed.Server {
	s := m.config.Server(f.Server)
	if !s.Used || (s.Generation^f.Generation)&0x7f != 0 {
		return nil
	}
	return s
}

// weighs returns what a flow contributes to its backend's connections.
func (f *Flow) weighs() Halves {
	switch f.State {
	case opening, answered, established, udpOpening, udp:
		return Halves{On: 1}
	case finishing, clientReset, serverFin, timeWait, closed:
		return Halves{Ended: 1}
	}
	return Halves{}
}

func (m *Model) addConnections(id uint32, h Halves, sign int64) {
	c := m.Connections[id]
	c.On += sign * h.On
	c.Ended += sign * h.Ended
	m.Connections[id] = c
}

// opened is what is known about a packet's flow.
type opened struct {
	flow    *Flow // its entry, nil if the table has none
	tag     uint64
	server  uint32
	fresh   bool
	natPort uint16
	proven  bool // by a cookie
	// quoteShift is for the sequence number that an error quotes.
	quoteShift uint32
}

// arrival is how a packet without a flow may continue.
type arrival struct {
	asks     func() int32        // nil: no other load balancer can be asked
	protects func(e *Flow) int32 // passes it to the protection from SYN floods; e is proxied, or nil
	isError  bool
}

// choiceOf returns the backend that gets the packet.
func (m *Model) choiceOf(o *opened) choice {
	return choice{server: m.config.Server(o.server), hash: uint32(o.tag >> 32), fresh: o.fresh, natPort: o.natPort}
}

// stateful assigns a backend to a packet's flow: its existing one, or a selected one. If
// it returns nil, the packet ends with that verdict.
func (m *Model) stateful(p *packet, f *programmed.Frontend, a arrival) (*opened, int32) {
	entry := m.Flows[p.Tuple]
	o := &opened{flow: entry, tag: hashes.FlowTag(&p.Tuple)}
	var before uint8
	var keep uint32
	if entry != nil {
		before = entry.State
		known, server := m.knows(entry, p, f)
		keep = server
		o.server, o.natPort = entry.Server, entry.NatPort
		switch {
		case known:
			m.sent(entry, p, f.Nat)
			m.noteClient(p, f, o, before)
			return o, 0
		case keep != 0 && m.isProxied(entry, f) && a.isError:
			o.quoteShift = -entry.Proxied.Shift
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
	case how == unremembered && f.Nat:
		return nil, m.drop(synCookie)
	case how == unremembered:
		return m.unremembered(p, f, o)
	}
	return m.open(p, f, o, keep)
}

// mayAsk reports whether another load balancer may know the flow.
func (m *Model) mayAsk(p *packet) bool {
	if p.flags&(opens|last) != 0 {
		return false
	}
	return p.flags&ask != 0 || m.config.Asks
}

// knows reports whether a packet belongs to the flow of an entry. If only the return path
// is missing, because the forwarding mode has changed, it returns the backend to keep.
func (m *Model) knows(e *Flow, p *packet, f *programmed.Frontend) (known bool, keep uint32) {
	if !m.found(e) || p.flags&opens != 0 && (e.State == timeWait || e.State == closed) || m.alive(e) == nil {
		return false, 0
	}
	if !f.Nat || e.Nat && e.Proxied == nil && (e.NatPort != 0) == f.Full {
		return true, e.Server
	}
	return false, e.Server
}

// open creates a flow.
func (m *Model) open(p *packet, f *programmed.Frontend, o *opened, keep uint32) (*opened, int32) {
	v6 := !p.Dst.Is4()
	o.fresh, o.natPort = true, 0
	if f.Full {
		if own := m.own(v6); own == emptyOf(v6) || own.Zero() {
			return nil, m.drop(noSource)
		}
		if p.Src.Martian() {
			return nil, m.drop(martianSource)
		}
	}
	if o.server = keep; keep == 0 {
		var why reason
		if o.server, why = m.chooseNew(p, f, false); why != "" {
			return nil, m.drop(why)
		}
	}
	s := m.config.Server(o.server)
	if !s.Used {
		return nil, m.drop(noBackend)
	}
	if f.Full && !o.proven && m.givesUp(s, p) {
		return nil, m.drop(noPort)
	}
	state := opening
	if p.Proto == wire.UDP {
		state = udpOpening
	}
	e := m.enter(o.tag, nil)
	if e == nil {
		return m.unremembered(p, f, o)
	}
	*e = Flow{Tuple: p.Tuple, Tag: o.tag, Server: s.Id, Generation: s.Generation & 0x7f, State: state, Nat: f.Nat, Expires: m.now() + lives[state], Way: e.Way}
	m.Flows[p.Tuple] = e
	o.flow = e
	m.addConnections(s.Id, e.weighs(), 1)
	if f.Nat && !m.openBack(e, p, f, s) {
		m.release(e)
		m.sets[e.Way/8][e.Way%8] = nil
		return nil, m.drop(noPort)
	}
	o.natPort = e.NatPort
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
func (m *Model) release(e *Flow) {
	if m.alive(e) != nil {
		m.addConnections(e.Server, e.weighs(), -1)
	}
	if e.Holds {
		delete(m.answersOf, e.Answer)
		e.Holds = false
	}
	delete(m.Flows, e.Tuple)
	delete(m.Clients, e.client)
}

// openBack reserves unique answers for a flow of nat or fullnat.
func (m *Model) openBack(e *Flow, p *packet, f *programmed.Frontend, s *programmed.Server) bool {
	v6 := !p.Dst.Is4()
	e.Described, m.Translated = true, true
	t := wire.Tuple{Src: s.Addr, Dst: p.Src, SPort: m.serverPort(s, p.DPort), DPort: p.SPort, Proto: p.Proto}
	if !f.Full {
		return m.takeAnswer(e, t)
	}
	t.Dst = m.own(v6)
	halved := &m.Halved[s.Id%64]
	failed, now := m.attempt(s, p)
	seed, tries := uint32(e.Tag>>32), min(m.config.PortCount, hashes.PortTries>>*halved)
	if *halved > 0 { // fewer are tried, but others each time
		m.Random = packetfuzz.NextRandom(m.Random)
		seed = m.Random
	}
	for i := range tries {
		t.DPort = uint16(m.config.PortFirst + hashes.PortSlot(seed, i, m.config.PortCount))
		if m.takeAnswer(e, t) {
			e.NatPort = t.DPort
			if *halved > 0 {
				*halved--
				*failed = attempt{}
			}
			return true
		}
	}
	m.saw.Saw(uint64(*halved) | 5<<20)
	if *halved < mostHalved {
		*halved++
	} else {
		*failed = now
	}
	return false
}

// Each search that fails halves the number of ports that are tried for its backend, and
// each that succeeds doubles it. After a single attempt in vain, one in portRetry flows
// tries in the same jiffy.
const mostHalved, portRetry = 6, 16

// attempt is a search for a port: the backend, its port, the protocol and the jiffy.
type attempt [4]uint64

// attempt returns a search in this jiffy, and where the last that failed is stored.
func (m *Model) attempt(s *programmed.Server, p *packet) (failed *attempt, now attempt) {
	port := m.serverPort(s, p.DPort)
	return &m.failed[(s.Id+uint32(port))%64], attempt{uint64(s.Id), uint64(port), uint64(p.Proto), m.Jiffies}
}

// givesUp reports whether no port is searched for a flow.
func (m *Model) givesUp(s *programmed.Server, p *packet) bool {
	if failed, now := m.attempt(s, p); *failed != now {
		return false
	}
	m.Random = packetfuzz.NextRandom(m.Random)
	m.saw.Saw(mostHalved + 1 | 5<<20)
	return m.Random%portRetry != 0
}

func (m *Model) takeAnswer(e *Flow, t wire.Tuple) bool {
	if other := m.answersOf[t]; other != nil {
		if other.Holds && m.found(other) && m.alive(other) != nil {
			if !m.expired(other) {
				return false
			}
			m.end(other) // it only lingered
		}
		other.Holds = false
	}
	e.Answer, e.Holds = t, true
	m.answersOf[t] = e
	return true
}

// end leaves only the place of a flow.
func (m *Model) end(f *Flow) {
	m.addConnections(f.Server, f.weighs(), -1)
	f.State, f.Server, f.Generation, f.Expires = free, 0, 0, 0
}

// serverPort is the port on which a backend gets packets that were addressed to another
// port.
func (m *Model) serverPort(s *programmed.Server, addressed uint16) uint16 {
	if s.Port != 0 {
		return s.Port
	}
	return addressed
}

func (m *Model) own(v6 bool) wire.Addr {
	if v6 {
		return m.config.Own6
	}
	return m.config.Own4
}

// MayAnswer reports whether a packet could be a backend's answer with nat or fullnat.
func (m *Model) MayAnswer(t *wire.Tuple) bool {
	if t.Dst == m.config.Own4 || t.Dst == m.config.Own6 {
		return true
	}
	hash := hashes.AddrHash(&t.Src)
	return m.config.AnyNAT && m.natBits[(hash>>6&1023)*8+hash&63/8]>>(hash&7)&1 != 0
}

// answered returns the flow that a packet answers.
func (m *Model) answered(t *wire.Tuple) *Flow {
	f := m.answersOf[*t]
	if f == nil || !f.Holds || !f.Nat || !m.found(f) || m.alive(f) == nil {
		return nil
	}
	return f
}
