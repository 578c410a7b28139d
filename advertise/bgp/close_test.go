package bgp

import (
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead/fairlead/advertise/bgp/internal/session"
)

// A speaker that is closed at the moment in which its connection is established must not
// crash its process, or keep it waiting.
func TestCloseWhileConnecting(t *testing.T) {
	const port = 20190
	startReflector(t, port)
	for range 150 {
		s, err := NewSpeaker(SpeakerConfig{AS: testAS, LocalAddress: netip.MustParseAddr("127.21.1.9"),
			Peers: []PeerConfig{{Address: reflectorAddr, Port: port}}})
		if err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(20 * time.Second); s.Peers()[0].State == session.Connect; {
			if time.Now().After(deadline) {
				t.Fatalf("it never connects: %+v", s.Peers())
			}
			time.Sleep(20 * time.Microsecond)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
