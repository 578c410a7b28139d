package router

import (
	"errors"
	"net/netip"
	"slices"
)

// kernel is the cached state of the kernel: read before the first write, and updated with
// everything that is written after that.
type kernel struct {
	hops   map[hop]uint32          // ours: the ID of each next hop
	hopOf  map[uint32]hop          // ours, the reverse mapping
	groups map[uint32]group        // ours
	routes map[netip.Prefix]uint32 // ours: the group that each one uses
	used   map[uint32]bool         // every existing ID, including foreign ones
	lowest uint32                  // no id of our range below this one is free
}

func (t *Table) ours(id uint32) bool { return id >= t.c.FirstID && id-t.c.FirstID < idRange }

func (t *Table) read() (*kernel, error) {
	k := &kernel{hops: map[hop]uint32{}, hopOf: map[uint32]hop{}, groups: map[uint32]group{},
		routes: map[netip.Prefix]uint32{}, used: map[uint32]bool{}, lowest: t.c.FirstID}
	objects, err := t.listNexthops()
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		k.used[o.id] = true
		switch {
		case !t.ours(o.id) || o.protocol != t.c.Protocol:
		case o.members != nil:
			k.groups[o.id] = group{members: o.members, resilient: o.resilient}
		default:
			k.hops[o.hop], k.hopOf[o.id] = o.id, o.hop
		}
	}
	all, err := t.listRoutes()
	if err != nil {
		return nil, err
	}
	for _, r := range all {
		if _, mine := k.groups[r.group]; mine {
			k.routes[r.prefix] = r.group
		}
	}
	return k, nil
}

// take finds an unused ID.
func (t *Table) take(k *kernel) (uint32, error) {
	for id := k.lowest; id-t.c.FirstID < idRange; id++ {
		if !k.used[id] {
			k.used[id], k.lowest = true, id+1
			return id, nil
		}
	}
	k.lowest = t.c.FirstID + idRange - 1 // the next one need not search
	return 0, errors.New("no free next-hop ID in the range of this router")
}

func (k *kernel) release(id uint32) {
	delete(k.used, id)
	k.lowest = min(k.lowest, id)
}

// users returns the number of groups with each next hop.
func (k *kernel) users() map[uint32]int {
	count := map[uint32]int{}
	for _, g := range k.groups {
		for _, m := range g.members {
			count[m.id]++
		}
	}
	return count
}

// forgetHops mirrors the kernel, which removes deleted next hops from all of their
// groups.
func (k *kernel) forgetHops(gone map[uint32]bool) {
	if len(gone) == 0 {
		return
	}
	isGone := func(m member) bool { return gone[m.id] }
	for i, g := range k.groups {
		if slices.ContainsFunc(g.members, isGone) {
			g.members = slices.DeleteFunc(slices.Clone(g.members), isGone)
			k.groups[i] = g
		}
	}
	for id := range gone {
		delete(k.hops, k.hopOf[id])
		delete(k.hopOf, id)
		k.release(id)
	}
}
