package sim

import (
	"slices"
	"testing"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/sim/stochastic"
	"github.com/fairlead/fairlead/lab/sim/traffic"
)

// direct is a client with connections to a server at the end of a line with 1 Gbit/s and
// 10 us delay: 40 bytes arrive after 10,320 ns, 500 bytes after 14,000 ns.
func direct(t *testing.T, s Server, c Connections) (n *Net[Nanoseconds], client, server Node, line Line, took *[]float64) {
	t.Helper()
	n = New[Nanoseconds](Config{})
	took = &[]float64{}
	server = n.Server(s)
	c.To = server
	c.Done = func(seconds float64) { *took = append(*took, seconds) }
	client = n.Connections(c)
	line = n.Link(client, server, 1e9, 10e-6, 0)
	return n, client, server, line, took
}

func runTo(t *testing.T, n *Net[Nanoseconds], seconds float64) {
	t.Helper()
	if err := n.Run(seconds); err != nil {
		t.Fatal(err)
	}
	checkBooks(t, n)
}

// checkBooks checks that every packet is consumed, lost or in flight, and that without a
// shared medium every loss has its reason at a node.
func checkBooks[T Time](t *testing.T, n *Net[T]) {
	t.Helper()
	b := n.Balance()
	if b.Made+b.Copied != b.Consumed+b.Lost+b.InFlight {
		t.Errorf("packets got lost in the books: %+v", b)
	}
	var lost uint64
	for i := range n.nodes {
		lost += n.nodes[i].Lost()
	}
	if len(n.lans) == 0 && lost != b.Lost {
		t.Errorf("%d packets are lost, of %d it is known why", b.Lost, lost)
	}
}

// TestConnectionTakesThreeRoundTrips: SYN and its reply take 2 x 10,320 ns, request and
// reply 2 x 14,000 ns, FIN the same as the SYN, and the service 1 ms.
func TestConnectionTakesThreeRoundTrips(t *testing.T) {
	n, client, server, _, took := direct(t, Server{Name: "web", Takes: stochastic.Always(1e-3)}, Connections{Name: "users", Load: atTimes(0)})
	const answer = 20640 + 28000 + 1e6
	gets(t, n, client, answer, 2)
	gets(t, n, client, answer+20640, 3)
	if want := []float64{answer / 1e9}; !slices.Equal(*took, want) {
		t.Errorf("took %v, want %v", *took, want)
	}
	runTo(t, n, 100)
	if c := n.At(client); (c.Connected != Connected{Opened: 1, Closed: 1, Answers: 1}) || c.Sent != 3 {
		t.Errorf("client has %+v", c)
	}
	if c := n.At(server); c.Got != 3 || c.Sent != 3 || n.nodes[server].server.known.has(0) {
		t.Errorf("server has %+v, or knows the connection still", c)
	}
}

// TestAnAnswerComesInWindows: 25 packets come in windows of 10. The last of ten comes
// nine times 4,000 ns after the first, and then 40 bytes request more.
func TestAnAnswerComesInWindows(t *testing.T) {
	n, client, _, _, took := direct(t, Server{Name: "web"}, Connections{Name: "users", Load: traffic.Replay([]traffic.Record{{Size: 24*500 + 1}})})
	runTo(t, n, 1)
	const want = 20640 + (14000 + 14000 + 9*4000) + (10320 + 14000 + 9*4000) + (10320 + 14000 + 4*4000)
	if len(*took) != 1 || int((*took)[0]*1e9+0.5) != want {
		t.Errorf("took %v s, want %d ns", *took, want)
	}
	if c := n.At(client); c.Got != 27 || c.Retried != 0 {
		t.Errorf("client has %+v", c)
	}
}

