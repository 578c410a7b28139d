package addresspool

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
)

// Pool is a set of addresses to assign.
type Pool struct {
	Name string
	// Addresses may overlap each other, but not those of another pool.
	Addresses []Range
	// Reserved addresses are never assigned, not even on explicit request.
	Reserved []Range
	// Manual pools serve only Services that name the pool or one of its addresses.
	Manual bool
	// Priority orders pools: the highest is tried first; equal priorities are ordered by
	// name.
	Priority int32
	// AvoidBuggy excludes IPv4 addresses that end in .0 or .255.
	AvoidBuggy bool
}

// maxBuggy limits the size of an IPv4 range with AvoidBuggy, because the range is split
// into pieces of 254 addresses.
const maxBuggy = 1 << 24

// Usage counts the addresses of one family of a pool. Counts saturate at 2^63-1.
type Usage struct{ Total, Used, Free int64 }

// pool is a Pool with its free addresses.
type pool struct {
	Pool
	// all holds every address of the pool, usable those that are neither reserved nor
	// buggy, and free the usable ones without a user.
	all, usable, free [2]set
	used              [2]int64
	// ofNodes lists the addresses that are unusable only because they belong to nodes,
	// sorted.
	ofNodes []netip.Addr
}

// newPool builds the address sets of a pool, without the nodes' addresses.
func newPool(p Pool, nodes map[netip.Addr]string) (*pool, error) {
	made := &pool{Pool: p}
	for _, r := range p.Addresses {
		f := FamilyOf(r.First)
		made.all[f].add(r)
		if !p.AvoidBuggy || f == IPv6 {
			made.usable[f].add(r)
		} else if r.size() > maxBuggy {
			return nil, fmt.Errorf("%s has more than %d addresses, too many to leave some out of", r, maxBuggy)
		}
	}
	if p.AvoidBuggy {
		for _, r := range made.all[IPv4] {
			made.usable[IPv4] = append(made.usable[IPv4], r.withoutBuggy()...)
		}
	}
	for _, r := range p.Reserved {
		made.usable[FamilyOf(r.First)].remove(r)
	}
	for _, a := range slices.SortedFunc(maps.Keys(nodes), netip.Addr.Compare) {
		if usable := &made.usable[FamilyOf(a)]; usable.contains(a) {
			usable.remove(Range{a, a})
			made.ofNodes = append(made.ofNodes, a)
		}
	}
	for f := range made.free {
		made.free[f] = slices.Clone(made.usable[f])
	}
	return made, nil
}

// apartFrom returns an error if the pool overlaps one of the others.
func (p *pool) apartFrom(others []*pool) error {
	for _, o := range others {
		for f := range p.all {
			for _, r := range p.all[f] {
				if common, ok := o.all[f].common(r); ok {
					return fmt.Errorf("%s is of pool %s, too, which was there first; take it out of one of them", common, o.Name)
				}
			}
		}
	}
	return nil
}

func (p *pool) take(a netip.Addr) {
	f := FamilyOf(a)
	p.free[f].remove(Range{a, a})
	p.used[f]++
}

func (p *pool) give(a netip.Addr) {
	f := FamilyOf(a)
	p.free[f].add(Range{a, a})
	p.used[f]--
}

func (p *pool) usage(f Family) Usage {
	total := int64(min(p.usable[f].size(), math.MaxInt64))
	if total == math.MaxInt64 {
		return Usage{Total: total, Used: p.used[f], Free: total}
	}
	return Usage{Total: total, Used: p.used[f], Free: total - p.used[f]}
}

// byPreference orders pools as they are tried.
func byPreference(a, b *pool) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Name, b.Name))
}
