package kubeproxy

import (
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/lab/bench"
)

// Goals (2 CPUs, a real API server, 50,000 Services with 3 endpoints each). Those of lines
// that grow apply to up to this number of Services, and grow with it.
const (
	goalServices            = 50_000
	goalStart, goalStartBig = 4.0, 6.0    // seconds
	goalFloor               = 1.2         // times the floor of the same run
	goalAddP50, goalAddP99  = 5.0, 25.0   // milliseconds
	goalP50, goalP99        = 0.1, 5.0    // milliseconds
	goalChurnP99            = 50.0        // milliseconds
	goalChurnCPU            = 5.0         // percent of a CPU
	goalRSS, goalMaps       = 220.0, 80.0 // MB
	// goalSame is the tolerance for noise between two durations that should be equal.
	goalSame = 1.2
	// goalCost is how much more a change may cost the agent with all Services, because
	// lookups miss the CPU caches.
	goalCost = 1.5
)

// line is a row of the report, computed from the figures of one key.
type line struct {
	text, key, unit string
	// percent selects the percentile; 0 selects the median.
	percent int
	goal    float64 // negative: none
	grows   bool    // the goal, with the number of Services
}

const none = -1

// lines contains the rows in their order.
var lines = []line{
	{"process start to all in the kernel", "start", "s", 0, goalStart, true},
	{"one Service more, p50", "add", "ms", 50, goalAddP50, false},
	{"one Service more, p99", "add", "ms", 99, goalAddP99, false},
	{"one endpoint changed, p50", "change", "ms", 50, goalP50, false},
	{"one endpoint changed, p99", "change", "ms", 99, goalP99, false},
	{"one endpoint changed, the agent's part of it, p50", "agent p50 change", "ms", 0, none, false},
	{"one endpoint changed, the agent's part of it, p99", "agent p99 change", "ms", 0, none, false},
	{"changes all the time: processor", "churn cpu", "% of one", 0, goalChurnCPU, false},
	{"changes all the time: delay, p50", "churn", "ms", 50, none, false},
	{"changes all the time: delay, p99", "churn", "ms", 99, goalChurnP99, false},
	{"changes all the time: the agent's part of the delay, p99", "agent p99 churn", "ms", 0, none, false},
	{"memory at most (RSS)", "rss most", "MB", 0, goalRSS, true},
	{"memory in the end (RSS)", "rss now", "MB", 0, none, false},
	{"memory of the kernel's maps", "maps", "MB", 0, goalMaps, true},
	{"connect to the first Service", "packet first", "µs", 0, none, false},
	{"connect to the last Service", "packet last", "µs", 0, none, false},
	{"killed and started again: in sync after", "restart", "s", 0, goalStart, true},
	{"killed and started again: entries rewritten", "rewritten", "entries", 0, 0, false},
	{"killed and started again: requests with a packet lost", "lost", "requests", 100, 0, false},
}

// row returns the row of a line for some figures, or false without any.
func (l line) row(f figures, among int) (bench.Row, bool) {
	values := f[l.key]
	if len(values) == 0 {
		return bench.Row{}, false
	}
	r := bench.Row{
		Case: fmt.Sprintf("%d Services: %s", among, l.text), Measured: l.of(values), Unit: l.unit,
		Min: slices.Min(values), Max: slices.Max(values), Runs: len(values),
	}
	if l.grows {
		l.goal *= max(1, float64(among)/goalServices)
	}
	if l.goal >= 0 {
		r = r.AtMost(l.goal)
	}
	return r, true
}

func (l line) of(values []float64) float64 {
	if l.percent == 0 {
		return percentile(values, 50)
	}
	return percentile(values, l.percent)
}

