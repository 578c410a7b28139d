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

// The roles that route, as Status.Role has them.
const (
	RoleReflector = "reflector"
	RoleRouter    = "router"
)

// Routing is where the Status of a reflector or a router is gathered from.
type Routing struct {
	Version, Kernel, Node, Role string

	Started time.Time
	Peers   func() []advertise.Peer
	// Heard gives what the peers announce.
	Heard func() ([]advertise.RouteSet, error)
	// Table is what the kernel holds; nil on a reflector.
	Table KernelTable
	// Degraded lists the optional kernel features that the router goes without; nil
	// for none.
	Degraded func() []features.Degraded
	// Refused gives the prefixes that are announced and not taken in, with the
	// reason; nil where all are.
	Refused func() (map[netip.Prefix]string, error)
}

// KernelTable is a router's part of its kernel's table; router.Table is the real one.
type KernelTable interface {
	List() ([]router.Route, error)
	// Faults are the prefixes whose routes are not as they should be, sorted.
	Faults() []router.Fault
	// Failed is what failed of no single prefix.
	Failed() error
}

// Gather gives the Status at a moment.
func (r Routing) Gather(now time.Time) Status {
	s := Status{
		Version: r.Version, Kernel: r.Kernel, Node: r.Node, Role: r.Role, Started: r.Started, Time: now, Peers: r.Peers(),
	}
	problem := func(object string, err error) {
		if err != nil {
			s.Problems = append(s.Problems, problem.Problem{Object: object, Message: err.Error()})
		}
	}
	heard, err := r.Heard()
	problem("BGP table", err)
	if r.Degraded != nil {
		s.Degraded = r.Degraded()
	}
	s.Problems = append(s.Problems, r.refusals(heard)...)
	if r.Table == nil {
		s.Routes = paths(heard)
		return s.complete()
	}
	table, err := r.Table.List()
	problem("kernel table", err)
	problem("kernel table", r.Table.Failed())
	faults := r.Table.Faults()
	s.Problems = append(s.Problems, degraded(faults)...)
	s.Table, s.Routes = table, installed(heard, table, faults)
	return s.complete()
}

// RuleDegraded is that of a router's route that the kernel does not hold as
// received.
const RuleDegraded plan.Rule = "degraded"

// degraded names the prefixes whose routes are not as received.
func degraded(faults []router.Fault) (problems []problem.Problem) {
	for i, f := range faults {
		if i == namedRefusals {
			return append(problems, problem.Problem{Object: "kernel table", Message: fmt.Sprintf("and %d more routes are degraded", len(faults)-i)})
		}
		message := oneLine(f.Err)
		if !f.Since.IsZero() {
			message = fmt.Sprintf("degraded since %s, %d tries, will retry: %s", f.Since.UTC().Format(time.RFC3339), f.Tries, message)
		}
		problems = append(problems, problem.Problem{Object: "route " + f.Prefix.String(), Message: message})
	}
	return problems
}

// oneLine is an error that may be joined of several.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// namedRefusals is how many prefixes are named as refused.
const namedRefusals = 20

// refusals names the prefixes that are not taken in, and those whose next hops
// do not get the shares that they name.
func (r Routing) refusals(heard []advertise.RouteSet) (problems []problem.Problem) {
	for _, set := range heard {
		if set.Uneven != "" && len(problems) < namedRefusals {
			problems = append(problems, problem.Problem{Object: "route " + set.Prefix.String(), Message: set.Uneven})
		}
	}
	if r.Refused == nil {
		return problems
	}
	refused, err := r.Refused()
	if err != nil {
		return problems // said of the BGP table already
	}
	for i, p := range slices.SortedFunc(maps.Keys(refused), netip.Prefix.Compare) {
		if i == namedRefusals {
			more := fmt.Sprintf("and %d other prefixes are refused", len(refused)-namedRefusals)
			return append(problems, problem.Problem{Object: "BGP table", Message: more})
		}
		problems = append(problems, problem.Problem{Object: "route " + p.String(), Message: refused[p]})
	}
	return problems
}

// paths are the routes that a reflector heard.
func paths(heard []advertise.RouteSet) []Route {
	var routes []Route
	for _, set := range heard {
		for _, nextHop := range set.NextHops {
			routes = append(routes, Route{Prefix: set.Prefix, NextHop: nextHop, Announced: true})
		}
	}
	sortRoutes(routes)
	return routes
}

// installed are the routes that a router's kernel holds, and those that were
// heard and that it does not hold.
func installed(heard []advertise.RouteSet, table []router.Route, faults []router.Fault) []Route {
	var routes []Route
	why := make(map[netip.Prefix]string, len(faults))
	for _, f := range faults {
		why[f.Prefix] = oneLine(f.Err)
	}
	held := make(map[netip.Prefix]router.Route, len(table))
	for _, r := range table {
		held[r.Prefix] = r
		for _, h := range r.Hops {
			routes = append(routes, Route{Prefix: r.Prefix, NextHop: h.Gateway, Announced: true})
		}
	}
	for _, set := range heard {
		for _, nextHop := range missing(set, held[set.Prefix]) {
			routes = append(routes, Route{Prefix: set.Prefix, NextHop: nextHop, Reason: "the kernel does not hold it yet"})
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

// missing gives the next hops that the kernel does not have. One that is behind
// a gateway is there under the gateway's name, and in its weight.
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
