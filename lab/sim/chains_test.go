package sim

import (
	"math"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/sim/stochastic"
	"github.com/fairlead/fairlead/lab/sim/traffic"
)

// TestJhash compares with the results of the compiled lookup3.c. The last row but one is
// hashlittle of "Four score a", the beginning of the text that it is published with.
func TestJhash(t *testing.T) {
	for _, c := range [][5]uint32{
		{0, 0, 0, 0, 0x1b68e557},
		{1, 2, 3, 4, 0x8103143f},
		{0x0100000a, 0x5000, 6, 0, 0x6ee1f151},
		{0x0100000a, 0x5000, 6, 0x12345678, 0x30aca477},
		{0x72756f46, 0x6f637320, 0x61206572, 0, 0xccda323b},
		{0xffffffff, 0xffff, 17, 0xffffffff, 0xbef470b4},
	} {
		if got := jhash3(c[0], c[1], c[2], c[3]); got != c[4] {
			t.Errorf("jhash of %#x, %#x, %#x from %#x: %#x, want %#x", c[0], c[1], c[2], c[3], got, c[4])
		}
	}
}

// tabled returns a network with one user who sends requests from a trace, and a load
// balancer with a table.
func tabled(t *testing.T, trace []traffic.Record, b Balancer, takes stochastic.Draw) (n *Net[Nanoseconds], lb, user Node) {
	t.Helper()
	n = New[Nanoseconds](Config{})
	web := n.Server(Server{Name: "web"})
	b.Name, b.Method, b.Scheduler, b.Servers = "lb", service.DR, service.RoundRobin, []Weighted{{Node: web}}
	lb, err := n.Balancer(b)
	if err != nil {
		t.Fatal(err)
	}
	if takes != nil {
		n.Processor(lb, Processor{Cores: 1, Takes: takes})
	}
	user = n.Client(Client{Name: "user", To: lb, Load: traffic.Replay(trace)})
	n.Link(user, lb, 1e15, 0, 1<<30)
	n.Link(lb, web, 1e15, 0, 1<<30)
	return n, lb, user
}

// TestChainsByHand uses one bucket. Three flows arrive and are not found, then each
// arrives once more, and the newest is found first.
func TestChainsByHand(t *testing.T) {
	trace := []traffic.Record{{At: 1, Flow: 0}, {At: 2, Flow: 1}, {At: 3, Flow: 2}, {At: 4, Flow: 0}, {At: 5, Flow: 1}, {At: 6, Flow: 2}}
	n, lb, user := tabled(t, trace, Balancer{Timeout: 10, Table: ConnTable{Buckets: 1, Looks: 0.01}}, stochastic.Always(0.1))
	for _, c := range []struct {
		until float64
		want  Chains
	}{
		{3.5, Chains{3, 3, 3, 0 + 1 + 2}},
		{4.5, Chains{3, 3, 4, 3 + 3}},
		{7, Chains{3, 3, 6, 3 + 3 + 2 + 1}},
		{14.5, Chains{2, 3, 6, 9}}, // the first one has timed out
		{17, Chains{0, 3, 6, 9}},
	} {
		if err := n.Run(c.until); err != nil {
			t.Fatal(err)
		}
		if got := n.Chains(lb); got != c.want {
			t.Errorf("after %v s %+v, want %+v", c.until, got, c.want)
		}
	}
	// Replies also take processor time, but are not looked up.
	if got, want := n.At(user).Delay, 6*0.1+9*0.01+6*0.1; math.Abs(got-want) > 1e-6 {
		t.Errorf("packets took %v s in all, want %v", got, want)
	}
}

// TestChainsAreAsLongAsChanceHasThem checks that flows are distributed randomly over the
// buckets.
func TestChainsAreAsLongAsChanceHasThem(t *testing.T) {
	const flows, buckets = 20000, 4096
	var trace []traffic.Record
	for i := range 2 * flows {
		trace = append(trace, traffic.Record{At: float64(i) * 1e-4, Flow: i % flows})
	}
	n, lb, _ := tabled(t, trace, Balancer{Table: ConnTable{Buckets: buckets, Seed: 7}}, nil)
	for round, want := range []float64{float64(flows-1) / 2 / buckets, 1 + float64(flows-1)/2/buckets} {
		before := n.Chains(lb)
		if err := n.Run(float64(round+1) * flows * 1e-4); err != nil {
			t.Fatal(err)
		}
		c := n.Chains(lb)
		got := float64(c.Looked-before.Looked) / float64(c.Lookups-before.Lookups)
		if c.Lookups-before.Lookups != flows || math.Abs(got/want-1) > 0.03 {
			t.Errorf("round %d: %d lookups looked at %.3f connections each, want %d and %.3f", round, c.Lookups-before.Lookups, got, flows, want)
		}
	}
	if c := n.Chains(lb); c.Connections != flows || c.Longest < 12 || c.Longest > 20 { // the maximum of 4096 Poisson variables with mean 4.9
		t.Errorf("%+v", c)
	}
	empty := 0
	for _, length := range n.nodes[lb].balancer.chains.lengths {
		if length == 0 {
			empty++
		}
	}
	if want := buckets * math.Exp(-float64(flows)/buckets); math.Abs(float64(empty)-want) > 5*math.Sqrt(want) {
		t.Errorf("%d buckets are empty, want about %.0f", empty, want)
	}
}

func TestTablesThatCannotBe(t *testing.T) {
	for _, c := range []struct {
		b    Balancer
		says string
	}{
		{Balancer{Table: ConnTable{Buckets: 3}}, "power of two"},
		{Balancer{Table: ConnTable{Buckets: 4}, PerPacket: true}, "remembers no flows"},
		{Balancer{Table: ConnTable{Buckets: 4}, Survival: service.SecondChance, Scheduler: service.Maglev, Method: service.Tunnel}, "remembers no flows"},
	} {
		n := New[Nanoseconds](Config{})
		c.b.Name, c.b.Servers = "lb", []Weighted{{Node: n.Server(Server{Name: "web"})}}
		if _, err := n.Balancer(c.b); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, want %q", c.b, err, c.says)
		}
	}
}
