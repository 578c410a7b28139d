package demo

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// Result is the result of a run: the object that --json prints. Its field names are
// stable.
type Result struct {
	Version  string    `json:"version"`
	Kernel   string    `json:"kernel"`
	Services []Service `json:"services"`
	Load     Load      `json:"load"`
	// Tables are the router's kernel routes, as in the paper's Fig. 12.
	Tables []string `json:"tables"`
	Events []Event  `json:"events"`
	// Leftovers are what the run could not remove.
	Leftovers []string `json:"leftovers"`
	// Report is the path of the HTML report.
	Report string `json:"report"`
	Passed bool   `json:"passed"`
	// Reasons are why it did not pass.
	Reasons []string `json:"reasons"`
	// Shares are the backends' shares of the requests during the steady phase.
	Shares map[string]float64 `json:"shares"`

	samples []Sample
	// foreign means that the upstream router is not ours.
	foreign bool
	// stateful means that the load balancers track flows.
	stateful bool
	// sampled is the number of requests behind Shares.
	sampled uint64
}

// Service is one of the services of a run.
type Service struct {
	Name      string   `json:"name"`
	VIP       string   `json:"vip"`
	Port      uint16   `json:"port"`
	Method    string   `json:"method"`
	Scheduler string   `json:"scheduler"`
	Balancers []string `json:"balancers"`
	NextHops  []string `json:"nextHops"`
}

// Load is the sum of what the clients observed.
type Load struct {
	Requests  uint64            `json:"requests"`
	Failed    uint64            `json:"failed"`
	PerServer map[string]uint64 `json:"perServer"`
	// PerBalancer counts the connections opened through each load balancer, by its own
	// data plane.
	PerBalancer map[string]uint64 `json:"perBalancer"`
}

// The events, in order.
const (
	AddBalancer    = "add-balancer"
	RemoveBalancer = "remove-balancer"
	KillBalancer   = "kill-balancer"
	CutBalancer    = "cut-balancer"
	AddServer      = "add-server"
	DrainServer    = "drain-server"
	KillServer     = "kill-server"
)

// Event is one change made under load. Times are in milliseconds; StartedMs counts from
// the start of the load.
type Event struct {
	Name      string  `json:"name"`
	StartedMs float64 `json:"startedMs"`
	// ConvergedMs counts from the event's start until the router's kernel table, or for
	// backends the data plane of every load balancer, was correct; -1 if it never was.
	ConvergedMs float64 `json:"convergedMs"`
	// Requests, Failed and BrokenConnections are those from the event's start
	// until the next one's.
	Requests          uint64 `json:"requests"`
	Failed            uint64 `json:"failed"`
	BrokenConnections uint64 `json:"brokenConnections"`
	// Subject is the load balancer or backend that was added or removed.
	Subject string `json:"subject"`
}

// Sample is the state of the load in one short interval.
type Sample struct {
	At time.Duration
	// Rates are in requests (backends) or packets (load balancers) per second.
	PerServer, PerBalancer map[string]float64
	Failed                 uint64
}

// bounds are the longest acceptable convergence times, in milliseconds.
var bounds = map[string]float64{
	AddBalancer: 2000, RemoveBalancer: 100, KillBalancer: 100, CutBalancer: 1500,
	AddServer: 2000, DrainServer: 2000,
	KillServer: 3000, // two probes, half a second apart, and their timeouts
}

// bound is the longest acceptable convergence time of an event. Other routers get
// additional time: FRR's bgpd delays every change by 50 ms, twice if a path is replaced
// and then withdrawn.
func (r *Result) bound(event string) float64 {
	if r.foreign && strings.HasSuffix(event, "-balancer") {
		return bounds[event] + 200
	}
	return bounds[event]
}

// lossless reports whether an event must cost the clients nothing. A load balancer that
// is removed takes its tracked flows along, so modes and schedulers that track flows are
// not lossless then.
func lossless(event string, stateless bool) bool {
	switch event {
	case AddBalancer, RemoveBalancer:
		return stateless
	case AddServer, DrainServer:
		return true
	}
	return false
}

// shareTolerance is how far a backend's share may be from even: 10 %, or four standard
// deviations if there are so many backends, or so few requests, that chance alone exceeds
// that.
func shareTolerance(requests uint64, servers int) float64 {
	if requests == 0 {
		return 0.10
	}
	return max(0.10, 4/math.Sqrt(float64(requests)/float64(servers)))
}

// judge fills in Passed and Reasons.
func (r *Result) judge(stateless bool) {
	r.Reasons, r.stateful = []string{}, !stateless
	fail := func(format string, args ...any) { r.Reasons = append(r.Reasons, fmt.Sprintf(format, args...)) }
	for _, e := range r.Events {
		if bound := r.bound(e.Name); e.ConvergedMs < 0 {
			fail("%s never converged", e.Name)
		} else if e.ConvergedMs > bound {
			fail("%s took %.0f ms, more than %.0f ms", e.Name, e.ConvergedMs, bound)
		}
		if lossless(e.Name, stateless) && e.Failed+e.BrokenConnections > 0 {
			fail("%s cost %d failed requests and %d broken connections", e.Name, e.Failed, e.BrokenConnections)
		}
		if e.Requests == 0 {
			fail("no request was answered during %s", e.Name)
		}
	}
	tolerance := shareTolerance(r.sampled, len(r.Shares))
	for _, name := range sortedKeys(r.Shares) {
		if off := r.Shares[name]*float64(len(r.Shares)) - 1; math.Abs(off) > tolerance {
			fail("server %s got %.1f %% of the requests: %+.1f %% off an even share", name, 100*r.Shares[name], 100*off)
		}
	}
	if len(r.Shares) == 0 {
		fail("no request was answered while nothing changed")
	}
	if len(r.Leftovers) > 0 {
		fail("left behind: %v", r.Leftovers)
	}
	r.Passed = len(r.Reasons) == 0
}

// Verdict is the result of the run in one line.
func (r *Result) Verdict() string {
	if !r.Passed {
		return "FAILED: " + strings.Join(r.Reasons, "; ")
	}
	text := fmt.Sprintf("PASSED: %d events under load, %d requests, %d failed", len(r.Events), r.Load.Requests, r.Load.Failed)
	if broken := r.brokenByBalancers(); r.stateful && broken > 0 {
		text += fmt.Sprintf(", %d connections broken with the balancers that remembered them (tunnel and dsr-nat with maglev remember none)", broken)
	}
	if r.Report != "" {
		text += "; report in " + r.Report
	}
	return text
}

// brokenByBalancers counts the connections broken by events about load balancers.
func (r *Result) brokenByBalancers() (broken uint64) {
	for _, e := range r.Events {
		if strings.HasSuffix(e.Name, "-balancer") {
			broken += e.BrokenConnections
		}
	}
	return broken
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
