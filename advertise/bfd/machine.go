package bfd

import "time"

// slowInterval is the least spacing of packets while a session is not up
// (RFC 5880, section 6.8.3). Changes of state are told at once, so a session
// still comes up within a round trip.
const slowInterval = time.Second

// machine is one session's state machine (RFC 5880, section 6.8), pure: it
// has no clock and no socket.
type machine struct {
	state, remoteState State
	diag               uint8
	local, remote      uint32 // discriminators
	interval           time.Duration
	mult               uint8
	polling            bool

	remoteMinTx, remoteMinRx time.Duration
	remoteMult               uint8
}

func newMachine(discriminator uint32, interval time.Duration, mult uint8) machine {
	return machine{
		state: Down, remoteState: Down, local: discriminator,
		interval: interval, mult: mult, remoteMinRx: time.Microsecond,
	}
}

func (m *machine) desiredMinTx() time.Duration {
	if m.state != Up {
		return max(m.interval, slowInterval)
	}
	return m.interval
}

// txInterval is the spacing of our packets before jitter; 0 means that the
// other side asked for none.
func (m *machine) txInterval() time.Duration {
	if m.remoteMinRx == 0 {
		return 0
	}
	return max(m.desiredMinTx(), m.remoteMinRx)
}

// detection is how long the other side may be silent; 0 before it was heard.
func (m *machine) detection() time.Duration {
	return time.Duration(m.remoteMult) * max(m.interval, m.remoteMinTx)
}

func (m *machine) out(final bool) packet {
	return packet{
		diag: m.diag, state: m.state, poll: m.polling && !final, final: final,
		detectMult: m.mult, my: m.local, your: m.remote,
		desiredMinTx: m.desiredMinTx(), requiredRx: m.interval,
	}
}

// receive takes in a packet that belongs to this session and says whether the
// state changed.
func (m *machine) receive(p packet) (changed bool) {
	m.remote, m.remoteState = p.my, p.state
	m.remoteMinTx, m.remoteMinRx, m.remoteMult = p.desiredMinTx, p.requiredRx, p.detectMult
	if p.final {
		m.polling = false
	}
	before := m.state
	switch {
	case m.state == AdminDown:
	case p.state == AdminDown:
		if m.state != Down {
			m.down(diagNeighborDown)
		}
	case m.state == Down && p.state == Down:
		m.state = Init
	case m.state == Down && p.state == Init, m.state == Init && p.state >= Init:
		// Our interval shrinks from the slow one: RFC 5880 wants a poll.
		m.state, m.diag, m.polling = Up, diagNone, true
	case m.state == Up && p.state == Down:
		m.down(diagNeighborDown)
	}
	return m.state != before
}

// expire takes note that the other side was silent for too long.
func (m *machine) expire() { m.down(diagExpired) }

func (m *machine) down(diag uint8) {
	m.state, m.diag, m.polling = Down, diag, false
	if diag == diagExpired {
		// A silent peer's discriminator is forgotten (section 6.8.1).
		m.remote = 0
	}
}
