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

// change is a prefix whose route is to be as desired; no members: it goes.
type change struct {
	prefix  netip.Prefix
	members []member
}

// outcome is what became of an apply.
type outcome struct {
	// tried has every prefix that was looked at; nil is success.
	tried map[netip.Prefix]error
	// err concerns no single prefix.
	err error
	// rejected says that the kernel rejected a write: what is remembered of it may
	// be wrong.
	rejected bool
}

// failed notes what a prefix lacks.
func (o *outcome) failed(p netip.Prefix, err error) {
	o.tried[p] = errors.Join(o.tried[p], err)
}

// apply brings the kernel to what is desired for these prefixes; for all where
// the kernel is read from scratch. The order is: next hops, groups and routes that
// are wanted; then routes, groups and next hops that are not. Each prefix stands
// for itself: a next hop that cannot be is left out of its routes, a route that
// cannot be written stays what it was, and all others become as desired.
func (t *Table) apply(prefixes []netip.Prefix) outcome {
	if t.held == nil {
		k, err := t.read()
		if err != nil {
			return outcome{err: err}
		}
		t.held, prefixes = k, slices.Concat(slices.Collect(maps.Keys(t.desired)), slices.Collect(maps.Keys(k.routes)), slices.Collect(maps.Keys(t.faults)))
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

// change gives what the route to a prefix is to be, with next-hop objects made
// where there are none. They are sorted by address. Those behind one gateway
// become one member with all of their weight. The error names those that cannot be.
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

// maxWeight is what a kernel's group takes (struct nexthop_grp: one octet, less
// one; a second one since Linux 6.12).
const maxWeight = 256

// bound brings weights that were added up back into the kernel's range.
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

// dead gives the next hops that no group is to have any more. The kernel takes
// one that is removed out of all of its groups at once: the death of a balancer
// is one write, however many prefixes it served.
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

// becomes says whether a route is as it should be once the dead are removed.
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

// errTaken is the kernel's answer where another program has a route with the same
// prefix and metric.
var errTaken = unix.EEXIST

// ensure makes the route to a prefix use a group of these members. An existing
// group is changed in place: the buckets of members that stay, stay.
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
		return fmt.Errorf("new group %d: %w", id, err)
	}
	k.groups[id] = group{members: c.members, resilient: t.plain == ""}
	err = t.putRoute(c.prefix, id, exists)
	if errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("another program has a route to it with metric %d: remove that one, or choose another metric (%w)", t.c.Metric, errTaken)
	}
	if err != nil {
		return fmt.Errorf("route: %w", err)
	}
	k.routes[c.prefix] = id
	return nil
}

// newGroup makes a resilient group, or a plain one where the kernel refuses
// resilient ones.
func (t *Table) newGroup(id uint32, members []member) error {
	err := t.putGroup(id, members, false)
	if err == nil || t.plain != "" {
		return err
	}
	refusal := resilientRefused(err)
	if refusal == nil {
		return err // it is this group that is wrong
	}
	t.plain = "the kernel refuses resilient next-hop groups: " + refusal.Error()
	if again := t.putGroup(id, members, false); again != nil {
		t.plain = ""
		return err
	}
	t.degraded = []features.Degraded{features.NewDegraded(features.ResilientGroups, features.Router, refusal)}
	t.c.Log.Warn("next-hop groups are not resilient: when a load balancer leaves, flows of the others move too", "error", refusal)
	return nil
}

// resilientRefused asks the kernel for a resilient group of nobody's, so that a
// group which cannot be made is not taken for a feature that is missing. Where that
// cannot be tried, an errno that older kernels answer decides.
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

// prune removes the groups that no route uses, then the next hops that are dead
// or in no group; what is gone already is no error.
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
