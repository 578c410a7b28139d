package router

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/features"
)

// change is a prefix with the desired members of its route; without members, the route is
// removed.
type change struct {
	prefix  netip.Prefix
	members []member
}

// outcome is the result of an apply.
type outcome struct {
	// tried contains every prefix that was processed; nil means success.
	tried map[netip.Prefix]error
	// err is an error that concerns no single prefix.
	err error
	// rejected means that the kernel rejected a write: the cached state may be wrong.
	rejected bool
}

// failed records an error of a prefix.
func (o *outcome) failed(p netip.Prefix, err error) {
	o.tried[p] = errors.Join(o.tried[p], err)
}

// apply brings the kernel to the desired state for these prefixes, or for all if the
// kernel is read from scratch. It first adds desired next hops, groups and routes, and
// then removes superfluous routes, groups and next hops. Prefixes are independent: an
// impossible next hop is omitted from its routes, a route that cannot be written stays as
// it was, and all others become as desired.
func (t *Table) apply(prefixes []netip.Prefix) outcome {
	if t.held == nil {
		k, err := t.read()
		if err != nil {
			return outcome{err: err}
		}
		t.held, prefixes = k, slices.Concat(slices.Collect(maps.Keys(t.desired)), slices.Collect(maps.Keys(k.routes)))
		for p := range t.keys.All() {
			prefixes = append(prefixes, p)
		}
	}
	o := outcome{tried: make(map[netip.Prefix]error, len(prefixes))}
	slices.SortFunc(prefixes, netip.Prefix.Compare)
	changes := make([]change, 0, len(prefixes))
	r := t.newResolver(t.held)
	for _, p := range slices.Compact(prefixes) {
		c, err := r.change(p)
		o.tried[p] = err
		changes = append(changes, c)
	}
	o.rejected = r.rejected
	t.write(t.held, changes, &o)
	return o
}

func (t *Table) write(k *kernel, changes []change, o *outcome) {
	dead := k.dead(changes)
	for _, c := range changes {
		if len(c.members) == 0 || k.becomes(c, dead) {
			continue
		}
		if err := t.ensure(k, c); err != nil {
			o.failed(c.prefix, err)
			o.rejected = o.rejected || !errors.Is(err, errTaken)
		}
	}
	for _, c := range changes {
		if id, exists := k.routes[c.prefix]; exists && len(c.members) == 0 {
			if err := t.deleteRoute(c.prefix, id); err != nil && !errors.Is(err, unix.ESRCH) {
				o.failed(c.prefix, fmt.Errorf("remove the route: %w", err))
				o.rejected = true
				continue
			}
			delete(k.routes, c.prefix)
		}
	}
	o.err = t.prune(k, dead)
	o.rejected = o.rejected || o.err != nil
}

// change returns the desired route to a prefix, and creates missing next-hop objects. The
// members are sorted by address. Next hops behind one gateway become one member with
// their total weight. The error names the next hops that are not possible.
func (r *resolver) change(p netip.Prefix) (change, error) {
	var errs []error
	set, weight := r.t.desired[p], map[uint32]int{}
	for i := range set.NextHops {
		id, err := r.member(set, i)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		weight[id] += set.Weight(i)
	}
	c := change{prefix: p}
	for id, w := range weight {
		c.members = append(c.members, member{id: id, weight: w})
	}
	slices.SortFunc(c.members, func(a, b member) int { return r.k.hopOf[a.id].compare(r.k.hopOf[b.id]) })
	bound(c.members)
	return c, errors.Join(errs...)
}

// maxWeight is the maximum weight in a kernel group (struct nexthop_grp: one octet, minus
// one; a second octet since Linux 6.12).
const maxWeight = 256

// bound scales summed weights back into the kernel's range.
func bound(members []member) {
	largest := 0
	for _, m := range members {
		largest = max(largest, m.weight)
	}
	for i := range members {
		if largest > maxWeight {
			members[i].weight = max(1, members[i].weight*maxWeight/largest)
		}
	}
}

