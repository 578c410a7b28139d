package bgp

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/advertise/bgp/internal/session"
	"github.com/fairlead/fairlead/core/route"
)

// A route that is added or removed at the moment in which another session comes up must
// not be lost.
func TestChangeWhileSessionComesUp(t *testing.T) {
	const port = 20185
	startReflector(t, port)
	s := startSpeaker(t, "127.21.1.1", port)
	if err := s.AwaitEstablished(context.Background()); err != nil {
		t.Fatal(err)
	}
	states := [][]route.Route{nil, {routeVia(service, "10.0.0.105"), routeVia(service6, "fd00::105")}}
	for i := range 120 {
		r, err := NewRouter(RouterConfig{AS: testAS, LocalAddress: routerAddr, Peers: []PeerConfig{{Address: reflectorAddr, Port: port}}},
			func([]advertise.RouteSet) {})
		if err != nil {
			t.Fatal(err)
		}
		for r.Peers()[0].State == session.Connect {
			time.Sleep(50 * time.Microsecond)
		}
		time.Sleep(rand.N(3 * time.Millisecond))
		want := states[i%2]
		if err := s.Set(want); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		if err := r.AwaitEstablished(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
		deadline := time.Now().Add(10 * time.Second)
		for {
			if rs, _ := r.Routes(); len(rs) == len(want) {
				break
			}
			if time.Now().After(deadline) {
				rs, _ := r.Routes()
				t.Fatalf("round %d: the router has %q, announced is %v", i, show(rs), want)
			}
			time.Sleep(time.Millisecond)
		}
		r.Close()
	}
}
