package sim

import (
	"math"
	"testing"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/sim/stochastic"
	"github.com/fairlead/fairlead/lab/sim/traffic"
)

// queueing simulates one server with Poisson load and negligible network delay, with the
// given rate of arrivals per second and for the given time.
func queueing(t *testing.T, seed uint32, s Server, rate, seconds float64) (delay float64, of Counts) {
	t.Helper()
	n := New[Nanoseconds](Config{Seed: seed})
	web := n.Server(s)
	c := n.Client(Client{Name: "c", To: web, Load: traffic.Poisson(rate, nil)})
	n.Link(c, web, 1e18, 0, 1<<30)
	if err := n.Run(seconds); err != nil {
		t.Fatal(err)
	}
	checkBooks(t, n)
	return n.At(c).Delay / float64(n.At(c).Got), n.At(web)
}

// within checks that the mean over seeds matches theory, and reports the difference
// otherwise.
func within(t *testing.T, what string, want, tolerance float64, one func(seed uint32) float64) {
	t.Helper()
	const seeds = 8
	sum := 0.0
	for seed := range uint32(seeds) {
		sum += one(seed + 1)
	}
	if got := sum / seeds; math.Abs(got/want-1) > tolerance {
		t.Errorf("%s is %.6f, in theory %.6f", what, got, want)
	}
}

// Servers with a service rate of 1,000 per second, at loads of 0.5 and 0.8.
func TestServersQueueAsInTheory(t *testing.T) {
	const mu = 1000.0
	for _, load := range []float64{0.5, 0.8} {
		lambda := load * mu
		within(t, "M/M/1: time in the system", 1/(mu-lambda), 0.04, func(seed uint32) float64 {
			d, _ := queueing(t, seed, Server{Name: "m", Takes: stochastic.Exponential(1 / mu)}, lambda, 100)
			return d
		})
		within(t, "M/D/1: time in the system", 1/mu+load/(2*mu*(1-load)), 0.03, func(seed uint32) float64 {
			d, _ := queueing(t, seed, Server{Name: "d", Takes: stochastic.Always(1 / mu)}, lambda, 100)
			return d
		})
		// Erlang C for two cores: the probability to wait is 2r²/(1+r), with r the load
		// of one core.
		within(t, "M/M/2: time in the system", 1/mu+2*load*load/(1+load)/(2*mu-2*lambda), 0.03, func(seed uint32) float64 {
			d, _ := queueing(t, seed, Server{Name: "m2", Cores: 2, Takes: stochastic.Exponential(1 / mu)}, 2*lambda, 50)
			return d
		})
	}
}

// TestLossIsAsInTheory: an M/M/1/3 queue loses (1-r) r³ / (1-r⁴). At overload it serves
// at its rate.
func TestLossIsAsInTheory(t *testing.T) {
	const mu, r = 1000.0, 0.8
	within(t, "M/M/1/3: part that is lost", (1-r)*r*r*r/(1-r*r*r*r), 0.03, func(seed uint32) float64 {
		_, c := queueing(t, seed, Server{Name: "m", Takes: stochastic.Exponential(1 / mu), Queue: 2}, r*mu, 100)
		return float64(c.Dropped) / float64(c.Got)
	})
	within(t, "replies a second at overload", mu, 0.01, func(seed uint32) float64 {
		_, c := queueing(t, seed, Server{Name: "d", Takes: stochastic.Always(1 / mu), Queue: 10}, 3*mu, 20)
		return float64(c.Sent) / 20
	})
}

// TestHeavyTailsWaitAsInTheory: an M/G/1 queue waits load/(1-load) * E(S²)/2E(S)
// (Pollaczek-Khinchine), for a bounded Pareto distribution with shape 2.5.
func TestHeavyTailsWaitAsInTheory(t *testing.T) {
	const shape, low, high, load = 2.5, 1000.0, 50000.0, 0.6
	moment := func(k float64) float64 {
		return shape / (shape - k) * math.Pow(low, shape) * (math.Pow(low, k-shape) - math.Pow(high, k-shape)) / (1 - math.Pow(low/high, shape))
	}
	const speed = 1e6
	es, es2 := moment(1)/speed, moment(2)/speed/speed
	within(t, "M/G/1: time in the system", es+load/(1-load)*es2/(2*es), 0.05, func(seed uint32) float64 {
		n := New[Nanoseconds](Config{Seed: seed})
		web := n.Server(Server{Name: "g", Speed: speed})
		c := n.Client(Client{Name: "c", To: web, Load: traffic.Poisson(load/es, stochastic.Pareto(shape, low, high))})
		n.Link(c, web, 1e18, 0, 1<<30)
		if err := n.Run(300); err != nil {
			t.Fatal(err)
		}
		return n.At(c).Delay / float64(n.At(c).Got)
	})
}

// TestLinesQueueAsInTheory: a line and a switch's port are M/D/1 queues. 500 bytes take
// 0.4 ms at 10 Mbit/s. At a switch they take as long as 538 bytes, of which the last 12
// come after the frame's end.
func TestLinesQueueAsInTheory(t *testing.T) {
	const load = 0.7
	wait := func(takes float64) float64 { return load / (1 - load) * takes / 2 }
	const line, frame, received = 500 * 8 / 10e6, 538 * 8 / 10e6, 526 * 8 / 10e6
	one := func(of func(n *Net[Nanoseconds], web, c Node), rate float64) func(uint32) float64 {
		return func(seed uint32) float64 {
			n := New[Nanoseconds](Config{Seed: seed})
			web := n.Server(Server{Name: "web"})
			c := n.Client(Client{Name: "c", To: web, Load: traffic.Poisson(rate, nil)})
			of(n, web, c)
			if err := n.Run(60); err != nil {
				t.Fatal(err)
			}
			return n.At(c).Delay / float64(n.At(c).Got)
		}
	}
	// Replies come at the rate at which requests got through, so they do not queue.
	within(t, "a line's round trip", 2*line+wait(line), 0.03, one(func(n *Net[Nanoseconds], web, c Node) {
		n.Link(c, web, 10e6, 0, 1<<30)
	}, load/line))
	within(t, "a switch's round trip", 4*received+wait(frame), 0.03, one(func(n *Net[Nanoseconds], web, c Node) {
		n.SwitchedLAN("switch", 0, []Port{{web, 10e6, 1 << 30}, {c, 10e6, 1 << 30}})
	}, load/frame))
}

// TestProcessorQueuesAsInTheory: the load balancer is an M/D/1 queue.
func TestProcessorQueuesAsInTheory(t *testing.T) {
	const takes, load = 1e-3, 0.75
	within(t, "a balancer's time", takes+load/(1-load)*takes/2, 0.04, func(seed uint32) float64 {
		n := New[Nanoseconds](Config{Seed: seed})
		web := n.Server(Server{Name: "web"})
		lb, err := n.Balancer(Balancer{Name: "lb", Method: service.DR, Scheduler: service.RoundRobin, Servers: []Weighted{{Node: web}}})
		if err != nil {
			t.Fatal(err)
		}
		n.Processor(lb, Processor{Takes: stochastic.Always(takes)})
		c := n.Client(Client{Name: "c", To: lb, Load: traffic.Poisson(load/takes, nil)})
		n.Link(c, lb, 1e18, 0, 1<<30)
		n.Link(lb, web, 1e18, 0, 1<<30)
		n.Link(web, c, 1e18, 0, 1<<30)
		if err := n.Run(100); err != nil {
			t.Fatal(err)
		}
		return n.At(c).Delay / float64(n.At(c).Got)
	})
}
