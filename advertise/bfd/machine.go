package bfd

import "time"

// slowInterval is the minimum packet interval while a session is not up (RFC 5880,
// section 6.8.3). State changes are sent immediately, so a session still comes up within
// one round trip.
const slowInterval = time.Second

// machine is the state machine of a session (RFC 5880, section 6.8). It is pure: it has
// no clock and no socket.
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

// txInterval is the interval of our packets before jitter; 0 means that the other side
// requests none.
func (m *machine) txInterval() time.Duration {
	if m.remoteMinRx == 0 {
		return 0
	}
	return max(m.desiredMinTx(), m.remoteMinRx)
}

// detection is how long the other side may be silent; 0 before anything was received.
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

// receive processes a packet for this session and reports whether the state changed.
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
		// Our interval decreases from the slow one: RFC 5880 requires a poll.
		m.state, m.diag, m.polling = Up, diagNone, true
	case m.state == Up && p.state == Down:
		m.down(diagNeighborDown)
	}
	return m.state != before
}

// expire handles that the other side was silent for too long.
func (m *machine) expire() { m.down(diagExpired) }

func (m *machine) down(diag uint8) {
	m.state, m.diag, m.polling = Down, diag, false
	if diag == diagExpired {
		// The discriminator of a silent peer is forgotten (section 6.8.1).
		m.remote = 0
	}
}
