package routing

import (
	"fmt"
	"math"
	"time"
)

// The events of a trial.
const (
	Stop          = "a balancer stops in order"
	Kill          = "a balancer is killed"
	Cut           = "a balancer is cut off"
	ReflectorKill = "a reflector is killed"
	ReflectorCut  = "a reflector is cut off"
	StopAfterKill = "a balancer stops, a reflector was killed"
	StopAfterCut  = "a balancer stops, a reflector was cut off"
	Start         = "all balancers start"
)

const (
	within = 500 * time.Millisecond // in which all speakers start
	before = 50 * time.Millisecond  // how long the reflector dies before the load balancer
	limit  = time.Hour              // of a trial's duration
	// Churn starts earlier, by this time and by several times MRAI.
	churnsBefore   = 2 * time.Second
	churnIntervals = 2
)

// Happenings contains all events.
var Happenings = []string{Stop, Kill, Cut, ReflectorKill, ReflectorCut, StopAfterKill, StopAfterCut, Start}

// Linger is how long a stopping load balancer continues to forward after its routes were
// withdrawn: the agent's default.
const Linger = 500 * time.Millisecond

// Outcome is the result of a trial.
type Outcome struct {
	// Took is the time from the event until the last router had written its consequences,
	// or, without any, until all nodes had processed it.
	Took time.Duration
	// Blind is how long routers, on average, sent packets to a load balancer that did not
	// forward them.
	Blind time.Duration
	// Taken is the number of updates that the busiest node had to process.
	Taken int64
}

// trial is a network in which an event happens.
type trial struct {
	*network
	at    int64   // time of the event
	ended []int64 // time at which each router had written that the victim is gone; 0: not yet
	left  int
	last  int64 // time of the last write of any router
}

// Try simulates an event.
func (c *Config) Try(what string) (*Outcome, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	t := &trial{network: newNetwork(c), ended: make([]int64, c.Routers), left: c.Routers}
	t.network.wrote = t.note
	switch what {
	case Start:
		return t.start(), nil
	case ReflectorKill, ReflectorCut:
		t.settled()
		t.kill(t.top(), what == ReflectorCut)
		return t.digest(), nil
	}
	t.settled()
	t.victim = int32(t.random.Below(c.Speakers))
	if c.Churn > 0 {
		t.to.At(0, event{kind: churns})
	}
	t.at = int64(max(churnsBefore, churnIntervals*c.MRAI))
	serves := t.at // the time until which the victim forwards
	const loud, silent = 0, 1
	switch what {
	case StopAfterKill:
		t.to.At(t.at-int64(before), event{kind: fails, node: t.top(), peer: loud})
	case StopAfterCut:
		t.to.At(t.at-int64(before), event{kind: fails, node: t.top(), peer: silent})
	}
	switch what {
	case Stop, StopAfterKill, StopAfterCut:
		t.to.At(t.at, event{kind: stops, node: t.victim})
		serves += int64(Linger)
	case Kill:
		t.to.At(t.at, event{kind: dies, node: t.victim, peer: loud})
	case Cut:
		t.to.At(t.at, event{kind: dies, node: t.victim, peer: silent})
	default:
		return nil, fmt.Errorf("routing: nothing is known of %q", what)
	}
	return t.await(serves)
}

// top is the reflector that dies: one of those that advertise to the routers.
func (t *trial) top() int32 { return t.level[t.c.Depth-1][0] }

func (t *trial) note(router int, speaker int32, up bool, at int64) {
	t.last = max(t.last, at)
	if speaker == t.victim && !up && t.ended[router] == 0 {
		t.ended[router] = at
		t.left--
	}
}

// await runs until all routers have removed the victim.
func (t *trial) await(serves int64) (*Outcome, error) {
	for end := t.at; t.left > 0; end += int64(100 * time.Millisecond) {
		if end > t.at+int64(limit) {
			return nil, fmt.Errorf("routing: routers still sent packets after %s", limit)
		}
		t.run(end)
	}
	o := &Outcome{Taken: t.busiest()}
	for _, at := range t.ended {
		o.Took = max(o.Took, time.Duration(at-t.at))
		o.Blind += time.Duration(max(0, at-serves)) / time.Duration(t.c.Routers)
	}
	return o, nil
}

// digest runs until nothing is left to do.
func (t *trial) digest() *Outcome {
	t.run(math.MaxInt64)
	o := &Outcome{Taken: t.busiest(), Took: time.Duration(t.last)}
	for i := range t.nodes {
		if k := &t.nodes[i]; k.taken > 0 {
			o.Took = max(o.Took, time.Duration(k.idle))
		}
	}
	return o
}

func (t *trial) start() *Outcome {
	for s := range int32(t.c.Speakers) {
		t.to.At(int64(t.random.Float()*float64(within)), event{kind: starts, node: s})
	}
	return t.digest()
}

func (t *trial) busiest() (most int64) {
	for i := range t.nodes {
		most = max(most, t.nodes[i].taken)
	}
	return most
}
