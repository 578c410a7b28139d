package status

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/announce"
	"github.com/fairlead/fairlead/fib"
	"github.com/fairlead/fairlead/internal/features"
	"github.com/fairlead/fairlead/source"
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
	Peers   func() []announce.Peer
	// Heard gives what the peers announce.
	Heard func() ([]announce.RouteSet, error)
	// Table gives what the kernel holds, and why it is not all of what was
	// heard; nil on a reflector.
	Table func() (routes []fib.Route, failed, err error)
	// Degraded lists the optional kernel features that the router goes without; nil
	// for none.
	Degraded func() []features.Degraded
	// Refused gives the prefixes that are announced and not taken in, with the
	// reason; nil where all are.
	Refused func() (map[netip.Prefix]string, error)
}

// Gather gives the Status at a moment.
func (r Routing) Gather(now time.Time) Status {
	s := Status{
		Version: r.Version, Kernel: r.Kernel, Node: r.Node, Role: r.Role, Started: r.Started, Time: now, Peers: r.Peers(),
	}
	problem := func(object string, err error) {
		if err != nil {
			s.Problems = append(s.Problems, source.Problem{Object: object, Message: err.Error()})
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
	table, failed, err := r.Table()
	problem("kernel table", err)
	s.Problems = append(s.Problems, each("kernel table", failed)...)
	s.Table, s.Routes = table, installed(heard, table, failed)
	return s.complete()
}

// each gives a problem for each of the errors that err joins.
func each(object string, err error) (problems []source.Problem) {
	errs := parts(err)
	for i, err := range errs {
		if i == namedRefusals {
			return append(problems, source.Problem{Object: object, Message: fmt.Sprintf("and %d more", len(errs)-i)})
		}
		problems = append(problems, source.Problem{Object: object, Message: strings.ReplaceAll(err.Error(), "\n", "; ")})
	}
	return problems
}

// parts takes an error apart that was joined of others.
func parts(err error) (all []error) {
	joined, ok := err.(interface{ Unwrap() []error })
	switch {
	case err == nil:
		return nil
	case !ok:
		return []error{err}
	}
	for _, e := range joined.Unwrap() {
		all = append(all, parts(e)...)
	}
	return all
}

// namedRefusals is how many prefixes are named as refused.
const namedRefusals = 20

// refusals names the prefixes that are not taken in, and those whose next hops
// do not get the shares that they name.
func (r Routing) refusals(heard []announce.RouteSet) (problems []source.Problem) {
	for _, set := range heard {
		if set.Uneven != "" && len(problems) < namedRefusals {
			problems = append(problems, source.Problem{Object: "route " + set.Prefix.String(), Message: set.Uneven})
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
			return append(problems, source.Problem{Object: "BGP table", Message: more})
		}
		problems = append(problems, source.Problem{Object: "route " + p.String(), Message: refused[p]})
	}
	return problems
}

// paths are the routes that a reflector heard.
func paths(heard []announce.RouteSet) []Route {
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
func installed(heard []announce.RouteSet, table []fib.Route, failed error) []Route {
	var routes []Route
	for _, r := range table {
		for _, h := range r.Hops {
			routes = append(routes, Route{Prefix: r.Prefix, NextHop: h.Gateway, Announced: true})
		}
	}
	why := "the kernel does not hold it yet"
	if failed != nil {
		why = failed.Error()
	}
	for _, set := range heard {
		for _, nextHop := range missing(set, table) {
			routes = append(routes, Route{Prefix: set.Prefix, NextHop: nextHop, Reason: why})
		}
	}
	sortRoutes(routes)
	return routes
}

// missing gives the next hops that the kernel does not have. One that is behind
// a gateway is there under the gateway's name, and in its weight.
func missing(set announce.RouteSet, table []fib.Route) []netip.Addr {
	i := slices.IndexFunc(table, func(r fib.Route) bool { return r.Prefix == set.Prefix })
	if i < 0 {
		return set.NextHops
	}
	held, want := 0, 0
	for _, h := range table[i].Hops {
		held += h.Weight
	}
	for j := range set.NextHops {
		want += set.Weight(j)
	}
	if held >= want {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(set.NextHops), func(nextHop netip.Addr) bool {
		return slices.ContainsFunc(table[i].Hops, func(h fib.Hop) bool { return h.Gateway == nextHop })
	})
}
