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

// random returns a network with random topology, load and limits.
func random[T Time](t *testing.T, seed uint64) *Net[T] {
	t.Helper()
	dice := rand.New(rand.NewPCG(seed, 2))
	n := New[T](Config{Seed: uint32(seed), PacketBytes: 40 + dice.IntN(1400), Bin: 0.01})
	var top []Weighted
	for b := range 1 + dice.IntN(3) { // load balancers behind the load balancer
		var farm []Weighted
		for i := range 1 + dice.IntN(4) {
			s := Server{Name: fmt.Sprint("server", b, i)}
			if dice.IntN(2) == 0 {
				s.Cores, s.Queue = dice.IntN(3), dice.IntN(20)
				s.Takes = func(r *stochastic.Stream) float64 { return 1e-3 * r.Float() }
			}
			farm = append(farm, Weighted{Node: n.Server(s), Weight: uint32(dice.IntN(4))})
		}
		below := anyBalancer(t, n, dice, farm)
		at := []Attached{{below, 2 + dice.IntN(50)}}
		for _, s := range farm {
			at = append(at, Attached{s.Node, 2 + dice.IntN(50)})
		}
		n.SharedLAN(10e6*float64(1+dice.IntN(20)), 1e-4, at)
		top = append(top, Weighted{Node: below})
	}
	lb := anyBalancer(t, n, dice, top)
	for _, s := range top {
		n.Link(lb, s.Node, 1e8, 1e-4, 2+dice.IntN(50))
	}
	for i := range 1 + dice.IntN(20) {
		c := Client{Name: fmt.Sprint("client", i), To: lb, Start: 1e-3 * dice.Float64(), Every: 1e-4 * float64(1+dice.IntN(50))}
		if dice.IntN(2) == 0 {
			c.Load = bursts{}
		}
		n.Link(n.Client(c), lb, 1e7, 1e-3, 2+dice.IntN(10))
	}
	return n
}

func anyBalancer[T Time](t *testing.T, n *Net[T], dice *rand.Rand, farm []Weighted) Node {
	t.Helper()
	b, err := n.Balancer(Balancer{
		Name: "lb", Method: service.Methods[dice.IntN(len(service.Methods))], Scheduler: service.Schedulers[dice.IntN(len(service.Schedulers))],
		Servers: farm, Timeout: 1e-2 * float64(dice.IntN(3)), PerPacket: dice.IntN(2) == 0,
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

type bursts struct{}

func (bursts) Next(number int, r *stochastic.Stream) traffic.Request {
	return traffic.Request{Wait: 1e-4 * float64(r.Below(20)), Replies: r.Below(4)}
}

// TestNothingVanishes checks that every packet is consumed, lost or in flight at any
// time.
func TestNothingVanishes(t *testing.T) {
	for seed := range uint64(30) {
		n := random[Nanoseconds](t, seed)
		for until := 0.01; until < 0.2; until += 0.03 {
			if err := n.Run(until); err != nil {
				t.Fatal(err)
			}
			if checkBooks(t, n); n.Balance().Made == 0 || t.Failed() {
				t.Fatalf("seed %d at %.2f s: %+v", seed, until, n.Balance())
			}
		}
	}
}

// TestSameSeedSameResult also splits a run into pieces.
func TestSameSeedSameResult(t *testing.T) {
	for seed := range uint64(20) {
		one, two := random[Seconds](t, seed), random[Seconds](t, seed)
		for _, until := range []float64{0.013, 0.05, 0.1} {
			if err := one.Run(until); err != nil {
				t.Fatal(err)
			}
		}
		if err := two.Run(0.1); err != nil {
			t.Fatal(err)
		}
		for i := range one.nodes {
			if a, b := one.Bins(Node(i)), two.Bins(Node(i)); !reflect.DeepEqual(a, b) {
				t.Fatalf("seed %d, node %s:\n%v\n%v", seed, one.nodes[i].name, a, b)
			}
		}
	}
}
