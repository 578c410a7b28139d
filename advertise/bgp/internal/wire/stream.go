// Package wire reads and writes BGP messages: it splits a stream into messages, turns an
// UPDATE into routes and back, and treats malformed ones as RFC 7606 says. All input comes
// from neighbors and may be hostile. gobgp's packet library parses and validates.
//
// What belongs here depends on nothing but the bytes. What follows from a message is
// decided in package session. Tests are tables of bytes and need no socket.
package wire

import (
	"bufio"
	"encoding/binary"
	"io"

	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// maxExtended is the maximum length of an extended message (RFC 8654).
const maxExtended = 65535

// Reader reads messages from a stream.
type Reader struct {
	// Extended permits long messages, except OPEN and KEEPALIVE.
	Extended bool
	from     *bufio.Reader
	head     [pkt.BGP_HEADER_LENGTH]byte
	body     []byte
}

// NewReader returns a reader of a stream.
func NewReader(from io.Reader) *Reader { return &Reader{from: bufio.NewReader(from)} }

// Next reads a message. The body is valid until the next call. An invalid header is a
// *pkt.MessageError with the code for a NOTIFICATION.
func (r *Reader) Next() (typ uint8, body []byte, err error) {
	if _, err := io.ReadFull(r.from, r.head[:]); err != nil {
		return 0, nil, ended(err)
	}
	var h pkt.BGPHeader
	if err := h.DecodeFromBytes(r.head[:]); err != nil {
		return 0, nil, err
	}
	most := pkt.BGP_MAX_MESSAGE_LENGTH
	if r.Extended && h.Type != pkt.BGP_MSG_OPEN && h.Type != pkt.BGP_MSG_KEEPALIVE {
		most = maxExtended
	}
	if int(h.Len) > most {
		return 0, nil, pkt.NewMessageError(pkt.BGP_ERROR_MESSAGE_HEADER_ERROR, pkt.BGP_ERROR_SUB_BAD_MESSAGE_LENGTH, nil, "message too long")
	}
	n := int(h.Len) - len(r.head)
	if cap(r.body) < n {
		r.body = make([]byte, n)
	}
	r.body = r.body[:n]
	if _, err := io.ReadFull(r.from, r.body); err != nil {
		return 0, nil, ended(err)
	}
	return h.Type, r.body, nil
}

// ended returns the end of a stream within a message as any other end.
func ended(err error) error {
	if err == io.ErrUnexpectedEOF {
		return io.EOF
	}
	return err
}

// message returns a message with a body.
func message(typ uint8, body []byte) []byte {
	m := make([]byte, 0, pkt.BGP_HEADER_LENGTH+len(body))
	for range 16 {
		m = append(m, 0xff)
	}
	m = binary.BigEndian.AppendUint16(m, uint16(pkt.BGP_HEADER_LENGTH+len(body)))
	return append(append(m, typ), body...)
}
