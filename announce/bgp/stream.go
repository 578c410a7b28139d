package bgp

import (
	"encoding/binary"

	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// scanner cuts a stream into BGP messages, however it was chopped. Bodies of
// updates are kept only where they are asked for.
type scanner struct {
	message func(typ uint8, body []byte)
	updates bool
	head    []byte
	body    []byte
	left    int
	keep    bool
}

func (s *scanner) feed(b []byte) {
	for len(b) > 0 {
		if len(s.head) < pkt.BGP_HEADER_LENGTH {
			n := min(pkt.BGP_HEADER_LENGTH-len(s.head), len(b))
			s.head, b = append(s.head, b[:n]...), b[n:]
			if len(s.head) < pkt.BGP_HEADER_LENGTH {
				return
			}
			s.left = bodyLength(s.head)
			s.keep = s.head[18] != pkt.BGP_MSG_UPDATE || s.updates
		}
		n := min(s.left, len(b))
		if s.keep {
			s.body = append(s.body, b[:n]...)
		}
		s.left -= n
		b = b[n:]
		if s.left == 0 {
			s.message(s.head[18], s.body)
			s.head, s.body = s.head[:0], s.body[:0]
		}
	}
}

// bodyLength reads how long the body behind a header is (RFC 4271, section 4.1).
func bodyLength(head []byte) int {
	return max(int(binary.BigEndian.Uint16(head[16:]))-pkt.BGP_HEADER_LENGTH, 0)
}

// sieve makes keepalives of the updates in a stream. A balancer takes in no
// routes; gobgp would keep them all the same, to have them if a policy changed,
// and would fall out with a peer over one that is malformed.
type sieve struct {
	in   [4096]byte
	head []byte
	left int
	drop bool // what is left is an update's
	out  []byte
	room [4096 + pkt.BGP_HEADER_LENGTH]byte // of out
}

// read gives what passes of what is read by from.
func (s *sieve) read(b []byte, from func([]byte) (int, error)) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	for len(s.out) == 0 {
		n, err := from(s.in[:])
		s.feed(s.in[:n])
		if err != nil && len(s.out) == 0 {
			return 0, err
		}
	}
	n := copy(b, s.out)
	s.out = s.out[n:]
	return n, nil
}

func (s *sieve) feed(b []byte) {
	s.out = s.room[:0] // all of it was read
	for len(b) > 0 {
		if s.left > 0 {
			n := min(s.left, len(b))
			if !s.drop {
				s.out = append(s.out, b[:n]...)
			}
			s.left, b = s.left-n, b[n:]
			continue
		}
		n := min(pkt.BGP_HEADER_LENGTH-len(s.head), len(b))
		s.head, b = append(s.head, b[:n]...), b[n:]
		if len(s.head) < pkt.BGP_HEADER_LENGTH {
			return
		}
		s.left = bodyLength(s.head)
		if s.drop = s.head[18] == pkt.BGP_MSG_UPDATE; s.drop {
			binary.BigEndian.PutUint16(s.head[16:], pkt.BGP_HEADER_LENGTH)
			s.head[18] = pkt.BGP_MSG_KEEPALIVE
		}
		s.out = append(s.out, s.head...)
		s.head = s.head[:0]
	}
}
