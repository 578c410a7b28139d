package pktgen

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/pktdump"
	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
)

// FuzzPacket checks that a description is rejected with its field, or becomes a frame that
// an independent decoder accepts, with the described length.
func FuzzPacket(f *testing.F) {
	for _, p := range []Packet{
		{From: client4, To: vip4, Protocol: "tcp", Flags: []string{"SYN"}, VLAN: 12}, {From: client6, To: vip6, Protocol: "udp", Payload: 10},
		{From: client4, To: vip4, Protocol: "udp", Fragment: true, More: true, Payload: 8}, {From: client6, To: vip6, Protocol: "icmp", ICMP: "too-big"},
		{From: client4, To: vip4, Protocol: "sctp", Opens: true, TTL: 255}, {From: client4, To: vip4, Protocol: "icmp", ICMP: "echo", Payload: maxPayload},
		{From: client4, To: vip6, Protocol: "tcp", Payload: -1}, {From: client6, To: vip6, Protocol: "udp", Fragment: true, Offset: 65528, Payload: 9},
	} {
		text, err := json.Marshal(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		fuzzlimit.Time(t)
		var p Packet
		if json.Unmarshal(text, &p) != nil {
			return
		}
		frame, err := p.Frame()
		if err != nil {
			if field, _, ok := strings.Cut(err.Error(), ":"); !ok || field == "" {
				t.Errorf("%+v: %v names no field", p, err)
			}
			return
		}
		if len(frame) < 14+20 || len(frame) > 14+4+40+65535 {
			t.Errorf("%+v has %d bytes", p, len(frame))
		}
		if line := pktdump.Line(frame); strings.Contains(line, "cannot be read") {
			t.Errorf("%+v is %s", p, line)
		}
	})
}
