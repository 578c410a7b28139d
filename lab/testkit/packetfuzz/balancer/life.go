package balancer

import "github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"

// How packets change flows. A host that knows a connection's addresses and ports can send
// packets in the client's name: a packet that only seems to come from the client must not
// end a flow that may continue. With nat and fullnat the backend's answers decide; with
// direct return the numbers, which only the connection's ends know.

// The maximum distance from a connection's first numbers at which its end is accepted.
const (
	sentMost     = 1 << 16
	receivedMost = 1 << 20
)

// steady reports whether a packet leaves a flow as it is.
func (f *flow) steady(p *packet, twoWay bool) bool {
	switch f.state {
	case established, udp:
		return p.flags&finishes == 0
	case udpOpening:
		return twoWay && p.flags&finishes == 0
	}
	return false
}

// sent records a client's packet of a flow.
func (m *model) sent(f *flow, p *packet, twoWay bool) {
	if f.steady(p, twoWay) {
		m.touch(f, f.state)
		return
	}
	state := f.afterClient(p, twoWay, !twoWay && f.proves(p))
	begins := f.state == opening || f.state == udpOpening
	if !twoWay && !f.nat && state != f.state {
		if begins {
			f.described, f.seq = true, p.seq
		}
		if begins || state == timeWait {
			f.ack = p.ack
		}
	}
	m.touch(f, state)
}

// proves reports whether a packet has its connection's own numbers.
func (f *flow) proves(p *packet) bool {
	switch {
	case f.nat || f.state == opening || f.state == udpOpening || f.state == answered:
		return false
	case p.Proto == wire.SCTP:
		return p.seq == f.seq
	}
	return p.seq-f.seq < sentMost && p.ack-f.ack < receivedMost
}

// afterClient is a flow's state after a client's packet.
func (f *flow) afterClient(p *packet, twoWay, proven bool) uint8 {
	switch {
	case p.Proto == wire.UDP && twoWay:
		return f.state
	case p.Proto == wire.UDP:
		return udp
	case p.flags&finishes != 0:
		return f.afterEnd(p.flags&resets != 0, twoWay, proven)
	case p.flags&continues == 0: // a SYN: its backend decides
		return f.state
	}
	switch f.state {
	case opening:
		if twoWay {
			return opening
		}
		return established
	case answered, clientReset:
		return established
	case finishing:
		if p.payload {
			return established
		}
	case timeWait:
		if more := p.ack - f.ack; !twoWay && !f.nat && more > 1 && more < 1<<31 {
			return finishing
		}
	}
	return f.state
}

// afterEnd is the state after a client's FIN or reset.
func (f *flow) afterEnd(isReset, twoWay, proven bool) uint8 {
	switch f.state {
	case closed:
		return closed
	case opening:
		if isReset || twoWay {
			return opening
		}
		return finishing
	case answered:
		if isReset {
			return answered
		}
		return finishing
	case serverFin:
		return timeWait
	case timeWait:
		if isReset && proven {
			return closed
		}
		return timeWait
	}
	switch {
	case proven && isReset:
		return closed
	case proven:
		return timeWait
	case isReset && f.state != finishing:
		return clientReset
	}
	return finishing
}

// came records a backend's packet of a flow.
func (m *model) came(f *flow, p *packet) {
	if f.steady(p, false) {
		m.touch(f, f.state)
		return
	}
	m.touch(f, f.afterServer(p))
}

// afterServer is the state after a backend's packet.
func (f *flow) afterServer(p *packet) uint8 {
	isOver := f.state == closed || f.state == timeWait
	switch {
	case p.Proto == wire.UDP:
		return udp
	case p.flags&resets != 0:
		// A reset without ACK answers an ACK, which may be forged.
		if (f.state == opening || f.state == answered) && p.flags&continues == 0 {
			return f.state
		}
		return closed
	case p.flags&finishes != 0:
		switch {
		case f.state == closed:
			return closed
		case isOver || f.state == finishing || f.state == clientReset:
			return timeWait
		}
		return serverFin
	case p.flags&continues == 0: // a SYN-ACK: it has no older connection
		if isOver || f.state == established {
			return f.state
		}
		return answered
	case f.state == opening:
		return answered
	}
	return f.state
}

// touch records a packet, after which a flow is in a state.
func (m *model) touch(f *flow, state uint8) {
	expires := m.now() + lives[state]
	if state == f.state && expires-f.expires < renew {
		return
	}
	m.saw.Saw(uint64(f.state)<<8 | uint64(state) | 1<<20)
	was := f.weighs()
	f.state, f.expires = state, expires
	if is := f.weighs(); is != was && m.alive(f) != nil {
		m.addConnections(f.server, was, -1)
		m.addConnections(f.server, is, 1)
	}
}
