package scenario

import (
	"math"
	"slices"

	"github.com/fairlead/fairlead/lab/sim"
	"github.com/fairlead/fairlead/lab/sim/scenario/histogram"
)

// watch records response times, by interval and by the spans between events.
type watch struct {
	interval float64
	bounds   []float64 // the ends of the spans
	spans    []histogram.Times
	bins     []histogram.Times
	all      histogram.Times
	loads    [][]histogram.Times // by load and span
}

func newWatch(s *Scenario) *watch {
	w := &watch{interval: s.Interval, bins: make([]histogram.Times, int(math.Ceil(s.Duration/s.Interval)))}
	for i := range s.Events {
		w.bounds = append(w.bounds, s.Events[i].At)
	}
	w.bounds = append(append(w.bounds, s.recovered...), s.Duration)
	slices.Sort(w.bounds)
	w.bounds = slices.DeleteFunc(slices.Compact(w.bounds), func(at float64) bool { return at <= 0 })
	w.spans = make([]histogram.Times, len(w.bounds))
	for range s.Load {
		w.loads = append(w.loads, make([]histogram.Times, len(w.bounds)))
	}
	return w
}

// took records a reply to a load.
func (w *watch) took(load int, now, seconds float64) {
	if i := int(now / w.interval); i < len(w.bins) {
		w.bins[i].Add(seconds)
	}
	if i, _ := slices.BinarySearch(w.bounds, now); i < len(w.spans) {
		w.spans[i].Add(seconds)
		w.loads[load][i].Add(seconds)
	}
	w.all.Add(seconds)
}

// reasons are the reasons why packets are lost.
var reasons = []struct {
	name string
	of   func(sim.Counts) uint64
}{
	{"queue full", func(c sim.Counts) uint64 { return c.Dropped }},
	{"collisions", func(c sim.Counts) uint64 { return c.GivenUp }},
	{"collision not detected in a gap", func(c sim.Counts) uint64 { return c.Silent }},
	{"sent to a failed node", func(c sim.Counts) uint64 { return c.Dead }},
	{"link cut", func(c sim.Counts) uint64 { return c.Cut }},
	{"no path or server", func(c sim.Counts) uint64 { return c.Unserved }},
}

// tally contains the counts of a whole network over some time.
type tally struct {
	asked, answered          float64 // connections opened and requests sent with udp; replies
	begun                    float64 // the connections in asked
	broken, givenUp, retried float64
	lost                     []float64 // by reason
	unanswered               float64   // with udp
	loads                    []float64 // replies by load
}

func newTally(s *Scenario) tally {
	return tally{lost: make([]float64, len(reasons)), loads: make([]float64, len(s.Load))}
}

// add adds the counts of a node. load is nil if the node is not a client.
func (t *tally) add(s *Scenario, load *int, c sim.Counts) {
	for i, r := range reasons {
		t.lost[i] += float64(r.of(c))
	}
	switch {
	case load == nil:
	case s.Load[*load].Protocol == UDP:
		t.loads[*load] += float64(c.Got)
		t.asked += float64(c.Sent)
		t.answered += float64(c.Got)
		t.unanswered += float64(c.Sent) - float64(c.Got)
	default:
		t.loads[*load] += float64(c.Answers)
		t.asked += float64(c.Opened)
		t.begun += float64(c.Opened)
		t.answered += float64(c.Answers)
		t.broken += float64(c.Broken)
		t.givenUp += float64(c.TimedOut)
		t.retried += float64(c.Retried)
	}
}

func (t tally) minus(o tally) tally {
	d := tally{t.asked - o.asked, t.answered - o.answered, t.begun - o.begun, t.broken - o.broken, t.givenUp - o.givenUp,
		t.retried - o.retried, slices.Clone(t.lost), t.unanswered - o.unanswered, slices.Clone(t.loads)}
	for i := range o.lost {
		d.lost[i] -= o.lost[i]
	}
	for i := range o.loads {
		d.loads[i] -= o.loads[i]
	}
	return d
}

// failed returns the share of requests and connections that failed.
func (t tally) failed() float64 {
	return (t.broken + t.givenUp + max(0, t.unanswered)) / max(1, t.asked)
}

func (t tally) losses() (sum float64) {
	for _, l := range t.lost {
		sum += l
	}
	return sum
}
