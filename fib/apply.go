package fib

import (
	"cmp"
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

// apply brings the kernel to what is desired for these prefixes; for all where
// the kernel is read anew. The order is: next hops, groups and routes that are
// wanted; then routes, groups and next hops that are not. It does as much as it
// can. What a route lacks is kept in refused; the error is of the kernel.
func (t *Table) apply(prefixes []netip.Prefix) error {
	if t.held == nil {
		k, err := t.read()
		if err != nil {
			return err
		}
		t.held, prefixes = k, slices.Concat(slices.Collect(maps.Keys(t.desired)), slices.Collect(maps.Keys(k.routes)))
		clear(t.refused)
	}
	k := t.held
	slices.SortFunc(prefixes, netip.Prefix.Compare)
	var changes []change
	ways := map[netip.Addr]way{}
	for _, p := range slices.Compact(prefixes) {
		c, refused, err := t.change(k, p, ways)
		if err != nil {
			t.held = nil
			return err
		}
		if delete(t.refused, p); refused != nil {
			t.refused[p] = refused
		}
		changes = append(changes, c)
	}
	err := t.write(k, changes)
	if err != nil {
		t.held = nil
	}
	return err
}

func (t *Table) write(k *kernel, changes []change) error {
	var errs []error
	dead := k.dead(changes)
	for _, c := range changes {
		if len(c.members) == 0 || k.becomes(c, dead) {
			continue
		}
		if err := t.ensure(k, c); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", c.prefix, err))
		}
	}
	for _, c := range changes {
		if id, exists := k.routes[c.prefix]; exists && len(c.members) == 0 {
			if err := t.deleteRoute(c.prefix, id); err != nil && !errors.Is(err, unix.ESRCH) {
				errs = append(errs, fmt.Errorf("remove route to %s: %w", c.prefix, err))
				continue
			}
			delete(k.routes, c.prefix)
		}
	}
	return errors.Join(append(errs, t.prune(k, dead))...)
}

// way is a resolved next hop, remembered for the time of one apply.
type way struct {
	hop hop
	err error
}

// change gives what the route to a prefix is to be, with next-hop objects made
// where there are none. They are sorted by address. Those behind one gateway
// become one member with all of their weight. What cannot be is refused; the
// error is of the kernel.
func (t *Table) change(k *kernel, p netip.Prefix, ways map[netip.Addr]way) (c change, refused, err error) {
	var refusals []error
	set, weight := t.desired[p], map[hop]int{}
	for i, nh := range set.NextHops {
		if set.devices != nil {
			weight[hop{gateway: nh, oif: set.devices[i]}] += set.Weight(i)
			continue
		}
		w, known := ways[nh]
		if !known {
			w.hop, w.err = t.resolve(nh)
			ways[nh] = w
		}
		if w.err != nil {
			refusals = append(refusals, w.err)
			continue
		}
		weight[w.hop] += set.Weight(i)
	}
	c.prefix = p
	for _, h := range slices.SortedFunc(maps.Keys(weight), hop.compare) {
		id, err := t.ensureHop(k, h)
		if err != nil {
			return c, nil, err
		}
		c.members = append(c.members, member{id: id, weight: weight[h]})
	}
	bound(c.members)
	return c, errors.Join(refusals...), nil
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

func (t *Table) ensureHop(k *kernel, h hop) (uint32, error) {
	if id, ok := k.hops[h]; ok {
		return id, nil
	}
	id, err := t.take(k)
	if err != nil {
		return 0, err
	}
	if err := t.addHop(id, h); err != nil {
		return 0, features.Refused(features.Router, fmt.Sprintf("next hop %s dev %d", h.gateway, h.oif), err)
	}
	k.hops[h], k.hopOf[id] = id, h
	return id, nil
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
		t.refused[c.prefix] = fmt.Errorf("another program has a route to it with metric %d: remove that one, or choose another metric", t.c.Metric)
		return nil
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
	users := k.users()
	for id := range k.hopOf {
		if users[id] > 0 && !dead[id] {
			continue
		}
		if err := t.deleteNexthop(id); err != nil {
			errs = append(errs, err)
			continue
		}
		k.forgetHop(id)
	}
	return errors.Join(errs...)
}

// compare orders by gateway, then device: the order of a group decides which
// flow goes where.
func (h hop) compare(o hop) int {
	return cmp.Or(h.gateway.Compare(o.gateway), cmp.Compare(h.oif, o.oif))
}
