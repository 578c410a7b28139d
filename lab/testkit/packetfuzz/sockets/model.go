package sockets

import (
	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/proxied"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// client identifies whose affinities and senders are stored.
type client struct {
	cookie uint64
	kind   byte
	id     uint32 // of the service
}

// Kinds of clients.
const (
	namespace = 1
	socket    = 2
)

type chosen struct {
	target wire.Endpoint
	used   uint64
}

// sentKey is an endpoint that an unconnected socket has sent to.
type sentKey struct {
	cookie uint64
	target wire.Endpoint
}

// origin is the address that a connected socket has requested.
type origin struct {
	service       proxied.Key // its key in the map
	asked, target wire.Endpoint
}

// state is one socket in the model.
type state struct {
	cookie  uint64
	proto   byte
	pod     bool          // in the pod's namespace
	peer    wire.Endpoint // connected peer; no address if unconnected
	origin  *origin
	targets []wire.Endpoint // destinations so far, for the generator
}

// outcome is what a program must do.
type outcome struct {
	refused bool
	to      wire.Endpoint // its destination
}

// model is what the programs must do.
type model struct {
	proxied.Frontends
	nodes     map[wire.Addr]bool
	cookies   [2]uint64 // of the node's and the pod's namespace
	random    uint32
	ns        uint64
	saw       *packetfuzz.Features
	sockets   [slots]*state
	affinity  map[client]*chosen
	senders   map[client]*chosen
	sent      map[sentKey]wire.Endpoint
	connected map[uint32]uint64 // flows of each service
	counts    map[string]uint64
}

func (m *model) nextRandom() uint32 {
	m.random = packetfuzz.NextRandom(m.random)
	return m.random
}

// meansThisHost reports whether an address means a namespace's own host.
func meansThisHost(a *wire.Addr) bool {
	if a.Is4() {
		return a[12] == 127 || a[12]|a[13]|a[14]|a[15] == 0
	}
	return a.Zero() || *a == wire.Addr{15: 1}
}

// asked returns the frontend that a socket addresses, and its key in the map.
func (m *model) asked(s *state, to wire.Endpoint) (*proxy.Frontend, proxied.Key) {
	k := proxied.Key{Endpoint: to, Proto: s.proto}
	any := proxied.Key{Endpoint: wire.Endpoint{Addr: proxied.AnyOf(to.Addr.Is4()), Port: to.Port}, Proto: s.proto}
	if meansThisHost(&to.Addr) {
		if s.pod {
			return nil, k
		}
		return m.ByKey[any], any
	}
	if f := m.ByKey[k]; f != nil {
		return f, k
	}
	if m.nodes[to.Addr] {
		return m.ByKey[any], any
	}
	return nil, k
}

// recall returns a client's previous endpoint, if it is recent enough.
func (m *model) recall(of map[client]*chosen, who client, seconds uint64, targets ...[]proxy.Target) *chosen {
	had := of[who]
	if had == nil || m.ns-had.used >= seconds*1_000_000_000 {
		return nil
	}
	for _, all := range targets {
		if proxied.Find(all, had.target) != nil {
			had.used = m.ns
			return had
		}
	}
	return nil
}

// choose selects an endpoint of a frontend that has some.
func (m *model) choose(f *proxy.Frontend, who client) wire.Endpoint {
	seconds := uint64(f.Affinity.Seconds())
	if seconds > 0 {
		if had := m.recall(m.affinity, who, seconds, f.Inside.Targets); had != nil {
			return had.target
		}
	}
	all := f.Inside.Targets
	e := proxied.EndpointOf(all[uint64(m.nextRandom())*uint64(len(all))>>32])
	if seconds > 0 {
		m.affinity[who] = &chosen{e, m.ns}
	}
	return e
}

// toward handles a socket that connects or sends.
func (m *model) toward(s *state, to wire.Endpoint, connects bool) outcome {
	f, key := m.asked(s, to)
	same := outcome{to: to}
	if f == nil || len(f.Allow) > 0 || f.Closed { // frontends with source ranges are left to the packet programs
		m.counts["untouched"]++
		return same
	}
	id := m.IDs[key]
	space, self := client{m.cookieOf(s), namespace, id}, client{s.cookie, socket, id}
	var target wire.Endpoint
	if had := m.sender(self, f, connects); had != nil {
		target = had.target
	} else if len(f.Inside.Targets) == 0 {
		m.counts["empty"]++
		return outcome{refused: f.Inside.Empty != proxy.Dropped, to: to}
	} else {
		target = m.choose(f, space)
		if !connects {
			m.senders[self] = &chosen{target, m.ns}
		}
	}
	if connects {
		s.origin = &origin{key, to, target}
		m.connected[id]++
		m.counts["connected"]++
	} else {
		m.sent[sentKey{s.cookie, target}] = to
		s.targets = append(s.targets, target)
		m.counts["sent"]++
	}
	return outcome{to: target}
}

func (m *model) cookieOf(s *state) uint64 {
	if s.pod {
		return m.cookies[1]
	}
	return m.cookies[0]
}

// sender returns the endpoint that a socket has sent to before. The socket keeps it for
// two minutes, even if the endpoint takes no new flows.
func (m *model) sender(who client, f *proxy.Frontend, connects bool) *chosen {
	if connects {
		return nil
	}
	return m.recall(m.senders, who, 120, f.Inside.Targets, f.Inside.Keeps)
}

// connect handles a socket that connects.
func (m *model) connect(s *state, to wire.Endpoint) outcome {
	s.origin = nil
	return m.toward(s, to, true)
}

// seen returns the peer that a socket sees for the kernel's address.
func (m *model) seen(s *state, from wire.Endpoint) wire.Endpoint {
	if s.origin != nil && s.origin.target == from {
		return s.origin.asked
	}
	if s.proto != wire.UDP {
		return from
	}
	if asked, ok := m.sent[sentKey{s.cookie, from}]; ok {
		return asked
	}
	return from
}
