package sim

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/sim/traffic"
)

// hops is a router with a route to a VIP through load balancers, without a network.
type hops struct {
	*Net[Nanoseconds]
	t           *testing.T
	router, vip Node
	all         []Node
}

func newHops(t *testing.T, count int, g Group) *hops {
	t.Helper()
	h := &hops{Net: New[Nanoseconds](Config{}), t: t}
	h.vip, h.router = h.VIP("vip"), h.Router("router", 1)
	web := h.Server(Server{Name: "web"})
	for i := range count {
		b, err := h.Balancer(Balancer{Name: fmt.Sprint("lb", i), Scheduler: service.Maglev, Serves: []Node{h.vip}, Servers: []Weighted{{Node: web}}})
		if err != nil {
			t.Fatal(err)
		}
		h.all = append(h.all, b)
	}
	if err := h.Route(h.router, h.vip, g); err != nil {
		t.Fatal(err)
	}
	return h
}

// set sets the weights of the route's hops, 0 for none.
func (h *hops) set(weights ...uint32) {
	h.t.Helper()
	var of []Weighted
	for i, w := range weights {
		if w > 0 {
			of = append(of, Weighted{Node: h.all[i], Weight: w})
		}
	}
	if err := h.SetHops(h.router, h.vip, of); err != nil {
		h.t.Fatal(err)
	}
}

// where returns the hop of each of many flows.
func (h *hops) where() (of []Node) {
	for i := range uint32(20000) {
		of = append(of, h.hop(h.group(h.router, h.vip), spread(i*2654435761, 1)))
	}
	return of
}

// buckets returns the hop of each bucket.
func (h *hops) buckets() (of []Node) {
	for _, b := range h.group(h.router, h.vip).table {
		of = append(of, b.hop)
	}
	return of
}

func count(of []Node) map[Node]int {
	all := map[Node]int{}
	for _, n := range of {
		all[n]++
	}
	return all
}

// moved returns the share of flows that moved, of those of one hop and of the others.
func moved(before, after []Node, of Node) (its, others float64) {
	var all, own, moved float64
	for i := range before {
		switch {
		case before[i] == of:
			own++
			if after[i] != of {
				its++
			}
		default:
			all++
			if after[i] != before[i] {
				moved++
			}
		}
	}
	return its / own, moved / all
}

// TestWhatAChangeOfHopsMoves checks what moves when the second of four hops is removed.
// With Modulo, two thirds of the other hops' flows move, too. With Threshold, a ninth of
// them moves, because the third hop's range was from 1/2 to 3/4 and is now from 1/3 to
// 2/3. With buckets, none do.
func TestWhatAChangeOfHopsMoves(t *testing.T) {
	for _, c := range []struct {
		division Division
		others   float64
	}{{Modulo, 2. / 3}, {Threshold, 1. / 9}, {Resilient, 0}} {
		h := newHops(t, 4, Group{Division: c.division})
		h.set(1, 1, 1, 1)
		before := h.where()
		for hop, flows := range count(before) {
			if flows < 4700 || flows > 5300 {
				t.Errorf("division %d: %d of 20,000 flows go to %d", c.division, flows, hop)
			}
		}
		h.set(1, 0, 1, 1)
		its, others := moved(before, h.where(), h.all[1])
		if its != 1 || others < c.others-0.02 || others > c.others+0.02 {
			t.Errorf("division %d: %.3f of the hop's own and %.3f of the others' flows moved, want all and %.3f", c.division, its, others, c.others)
		}
	}
}

// TestWeightsDivideFlows also checks that the order of the given hops does not matter.
func TestWeightsDivideFlows(t *testing.T) {
	for _, d := range []Division{Modulo, Threshold, Resilient} {
		h := newHops(t, 2, Group{Division: d})
		h.set(1, 3)
		before := h.where()
		if part := float64(count(before)[h.all[1]]) / 20000; part < 0.74 || part > 0.76 {
			t.Errorf("division %d: weight 3 of 4 has %.3f of the flows", d, part)
		}
		if err := h.SetHops(h.router, h.vip, []Weighted{{Node: h.all[1], Weight: 3}, {Node: h.all[0]}}); err != nil {
			t.Fatal(err)
		}
		if its, others := moved(before, h.where(), h.all[0]); its+others > 0 {
			t.Errorf("division %d: another order moved %.3f and %.3f", d, its, others)
		}
	}
}

// TestBucketsAreTheKernels checks what the kernel's own groups do in fib's tests: weights
// 1 and 3 divide 512 buckets 128 to 384, and a new hop takes only what it needs.
func TestBucketsAreTheKernels(t *testing.T) {
	h := newHops(t, 3, Group{Division: Resilient})
	h.set(1, 3)
	before := h.buckets()
	if c := count(before); c[h.all[0]] != 128 || c[h.all[1]] != 384 {
		t.Errorf("buckets of weights 1 and 3: %v", c)
	}
	h.set(1, 2, 1)
	after := h.buckets()
	if c := count(after); c[h.all[0]] != 128 || c[h.all[1]] != 256 || c[h.all[2]] != 128 {
		t.Errorf("buckets of weights 1, 2 and 1: %v", c)
	}
	for i := range after {
		if after[i] != before[i] && after[i] != h.all[2] {
			t.Fatalf("bucket %d went from %d to %d, which has no new share", i, before[i], after[i])
		}
	}
	h.set()
	if c := count(h.buckets()); c[none] != 512 {
		t.Errorf("without hops buckets lead to %v", c)
	}
	h.set(0, 1)
	if c := count(h.buckets()); c[h.all[1]] != 512 {
		t.Errorf("with one hop buckets lead to %v", c)
	}
}

