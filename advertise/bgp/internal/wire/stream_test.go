package wire

import (
	"bytes"
	"io"
	"slices"
	"testing"
	"testing/iotest"

	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/fairlead/fairlead/lab/testkit/rawbgp"
)

// Long messages are read only if both sides support them, and OPEN never is one.
func TestLengthOfMessages(t *testing.T) {
	for _, c := range []struct {
		typ      uint8
		body     int
		extended bool
		ok       bool
	}{
		{pkt.BGP_MSG_UPDATE, 4096 - 19, false, true},
		{pkt.BGP_MSG_UPDATE, 4097 - 19, false, false},
		{pkt.BGP_MSG_UPDATE, 65535 - 19, true, true},
		{pkt.BGP_MSG_OPEN, 4096 - 19, true, true},
		{pkt.BGP_MSG_OPEN, 4097 - 19, true, false},
	} {
		r := NewReader(bytes.NewReader(rawbgp.Message(c.typ, make([]byte, c.body))))
		r.Extended = c.extended
		typ, body, err := r.Next()
		code, sub, _ := ErrorCode(err)
		if c.ok != (err == nil && typ == c.typ && len(body) == c.body) || !c.ok && (code != 1 || sub != 2) {
			t.Errorf("%+v: %d bytes of type %d, %v", c, len(body), typ, err)
		}
	}
}

// A stream is split into the same messages however it is fragmented, and an incomplete one is
// no message.
func TestFragments(t *testing.T) {
	all := slices.Concat(rawbgp.Keepalive(), rawbgp.Message(pkt.BGP_MSG_NOTIFICATION, []byte{6, 2}), rawbgp.Keepalive()[:18])
	r := NewReader(iotest.OneByteReader(bytes.NewReader(all)))
	for _, want := range []uint8{pkt.BGP_MSG_KEEPALIVE, pkt.BGP_MSG_NOTIFICATION} {
		if typ, _, err := r.Next(); typ != want || err != nil {
			t.Errorf("type %d, %v; want %d", typ, err, want)
		}
	}
	if _, _, err := r.Next(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}
