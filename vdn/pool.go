package vdn

import "net/netip"

// maxReleased limits the released addresses that a Pool remembers. Older ones count as
// never used.
const maxReleased = 65536

// Pool chooses addresses of one subnet: first addresses that were never used, in ascending
// order, then the one released longest ago. It is not safe for concurrent use.
type Pool struct {
	subnet   Subnet
	ranges   []Range
	reserved map[netip.Addr]string // the owners
	taken    map[netip.Addr]bool
	released map[netip.Addr]uint64 // the time of the release
	queue    []release             // in order; stale if released differs
	// next is the lowest address that may never have been used; at is the index of its
	// range.
	next netip.Addr
	at   int
	// forgotten is true if released lacks addresses below next that may be available.
	forgotten bool
}

type release struct {
	address netip.Addr
	since   uint64
}

// NewPool creates a Pool with no address in use.
func NewPool(s Subnet) *Pool {
	p := &Pool{subnet: s, ranges: s.ranges(), reserved: map[netip.Addr]string{}, taken: map[netip.Addr]bool{}, released: map[netip.Addr]uint64{}}
	for _, r := range s.Reserved {
		p.reserved[r.Address] = r.Owner
	}
	p.rewind()
	return p
}

func (p *Pool) rewind() {
	p.at, p.forgotten = 0, false
	if len(p.ranges) > 0 {
		p.next = p.ranges[0].First
	}
}

// Take marks an address as in use.
func (p *Pool) Take(a netip.Addr) {
	p.taken[a] = true
	delete(p.released, a)
}

// Taken reports whether an address is in use.
func (p *Pool) Taken(a netip.Addr) bool { return p.taken[a] }

// Release marks an address as released at a time that must not be before that of the last
// call. It returns the addresses that are no longer remembered.
func (p *Pool) Release(a netip.Addr, now uint64) (forgotten []netip.Addr) {
	delete(p.taken, a)
	p.released[a] = now
	p.queue = append(p.queue, release{a, now})
	for len(p.released) > maxReleased {
		if r, ok := p.oldest(); ok {
			delete(p.released, r.address)
			p.forgotten = true
			forgotten = append(forgotten, r.address)
		}
	}
	return forgotten
}

// oldest returns the first valid entry of the queue.
func (p *Pool) oldest() (release, bool) {
	for len(p.queue) > 0 {
		if r := p.queue[0]; p.released[r.address] == r.since && !p.taken[r.address] {
			return r, true
		}
		p.queue = p.queue[1:]
	}
	return release{}, false
}

// Choose returns the address that an owner would get, its reserved one if it has any; false
// if none is left.
func (p *Pool) Choose(owner string) (netip.Addr, bool) {
	if mine, any := p.mine(owner); any {
		return mine, mine.IsValid()
	}
	if a, ok := p.fresh(); ok {
		return a, true
	}
	if a, ok := p.again(); ok {
		return a, true
	}
	if !p.forgotten {
		return netip.Addr{}, false
	}
	p.rewind()
	return p.fresh()
}

// mine returns the first free address of those reserved for an owner.
func (p *Pool) mine(owner string) (free netip.Addr, any bool) {
	if owner == "" {
		return netip.Addr{}, false
	}
	for _, r := range p.subnet.Reserved {
		if r.Owner == owner {
			any = true
			if !p.taken[r.Address] {
				return r.Address, true
			}
		}
	}
	return netip.Addr{}, any
}

// fresh returns the lowest address that was never used.
func (p *Pool) fresh() (netip.Addr, bool) {
	for ; p.at < len(p.ranges); p.at++ {
		r := p.ranges[p.at]
		if p.next.Compare(r.First) < 0 {
			p.next = r.First
		}
		for ; p.next.IsValid() && p.next.Compare(r.Last) <= 0; p.next = p.next.Next() {
			if _, before := p.released[p.next]; !before && p.open(p.next) {
				return p.next, true
			}
		}
	}
	return netip.Addr{}, false
}

// again returns the address released longest ago. Addresses that nobody may have now, such
// as a gateway's, leave the queue permanently: a change of the subnet creates a new Pool.
func (p *Pool) again() (netip.Addr, bool) {
	for {
		r, ok := p.oldest()
		if !ok {
			return netip.Addr{}, false
		}
		if p.open(r.address) && inRanges(p.ranges, r.address) {
			return r.address, true
		}
		p.queue = p.queue[1:]
	}
}

// open reports whether an address within the ranges is available to any owner.
func (p *Pool) open(a netip.Addr) bool {
	_, reserved := p.reserved[a]
	return !p.taken[a] && !reserved && a != p.subnet.Gateway
}

// Free returns the number of addresses left, including reserved ones.
func (p *Pool) Free() float64 { return p.subnet.Size() - float64(len(p.taken)) }
