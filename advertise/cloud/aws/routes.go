package aws

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/advertise/cloud"
)

// Routes have neither tags nor descriptions. Therefore the table has a tag for each of
// our prefixes, "fairlead/OWNER/10.1.1.0/24", whose value lists the network interfaces to
// which we route it: written before the route and deleted after it. A route with a
// different target or without a tag was created by someone else.

// table is a route table.
type table struct {
	id, vpc string
	// claims are our tags: the interfaces by prefix.
	claims map[netip.Prefix][]string
	// targets are the targets of the table's routes.
	targets map[netip.Prefix]string
}

// mine reports whether a route is ours.
func (t *table) mine(p netip.Prefix) bool { return slices.Contains(t.claims[p], t.targets[p]) }

func (w *work) tables(ctx context.Context) (all []*table, err error) {
	err = pages(func(token string) (string, error) {
		page, next, err := w.api.DescribeRouteTables(ctx, w.c.RouteTables, token)
		for _, r := range page {
			all = append(all, w.readTable(r))
		}
		return next, err
	})
	return all, err
}

func (w *work) readTable(r routeTable) *table {
	t := &table{
		id: r.ID, vpc: r.VPC,
		claims: map[netip.Prefix][]string{}, targets: map[netip.Prefix]string{},
	}
	for _, tag := range r.Tags {
		if rest, ok := strings.CutPrefix(tag.Key, w.tagPrefix()); ok {
			if p, err := netip.ParsePrefix(rest); err == nil {
				t.claims[p] = strings.Fields(tag.Value)
			}
		}
	}
	for _, route := range r.Routes {
		if p, err := netip.ParsePrefix(route.CIDR + route.IPv6CIDR); err == nil { // otherwise a prefix list
			t.targets[p] = target(route)
		}
	}
	return t
}

// target returns the target of a route.
func target(r vpcRoute) string {
	return cmp.Or(r.NetworkInterface, r.Instance, r.Gateway, r.NATGateway, r.TransitGateway, r.Peering, r.EgressOnly, r.Carrier, r.Local,
		r.CoreNetwork, r.ODBNetwork, "somewhere unknown")
}

func (w *work) routes(ctx context.Context) error {
	tables, err := w.tables(ctx)
	if err != nil {
		return err
	}
	for _, t := range tables {
		for _, p := range slices.SortedFunc(maps.Keys(t.claims), netip.Prefix.Compare) {
			if len(w.hops[p]) == 0 {
				w.withdraw(ctx, t, p)
			}
		}
	}
	found := w.interfacesOf(ctx, tables)
	unchecked := map[string]bool{}
	for _, t := range tables {
		all, known := found[t.vpc]
		if !known {
			continue
		}
		for _, p := range cloud.Prefixes(w.hops) {
			to := w.choose(p, all)
			if to == nil {
				w.withdraw(ctx, t, p) // its current target may have withdrawn it
				continue
			}
			if w.lead(ctx, t, p, to.id) && !unchecked[to.id] {
				unchecked[to.id] = true
				w.uncheck(ctx, to)
			}
		}
	}
	return nil
}

// interfacesOf returns, by VPC, the network interfaces to which the tables' routes may
// point; none for a VPC that cannot be queried.
func (w *work) interfacesOf(ctx context.Context, tables []*table) map[string]map[string]*eni {
	found, queried := map[string]map[string]*eni{}, map[string]bool{}
	for _, t := range tables {
		if queried[t.vpc] {
			continue
		}
		queried[t.vpc] = true
		w.Try(func() error {
			all, err := w.interfaces(ctx, t.vpc, byAddress(w.nextHops())...)
			if err == nil {
				found[t.vpc] = all
			}
			return err
		})
	}
	return found
}

// withdraw deletes the route of a prefix if it is ours.
func (w *work) withdraw(ctx context.Context, t *table, p netip.Prefix) {
	if len(t.claims[p]) == 0 {
		return
	}
	if t.mine(p) {
		if !w.TryFor(p, func() error { return w.api.DeleteRoute(ctx, t.id, p) }) {
			return
		}
	}
	w.TryFor(p, func() error { return w.untag(ctx, t.id, p.String()) })
}

// lead points a table's route of a prefix to an interface, and reports whether the route
// is ours.
func (w *work) lead(ctx context.Context, t *table, p netip.Prefix, to string) bool {
	now, exists := t.targets[p]
	if exists && !t.mine(p) {
		w.refused.Refuse(p, "route table %s has a route of it to %s that Fairlead has not made, and leaves: delete it, or announce another prefix", t.id, now)
		return false
	}
	claim := []string{to}
	if exists && now != to {
		claim = []string{now, to}
	}
	if !slices.Equal(t.claims[p], claim) && !w.claim(ctx, t, p, claim) || exists && now == to {
		return true
	}
	done := w.TryFor(p, func() error {
		if exists {
			return w.api.ReplaceRoute(ctx, t.id, p, to)
		}
		return w.api.CreateRoute(ctx, t.id, p, to)
	})
	if done && len(claim) > 1 {
		w.claim(ctx, t, p, []string{to})
	}
	return true
}

func (w *work) claim(ctx context.Context, t *table, p netip.Prefix, to []string) bool {
	return w.TryFor(p, func() error { return w.tag(ctx, t.id, p.String(), strings.Join(to, " ")) })
}

// uncheck makes an interface accept packets that are not for its own addresses.
func (w *work) uncheck(ctx context.Context, e *eni) {
	if !e.check {
		return
	}
	w.Try(func() error { return w.api.ModifyNetworkInterfaceAttribute(ctx, e.id, false) })
}
