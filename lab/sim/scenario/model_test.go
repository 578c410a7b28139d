package scenario

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/sim"
)

// tiny is a line of nodes in which everything can be calculated by hand. A packet of 500
// bytes takes 0.4 ms at 10 Mbit/s, plus 1 ms of delay, on each of two lines in both
// directions.
const tiny = `about: x
duration: 2s
clock: CLOCK
topology:
  clients: [{name: user}]
  balancers: [{name: lb}]
  servers: [{name: web, count: 2}]
  links:
    - {between: [user, lb], rate: 10Mbit, delay: 1ms}
    - {between: [lb, web], rate: 10Mbit, delay: 1ms}
services:
  - {name: shop, method: METHOD, scheduler: rr, connectionConsistency: flow-table, servers: SERVERS}
load:
  - {from: user, to: shop, protocol: udp, arrivals: steady, rate: 10, end: 1.95s}
`

func simulate(t *testing.T, text string, replace ...string) *outcome {
	t.Helper()
	replace = append(replace, "CLOCK", "scale", "METHOD", "dr", "SERVERS", "web-1")
	s, err := Parse("x.yaml", []byte(strings.NewReplacer(replace...).Replace(text)), nil)
	if err != nil {
		t.Fatal(err)
	}
	o, err := s.run(context.Background(), 1, func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// The response time is that of four lines. With a tunnel, one of them carries 20 more
// bytes.
func TestTimeToAnswer(t *testing.T) {
	for _, c := range []struct {
		method string
		ms     float64
	}{{"dr", 4 * 1.4}, {"tunnel", 4*1.4 + 0.016}} {
		for _, clock := range Clocks {
			o := simulate(t, tiny, "METHOD", c.method, "CLOCK", string(clock))
			if o.total.asked != 20 || o.total.answered != 20 || o.total.failed() != 0 {
				t.Errorf("%s, %s: %+v, want 20 answers to 20 requests", c.method, clock, o.total)
			}
			if got := 1e3 * o.watch.all.Quantile(0.5); math.Abs(got/c.ms-1) > 0.02 {
				t.Errorf("%s, %s: %v ms, want %v", c.method, clock, got, c.ms)
			}
		}
	}
}

// Events take effect immediately, and are known when they are noticed.
func TestEvents(t *testing.T) {
	reason := map[string]int{}
	for i, r := range reasons {
		reason[r.name] = i
	}
	for _, c := range []struct {
		name, events, servers string
		answers               float64
		lost                  map[string]float64
	}{
		{name: "dies", events: "{at: 1.01s, dies: web-1, noticed: 0.5s}", answers: 11, lost: map[string]float64{"sent to a failed node": 5, "no path or server": 4}},
		{name: "one of two dies", servers: "web", events: "{at: 1.01s, dies: web-1, noticed: 0.5s}", answers: 20 - 5,
			lost: map[string]float64{"sent to a failed node": 5}},
		{name: "leaves", events: "{at: 1.01s, leaves: web-1}", answers: 11, lost: map[string]float64{"no path or server": 9}},
		{name: "comes back", events: "{at: 1.01s, dies: web-1, noticed: 0.9s}, {at: 1.31s, joins: web-1}", answers: 17,
			lost: map[string]float64{"sent to a failed node": 3}},
		{name: "link", events: "{at: 1.01s, cuts: [user, lb]}, {at: 1.41s, restores: [user, lb]}", answers: 16, lost: map[string]float64{"link cut": 4}},
		{name: "drains", events: "{at: 1.01s, drains: web-1}", answers: 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			servers := c.servers
			if servers == "" {
				servers = "web-1"
			}
			o := simulate(t, tiny+"events: ["+c.events+"]\n", "SERVERS", servers)
			lost := make([]float64, len(reasons))
			for name, n := range c.lost {
				lost[reason[name]] = n
			}
			if o.total.asked != 20 || o.total.answered != c.answers || !reflect.DeepEqual(o.total.lost, lost) {
				t.Errorf("%+v, want %v answers of 20 and %v lost", o.total, c.answers, lost)
			}
			if asked := o.total.answered + o.total.losses(); asked != o.total.asked {
				t.Errorf("%v answers and losses of %v requests", asked, o.total.asked)
			}
		})
	}
}

// routed has two load balancers behind a router, and two services.
const routed = `duration: 4s
topology:
  clients: [{name: a, count: 20}, {name: b, count: 20}]
  routers: [{name: router}]
  balancers: [{name: lb, count: 3, present: 2}]
  servers: [{name: web, count: 3}, {name: api, count: 2}]
  links:
    - {between: [a, router], rate: 100Mbit}
    - {between: [b, router], rate: 100Mbit}
    - {between: [router, lb], rate: 100Mbit}
  lans: [{name: pods, members: [lb, web, api, router], rate: 1Gbit}]
services:
  - {name: shop, method: METHOD, servers: web}
  - {name: calls, servers: api}
load:
  - {from: a, to: shop, rate: 200, requests: 3, pause: 300ms, timeout: 500ms}
  - {from: b, to: calls, rate: 100, requests: 3, pause: 300ms, timeout: 500ms}
`

// A load balancer has several services, each with its own servers.
func TestSeveralServices(t *testing.T) {
	for _, method := range []string{"tunnel", "nat"} {
		o := simulate(t, routed, "METHOD", method)
		got := map[string]float64{}
		for name, p := range o.shares {
			got[name[:2]] += p.got
		}
		if o.total.loads[0] < 1500 || o.total.loads[1] < 700 || o.total.losses() != 0 || o.total.broken != 0 {
			t.Errorf("%s: %+v", method, o.total)
		}
		if o.shares["lb-3"].got != 0 || o.shares["lb-1"].got < 500 || got["lb"] != got["we"]+got["ap"] {
			t.Errorf("%s: balancers had %v, servers %v and %v", method, got["lb"], got["we"], got["ap"])
		}
	}
}

// Without flow tracking, load balancers can join and leave without breaking connections.
// With flow tracking, the connections of a leaving load balancer break.
func TestChangesOfBalancers(t *testing.T) {
	events := "events: [{at: 1s, joins: lb-3}, {at: 2s, leaves: lb-1}]\n"
	if o := simulate(t, routed+events, "METHOD", "tunnel"); o.total.broken != 0 || o.shares["lb-3"].got < 300 {
		t.Errorf("stateless: %+v, of which lb-3 had %v", o.total, o.shares["lb-3"].got)
	}
	s := strings.Replace(routed, "method: METHOD", "method: tunnel, scheduler: rr", 1)
	if o := simulate(t, s+events); o.total.broken == 0 {
		t.Errorf("round robin: %+v, want some broken", o.total)
	}
}

// Once a cut is noticed, routers use the remaining load balancers, and not a path through
// one of them to the disconnected one.
func TestCutIsNoticed(t *testing.T) {
	s := strings.Replace(routed, "members: [lb, web, api, router]", "members: [lb, web, api]", 1)
	o := simulate(t, s+"events: [{at: 1s, cuts: [router, lb-1], noticed: 0.2s}]\n", "METHOD", "tunnel")
	if at := o.shares["lb-1"].bins; at[0] < 300 || at[2]+at[3] != 0 {
		t.Errorf("lb-1 had %v in each second", at)
	}
	if at := o.bins; at[3].losses() != 0 || at[3].answered < 500 || at[1].losses() == 0 {
		t.Errorf("a second: %+v", at)
	}
}

// The same seed gives the same result, and another seed a different one.
func TestSameSeedSameResult(t *testing.T) {
	one := func(seed uint32) string {
		s, err := Parse("x.yaml", []byte(strings.Replace(routed, "METHOD", "tunnel", 1)+"events: [{at: 1s, dies: lb-1}, {at: 2s, drains: web-1}]\n"), nil)
		if err != nil {
			t.Fatal(err)
		}
		o, err := s.run(context.Background(), seed, func(float64) {})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(o.result())
	}
	first := one(1)
	if again := one(1); again != first {
		t.Error("the same seed gave two results")
	}
	if one(2) == first {
		t.Error("two seeds gave the same result")
	}
}

// An interrupted run contains the partial results.
func TestInterrupted(t *testing.T) {
	s, err := Parse("x.yaml", []byte(strings.Replace(routed, "METHOD", "tunnel", 1)), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	o, err := s.run(ctx, 1, func(part float64) {
		if part >= 0.5 {
			stop()
		}
	})
	if err == nil || o == nil || o.until != 2 || len(o.bins) != 2 || o.bins[1].answered == 0 {
		t.Fatalf("%+v, %v: want two of four seconds", o, err)
	}
	if r := o.result(); len(r.Tables) == 0 || len(r.Pictures) == 0 {
		t.Errorf("%+v shows nothing", r)
	}
}

// A run notices an interruption long before an interval is over.
func TestInterruptedInTheInterval(t *testing.T) {
	s, err := Parse("x.yaml", []byte(strings.NewReplacer("METHOD", "tunnel", "duration: 4s", "duration: 20h\ninterval: 10h").Replace(routed)), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	o, err := s.run(ctx, 1, func(float64) { stop() })
	if err == nil || o == nil || o.until > mostStep || o.total.answered == 0 {
		t.Fatalf("%+v, %v: want some answers of the first second", o, err)
	}
}

// A load balancer can be a server of another one, at any position in the file.
func TestBalancerInPlaceOfServer(t *testing.T) {
	const text = `duration: 2s
topology:
  clients: [{name: user}]
  balancers: [BALANCERS]
  servers: [{name: web, count: 2}]
  lans: [{name: pods, members: [user, top, sub, web], rate: 1Gbit}]
services:
  - {name: outer, balancers: top, servers: [web-1, sub]}
  - {name: inner, balancers: sub, servers: [web-2]}
load:
  - {from: user, to: outer, rate: 200}
`
	for _, balancers := range []string{"{name: top}, {name: sub, count: 2}", "{name: sub, count: 2}, {name: top}"} {
		o := simulate(t, text, "BALANCERS", balancers)
		below := o.shares["sub-1"].got + o.shares["sub-2"].got
		if o.total.answered < 300 || o.total.losses() != 0 || o.total.broken != 0 {
			t.Errorf("%s: %+v", balancers, o.total)
		}
		if web := o.shares["web-2"].got; below == 0 || web != below || o.shares["top"].got != below+o.shares["web-1"].got {
			t.Errorf("%s: %v came to the balancers below, %v to their server", balancers, below, web)
		}
	}
}

// TestNothingVanishes checks that with any method, scheduler and events, each packet is
// consumed, lost or in flight at any time, with both clocks.
func TestNothingVanishes(t *testing.T) {
	const events = `events:
  - {at: 0s, cuts: [pods, web-1], noticed: 0s}
  - {at: 0.5s, dies: web-2, noticed: 0.1s}
  - {at: 0.5s, restores: [pods, web-1]}
  - {at: 1s, joins: lb-3}
  - {at: 1s, dies: lb-1}
  - {at: 1s, joins: web-2}
  - {at: 2s, drains: api}
  - {at: 2s, joins: lb-1}
  - {at: 3999ms, dies: lb, noticed: 5h}
`
	for _, method := range service.Methods {
		for _, scheduler := range service.Schedulers {
			text := strings.ReplaceAll(strings.Replace(routed, "{name: calls,", "{name: calls, method: METHOD,", 1), "method: METHOD", fmt.Sprintf("method: %s, scheduler: %s", method, scheduler)) + events
			s, err := Parse("x.yaml", []byte(strings.Replace(text, "{from: b, to: calls, rate: 100, requests: 3, pause: 300ms,", "{from: b, to: calls, rate: 100, protocol: udp,", 1)), nil)
			if err != nil {
				t.Fatal(err)
			}
			balanced[sim.Nanoseconds](t, s)
			balanced[sim.Seconds](t, s)
		}
	}
}

func balanced[T sim.Time](t *testing.T, s *Scenario) {
	t.Helper()
	n, err := build[T](s, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []float64{0.1, 0.25, 0.26, 0.5, 0.77, 1} {
		if err := n.Run(s.Duration * part); err != nil {
			t.Fatal(err)
		}
		if b := n.Balance(); b.Made == 0 || b.Made+b.Copied != b.Consumed+b.Lost+b.InFlight {
			t.Errorf("%s, %s: at %v: %+v", s.Services[0].Method, s.Services[0].Scheduler, part, b)
		}
	}
}

// A load beyond the limits of a scenario is rejected.
func TestTimes(t *testing.T) {
	for _, c := range []struct {
		factor float64
		bad    bool
	}{{factor: 1000}, {1e9, true}, {1e-9, true}, {math.NaN(), true}} {
		s, err := Parse("x.yaml", []byte(strings.Replace(routed, "METHOD", "tunnel", 1)), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Times(c.factor); (err != nil) != c.bad {
			t.Errorf("%v times: %v", c.factor, err)
		}
	}
}

// The requests of a trace have the times, clients and sizes of its file.
func TestTrace(t *testing.T) {
	const text = `duration: 4s
topology:
  clients: [{name: user, count: 2}]
  balancers: [{name: lb}]
  servers: [{name: web}]
  links: [{between: [user, lb], rate: 10Mbit}, {between: [lb, web], rate: 10Mbit}]
services: [{name: shop, method: tunnel, servers: web}]
load: [{from: user, to: shop, protocol: PROTOCOL, trace: asked, start: 1s, end: 3s}]
`
	for _, asked := range []string{
		"time,client,bytes\n0.25,a,1200\n0.5,b,0\n1.25,c,400\n1.25,a,1\n1.5,d,0\n2.5,a,9\n",
		"# as ns-2's tools print it\n.25 10 1200\n.5 11 0\n\n1.25 12 400 # again\n125e-2\t10\t1\n1.5 3 0\n2.5 10 9",
	} {
		for _, protocol := range []string{"udp", "tcp"} {
			s, err := Parse("x.yaml", []byte(strings.Replace(text, "PROTOCOL", protocol, 1)), func(string) ([]byte, error) { return []byte(asked), nil })
			if err != nil {
				t.Fatal(err)
			}
			n, err := build[sim.Nanoseconds](s, 1)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range []struct {
				until  float64
				counts [2]uint64 // of user-1, which represents a and c, and of user-2, which represents b and d
			}{{1.249, [2]uint64{}}, {1.251, [2]uint64{1}}, {1.499, [2]uint64{1}}, {1.501, [2]uint64{1, 1}}, {2.3, [2]uint64{3, 1}}, {4, [2]uint64{3, 2}}} {
				if err := n.Run(c.until); err != nil {
					t.Fatal(err)
				}
				for i, want := range c.counts {
					k := n.At(n.nodes[fmt.Sprintf("user-%d", i+1)])
					got := k.Sent
					if protocol == "tcp" {
						got = k.Opened
					}
					if got != want {
						t.Errorf("%s, after %v s user-%d asked %d times, want %d", protocol, c.until, i+1, got, want)
					}
				}
			}
		}
	}
}

// TestTableOfOneBucket checks that a packet visits all connections that are newer than
// its own.
func TestTableOfOneBucket(t *testing.T) {
	for _, services := range []string{"", "  - {name: other, servers: web}\n"} {
		const text = `duration: 4s
topology:
  clients: [{name: user}]
  balancers: [{name: lb}]
  servers: [{name: web}]
  links: [{between: [user, lb], rate: 1Tbit}, {between: [lb, web], rate: 1Tbit}]
services:
  - {name: shop, method: dr, scheduler: rr, servers: web, buckets: 1, looks: 10ms}
OTHERload: [{from: user, to: shop, arrivals: trace, times: [0s, 1s, 2s]}]
`
		o := simulate(t, text, "OTHER", services)
		// Each connection has SYN, request and FIN, while it is the newest one. Its SYN
		// visits all older ones.
		want := found{"lb", "shop", 1, sim.Chains{Connections: 3, Longest: 3, Lookups: 9, Looked: 0 + 1 + 2 + 3*2}}
		if len(o.tables) != 1 || o.tables[0] != want {
			t.Errorf("%+v, want %+v", o.tables, want)
		}
		// The first waits for one lookup step, the last for three.
		if got := []float64{o.watch.all.Quantile(0.3), o.watch.all.Quantile(1)}; math.Abs(got[0]-0.01) > 0.001 || math.Abs(got[1]-0.03) > 0.001 {
			t.Errorf("answers took from %v to %v s, want from 0.01 to 0.03", got[0], got[1])
		}
	}
}