// TestBusyBucketsWait checks that buckets move when they are idle, or when the shares
// have been uneven for too long. Four buckets are used at 9.5 s, and two of them must
// move to a new hop at 10 s.
func TestBusyBucketsWait(t *testing.T) {
	for _, c := range []struct{ unbalanced, moves float64 }{{0, 11.5}, {1, 11}} {
		h := newHops(t, 2, Group{Division: Resilient, Buckets: 4, Idle: 2, Unbalanced: c.unbalanced})
		h.set(1, 0)
		h.Do(9.5, func() error {
			for i := range uint32(4) {
				h.hop(h.group(h.router, h.vip), i)
			}
			return nil
		})
		h.Do(10, func() error {
			h.set(1, 1)
			return nil
		})
		h.routed = true
		for _, at := range []struct {
			end  float64
			want int
		}{{c.moves - 0.001, 0}, {c.moves + 0.001, 2}} {
			if err := h.Run(at.end); err != nil {
				t.Fatal(err)
			}
			if got := count(h.buckets())[h.all[1]]; got != at.want {
				t.Errorf("unbalanced %g: at %g s the newcomer has %d buckets, want %d", c.unbalanced, at.end, got, at.want)
			}
		}
	}
}

// TestRoutersBehindRouters checks that routers hash with separate secrets. With a common
// secret, the second router would send everything to one of its hops.
func TestRoutersBehindRouters(t *testing.T) {
	for _, c := range []struct {
		seed uint32
		even bool
	}{{1, false}, {2, true}} {
		h := newHops(t, 3, Group{})
		below := h.Router("below", c.seed)
		if err := h.Route(below, h.vip, Group{Hops: []Weighted{{Node: h.all[0]}, {Node: h.all[1]}}}); err != nil {
			t.Fatal(err)
		}
		if err := h.SetHops(h.router, h.vip, []Weighted{{Node: below}, {Node: h.all[2]}}); err != nil {
			t.Fatal(err)
		}
		ports := []Port{{0, 0, 0}}[:0]
		for _, id := range append(h.all, h.router, below, h.all[0]-1) { // the last one is the server
			ports = append(ports, Port{id, 10e9, 0})
		}
		h.SwitchedLAN("switch", 1e-6, ports)
		users := h.Connections(Connections{Name: "users", To: h.vip, Load: traffic.Poisson(1000, nil)})
		h.Link(users, h.router, 10e9, 1e-3, 0)
		runTo(t, h.Net, 5)
		a, b, direct := float64(h.At(h.all[0]).Got), float64(h.At(h.all[1]).Got), float64(h.At(h.all[2]).Got)
		if part := direct / (a + b + direct); part < 0.45 || part > 0.55 {
			t.Errorf("the first router sends %.2f one way", part)
		}
		if part := a / (a + b); (part > 0.45 && part < 0.55) != c.even {
			t.Errorf("secret %d: the second router sends %.2f one way", c.seed, part)
		}
		if c := h.At(users).Connected; c.Broken+c.TimedOut > 0 || c.Closed < 4000 {
			t.Errorf("users have %+v", c)
		}
	}
}

func TestWrongRoutesAreRefused(t *testing.T) {
	h := newHops(t, 1, Group{})
	web := h.all[0] - 1
	for want, err := range map[string]error{
		"web: is no router, and has no routes":                  h.Route(web, h.vip, Group{}),
		"router router: a route is to a VIP, which web is not":  h.Route(h.router, web, Group{}),
		"router router: next hop web is neither a balancer nor": h.SetHops(h.router, h.vip, []Weighted{{Node: web}}),
		"router router: has no route to web":                    h.SetHops(h.router, web, nil),
		"router: is no balancer, and has no servers":            h.SetServers(h.router, nil),
		"balancer lb0: router cannot be a server":               h.SetServers(h.all[0], []Weighted{{Node: h.router}}),
		"balancer lb0: has server web twice":                    h.SetServers(h.all[0], []Weighted{{Node: web}, {Node: web}}),
		"vip: only what serves or forwards can die":             h.Kill(h.vip),
		"web: is alive": h.Revive(web),
		"balancer x: serves web, which is no VIP":                   second(h.Balancer(Balancer{Name: "x", Scheduler: service.Maglev, Serves: []Node{web}})),
		"balancer x: method \"nat\" and scheduler maglev need a fl": second(h.Balancer(Balancer{Name: "x", Method: service.NAT, Scheduler: service.Maglev, Survival: service.HashOnly})),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := h.SetHops(h.router, h.vip, []Weighted{{Node: h.all[0]}}); err != nil {
		t.Fatal(err)
	}
	if err := h.Run(1); err == nil || err.Error() != "router router: no way leads from there to its next hop lb0" {
		t.Error(err)
	}
}

func second(_ Node, err error) error { return err }
