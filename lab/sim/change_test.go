package sim

import (
	"errors"
	"testing"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/sim/stochastic"
	"github.com/fairlead/fairlead/lab/sim/traffic"
)

// square has two paths from a client to a server, through one router each. The path
// through the first router was created first.
func square(t *testing.T, load traffic.Load) (n *Net[Nanoseconds], client, web Node, routers [2]Node, lines []Line) {
	t.Helper()
	n = New[Nanoseconds](Config{})
	routers[0], routers[1] = n.Router("a", 1), n.Router("b", 1)
	web = n.Server(Server{Name: "web"})
	client = n.Client(Client{Name: "client", To: web, Load: load})
	for _, r := range routers {
		lines = append(lines, n.Link(client, r, 1e9, 1e-3, 0), n.Link(r, web, 1e9, 1e-3, 0))
	}
	return n, client, web, routers, lines
}

func every(seconds float64) traffic.Load { return traffic.Steady(seconds, stochastic.Always(0)) }

// TestCutLine checks that packets sent on a cut line are lost until traffic is rerouted,
// or the line is restored.
func TestCutLine(t *testing.T) {
	n, client, web, routers, lines := square(t, every(0.1))
	n.Do(1.05, func() error { return n.Cut(lines[1]) })
	runTo(t, n, 2.01) // the requests from 1.1 to 2.0 s are lost
	if c := n.At(routers[0]); c.Cut != 10 || n.At(web).Got != 11 {
		t.Errorf("router has %+v, server %+v", c, n.At(web))
	}
	n.Do(2.05, n.Reroute)
	runTo(t, n, 3.01)
	if n.At(client).Got != 21 || n.At(routers[0]).Cut != 10 {
		t.Errorf("client has %+v: want ten more by the other way", n.At(client))
	}
	n.Do(3.05, func() error { return n.Cut(lines[3]) })
	n.Do(3.06, n.Reroute)
	runTo(t, n, 4.01)
	if c := n.At(client); c.Unserved != 10 {
		t.Errorf("client has %+v: want ten without any way", c)
	}
	n.Do(4.05, func() error { return n.Restore(lines[1]) })
	n.Do(4.06, n.Reroute)
	runTo(t, n, 5.01)
	if c := n.At(client); c.Got != 31 {
		t.Errorf("client has %+v: want ten more", c)
	}
	for want, err := range map[string]error{"line 3: is cut already": n.Cut(lines[3]), "line 1: is not cut": n.Restore(lines[1])} {
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestCutLosesQueuedPackets checks that queued packets are lost, packets in flight are not,
// and a line restored within a packet's transmission time still sends packets one after
// the other.
func TestCutLosesQueuedPackets(t *testing.T) {
	n := New[Nanoseconds](Config{})
	web := n.Server(Server{Name: "web"})
	c := n.Client(Client{Name: "client", To: web, Load: atTimes(0, 0, 0, 2000, 2000)})
	line := n.Link(c, web, 1e9, 10e-6, 0) // 4,000 ns per packet
	n.Do(1000e-9, func() error { return n.Cut(line) })
	n.Do(1500e-9, func() error { return n.Restore(line) })
	gets(t, n, web, 14000, 1)
	gets(t, n, web, 2000+14000, 2)
	gets(t, n, web, 6000+14000, 3)
	if got := n.At(c); got.Cut != 2 {
		t.Errorf("client has %+v, want two lost", got)
	}
	checkBooks(t, n)
}

// TestDeadRouter checks that a dead router drops what it receives.
func TestDeadRouter(t *testing.T) {
	n, client, _, routers, _ := square(t, every(0.1))
	n.Do(0.55, func() error { return n.Kill(routers[0]) })
	n.Do(1.05, n.Reroute)
	n.Do(1.55, func() error { return n.Revive(routers[0]) })
	n.Do(1.56, n.Reroute)
	runTo(t, n, 2.01)
	if c := n.At(routers[0]); c.Dead != 5 || n.At(client).Got != 16 {
		t.Errorf("router has %+v, client %+v", c, n.At(client))
	}
}

// TestFailedChangeEndsTheRun checks that the run returns the error of a change.
func TestFailedChangeEndsTheRun(t *testing.T) {
	n, client, _, _, _ := square(t, every(0.1))
	wrong := errors.New("no")
	n.Do(0.55, func() error { return wrong })
	if err := n.Run(1); !errors.Is(err, wrong) || n.At(client).Sent != 6 {
		t.Errorf("%v, %+v", err, n.At(client))
	}
	if err := n.Run(2); !errors.Is(err, wrong) || n.At(client).Sent != 6 {
		t.Errorf("it continued: %v, %+v", err, n.At(client))
	}
}

// TestBalancerRestarts checks that a restarted load balancer has lost its flow
// table, and selects like the others.
func TestBalancerRestarts(t *testing.T) {
	for survival, breaks := range map[service.Survival]bool{service.FlowTable: true, service.SecondChance: false} {
		s := newSite(t, 1, 4, Balancer{Method: service.DR, Scheduler: service.Maglev, Survival: survival}, Modulo, 50)
		lb := s.balancers[0]
		if err := s.SetServers(lb, s.weighted[:3]); err != nil {
			t.Fatal(err)
		}
		s.Do(15, func() error { return s.SetServers(lb, s.weighted) })
		s.Do(20, func() error { return s.Kill(lb) })
		s.Do(20.2, func() error { return s.Revive(lb) })
		runTo(t, s.Net, 40)
		if c := s.At(s.users); (c.Broken > 0) != breaks || c.TimedOut > 0 || s.At(lb).Dead == 0 {
			t.Errorf("%s: users have %+v", survival, c)
		}
	}
}