// TestRequestsFollowEachOther checks several requests on one connection, with a pause
// before each.
func TestRequestsFollowEachOther(t *testing.T) {
	n, client, _, _, took := direct(t, Server{Name: "web"},
		Connections{Name: "users", Load: atTimes(0), Requests: 3, Think: stochastic.Always(1)})
	runTo(t, n, 1.9)
	if c := n.At(client).Connected; c.Answers != 2 || c.Closed != 0 {
		t.Errorf("after 1.9 s client has %+v", c)
	}
	runTo(t, n, 3)
	if c := n.At(client).Connected; (c != Connected{Opened: 1, Closed: 1, Answers: 3}) || (*took)[2] != 28e-6 {
		t.Errorf("client has %+v, took %v", c, *took)
	}
}

// TestRetriesBackOff: with the line cut, a SYN is sent at 0, 1, 3, 7 and 15 s, and given
// up at 31 s.
func TestRetriesBackOff(t *testing.T) {
	n, client, _, line, _ := direct(t, Server{Name: "web"}, Connections{Name: "users", Load: atTimes(1), Retries: 4})
	n.Do(0, func() error { return n.Cut(line) })
	for _, c := range []struct{ at, sent float64 }{{0.9, 1}, {1.1, 2}, {2.9, 2}, {3.1, 3}, {6.9, 3}, {7.1, 4}, {14.9, 4}, {15.1, 5}, {30.9, 5}} {
		runTo(t, n, c.at)
		if got := n.At(client); got.Sent != uint64(c.sent) || got.Cut != got.Sent || got.TimedOut != 0 {
			t.Errorf("at %g s client has %+v, want %g sent", c.at, got, c.sent)
		}
	}
	runTo(t, n, 40)
	if got := n.At(client).Connected; (got != Connected{Opened: 1, TimedOut: 1, Retried: 4}) {
		t.Errorf("in the end client has %+v", got)
	}
}

// TestLostSegmentIsRetransmitted: a queue of 5 drops five of ten packets. After a second,
// the rest is requested from the first missing packet on.
func TestLostSegmentIsRetransmitted(t *testing.T) {
	n := New[Nanoseconds](Config{})
	web := n.Server(Server{Name: "web"})
	users := n.Connections(Connections{Name: "users", To: web, Load: traffic.Replay([]traffic.Record{{Size: 5000}})})
	n.Link(users, web, 1e9, 10e-6, 5)
	runTo(t, n, 0.5)
	if c := n.At(users); c.Got != 6 || c.Answers != 0 || n.At(web).Dropped != 5 {
		t.Errorf("client has %+v, server %+v: want SYN's answer and five parts, five dropped", c, n.At(web))
	}
	runTo(t, n, 2)
	if c := n.At(users).Connected; (c != Connected{Opened: 1, Closed: 1, Answers: 1, Retried: 1}) {
		t.Errorf("client has %+v", c)
	}
}

// TestRequestIsServedOnce checks this although the client retransmits the request while
// it is being served.
func TestRequestIsServedOnce(t *testing.T) {
	n, client, server, _, _ := direct(t, Server{Name: "web", Takes: stochastic.Always(2.5)}, Connections{Name: "users", Load: atTimes(0)})
	runTo(t, n, 10)
	if c := n.At(client).Connected; (c != Connected{Opened: 1, Closed: 1, Answers: 1, Retried: 1}) || n.At(server).Sent != 3 {
		t.Errorf("client has %+v, server %+v", c, n.At(server))
	}
}

// TestDroppedRequestIsRetransmitted: a request that is dropped because the queue is full is
// retransmitted.
func TestDroppedRequestIsRetransmitted(t *testing.T) {
	n, client, server, _, _ := direct(t, Server{Name: "web", Takes: stochastic.Always(0.4), Queue: 1}, Connections{Name: "users", Load: atTimes(0, 0, 0)})
	runTo(t, n, 10)
	if c := n.At(client).Connected; (c != Connected{Opened: 3, Closed: 3, Answers: 3, Retried: 1}) || n.At(server).Dropped != 1 {
		t.Errorf("client has %+v, server %+v", c, n.At(server))
	}
}

