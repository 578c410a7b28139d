package status

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/internal/features"
	"github.com/fairlead/fairlead/router"
)

// Values of Status.Role for routing daemons.
const (
	RoleReflector = "reflector"
	RoleRouter    = "router"
)

// Routing is the source from which the Status of a reflector or a router is gathered.
type Routing struct {
	Version, Kernel, Node, Role string

	Started time.Time
	Peers   func() []advertise.Peer
	// Received returns the routes that the peers advertise.
	Received func() ([]advertise.RouteSet, error)
	// Table is the kernel's table; nil on a reflector.
	Table KernelTable
	// Degraded lists the optional kernel features that the router runs without. May be
	// nil.
	Degraded func() []features.Degraded
	// Refused returns the prefixes that are advertised but not accepted, with the reason.
	// May be nil.
	Refused func() (map[netip.Prefix]string, error)
}

// KernelTable is a router's part of the kernel routing table. It is implemented by
// router.Table.
type KernelTable interface {
	List() ([]router.Route, error)
	// Faults returns the prefixes whose routes are not as desired, sorted.
	Faults() []router.Fault
	// Failed returns the error that concerns no single prefix.
	Failed() error
}

// Gather returns the Status at a given time.
func (r Routing) Gather(now time.Time) Status {
	s := Status{
		Version: r.Version, Kernel: r.Kernel, Node: r.Node, Role: r.Role, Started: r.Started, Time: now, Peers: r.Peers(),
	}
	problem := func(object string, err error) {
		if err != nil {
			s.Problems = append(s.Problems, problem.Failed(object, err.Error()))
		}
	}
	received, err := r.Received()
	problem("BGP table", err)
	if r.Degraded != nil {
		s.Degraded = r.Degraded()
	}
	s.Problems = append(s.Problems, r.refusals(received)...)
	if r.Table == nil {
		s.Routes = paths(received)
		return s.complete()
	}
	table, err := r.Table.List()
	problem("kernel table", err)
	problem("kernel table", r.Table.Failed())
	faults := r.Table.Faults()
	s.Problems = append(s.Problems, degraded(faults)...)
	s.Table, s.Routes = table, installed(received, table, faults)
	return s.complete()
}

// RuleDegraded is the rule of a router's route that the kernel does not have as received.
const RuleDegraded plan.Rule = "degraded"

// degraded lists the prefixes whose routes are not as received.
func degraded(faults []router.Fault) (problems []problem.Problem) {
	for i, f := range faults {
		if i == namedRefusals {
			return append(problems, problem.Failed("kernel table", fmt.Sprintf("and %d more routes are degraded", len(faults)-i)))
		}
		message := oneLine(f.Err)
		if !f.Since.IsZero() {
			message = fmt.Sprintf("degraded since %s, %d tries, will retry: %s", f.Since.UTC().Format(time.RFC3339), f.Tries, message)
		}
		problems = append(problems, problem.Failed("route "+f.Prefix.String(), message))
	}
	return problems
}

// oneLine formats an error, which may be joined from several, on one line.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// namedRefusals limits how many rejected prefixes are listed.
const namedRefusals = 20

// refusals lists the prefixes that are not accepted, and those whose next hops do not get
// the advertised shares.
func (r Routing) refusals(received []advertise.RouteSet) (problems []problem.Problem) {
	for _, set := range received {
		if set.Uneven != "" && len(problems) < namedRefusals {
			problems = append(problems, problem.Problem{Object: "route " + set.Prefix.String(), Message: set.Uneven})
		}
	}
	if r.Refused == nil {
		return problems
	}
	refused, err := r.Refused()
	if err != nil {
		return problems // already reported for the BGP table
	}
	for i, p := range slices.SortedFunc(maps.Keys(refused), netip.Prefix.Compare) {
		if i == namedRefusals {
			more := fmt.Sprintf("and %d other prefixes are rejected", len(refused)-namedRefusals)
			return append(problems, problem.Problem{Object: "BGP table", Message: more})
		}
		problems = append(problems, problem.Problem{Object: "route " + p.String(), Message: refused[p]})
	}
	return problems
}

// paths returns the routes that a reflector received.
func paths(received []advertise.RouteSet) []Route {
	var routes []Route
	for _, set := range received {
		for _, nextHop := range set.NextHops {
			routes = append(routes, Route{Prefix: set.Prefix, NextHop: nextHop, Advertised: true})
		}
	}
	sortRoutes(routes)
	return routes
}

// installed returns the routes that a router's kernel has, and those that were received
// but are not in the kernel.
func installed(received []advertise.RouteSet, table []router.Route, faults []router.Fault) []Route {
	var routes []Route
	why := make(map[netip.Prefix]string, len(faults))
	for _, f := range faults {
		why[f.Prefix] = oneLine(f.Err)
	}
	held := make(map[netip.Prefix]router.Route, len(table))
	for _, r := range table {
		held[r.Prefix] = r
		for _, h := range r.Hops {
			routes = append(routes, Route{Prefix: r.Prefix, NextHop: h.Gateway, Advertised: true})
		}
	}
	for _, set := range received {
		for _, nextHop := range missing(set, held[set.Prefix]) {
			routes = append(routes, Route{Prefix: set.Prefix, NextHop: nextHop, Reason: "not yet installed in the kernel"})
		}
	}
	for i := range routes {
		if reason := why[routes[i].Prefix]; reason != "" {
			routes[i].Rule, routes[i].Reason = RuleDegraded, reason
		}
	}
	sortRoutes(routes)
	return routes
}

// missing returns the next hops that the kernel does not have. One that is behind a
// gateway is there under the gateway's address, and in its weight.
func missing(set advertise.RouteSet, held router.Route) []netip.Addr {
	has, want := 0, 0
	for _, h := range held.Hops {
		has += h.Weight
	}
	for i := range set.NextHops {
		want += set.Weight(i)
	}
	if has >= want {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(set.NextHops), func(nextHop netip.Addr) bool {
		return slices.ContainsFunc(held.Hops, func(h router.Hop) bool { return h.Gateway == nextHop })
	})
}
