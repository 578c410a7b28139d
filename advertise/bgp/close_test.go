package bgp

import (
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead/fairlead/advertise/bfd"
)

// A speaker that is closed at the moment in which its connection is established must not
// crash its process (engine.go describes how gobgp would).
func TestCloseWhileConnecting(t *testing.T) {
	const port = 20190
	startReflector(t, port)
	for range 150 {
		s, err := NewSpeaker(SpeakerConfig{AS: testAS, LocalAddress: netip.MustParseAddr("127.21.1.9"),
			Peers: []PeerConfig{{Address: reflectorAddr, Port: port}}})
		if err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(20 * time.Second); s.Peers()[0].State == stateConnect; {
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

// A session that comes up at the moment in which its speaker is closed must not keep the
// BFD ports, because the next speaker in this process needs them.
func TestCloseBeforeBFD(t *testing.T) {
	s := startSpeaker(t, "127.21.1.9", 20191)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	late := &tap{local: netip.MustParseAddr("127.21.1.9"), peer: reflectorAddr, group: &group{bfd: true}}
	s.e.watch(late)
	free, err := bfd.Listen(late.local)
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
}