// TestRestartedServerResets: the server is restarted between two requests.
func TestRestartedServerResets(t *testing.T) {
	n, client, server, _, _ := direct(t, Server{Name: "web"}, Connections{Name: "users", Load: atTimes(0), Requests: 2, Think: stochastic.Always(1)})
	n.Do(0.4, func() error { return n.Kill(server) })
	n.Do(0.6, func() error { return n.Revive(server) })
	runTo(t, n, 3)
	if c := n.At(client).Connected; (c != Connected{Opened: 1, Answers: 1, Broken: 1}) {
		t.Errorf("client has %+v", c)
	}
}

// TestDeadServerLosesQueuedRequests checks that requests being served and queued requests
// are lost.
func TestDeadServerLosesQueuedRequests(t *testing.T) {
	n, client, server, _, _ := direct(t, Server{Name: "web", Takes: stochastic.Always(0.2)}, Connections{Name: "users", Load: atTimes(0, 0), Retries: -1})
	n.Do(0.1, func() error { return n.Kill(server) })
	n.Do(0.15, func() error { return n.Revive(server) })
	runTo(t, n, 5)
	if c := n.At(server); c.Dead != 2 || c.Sent != 2 {
		t.Errorf("server has %+v, want two requests lost and two SYNs answered", c)
	}
	if c := n.At(client).Connected; (c != Connected{Opened: 2, TimedOut: 2}) {
		t.Errorf("client has %+v", c)
	}
}

// TestPortsRest checks that a port is not used for a minute, and then used again.
func TestPortsRest(t *testing.T) {
	n, client, _, _, _ := direct(t, Server{Name: "web"}, Connections{Name: "users", Load: traffic.Steady(1, stochastic.Always(1))})
	runTo(t, n, 200)
	if c := n.At(client).Connected; c.Closed != 200 || len(n.nodes[client].flows) != 61 {
		t.Errorf("client has %+v with %d flows, want one a second for a minute", c, len(n.nodes[client].flows))
	}
}

// site is a VIP on load balancers behind a router, and servers, all on one switch.
type site struct {
	*Net[Nanoseconds]
	t                    *testing.T
	router, vip, users   Node
	balancers, servers   []Node
	ports                []Line
	weighted, ofBalancer []Weighted
}

// newSite creates users with long connections: ten requests, one per second.
func newSite(t *testing.T, balancers, servers int, b Balancer, d Division, rate float64) *site {
	t.Helper()
	s := &site{Net: New[Nanoseconds](Config{}), t: t}
	s.vip, s.router = s.VIP("vip"), s.Router("router", 7)
	ports := []Port{{s.router, 10e9, 10000}}
	for range servers {
		id := s.Server(Server{Name: "web"})
		s.servers, s.weighted = append(s.servers, id), append(s.weighted, Weighted{Node: id})
		ports = append(ports, Port{id, 1e9, 1000})
	}
	b.Name, b.Serves, b.Servers = "lb", []Node{s.vip}, s.weighted
	for range balancers {
		id, err := s.Balancer(b)
		if err != nil {
			t.Fatal(err)
		}
		s.balancers, s.ofBalancer = append(s.balancers, id), append(s.ofBalancer, Weighted{Node: id})
		ports = append(ports, Port{id, 10e9, 10000})
	}
	_, s.ports = s.SwitchedLAN("switch", 1e-6, ports)
	if err := s.Route(s.router, s.vip, Group{Division: d, Hops: s.ofBalancer}); err != nil {
		t.Fatal(err)
	}
	s.users = s.Connections(Connections{Name: "users", To: s.vip, Load: traffic.Poisson(rate, nil), Requests: 10, Think: stochastic.Always(1)})
	s.Link(s.users, s.router, 10e9, 1e-3, 10000)
	return s
}

func (s *site) broken() uint64 { return s.At(s.users).Broken }

