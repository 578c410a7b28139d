package routing

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// small is a network that can be calculated by hand.
func small() Config {
	return Config{Speakers: 1, Depth: 1, Reflectors: 1, Routers: 1, Prefixes: 2, Width: 1, Hold: 9 * time.Second, Interval: 300 * time.Millisecond, Multiplier: 3,
		Costs: Costs{Link: 100, Wake: 2000, Death: 40_000, Path: 500_000, Send: 6_000_000, Write: 70_000_000}, Seed: 1}
}

func try(t *testing.T, c Config, what string) *Outcome {
	t.Helper()
	o, err := c.Try(what)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestByHand(t *testing.T) {
	one := small()
	hop := one.Link + one.Wake
	alone := 2*hop + 2*2*one.Path + 2*one.Send + time.Millisecond + 2*one.Write
	if o := try(t, one, Stop); o.Took != alone || o.Blind != 0 || o.Taken != 1 {
		t.Errorf("a stop: %+v, want %s", o, alone)
	}
	if o := try(t, one, Kill); o.Took != alone+one.Death || o.Blind != o.Took {
		t.Errorf("a kill: %+v, want %s", o, alone+one.Death)
	}
	deep := one
	deep.Depth = 3
	if o, more := try(t, deep, Stop), 2*(hop+2*one.Path+2*one.Send); o.Took != alone+more {
		t.Errorf("through three reflectors: %+v, want %s", o, alone+more)
	}
	// The second reflector's update is one more for the router, which receives it before
	// it has processed the first. A withdrawal takes effect when both have sent it.
	two := one
	two.Reflectors = 2
	if o := try(t, two, Stop); o.Took != alone+2*one.Path || o.Taken != 2 {
		t.Errorf("two reflectors: %+v, want %s", o, alone+2*one.Path)
	}
	slow := one
	slow.Write = 400 * time.Millisecond
	if o, blind := try(t, slow, Stop), alone+2*(slow.Write-one.Write)-Linger; o.Blind != blind {
		t.Errorf("a slow kernel: %+v, want %s blind", o, blind)
	}
}

// Silence is detected within the limits of BFD, or of the hold time.
func TestSilence(t *testing.T) {
	c := small()
	c.Costs = Costs{}
	least, greatest := time.Hour, time.Duration(0)
	for c.Seed = 1; c.Seed < 400; c.Seed++ {
		o := try(t, c, Cut)
		least, greatest = min(least, o.Took), max(greatest, o.Took)
	}
	if least < 600*time.Millisecond || least > 620*time.Millisecond || greatest > 901*time.Millisecond || greatest < 885*time.Millisecond {
		t.Errorf("BFD: %s to %s", least, greatest)
	}
	c.Interval = 0
	if o := try(t, c, Cut); o.Took < 6*time.Second || o.Took > 9001*time.Millisecond {
		t.Errorf("hold time: %+v", o)
	}
}

// With one of two reflectors gone, no packet is lost. Every route was received twice, and
// each path is processed once.
func TestReflectorsAreTwo(t *testing.T) {
	c := small()
	c.Speakers, c.Reflectors, c.Width = 50, 2, 5
	c.Costs.Write = 0
	for _, what := range []string{ReflectorKill, ReflectorCut} {
		o := try(t, c, what)
		if busy := 50 * 2 * c.Path; o.Blind != 0 || o.Took < busy || o.Taken != 50 {
			t.Errorf("%s: %+v", what, o)
		}
	}
	if o := try(t, c, StopAfterCut); o.Took < 500*time.Millisecond || o.Took > 900*time.Millisecond {
		t.Errorf("a route that only a silent reflector holds goes when its silence is noticed: %+v", o)
	}
}

func TestIntervalsGather(t *testing.T) {
	c := small()
	c.Speakers, c.Depth, c.Prefixes, c.MRAI, c.Costs = 64, 2, 1, 5*time.Second, Costs{}
	if o := try(t, c, Start); o.Took < 3750*time.Millisecond || o.Took > 11*time.Second {
		t.Errorf("all but the first wait for an interval at each reflector: %+v", o)
	}
	c.MRAI = 0
	if o := try(t, c, Start); o.Took > 600*time.Millisecond {
		t.Errorf("without intervals: %+v", o)
	}
}

// After any events in any network, once it is quiet, routers have exactly the routes that
// exist and are reachable.
func TestRoutersHoldWhatIsThere(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for round := range uint32(150) {
		c := small()
		c.Speakers, c.Depth, c.Reflectors, c.Routers, c.Width = 1+rng.IntN(60), 1+rng.IntN(3), 1+rng.IntN(2), 1+rng.IntN(3), 1+rng.IntN(9)
		c.MRAI, c.Churn, c.Seed = time.Duration(rng.IntN(2))*time.Second, 0, round
		c.Costs.Write = time.Millisecond
		n := newNetwork(&c)
		if rng.IntN(2) == 0 {
			n.settled()
		}
		for range 40 {
			s, at := int32(rng.IntN(c.Speakers)), rng.Int64N(int64(20*time.Second))
			n.to.At(at, event{kind: []kind{stops, starts}[rng.IntN(2)], node: s})
		}
		for range rng.IntN(3) {
			level := n.level[rng.IntN(c.Depth)]
			n.to.At(rng.Int64N(int64(20*time.Second)), event{kind: fails, node: level[rng.IntN(len(level))], peer: int32(rng.IntN(2))})
		}
		n.run(math.MaxInt64)
		for _, id := range n.level[c.Depth] {
			for s, held := range n.nodes[id].router.written {
				if want := n.up[s] && n.reaches(n.leavesOf(int32(s))); held != want {
					t.Fatalf("round %d: %+v: speaker %d is held: %v, want %v", round, c, s, held, want)
				}
			}
		}
	}
}

// reaches reports whether updates to these nodes reach a router.
func (n *network) reaches(ids []int32) bool {
	for _, id := range ids {
		var above []int32
		for _, p := range n.nodes[id].peers {
			above = append(above, p.to)
		}
		if k := &n.nodes[id]; !k.dead && (k.router != nil || n.reaches(above)) {
			return true
		}
	}
	return false
}

func TestValidate(t *testing.T) {
	for field, change := range map[string]func(*Config){
		"speakers": func(c *Config) { c.Speakers = 0 }, "depth": func(c *Config) { c.Depth = 6 }, "reflectors": func(c *Config) { c.Reflectors = 3 },
		"width": func(c *Config) { c.Width = 0 }, "silence": func(c *Config) { c.Interval, c.Hold = 0, 0 }, "mrai": func(c *Config) { c.MRAI = -1 },
	} {
		c := small()
		change(&c)
		if _, err := c.Try(Stop); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
