package services

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/proxy"
)

const ms = time.Millisecond

// small is a cluster that can be calculated by hand.
func small() Config {
	return Config{Services: 10, Nodes: 4, Sample: 4, Seed: 1,
		Load:       Load{Rate: 1, Burst: 1, Pods: 1},
		Controller: Controller{Write: 5 * ms, Workers: 2},
		Server:     Server{Servers: 2, Cores: 1, Event: 10 * ms, Watch: ms, Bytes: 100, Bandwidth: 1e12},
		Agent:      Agent{Pacer: proxy.Pace{Window: 10 * ms, MaxDelay: 40 * ms}, Decode: 100 * ms, Pass: 1000 * ms, Entry: 7 * ms},
	}
}

func run1(t *testing.T, c Config) *Outcome {
	t.Helper()
	o, err := c.Run()
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestOneChangeByHand(t *testing.T) {
	o := run1(t, small())
	// A server notifies two nodes in 12 ms, the first one after half of that.
	first := 5*ms + 6*ms + 100*ms + 1007*ms
	if want := []time.Duration{first, first + 6*ms}; !slices.Equal(o.Delays, want) {
		t.Errorf("%v, want %v", o.Delays, want)
	}
	if o.Requests != 1 || o.Passes != 1 || o.Entries != 1 || o.Processor != 1107*ms {
		t.Errorf("%+v", o)
	}
	slow := small()
	slow.Bandwidth = 2 * 8 * 100 // both in one second
	if o := run1(t, slow); o.Delays[1]-o.Delays[0] != 500*ms {
		t.Errorf("a slow wire: %v", o.Delays)
	}
	whole := small()
	whole.All = ms
	if o := run1(t, whole); o.Delays[0] != first+10*ms {
		t.Errorf("an agent that writes all: %v", o.Delays)
	}
}

// Pending requests of the same Service are merged. Requests of other Services wait for a
// worker.
func TestController(t *testing.T) {
	c := small()
	c.Workers = 1
	at := func(all ...change) (got []int64) {
		for _, w := range c.writes(all) {
			got = append(got, w.at/int64(ms), int64(len(w.since)))
		}
		return got
	}
	is := func(what string, got []int64, want ...int64) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: at and of %v, want %v", what, got, want)
		}
	}
	in := func(n int64, service int32) change { return change{n * int64(ms), service} }
	is("one worker", at(in(0, 1), in(1, 2), in(2, 2), in(3, 3)), 5, 1, 10, 2, 15, 1)
	c.Gather = 500 * ms
	is("gathered", at(in(0, 1), in(1, 1), in(499, 1), in(502, 1)), 505, 3, 1007, 1)
	c.Gather, c.QPS, c.Ahead = 0, 10, 2
	is("two ahead, then ten a second", at(in(0, 1), in(0, 2), in(0, 3), in(0, 4)), 5, 1, 10, 1, 105, 1, 205, 1)
}

// Requests that arrive faster than nodes can be notified are queued.
func TestServerQueues(t *testing.T) {
	c := small()
	times := c.notified([]write{{at: 0}, {at: int64(ms)}, {at: int64(100 * ms)}}, 1)
	if want := []int64{int64(12 * ms), int64(24 * ms), int64(112 * ms)}; !slices.Equal(times, want) {
		t.Errorf("%v, want %v", times, want)
	}
}

// With Poisson changes and a constant time to notify, a server is an M/D/1 queue: the
// mean wait follows from the Pollaczek-Khinchine formula.
func TestServerIsMD1(t *testing.T) {
	c := small()
	c.Load, c.Controller = Load{Rate: 0.7 / 0.012, For: 3000 * time.Second}, Controller{Workers: 1 << 30}
	all := c.writes(c.changes())
	wait := 0.0
	for i, at := range c.notified(all, 1) {
		wait += float64(at-all[i].at)/float64(len(all)) - 12e6/float64(len(all))
	}
	if want := 0.7 * 12e6 / (2 * (1 - 0.7)); math.Abs(wait/want-1) > 0.05 {
		t.Errorf("mean wait %.3g, want %.3g", wait, want)
	}
}

// As measured with the product's own loop (docs/benchmarks/2026-11-22-kube.md, "Batching
// changes"): 10 pods behind each of 100 Services, 500 per second.
func TestGathersAsMeasured(t *testing.T) {
	for _, m := range []struct {
		window, most    time.Duration
		calls, entries  float64
		median, slowest time.Duration
	}{
		{0, 0, 992, 1000, ms, 100 * ms},
		{10 * ms, 40 * ms, 59, 920, 22 * ms, 54 * ms},
		{500 * ms, 500 * ms, 5, 416, 266 * ms, 502 * ms},
	} {
		c := small()
		c.Services, c.Nodes, c.Servers, c.Sample = 1000, 1, 1, 1
		c.Load, c.Controller = Load{Rate: 500, Burst: 100, Pods: 10}, Controller{Workers: 1 << 30}
		c.Server = Server{Servers: 1, Cores: 1, Bandwidth: 1e15}
		c.Agent = Agent{Pacer: proxy.Pace{Window: m.window, MaxDelay: m.most}, Entry: 30 * time.Microsecond}
		o := run1(t, c)
		about := func(what string, got, want, by float64) {
			if math.Abs(got/want-1) > by {
				t.Errorf("gathered for %s: %s %g, measured %g", m.window, what, got, want)
			}
		}
		about("calls", o.Passes, m.calls, 0.25)
		about("entries", o.Entries, m.entries, 0.1)
		if m.window > 0 {
			about("median", o.Quantile(0.5).Seconds(), m.median.Seconds(), 0.15)
		}
		if o.Quantile(1) > m.slowest*101/100 {
			t.Errorf("gathered for %s: the slowest %s, measured %s", m.window, o.Quantile(1), m.slowest)
		}
	}
}

// Periodic comparisons take CPU time, and no change waits for them.
func TestResync(t *testing.T) {
	c := small()
	c.Load = Load{Rate: 100, For: 30 * time.Second}
	c.Agent = Agent{Pacer: proxy.Pace{Window: 10 * ms, MaxDelay: 40 * ms}, Entry: 1, Resync: 3 * time.Second, Compare: 100 * ms}
	c.Server = Server{Servers: 1, Cores: 1, Bandwidth: 1e15}
	o := run1(t, c)
	if slowest := o.Quantile(1); slowest > 100*ms {
		t.Errorf("the slowest waits for %s", slowest)
	}
	if p := o.Processor.Seconds(); p < 6 || p > 9 {
		t.Errorf("%.1f s of processor time, want a quarter of 30 s", p)
	}
}

func TestParts(t *testing.T) {
	c := small()
	c.QPS, c.Ahead = 20, 30
	want := []Part{{"controller's requests", 20}, {"API servers' processors", 1 / 0.012}, {"API servers' network", 1e12 / 1600}, {"a node's agent", 1 / 0.107}}
	for i, p := range c.Parts() {
		if p.Name != want[i].Name || math.Abs(p.Most/want[i].Most-1) > 1e-9 {
			t.Errorf("%+v, want %+v", p, want[i])
		}
	}
}

func TestValidate(t *testing.T) {
	for field, change := range map[string]func(*Config){
		"services": func(c *Config) { c.Services = 0 }, "rate": func(c *Config) { c.Rate = math.NaN() }, "burst": func(c *Config) { c.Burst = 11 },
		"qps": func(c *Config) { c.QPS = 1 }, "pacer": func(c *Config) { c.Pacer = nil }, "load": func(c *Config) { c.Load = Load{Rate: 1} },
	} {
		c := small()
		change(&c)
		if _, err := c.Run(); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