// TestSurvival checks which changes of servers and load balancers break connections in
// each consistency mode: some with hash-only, none with second chance. A flow table
// survives a change of servers, but with modulo hashing no change of load balancers.
func TestSurvival(t *testing.T) {
	for _, c := range []struct {
		name              string
		survival          service.Survival
		division          Division
		servers, balances bool // whether one joins
		breaks            bool
	}{
		{"ring alone, server joins", service.HashOnly, Modulo, true, false, true},
		{"ring alone, balancer joins", service.HashOnly, Modulo, false, true, false},
		{"second chance, both", service.SecondChance, Modulo, true, true, false},
		{"flow table, server joins", service.FlowTable, Modulo, true, false, false},
		{"flow table, both, modulo", service.FlowTable, Modulo, true, true, true},
		{"flow table, both, threshold", service.FlowTable, Threshold, true, true, true},
		{"flow table, both, resilient", service.FlowTable, Resilient, true, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSite(t, 4, 8, Balancer{Method: service.Tunnel, Scheduler: service.Maglev, Survival: c.survival}, c.division, 100)
			if c.servers {
				for _, b := range s.balancers {
					if err := s.SetServers(b, s.weighted[:7]); err != nil {
						t.Fatal(err)
					}
					s.Do(20, func() error { return s.SetServers(b, s.weighted) })
				}
			}
			if c.balances {
				if err := s.SetHops(s.router, s.vip, s.ofBalancer[:3]); err != nil {
					t.Fatal(err)
				}
				s.Do(25, func() error { return s.SetHops(s.router, s.vip, s.ofBalancer) })
			}
			runTo(t, s.Net, 40)
			if got := s.broken(); (got > 0) != c.breaks {
				t.Errorf("%d of %d connections broke", got, s.At(s.users).Opened)
			}
			if c := s.At(s.users); c.TimedOut > 0 || c.Closed < 2500 {
				t.Errorf("users have %+v", c)
			}
		})
	}
}

// TestDrainedServerKeepsConnections checks that it does, and gets no others, in each
// mode that guarantees this.
func TestDrainedServerKeepsConnections(t *testing.T) {
	for _, survival := range []service.Survival{service.SecondChance, service.FlowTable} {
		s := newSite(t, 2, 4, Balancer{Method: service.DR, Scheduler: service.Maglev, Survival: survival}, Resilient, 50)
		drained := append([]Weighted{{Node: s.servers[0], Draining: true}}, s.weighted[1:]...)
		for _, b := range s.balancers {
			s.Do(20, func() error { return s.SetServers(b, drained) })
			s.Do(32, func() error { return s.SetServers(b, s.weighted[1:]) })
		}
		runTo(t, s.Net, 31.5)
		before := s.At(s.servers[0]).Sent
		runTo(t, s.Net, 50)
		if got := s.At(s.servers[0]).Sent; s.broken() > 0 || got != before || before == 0 {
			t.Errorf("%s: %d broken; the server sent %d packets, after its last connection %d more", survival, s.broken(), before, got-before)
		}
	}
}

// TestDeadServer checks that it breaks only its own connections.
func TestDeadServer(t *testing.T) {
	s := newSite(t, 2, 4, Balancer{Method: service.DSRNAT, Scheduler: service.Maglev, Survival: service.SecondChance}, Resilient, 50)
	s.Do(20, func() error { return s.Kill(s.servers[0]) })
	for _, b := range s.balancers {
		s.Do(20.5, func() error { return s.SetServers(b, s.weighted[1:]) })
	}
	runTo(t, s.Net, 60)
	c := s.At(s.users)
	if part := float64(c.Broken) / (50 * 9); part < 0.1 || part > 0.4 || c.TimedOut > 0 {
		t.Errorf("%+v: want about a quarter of those that were open broken", c)
	}
}

// TestDeadBalancer checks that without flow tracking its failure breaks nothing once its
// routes are withdrawn.
func TestDeadBalancer(t *testing.T) {
	s := newSite(t, 4, 4, Balancer{Method: service.DR, Scheduler: service.Maglev, Survival: service.SecondChance}, Resilient, 50)
	s.Do(20, func() error { return s.Kill(s.balancers[2]) })
	s.Do(20.3, func() error {
		return s.SetHops(s.router, s.vip, append(s.ofBalancer[:2:2], s.ofBalancer[3]))
	})
	runTo(t, s.Net, 60)
	if c := s.At(s.users); c.Broken+c.TimedOut > 0 || c.Retried == 0 || s.At(s.balancers[2]).Dead == 0 {
		t.Errorf("users have %+v", c)
	}
}
