package sim

import (
	"testing"

	"github.com/fairlead/fairlead/core/ring"
	"github.com/fairlead/fairlead/core/schedule"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/sim/traffic"
)

// triangle is a client, a load balancer and a server, all connected to each other by 1
// Gbit/s lines with 10 us delay. A packet of 500 bytes arrives after 14,000 ns, one of
// 520 after 14,160 ns.
func triangle(t *testing.T, b Balancer, c Client) (n *Net[Nanoseconds], lb, web, client Node) {
	t.Helper()
	n = New[Nanoseconds](Config{})
	web = n.Server(Server{Name: "web"})
	b.Name, b.Servers = "lb", []Weighted{{Node: web}}
	lb, err := n.Balancer(b)
	if err != nil {
		t.Fatal(err)
	}
	c.Name, c.To = "client", lb
	client = n.Client(c)
	for _, ends := range [][2]Node{{client, lb}, {lb, web}, {web, client}} {
		n.Link(ends[0], ends[1], 1e9, 10e-6, 0)
	}
	return n, lb, web, client
}

// TestMethodsHaveTheirWays checks that replies come directly from the server, except with
// NAT, where they pass the load balancer, and that tunnel packets are longer on the way
// to the server.
func TestMethodsHaveTheirWays(t *testing.T) {
	for method, want := range map[service.Method]Nanoseconds{
		service.DR: 3 * 14000, service.DSRNAT: 3 * 14000, service.Tunnel: 2*14000 + 14160,
		service.NAT: 4 * 14000, service.FullNAT: 4 * 14000,
	} {
		t.Run(string(method), func(t *testing.T) {
			n, _, _, client := triangle(t, Balancer{Method: method, Scheduler: service.RoundRobin}, Client{Load: atTimes(0)})
			gets(t, n, client, want, 1)
			checkBooks(t, n)
		})
	}
}

// TestAnAnswerThatNobodyRemembers checks that the reply of an untracked flow is lost with
// NAT, and arrives otherwise.
func TestAnAnswerThatNobodyRemembers(t *testing.T) {
	for method, arrives := range map[service.Method]uint64{service.NAT: 0, service.DR: 1} {
		n, lb, web, client := triangle(t, Balancer{Method: method, Scheduler: service.RoundRobin, Timeout: 10e-6}, Client{Load: atTimes(0)})
		runTo(t, n, 1)
		if n.At(client).Got != arrives || n.At(lb).Unserved != 1-arrives || n.At(web).Sent != 1 {
			t.Errorf("%s: client has %+v, balancer %+v", method, n.At(client), n.At(lb))
		}
	}
}

// remembers checks that a load balancer tracks conns connections until the given time,
// and none afterwards.
func remembers(t *testing.T, n *Net[Nanoseconds], lb Node, conns uint32, until float64) {
	t.Helper()
	for _, c := range []struct {
		at   float64
		want uint32
	}{{until - 1e-3, conns}, {until + 1e-3, 0}} {
		runTo(t, n, c.at)
		if got := n.nodes[lb].balancer.state[0].Conns; got != c.want {
			t.Errorf("at %.4f s %d connections are remembered, want %d", c.at, got, c.want)
		}
	}
}

// TestStatesHaveTheirTimes checks the timeouts: 60 s after the last SYN, 900 s for an
// established connection, 120 s for a closed one.
func TestStatesHaveTheirTimes(t *testing.T) {
	for _, c := range []struct {
		name  string
		cut   float64 // the time at which the line to the server is cut
		until float64
	}{
		{"SYN alone", 0, 60 + 15},            // plus four retries, the last one at 15 s
		{"established", 0.00005, 900 + 15},   // plus the request's retries
		{"over", 10, 120 + 120e-6 - 25.7e-6}, // the FIN is sent at 83.3 us and arrives about 10 us later
	} {
		t.Run(c.name, func(t *testing.T) {
			n := New[Nanoseconds](Config{})
			web := n.Server(Server{Name: "web"})
			lb, err := n.Balancer(Balancer{Name: "lb", Method: service.DR, Scheduler: service.LeastConn, Servers: []Weighted{{Node: web}}})
			if err != nil {
				t.Fatal(err)
			}
			users := n.Connections(Connections{Name: "users", To: lb, Load: atTimes(1), Retries: 4})
			n.Link(users, lb, 1e9, 10e-6, 0)
			line := n.Link(lb, web, 1e9, 10e-6, 0)
			n.Do(c.cut, func() error { return n.Cut(line) })
			remembers(t, n, lb, 1, c.until)
		})
	}
}

// TestReopenedPort checks that a SYN after a connection's end is scheduled
// again, although the old flow is still tracked.
func TestReopenedPort(t *testing.T) {
	n, lb, _, client := triangle(t, Balancer{Method: service.DR, Scheduler: service.RoundRobin}, Client{Load: traffic.Replay(nil)})
	b := n.nodes[lb].balancer
	packet := func(c carries) *packet[Nanoseconds] {
		return &packet[Nanoseconds]{client: client, to: lb, via: none, carries: c}
	}
	n.remember(lb, b, packet(syn), 1)
	for _, c := range []struct {
		carries
		known bool
	}{{syn, true}, {request, true}, {syn, true}, {fin, true}, {more, true}, {syn, false}, {request, false}} {
		if got := b.by[n.nodes[client].flows[0]] != 0 && n.remembered(lb, b, packet(c.carries)) != 0; got != c.known {
			t.Errorf("packet %d is known: %v, want %v", c.carries, got, c.known)
		}
	}
	if b.state[0].Conns != 0 {
		t.Errorf("%d connections are counted", b.state[0].Conns)
	}
}

// TestChoiceIsTheProducts checks that hash-based selection matches package schedule.
func TestChoiceIsTheProducts(t *testing.T) {
	for _, survival := range []service.Survival{service.FlowTable, service.HashOnly, service.SecondChance} {
		s := newSite(t, 2, 5, Balancer{Method: service.DR, Scheduler: service.Maglev, Survival: survival, RingSize: 251}, Modulo, 100)
		var members []ring.Member
		for i, w := range s.servers {
			members = append(members, ring.Member{ID: ring.ID(i + 1), Addr: addressOf(w), Weight: 1})
		}
		slots, err := ring.Maglev(nil, 251, members)
		if err != nil {
			t.Fatal(err)
		}
		runTo(t, s.Net, 10)
		for f := range s.flows {
			want := s.servers[schedule.Maglev(slots, s.flows[f].toward(s.vip)).First-1]
			for _, web := range s.servers {
				if known := s.nodes[web].server.known.has(int32(f)); known != (web == want) && s.conns[f].phase == thinking {
					t.Fatalf("%s: server %d knows flow %d: %v, but it is %d's", survival, web, f, known, want)
				}
			}
		}
	}
}
