package model

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
func (f *Flow) steady(p *packet, twoWay bool) bool {
	switch f.State {
	case established, udp:
		return p.flags&finishes == 0
	case udpOpening:
		return twoWay && p.flags&finishes == 0
	}
	return false
}

// sent records a client's packet of a flow.
func (m *Model) sent(f *Flow, p *packet, twoWay bool) {
	if f.steady(p, twoWay) {
		m.touch(f, f.State)
		return
	}
	state := f.afterClient(p, twoWay, !twoWay && f.proves(p))
	begins := f.State == opening || f.State == udpOpening
	if !twoWay && !f.Nat && state != f.State {
		if begins {
			f.Described, f.Seq = true, p.seq
		}
		if begins || state == timeWait {
			f.Ack = p.ack
		}
	}
	m.touch(f, state)
}

// proves reports whether a packet has its connection's own numbers.
func (f *Flow) proves(p *packet) bool {
	switch {
	case f.Nat || f.State == opening || f.State == udpOpening || f.State == answered:
		return false
	case p.Proto == wire.SCTP:
		return p.seq == f.Seq
	}
	return p.seq-f.Seq < sentMost && p.ack-f.Ack < receivedMost
}

// afterClient is a flow's state after a client's packet.
func (f *Flow) afterClient(p *packet, twoWay, proven bool) uint8 {
	switch {
	case p.Proto == wire.UDP && twoWay:
		return f.State
	case p.Proto == wire.UDP:
		return udp
	case p.flags&finishes != 0:
		return f.afterEnd(p.flags&resets != 0, twoWay, proven)
	case p.flags&continues == 0: // a SYN: its backend decides
		return f.State
	}
	switch f.State {
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
		if more := p.ack - f.Ack; !twoWay && !f.Nat && more > 1 && more < 1<<31 {
			return finishing
		}
	}
	return f.State
}

// afterEnd is the state after a client's FIN or reset.
func (f *Flow) afterEnd(isReset, twoWay, proven bool) uint8 {
	switch f.State {
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
	case isReset && f.State != finishing:
		return clientReset
	}
	return finishing
}

// came records a backend's packet of a flow.
func (m *Model) came(f *Flow, p *packet) {
	if f.steady(p, false) {
		m.touch(f, f.State)
		return
	}
	m.touch(f, f.afterServer(p))
}

// afterServer is the state after a backend's packet.
func (f *Flow) afterServer(p *packet) uint8 {
	isOver := f.State == closed || f.State == timeWait
	switch {
	case p.Proto == wire.UDP:
		return udp
	case p.flags&resets != 0:
		// A reset without ACK answers an ACK, which may be forged.
		if (f.State == opening || f.State == answered) && p.flags&continues == 0 {
			return f.State
		}
		return closed
	case p.flags&finishes != 0:
		switch {
		case f.State == closed:
			return closed
		case isOver || f.State == finishing || f.State == clientReset:
			return timeWait
		}
		return serverFin
	case p.flags&continues == 0: // a SYN-ACK: it has no older connection
		if isOver || f.State == established {
			return f.State
		}
		return answered
	case f.State == opening:
		return answered
	}
	return f.State
}

// touch records a packet, after which a flow is in a state.
func (m *Model) touch(f *Flow, state uint8) {
	expires := m.now() + lives[state]
	if state == f.State && expires-f.Expires < renew {
		return
	}
	m.saw.Saw(uint64(f.State)<<8 | uint64(state) | 1<<20)
	was := f.weighs()
	f.State, f.Expires = state, expires
	if is := f.weighs(); is != was && m.alive(f) != nil {
		m.addConnections(f.Server, was, -1)
		m.addConnections(f.Server, is, 1)
	}
}
