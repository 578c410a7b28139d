package sim

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/sim/stochastic"
	"github.com/fairlead/fairlead/lab/sim/traffic"
)

// anything is a random network of switches, routers, load balancers with all methods,
// schedulers and consistency modes, servers and clients of all kinds, with random events
// at any time. Load ends after a second.
type anything[T Time] struct {
	*Net[T]
	t                                           *testing.T
	dice                                        *rand.Rand
	vips, routers, switches, balancers, servers []Node
	clients                                     []Node
	lines                                       []Line
	sharedLAN                                   bool
}

func newAnything[T Time](t *testing.T, seed uint64) *anything[T] {
	t.Helper()
	a := &anything[T]{Net: New[T](Config{Seed: uint32(seed), PacketBytes: 40 + int(seed*97%1400), Bin: 0.1}), t: t, dice: rand.New(rand.NewPCG(seed, 3))}
	for i := range 1 + a.dice.IntN(2) {
		a.vips = append(a.vips, a.VIP(fmt.Sprint("vip", i)))
		a.routers = append(a.routers, a.Router(fmt.Sprint("router", i), a.dice.Uint32N(2)))
	}
	for i := range 1 + a.dice.IntN(6) {
		s := Server{Name: fmt.Sprint("server", i), Cores: a.dice.IntN(3), Queue: a.dice.IntN(20)}
		s.Takes = []stochastic.Draw{nil, stochastic.Always(1e-3), stochastic.Exponential(1e-3), stochastic.Pareto(1.1, 1e-4, 0.1), stochastic.Lognormal(1e-3, 1)}[a.dice.IntN(5)]
		s.Speed = []float64{0, 1e6}[a.dice.IntN(2)]
		a.servers = append(a.servers, a.Server(s))
	}
	for i := range 1 + a.dice.IntN(4) {
		a.balancers = append(a.balancers, a.anyBalancer(fmt.Sprint("lb", i)))
	}
	a.join()
	for _, r := range a.routers {
		for _, vip := range a.vips {
			if err := a.Route(r, vip, Group{Division: Division(a.dice.IntN(3)), Hops: a.someHops(vip), Buckets: 1 + a.dice.IntN(60),
				Idle: 0.2 * a.dice.Float64(), Unbalanced: 0.2 * a.dice.Float64()}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range 1 + a.dice.IntN(8) {
		a.clients = append(a.clients, a.anyClient(fmt.Sprint("client", i)))
		a.lines = append(a.lines, a.Link(a.clients[i], a.routers[a.dice.IntN(len(a.routers))], 1e8, 1e-3*a.dice.Float64(), 2+a.dice.IntN(50)))
	}
	return a
}

// join connects everything with one or two switches, or sometimes a shared medium.
func (a *anything[T]) join() {
	all := append(append(append([]Node(nil), a.routers...), a.balancers...), a.servers...)
	if a.sharedLAN = a.dice.IntN(4) == 0; a.sharedLAN {
		var at []Attached
		for _, id := range all {
			at = append(at, Attached{id, 2 + a.dice.IntN(50)})
		}
		a.SharedLAN(1e8, 1e-5, at)
		return
	}
	for i := range 1 + a.dice.IntN(2) {
		var ports []Port
		for _, id := range all {
			ports = append(ports, Port{id, 1e7 * float64(1+a.dice.IntN(100)), 2 + a.dice.IntN(50)})
		}
		id, lines := a.SwitchedLAN(fmt.Sprint("switch", i), 1e-5, ports)
		a.switches, a.lines = append(a.switches, id), append(a.lines, lines...)
		if a.dice.IntN(2) == 0 {
			a.Processor(id, Processor{Takes: stochastic.Exponential(1e-5), Queue: a.dice.IntN(5)})
		}
	}
}

func (a *anything[T]) someServers() (of []Weighted) {
	for _, s := range a.servers {
		if a.dice.IntN(4) > 0 {
			of = append(of, Weighted{s, uint32(a.dice.IntN(4)), a.dice.IntN(5) == 0, uint32(a.dice.IntN(2) * a.dice.IntN(30))})
		}
	}
	return of
}

func (a *anything[T]) anyBalancer(name string) Node {
	b := Balancer{
		Name: name, Method: service.Methods[a.dice.IntN(len(service.Methods))], Scheduler: service.Schedulers[a.dice.IntN(len(service.Schedulers))],
		Servers: a.someServers(), Serves: []Node{a.vips[a.dice.IntN(len(a.vips))]}, Timeout: 0.1 * float64(a.dice.IntN(3)),
		Timeouts: Timeouts{0.2, 0.5, 0.1}, PerPacket: a.dice.IntN(6) == 0, RingSize: 251,
	}
	if !service.NeedsFlowTable(b.Method, b.Scheduler) {
		b.Survival = service.Survivals[a.dice.IntN(len(service.Survivals))]
	}
	id, err := a.Balancer(b)
	if err != nil {
		a.t.Fatal(err)
	}
	if a.dice.IntN(2) == 0 {
		a.Processor(id, Processor{Cores: a.dice.IntN(3), Takes: stochastic.Always(1e-5), Queue: a.dice.IntN(30)})
	}
	return id
}

// someHops returns some of the load balancers that serve a VIP.
func (a *anything[T]) someHops(vip Node) (of []Weighted) {
	for _, b := range a.balancers {
		if a.nodes[b].balancer.serves(vip) && a.dice.IntN(4) > 0 {
			of = append(of, Weighted{Node: b, Weight: uint32(a.dice.IntN(3))})
		}
	}
	return of
}

func (a *anything[T]) anyClient(name string) Node {
	vip := a.vips[a.dice.IntN(len(a.vips))]
	var trace []traffic.Record
	size, gap := stochastic.Pareto(1.2, 10, 30000), stochastic.Exponential(0.01)
	for at := 0.0; at < 1; at += gap(a.random) {
		trace = append(trace, traffic.Record{At: at, Size: int(size(a.random)), Flow: a.dice.IntN(5)})
	}
	if a.dice.IntN(2) == 0 {
		return a.Client(Client{Name: name, To: vip, Load: traffic.Replay(trace)})
	}
	c := Connections{Name: name, To: vip, Load: traffic.Replay(trace), Requests: a.dice.IntN(4), Window: a.dice.IntN(5), Patience: 0.02, Retries: a.dice.IntN(5) - 1}
	if a.dice.IntN(2) == 0 {
		c.Think = stochastic.Exponential(0.05)
	}
	return a.Connections(c)
}

// happens triggers one random event now. Impossible events return an error.
func (a *anything[T]) happens() error {
	dice := a.dice
	forwards := append(append(append(append([]Node(nil), a.routers...), a.switches...), a.balancers...), a.servers...)
	switch dice.IntN(7) {
	case 0, 1:
		return a.SetServers(a.balancers[dice.IntN(len(a.balancers))], a.someServers())
	case 2:
		vip := a.vips[dice.IntN(len(a.vips))]
		return a.SetHops(a.routers[dice.IntN(len(a.routers))], vip, a.someHops(vip))
	case 3:
		return a.Kill(forwards[dice.IntN(len(forwards))])
	case 4:
		for i := range a.nodes {
			if a.nodes[i].dead {
				return a.Revive(Node(i))
			}
		}
	case 5:
		l := a.lines[dice.IntN(len(a.lines))]
		if a.links[2*l].cut {
			return a.Restore(l)
		}
		return a.Cut(l)
	}
	return a.Reroute()
}

// laws checks the invariants that always hold.
func (a *anything[T]) laws() {
	a.t.Helper()
	checkBooks(a.t, a.Net)
	open := map[Node]uint64{}
	for f := range a.conns {
		if a.conns[f].phase != over {
			open[a.flows[f].client]++
		}
	}
	for _, id := range a.clients {
		if c := a.At(id).Connected; c.Opened != c.Closed+c.Broken+c.TimedOut+open[id] {
			a.t.Errorf("client %d: %+v, and %d are open", id, c, open[id])
		}
	}
	for _, id := range a.balancers {
		b := a.nodes[id].balancer
		conns := make([]uint32, len(b.state))
		for _, e := range b.entries {
			if e.id != 0 {
				conns[e.id-1]++
			}
		}
		for i, s := range b.state {
			if s.Conns != conns[i] {
				a.t.Errorf("balancer %d counts %d connections of server %d, and has %d", id, s.Conns, i, conns[i])
			}
		}
	}
}

// TestNothingVanishesInAnything checks that packets are conserved in random networks. At
// the end nothing is in flight, and no connection is open.
func TestNothingVanishesInAnything(t *testing.T) {
	var all Connected
	var lost Counts
	for seed := range uint64(60) {
		a := newAnything[Nanoseconds](t, seed)
		for at := 0.0; at < 1.5; at += 0.03 {
			a.Do(at, a.happens)
		}
		for until := 0.01; until < 1.5; until += 0.11 {
			if err := a.Run(until); err != nil {
				t.Fatal(err)
			}
			a.laws()
		}
		if err := a.Run(60); err != nil {
			t.Fatal(err)
		}
		a.laws()
		if b := a.Balance(); b.InFlight != 0 {
			t.Errorf("%d packets are in flight for ever", b.InFlight)
		}
		for f := range a.conns {
			if a.conns[f].phase != over {
				t.Errorf("connection %d is open for ever: %+v", f, a.conns[f])
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
		for i := range a.nodes {
			c := a.At(Node(i))
			all.Closed, all.Broken, all.TimedOut = all.Closed+c.Closed, all.Broken+c.Broken, all.TimedOut+c.TimedOut
			lost.Dropped, lost.Dead, lost.Cut, lost.Unserved = lost.Dropped+c.Dropped, lost.Dead+c.Dead, lost.Cut+c.Cut, lost.Unserved+c.Unserved
		}
	}
	if min(all.Closed, all.Broken, all.TimedOut, lost.Dropped, lost.Dead, lost.Cut, lost.Unserved) < 100 {
		t.Errorf("something hardly ever happened: %+v, %+v", all, lost)
	}
}

// TestSameSeedSameAnything checks that runs are reproducible with both clocks, also if
// they are split into pieces.
func TestSameSeedSameAnything(t *testing.T) {
	t.Run("seconds", sameAnything[Seconds])
	t.Run("nanoseconds", sameAnything[Nanoseconds])
}

func sameAnything[T Time](t *testing.T) {
	for seed := range uint64(10) {
		var all [2]*anything[T]
		for i := range all {
			all[i] = newAnything[T](t, seed)
			for at := 0.05; at < 1; at += 0.05 {
				all[i].Do(at, all[i].happens)
			}
		}
		for _, until := range []float64{0.013, 0.5, 1.2} {
			if err := all[0].Run(until); err != nil {
				t.Fatal(err)
			}
		}
		if err := all[1].Run(1.2); err != nil {
			t.Fatal(err)
		}
		for i := range all[0].nodes {
			if a, b := all[0].Bins(Node(i)), all[1].Bins(Node(i)); !reflect.DeepEqual(a, b) {
				t.Fatalf("seed %d, node %s:\n%v\n%v", seed, all[0].nodes[i].name, a, b)
			}
		}
	}
}
