package survival

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/design"
	"github.com/fairlead/fairlead/lab/bench"
)

// Result contains the results of one run.
type Result struct {
	variant     variant
	connections int
	traffic     *traffic
	killed      map[uint64]string // killed backends by number

	// Events is in order of time.
	Events []Event
	// Breaks contains the breaks of all connections, in the order in which they were
	// noticed, except those to a killed backend, which are in Killed.
	Breaks, Killed []Break
	// Slowest is the longest response time, Exchanges the number of answers, Unopened the
	// number of failed attempts to open a connection.
	Slowest             time.Duration
	Exchanges, Unopened uint64
	// Length is the duration of the load.
	Length time.Duration
}

// Event is one change, with its effects.
type Event struct {
	Name, Subject string
	// At is the time since the start of the load.
	At time.Duration
	// Broken is the number of connections that broke between this event and the next.
	Broken int
	// Reasons and Servers split Broken by reason and by backend.
	Reasons map[string]int
	Servers map[uint64]int
}

// firstRetry is the time until a lost packet is first retransmitted. The request of a
// connection that hangs may have been sent that long before the event that broke it.
const firstRetry = 200 * time.Millisecond

// finish assigns the breaks to the events and computes the totals.
func (r *Result) finish() {
	r.Length = time.Since(r.traffic.began)
	r.Exchanges, r.Unopened = r.traffic.exchanges.Load(), r.traffic.unopened.Load()
	for _, b := range r.traffic.broken() {
		if _, dead := r.killed[b.Server]; dead {
			r.Killed = append(r.Killed, b)
			continue
		}
		r.Breaks = append(r.Breaks, b)
	}
	for i := range r.Events {
		r.Events[i].Reasons, r.Events[i].Servers = map[string]int{}, map[uint64]int{}
	}
	for _, b := range r.Breaks {
		if e := r.cause(b); e != nil {
			e.Broken++
			e.Reasons[b.Reason]++
			e.Servers[b.Server]++
		}
	}
	r.traffic.mu.Lock()
	defer r.traffic.mu.Unlock()
	for _, took := range r.traffic.slowest {
		r.Slowest = max(r.Slowest, took)
	}
}

// cause returns the event after which a connection broke, or nil if there was none yet.
func (r *Result) cause(b Break) *Event {
	at := b.At
	if b.Reason == timeout {
		at = b.Sent + firstRetry
	}
	for i := range slices.Backward(r.Events) {
		if r.Events[i].At <= at {
			return &r.Events[i]
		}
	}
	return nil
}

func (r *Result) verdict() string {
	text := fmt.Sprintf("%d of %d connections broken in %d events, %d exchanges, the slowest answer after %.2f s",
		len(r.Breaks), r.connections, len(r.Events), r.Exchanges, r.Slowest.Seconds())
	if len(r.Killed) > 0 {
		text += fmt.Sprintf(", %d more on killed servers", len(r.Killed))
	}
	return text
}

// Report converts the runs to the common report format.
func Report(o Options, results []*Result) *bench.Report {
	report := bench.New("survival")
	report.Note("%d connections through %d balancers to %d servers, a request every %s on each; timeout %s",
		o.Connections, o.Balancers, o.Servers, o.Every, o.Timeout)
	report.Note("storm: everything changes %d times within %s; each event has %s before the next", o.Rounds, stormLength, o.Settle)
	for _, r := range results {
		for _, e := range r.Events {
			report.Rows = append(report.Rows, r.row(e.Name, e.Broken))
			if e.Broken > 0 {
				report.Note("%s, %s (%s): %s; by server: %s", r.variant.name, e.Name, e.Subject, counts(e.Reasons), counts(e.Servers))
			}
		}
		report.Rows = append(report.Rows, r.row("all events", len(r.Breaks)))
		report.Note("%s: %s; %d attempts to open a connection failed", r.variant.name, r.verdict(), r.Unopened)
	}
	report.Charts = []design.Chart{draw(o, results)}
	return report
}

func (r *Result) row(name string, broken int) bench.Row {
	n := float64(broken)
	row := bench.Row{Case: r.variant.name + ": " + name, Measured: n, Unit: "broken connections", Min: n, Max: n, Runs: 1}
	if r.variant.goal {
		row = row.AtMost(0)
	}
	return row
}

// counts formats counts like "12 reset, 3 timeout".
func counts[K string | uint64](m map[K]int) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%d %v", m[k], k))
	}
	return strings.Join(parts, ", ")
}
