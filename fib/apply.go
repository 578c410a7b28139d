package fib

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// apply compares what is desired with what the kernel holds. The order is:
// next hops, groups and routes that are wanted; then routes, groups and next
// hops that are not. It does as much as it can and returns all errors.
func (t *Table) apply() error {
	k, err := t.read()
	if err != nil {
		return err
	}
	var errs []error
	have := map[netip.Prefix]installed{}
	for _, r := range k.routes {
		have[r.prefix] = r
	}
	keepGroups, keepHops := map[uint32]bool{}, map[uint32]bool{}
	ways := map[netip.Addr]way{}
	for _, want := range t.desired {
		members, err := t.members(k, want.NextHops, ways)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", want.Prefix, err))
		}
		if len(members) == 0 {
			continue
		}
		old, exists := have[want.Prefix]
		id, err := t.ensure(k, want.Prefix, members, old, exists)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", want.Prefix, err))
		}
		if id == 0 {
			continue
		}
		delete(have, want.Prefix)
		keepGroups[id] = true
		for _, m := range k.groups[id].members {
			keepHops[m.id] = true
		}
	}
	return errors.Join(append(errs, t.prune(k, have, keepGroups, keepHops))...)
}

// way is a resolved next hop, remembered for the time of one apply.
type way struct {
	hop hop
	err error
}

// members turns addresses into next-hop objects, sorted by address. Next hops
// behind one gateway become one member with their number as its weight.
func (t *Table) members(k *kernel, nextHops []netip.Addr, ways map[netip.Addr]way) ([]member, error) {
	var errs []error
	weight := map[hop]int{}
	for _, nh := range nextHops {
		w, known := ways[nh]
		if !known {
			w.hop, w.err = t.resolve(nh)
			ways[nh] = w
		}
		if w.err != nil {
			errs = append(errs, w.err)
			continue
		}
		weight[w.hop]++
	}
	hops := make([]hop, 0, len(weight))
	for h := range weight {
		hops = append(hops, h)
	}
	slices.SortFunc(hops, hop.compare)
	out := make([]member, 0, len(hops))
	for _, h := range hops {
		id, err := t.ensureHop(k, h)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, member{id: id, weight: min(weight[h], 256)})
	}
	return out, errors.Join(errs...)
}

func (t *Table) ensureHop(k *kernel, h hop) (uint32, error) {
	if id, ok := k.hops[h]; ok {
		return id, nil
	}
	id, err := t.freeID(k)
	if err != nil {
		return 0, err
	}
	if err := t.addHop(id, h); err != nil {
		return 0, fmt.Errorf("next hop %s dev %d: %w", h.gateway, h.oif, err)
	}
	k.hops[h], k.hopOf[id] = id, h
	return id, nil
}

// ensure makes the route to a prefix use a group of these members. An existing
// group is changed in place: the buckets of members that stay, stay.
func (t *Table) ensure(k *kernel, p netip.Prefix, members []member, old installed, exists bool) (uint32, error) {
	if exists {
		g := k.groups[old.group]
		if g.resilient == (t.plain == "") {
			if slices.Equal(g.members, members) {
				return old.group, nil
			}
			if err := t.putGroup(old.group, members, true); err != nil {
				return old.group, fmt.Errorf("change group %d: %w", old.group, err)
			}
			k.groups[old.group] = group{members: members, resilient: t.plain == ""}
			return old.group, nil
		}
	}
	id, err := t.freeID(k)
	if err != nil {
		return 0, err
	}
	if err := t.newGroup(id, members); err != nil {
		return 0, fmt.Errorf("new group %d: %w", id, err)
	}
	k.groups[id] = group{members: members, resilient: t.plain == ""}
	err = t.putRoute(p, id, exists)
	if errors.Is(err, unix.EEXIST) {
		return 0, fmt.Errorf("another program has a route to it with metric %d: remove that one, or choose another metric", t.c.Metric)
	}
	if err != nil {
		return 0, fmt.Errorf("route: %w", err)
	}
	return id, nil
}

// newGroup makes a resilient group, or a plain one where the kernel does not
// know resilient ones (before Linux 5.13).
func (t *Table) newGroup(id uint32, members []member) error {
	err := t.putGroup(id, members, false)
	if t.plain == "" && (errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP)) {
		reason := fmt.Sprintf("this kernel takes no resilient next-hop groups (%v)", err)
		t.plain = reason
		if again := t.putGroup(id, members, false); again != nil {
			t.plain = ""
			return err
		}
		t.c.Log.Warn("next-hop groups are plain: when a balancer leaves, other balancers' flows move too", "reason", reason)
		return nil
	}
	return err
}

// prune removes what nothing wants any more; what is gone already is no error.
func (t *Table) prune(k *kernel, routes map[netip.Prefix]installed, keepGroups, keepHops map[uint32]bool) error {
	var errs []error
	for p, r := range routes {
		if err := t.deleteRoute(p, r.group); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("remove route to %s: %w", p, err))
		}
	}
	for id := range k.groups {
		if !keepGroups[id] {
			errs = append(errs, t.deleteNexthop(id))
		}
	}
	for id := range k.hopOf {
		if !keepHops[id] {
			errs = append(errs, t.deleteNexthop(id))
		}
	}
	return errors.Join(errs...)
}

// compare orders by gateway, then device: the order of a group decides which
// flow goes where.
func (h hop) compare(o hop) int {
	return cmp.Or(h.gateway.Compare(o.gateway), cmp.Compare(h.oif, o.oif))
}
