// Package wire reads and writes BGP messages as bytes: it splits a stream into messages,
// counts the routes in an UPDATE, and removes what gobgp should not read, because it does
// not check it or would store it. All input comes from neighbors and may be hostile.
//
// What belongs here depends on nothing but the bytes. Which messages a session passes on,
// and what follows from them, is decided in package session. Tests are tables of bytes and
// need no socket.
package wire

import (
	"bytes"
	"encoding/binary"

	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// marker is the start of every message (RFC 4271, section 4.1).
var marker = bytes.Repeat([]byte{0xff}, 16)

// Scanner splits a stream into BGP messages, however it is fragmented. Bodies of updates
// are only retained on request.
type Scanner struct {
	// Message is called with each complete message.
	Message func(typ uint8, body []byte)
	// Updates requests the bodies of updates, too.
	Updates bool
	head    []byte
	body    []byte
	left    int
	keep    bool
}

// Feed adds what follows in the stream.
func (s *Scanner) Feed(b []byte) {
	for len(b) > 0 {
		if len(s.head) < pkt.BGP_HEADER_LENGTH {
			n := min(pkt.BGP_HEADER_LENGTH-len(s.head), len(b))
			s.head, b = append(s.head, b[:n]...), b[n:]
			if len(s.head) < pkt.BGP_HEADER_LENGTH {
				return
			}
			s.left = bodyLength(s.head)
			if !bytes.Equal(s.head[:16], marker) {
				s.left = 0 // not a message, so there is no length: the reader rejects it
			}
			s.keep = s.head[18] != pkt.BGP_MSG_UPDATE || s.Updates
		}
		n := min(s.left, len(b))
		if s.keep {
			s.body = append(s.body, b[:n]...)
		}
		s.left -= n
		b = b[n:]
		if s.left == 0 {
			s.Message(s.head[18], s.body)
			s.head, s.body = s.head[:0], s.body[:0]
		}
	}
}

// missing returns how many bytes of the current message are missing, as far as known.
func (s *Scanner) missing() int {
	if len(s.head) < pkt.BGP_HEADER_LENGTH {
		return pkt.BGP_HEADER_LENGTH - len(s.head)
	}
	return s.left
}

// bodyLength returns the length of the body after a header (RFC 4271, section 4.1).
func bodyLength(head []byte) int {
	return max(int(binary.BigEndian.Uint16(head[16:]))-pkt.BGP_HEADER_LENGTH, 0)
}

// Sieve sits between a socket and gobgp. Its Scanner's callback receives each complete
// message and decides with Pass or Put what gobgp reads instead.
type Sieve struct {
	Scanner
	in   [4096]byte
	out  []byte // not read yet
	room []byte // of out
}

// Read returns what passes of the data read by from. Without ahead, it stops at the end
// of a message, so that gobgp handles one before the next is examined.
func (s *Sieve) Read(b []byte, ahead bool, from func([]byte) (int, error)) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	for len(s.out) == 0 {
		s.out = s.room[:0]
		limit := len(s.in)
		if !ahead {
			limit = min(limit, s.missing())
		}
		n, err := from(s.in[:limit])
		s.Feed(s.in[:n])
		s.room = s.out
		if err != nil && len(s.out) == 0 {
			return 0, err
		}
	}
	n := copy(b, s.out)
	s.out = s.out[n:]
	return n, nil
}

// Pass passes the current message unchanged.
func (s *Sieve) Pass() { s.out = append(append(s.out, s.head...), s.body...) }

// Put replaces the current message for gobgp. The marker stays, because gobgp checks it.
func (s *Sieve) Put(typ uint8, body []byte) {
	s.out = append(s.out, s.head[:16]...)
	s.out = binary.BigEndian.AppendUint16(s.out, uint16(pkt.BGP_HEADER_LENGTH+len(body)))
	s.out = append(append(s.out, typ), body...)
}