// report converts the figures to the common report format.
func (e *experiment) report() *bench.Report {
	r := bench.New("kube")
	peer := fmt.Sprintf("kube-proxy among %d:", e.PeerServices)
	for _, l := range lines {
		row, ok := l.row(e.ours, e.Services)
		if theirs := l.rounds(e.peer); ok && len(theirs) > 0 {
			row = row.ComparedWith(peer, percentile(theirs, 50))
		}
		if ok {
			r.Rows = append(r.Rows, row)
		}
		r.Rows = append(r.Rows, e.after(l)...)
	}
	r.Rows = append(r.Rows, e.compared(peer)...)
	r.Rows = append(r.Rows, e.rolled()...)
	big := line{
		text: fmt.Sprintf("process start to all %d endpoints in the kernel", e.BigServices*e.BigEndpoints),
		key:  "start", unit: "s", goal: goalStartBig,
	}
	if row, ok := big.row(e.big, e.BigServices); ok {
		r.Rows = append(r.Rows, row)
		r.Rows = append(r.Rows, overFloor(e.big, e.BigServices, none)...)
	}
	r.Notes = e.notes
	r.Note("%d endpoints a Service; Services are seeded into etcd, changes are made through the API server; delays count from its answer: a change that was already in the kernel takes the time of one read", e.Endpoints)
	r.Note("the floor is a process that lists and decodes everything by a plain informer and writes as many entries to one map")
	return r
}

// after returns the additional rows of a line, which have no peer's figure.
func (e *experiment) after(l line) []bench.Row {
	switch l.key {
	case "start":
		return overFloor(e.ours, e.Services, goalFloor)
	case "agent p50 change":
		// With delays from the server's answer on, one lookup takes most of the time.
		if few := l.rounds(e.few); len(e.ours[l.key]) > 0 && len(few) > 0 {
			text := fmt.Sprintf("one endpoint changed, the agent's part of it, p50, over that among %d", e.PeerServices)
			return []bench.Row{single(text, "times", l.of(e.ours[l.key])/percentile(few, 50)).AtMost(goalCost)}
		}
	case "packet last":
		return ratio("connect to the last Service over the first", e.ours["packet last"], e.ours["packet first"], goalSame)
	}
	return nil
}

// compared returns Fairlead's figures with as many Services as kube-proxy's: the median
// of the rounds, and the ratios per round.
func (e *experiment) compared(peer string) (rows []bench.Row) {
	for _, l := range lines {
		ours, theirs := l.rounds(e.few), l.rounds(e.peer)
		if len(ours) == 0 {
			continue
		}
		row := bench.Plain(fmt.Sprintf("%d Services: %s", e.PeerServices, l.text), l.unit, ours...)
		row.Raw = nil
		if len(theirs) == len(ours) {
			row = row.Alternating(peer, ours, theirs)
		}
		rows = append(rows, row)
	}
	return rows
}

// rounds returns a line's figure for each round that has one.
func (l line) rounds(all []figures) (out []float64) {
	for _, f := range all {
		if len(f[l.key]) > 0 {
			out = append(out, l.of(f[l.key]))
		}
	}
	return out
}

func overFloor(f figures, among int, goal float64) []bench.Row {
	if len(f["floor"]) == 0 {
		return nil
	}
	floor, _ := line{text: "the floor of that", key: "floor", unit: "s", goal: none}.row(f, among)
	return append([]bench.Row{floor}, ratio(fmt.Sprintf("%d Services: start over the floor", among), f["start"], f["floor"], goal)...)
}

// ratio compares figures that were measured in alternation.
func ratio(text string, of, to []float64, goal float64) []bench.Row {
	if len(of) == 0 || len(of) != len(to) {
		return nil
	}
	s := bench.RatioTo("", of, to).Times
	row := bench.Row{Case: text, Measured: s.Median, Unit: "times", Min: s.Min, Max: s.Max, Runs: len(of)}
	if goal >= 0 {
		row = row.AtMost(goal)
	}
	return []bench.Row{row}
}

func single(text, unit string, value float64) bench.Row {
	return bench.Row{Case: text, Measured: value, Unit: unit, Min: value, Max: value, Runs: 1}
}

// rolled returns the rolling update with batched changes, compared with the same without
// batching.
func (e *experiment) rolled() (rows []bench.Row) {
	update := fmt.Sprintf("rolling update of %d pods in %d Services: ", e.RollingPods, e.RollingServices)
	for _, l := range []struct{ key, text, unit string }{
		{"rolling calls, ", "times written", "times"},
		{"rolling entries, ", "entries written", "entries"},
		{"rolling cpu, ", "processor time", "ms"},
		{"rolling delay, ", "last change to all in the kernel", "ms"},
	} {
		gathered, once := e.ours[l.key+"gathered"], e.ours[l.key+"at once"]
		if len(gathered) > 0 && len(once) > 0 {
			rows = append(rows, single(update+l.text, l.unit, gathered[0]).ComparedWith("not gathered:", once[0]))
		}
	}
	return rows
}
