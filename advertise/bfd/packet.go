package bfd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// State is a session state (RFC 5880, section 4.1).
type State uint8

// Session states, with the values of the wire format.
const (
	AdminDown State = iota
	Down
	Init
	Up
)

func (s State) String() string {
	return [...]string{"admin-down", "down", "init", "up"}[s&3]
}

// Diagnostic codes (RFC 5880, section 4.1) that we send.
const (
	diagNone           = 0
	diagExpired        = 1
	diagNeighborDown   = 3
	diagAdministrative = 7
)

// packetSize is the size of a control packet without authentication, in bytes.
const packetSize = 24

const (
	flagMultipoint     = 1 << 0
	flagAuthentication = 1 << 2
	flagFinal          = 1 << 4
	flagPoll           = 1 << 5
)

// packet is a BFD control packet without authentication.
type packet struct {
	diag         uint8
	state        State
	poll, final  bool
	detectMult   uint8
	my, your     uint32
	desiredMinTx time.Duration
	requiredRx   time.Duration
}

func (p packet) marshal() []byte {
	b := make([]byte, packetSize)
	b[0] = 1<<5 | p.diag&0x1f
	b[1] = byte(p.state) << 6
	if p.poll {
		b[1] |= flagPoll
	}
	if p.final {
		b[1] |= flagFinal
	}
	b[2], b[3] = p.detectMult, packetSize
	binary.BigEndian.PutUint32(b[4:], p.my)
	binary.BigEndian.PutUint32(b[8:], p.your)
	binary.BigEndian.PutUint32(b[12:], uint32(p.desiredMinTx.Microseconds()))
	binary.BigEndian.PutUint32(b[16:], uint32(p.requiredRx.Microseconds()))
	return b
}

// parse parses a control packet and rejects what must be discarded before a session is
// looked up according to RFC 5880, section 6.8.6.
func parse(b []byte) (packet, error) {
	if len(b) < packetSize {
		return packet{}, fmt.Errorf("%d bytes, a control packet has at least %d", len(b), packetSize)
	}
	if v := b[0] >> 5; v != 1 {
		return packet{}, fmt.Errorf("version %d, only 1 is known", v)
	}
	if l := int(b[3]); l < packetSize || l > len(b) {
		return packet{}, fmt.Errorf("length field is %d, the packet has %d bytes", l, len(b))
	}
	p := packet{
		diag:         b[0] & 0x1f,
		state:        State(b[1] >> 6),
		poll:         b[1]&flagPoll != 0,
		final:        b[1]&flagFinal != 0,
		detectMult:   b[2],
		my:           binary.BigEndian.Uint32(b[4:]),
		your:         binary.BigEndian.Uint32(b[8:]),
		desiredMinTx: time.Duration(binary.BigEndian.Uint32(b[12:])) * time.Microsecond,
		requiredRx:   time.Duration(binary.BigEndian.Uint32(b[16:])) * time.Microsecond,
	}
	switch {
	case b[1]&flagAuthentication != 0:
		return packet{}, errors.New("authenticated, but no key is configured")
	case b[1]&flagMultipoint != 0:
		return packet{}, errors.New("multipoint bit set")
	case p.detectMult == 0:
		return packet{}, errors.New("detection multiplier 0")
	case p.my == 0:
		return packet{}, errors.New("discriminator 0")
	case p.your == 0 && p.state > Down:
		return packet{}, fmt.Errorf("state %s without the local discriminator", p.state)
	}
	return p, nil
}