// dead returns the next hops that will not be in any group. If a next hop is removed, the
// kernel removes it from all groups immediately: the death of a load balancer is one
// write, however many prefixes it served.
func (k *kernel) dead(changes []change) map[uint32]bool {
	users, wanted := k.users(), map[uint32]bool{}
	for _, c := range changes {
		for _, m := range k.groups[k.routes[c.prefix]].members {
			if !slices.ContainsFunc(c.members, func(o member) bool { return o.id == m.id }) {
				users[m.id]--
			}
		}
		for _, m := range c.members {
			wanted[m.id] = true
		}
	}
	dead := map[uint32]bool{}
	for id, n := range users {
		if n == 0 && !wanted[id] {
			dead[id] = true
		}
	}
	return dead
}

// becomes reports whether a route will be as desired once the dead next hops are removed.
func (k *kernel) becomes(c change, dead map[uint32]bool) bool {
	id, exists := k.routes[c.prefix]
	if !exists {
		return false
	}
	var left []member
	for _, m := range k.groups[id].members {
		if !dead[m.id] {
			left = append(left, m)
		}
	}
	return len(left) < len(k.groups[id].members) && slices.Equal(left, c.members)
}

// errTaken is the kernel's error if another program has a route with the same prefix and
// metric.
var errTaken = unix.EEXIST

// ensure makes the route to a prefix use a group with these members. An existing group is
// changed in place, so that the buckets of remaining members do not change.
func (t *Table) ensure(k *kernel, c change) error {
	id, exists := k.routes[c.prefix]
	if g := k.groups[id]; exists && g.resilient == (t.plain == "") {
		if slices.Equal(g.members, c.members) {
			return nil
		}
		if err := t.putGroup(id, c.members, true); err != nil {
			return fmt.Errorf("change group %d: %w", id, err)
		}
		k.groups[id] = group{members: c.members, resilient: g.resilient}
		return nil
	}
	id, err := t.take(k)
	if err != nil {
		return err
	}
	if err := t.newGroup(id, c.members); err != nil {
		return fmt.Errorf("create group %d: %w", id, err)
	}
	k.groups[id] = group{members: c.members, resilient: t.plain == ""}
	err = t.putRoute(c.prefix, id, exists)
	if errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("another program has a route to this prefix with metric %d: remove it, or use another metric (%w)", t.c.Metric, errTaken)
	}
	if err != nil {
		return fmt.Errorf("route: %w", err)
	}
	k.routes[c.prefix] = id
	return nil
}

// newGroup creates a resilient group, or a plain one if the kernel rejects resilient
// ones.
func (t *Table) newGroup(id uint32, members []member) error {
	err := t.putGroup(id, members, false)
	if err == nil || t.plain != "" {
		return err
	}
	refusal := resilientRefused(err)
	if refusal == nil {
		return err // this particular group is invalid
	}
	t.plain = "the kernel rejects resilient next-hop groups: " + refusal.Error()
	if again := t.putGroup(id, members, false); again != nil {
		t.plain = ""
		return err
	}
	t.degraded = []features.Degraded{features.NewDegraded(features.ResilientGroups, features.Router, refusal)}
	t.c.Log.Warn("no resilient next-hop groups: if a load balancer leaves, flows of the others move, too", "error", refusal)
	return nil
}

// resilientRefused probes the kernel with an unused resilient group, so that a group that
// cannot be created is not mistaken for a missing feature. If that is not possible, the
// errno of older kernels decides.
func resilientRefused(err error) error {
	f, _ := features.Lookup(features.ResilientGroups)
	refusal := f.Probe(features.Router)
	if errors.Is(refusal, features.ErrCannotTry) {
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
			return err
		}
		return nil
	}
	return refusal
}

// prune removes the groups that no route uses, then the next hops that are dead or in no
// group; objects that are already gone are not an error.
func (t *Table) prune(k *kernel, dead map[uint32]bool) error {
	var errs []error
	inUse := map[uint32]bool{}
	for _, id := range k.routes {
		inUse[id] = true
	}
	for id := range k.groups {
		if inUse[id] {
			continue
		}
		if err := t.deleteNexthop(id); err != nil {
			errs = append(errs, err)
			continue
		}
		delete(k.groups, id)
		k.release(id)
	}
	users, gone := k.users(), map[uint32]bool{}
	for id, h := range k.hopOf {
		if users[id] > 0 && !dead[id] {
			continue
		}
		if err := t.deleteNexthop(id); err != nil {
			errs = append(errs, fmt.Errorf("%s dev %s: %w", h.gateway, t.device(h.oif), err))
			continue
		}
		gone[id] = true
	}
	k.forgetHops(gone)
	return errors.Join(errs...)
}
