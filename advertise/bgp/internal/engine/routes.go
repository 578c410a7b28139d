package engine

import (
	"net/netip"
	"slices"
	"unique"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/advertise/bgp/internal/paths"
	"github.com/fairlead/fairlead/advertise/bgp/internal/rib"
	"github.com/fairlead/fairlead/advertise/bgp/internal/session"
	"github.com/fairlead/fairlead/advertise/bgp/internal/wire"
	"github.com/fairlead/fairlead/core/route"
)

func (e *Engine) external(g *session.Group) bool { return g.AS != e.AS }

// Announce adds or replaces a route of ours.
func (e *Engine) Announce(r route.Route) {
	e.table.Announce(r, unique.Make(wire.Attributes{NextHop: r.NextHop}))
}

// Withdraw removes a route of ours.
func (e *Engine) Withdraw(p netip.Prefix) { e.table.Withdraw(p) }

// draining is the local preference of a draining load balancer.
const draining = 1

// accept returns the attributes with which a received route is stored, or false if it has
// already passed through us (RFC 4271, section 9.1.2, and RFC 4456). A draining load
// balancer gets no packets if there is another one (RFC 8326).
func (e *Engine) accept(s wire.Shared) (wire.Shared, bool) {
	a := s.Value()
	if a.Passed(e.AS) || a.Originator == string(e.RouterID.AsSlice()) {
		return s, false
	}
	if e.Avoids && a.GracefulShutdown() {
		a.LocalPref, a.HasPref = draining, true
		return unique.Make(a), true
	}
	return s, true
}

// export returns the attributes with which a neighbor is sent a path, or false if it is
// not sent.
func (e *Engine) export(t *session.Session, p rib.Path) (s wire.Shared, is bool) {
	if p.Route != nil {
		a, is := paths.Local(*p.Route, t.Group.Peer, e.AS, e.external(t.Group), t.NextHop(p.Route.NextHop))
		return unique.Make(a), is
	}
	a := p.Attributes.Value()
	if !t.Group.Client || a.InCluster(e.ClusterID) || a.Originator == string(t.Source.ID.AsSlice()) {
		return s, false
	}
	return unique.Make(paths.Reflected(a, p.From.ID, e.ClusterID)), true
}

// Routes lists the table, or only some prefixes of it: the best paths of each, every next
// hop once even if two reflectors pass it on, sorted by prefix.
func (e *Engine) Routes(only ...netip.Prefix) []advertise.RouteSet {
	var all []advertise.RouteSet
	look := func(p netip.Prefix, list []rib.Path) {
		var best []wire.Shared
		for _, path := range rib.Multipath(list) {
			best = append(best, path.Attributes)
		}
		if len(best) > 0 {
			all = append(all, paths.RouteSet(p, best))
		}
	}
	if len(only) > 0 {
		e.table.Look(only, look)
	} else {
		e.table.Each(look)
	}
	slices.SortFunc(all, func(a, b advertise.RouteSet) int { return a.Prefix.Compare(b.Prefix) })
	return all
}
