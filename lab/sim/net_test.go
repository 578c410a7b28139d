package sim

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/sim/stochastic"
)

// TestWhatCannotRunIsRefused checks that invalid networks are rejected by name, before
// anything happens.
func TestWhatCannotRunIsRefused(t *testing.T) {
	for want, c := range map[string]struct {
		every                float64
		toBalancer, toServer bool
	}{
		"client user: no way leads from there to lb":                   {0.001, false, true},
		"balancer lb: no way leads from there to its server web":       {0.001, true, false},
		"client user: has no span between two requests: give it Every": {0, true, true},
	} {
		n := New[Nanoseconds](Config{})
		web := n.Server(Server{Name: "web"})
		lb, err := n.Balancer(Balancer{Name: "lb", Scheduler: service.RoundRobin, Servers: []Weighted{{Node: web}}})
		if err != nil {
			t.Fatal(err)
		}
		user := n.Client(Client{Name: "user", To: lb, Every: c.every})
		if c.toBalancer {
			n.Link(user, lb, 1e7, 0.001, 0)
		}
		if c.toServer {
			n.Link(lb, web, 1e7, 0.001, 0)
		}
		if err := n.Run(1); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		if b := n.Balance(); b.Made != 0 {
			t.Errorf("%s: %d packets were sent", want, b.Made)
		}
	}
}

// TestServerHasCoresAndAQueue: of four simultaneous requests, one core serves one, one
// waits, and two are dropped.
func TestServerHasCoresAndAQueue(t *testing.T) {
	n := New[Nanoseconds](Config{Bin: 0.1})
	web := n.Server(Server{Name: "web", Cores: 1, Queue: 1, Takes: func(*stochastic.Stream) float64 { return 0.01 }})
	lb, err := n.Balancer(Balancer{Name: "lb", Scheduler: service.RoundRobin, Servers: []Weighted{{Node: web}}})
	if err != nil {
		t.Fatal(err)
	}
	var users []Node
	for range 4 {
		c := n.Client(Client{Name: "user", To: lb, Every: 1})
		n.Link(c, lb, 1e9, 0.001, 0)
		users = append(users, c)
	}
	n.Link(lb, web, 1e12, 0.001, 0)
	if err := n.Run(0.5); err != nil {
		t.Fatal(err)
	}
	if c := n.At(web); c.Got != 4 || c.Dropped != 2 || c.Sent != 2 {
		t.Errorf("the server has %+v, want 4 requests, 2 dropped, 2 replies", c)
	}
	// A round trip takes 2 x 1 ms and 2 x 4 us. The second request waits for the first.
	for i, want := range []float64{0.014, 0.024} {
		if got := n.At(users[i]).Delay; got < want || got > want+1e-4 {
			t.Errorf("client %d waited %.6f s, want %.3f", i, got, want)
		}
	}
}
