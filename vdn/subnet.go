package vdn

import (
	"math"
	"net/netip"
	"slices"
)

// hasNetworkAddress reports whether the first address of a prefix is the network address
// and, for IPv4, the last the broadcast address: all except the longest prefixes (RFC 3021;
// RFC 6164).
func hasNetworkAddress(p netip.Prefix) bool { return p.Addr().BitLen()-p.Bits() > 1 }

// last returns the last address of a prefix.
func last(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for bit := p.Bits(); bit < len(b)*8; bit++ {
		b[bit/8] |= 0x80 >> (bit % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// ranges returns the ranges to lease from, in order. The default is the entire prefix
// except the network address (in IPv6 the subnet-router anycast address: RFC 4291, section
// 2.6.1) and, for IPv4, the last address.
func (s Subnet) ranges() []Range {
	if len(s.Ranges) > 0 {
		return slices.SortedFunc(slices.Values(s.Ranges), func(a, b Range) int { return a.First.Compare(b.First) })
	}
	r := Range{s.CIDR.Masked().Addr(), last(s.CIDR)}
	if s.CIDR.Addr().Is4() || hasNetworkAddress(s.CIDR) {
		r.First = r.First.Next()
	}
	if s.CIDR.Addr().Is4() {
		r.Last = r.Last.Prev()
	}
	if !r.First.IsValid() || !r.Last.IsValid() || r.First.Compare(r.Last) > 0 {
		return nil
	}
	return []Range{r}
}

func (r Range) contains(a netip.Addr) bool { return r.First.Compare(a) <= 0 && a.Compare(r.Last) <= 0 }

// size returns the number of addresses; exact up to 2^53.
func (r Range) size() float64 {
	first, end := r.First.AsSlice(), r.Last.AsSlice()
	n := 0.0
	for i := range first {
		n = n*256 + float64(end[i]) - float64(first[i])
	}
	return n + 1
}

func inRanges(ranges []Range, a netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(r Range) bool { return r.contains(a) })
}

// Size returns the number of addresses that can be leased, including reserved ones; exact
// up to 2^53.
func (s Subnet) Size() float64 {
	ranges, n := s.ranges(), 0.0
	for _, r := range ranges {
		n += r.size()
	}
	if s.Gateway.IsValid() && inRanges(ranges, s.Gateway) {
		n--
	}
	for _, r := range s.Reserved {
		if !inRanges(ranges, r.Address) {
			n++
		}
	}
	return math.Max(n, 0)
}

// holds reports whether a subnet may lease an address to an owner.
func (s Subnet) holds(a netip.Addr, owner string) bool {
	for _, r := range s.Reserved {
		if r.Address == a {
			return r.Owner == owner
		}
	}
	return a != s.Gateway && inRanges(s.ranges(), a)
}

func (c *checker) subnets(n Network) {
	if len(n.Subnets) == 0 {
		c.add("subnets", "there is none: name one of IPv4, one of IPv6 or both, so that hosts get addresses")
	}
	families := map[bool]netip.Prefix{}
	for i, s := range n.Subnets {
		at := index("subnets", i)
		if !c.prefix(at+".cidr", s.CIDR) {
			continue
		}
		is4 := s.CIDR.Addr().Is4()
		if other, twice := families[is4]; twice {
			c.add(at+".cidr", "%s is the second of its family after %s: make it a network of its own", s.CIDR, other)
		}
		families[is4] = s.CIDR
		if a := s.CIDR.Addr(); s.CIDR.Bits() == 0 || a.IsMulticast() || a.IsLoopback() || a.IsLinkLocalUnicast() {
			c.add(at+".cidr", "%s has addresses that hosts cannot have: use one like 10.1.0.0/24 or fd00:1::/64", s.CIDR)
		}
		before := len(c.found)
		c.subnet(at, s)
		if len(c.found) == before && s.Size() == 0 {
			c.add(at, "%s has no address to hand out: use a larger CIDR, or set ranges", s.CIDR)
		}
	}
}

// maxRanges bounds the search for overlaps.
const maxRanges = 256

func (c *checker) subnet(at string, s Subnet) {
	if s.Gateway.IsValid() {
		c.within(at+".gateway", s, s.Gateway)
	}
	if len(s.Ranges) > maxRanges {
		c.add(at+".ranges", "there are %d: %d is the most", len(s.Ranges), maxRanges)
		return
	}
	for i, r := range s.Ranges {
		c.rangeOf(index(at+".ranges", i), s, i, r)
	}
	owners := map[netip.Addr]string{}
	for i, r := range s.Reserved {
		field := index(at+".reserved", i)
		if !isText(r.Owner) {
			c.add(field+".owner", "there is none, or none to be read: write NAMESPACE/POD")
		}
		if !c.within(field+".address", s, r.Address) {
			continue
		}
		if r.Address == s.Gateway {
			c.add(field+".address", "%s is the gateway's: reserve another", r.Address)
		}
		if first, twice := owners[r.Address]; twice {
			c.add(field+".address", "%s is reserved for %s already: reserve another", r.Address, first)
		}
		owners[r.Address] = r.Owner
	}
}

func (c *checker) rangeOf(at string, s Subnet, i int, r Range) {
	if !c.within(at+".first", s, r.First) || !c.within(at+".last", s, r.Last) {
		return
	}
	if r.First.Compare(r.Last) > 0 {
		c.add(at, "%s comes after %s: turn them round", r.First, r.Last)
		return
	}
	for _, o := range s.Ranges[:i] {
		if o.First.IsValid() && o.Last.IsValid() && r.First.Compare(o.Last) <= 0 && o.First.Compare(r.Last) <= 0 {
			c.add(at, "%s to %s overlaps %s to %s: part them", r.First, r.Last, o.First, o.Last)
		}
	}
}

// within checks an address for a host of a subnet.
func (c *checker) within(field string, s Subnet, a netip.Addr) bool {
	switch {
	case !c.address(field, a):
		return false
	case !s.CIDR.Contains(a):
		c.add(field, "%s is outside %s: use one of that", a, s.CIDR)
		return false
	case hasNetworkAddress(s.CIDR) && a == s.CIDR.Addr():
		c.add(field, "%s is the address of %s itself: use one after it", a, s.CIDR)
		return false
	case a.Is4() && hasNetworkAddress(s.CIDR) && a == last(s.CIDR):
		c.add(field, "%s is the broadcast address of %s: use one before it", a, s.CIDR)
		return false
	}
	return true
}
