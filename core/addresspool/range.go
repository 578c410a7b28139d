// Package addresspool decides which addresses Services of type LoadBalancer get: from
// which pool, whether two Services may share one, which assignments stay and which
// requests are rejected, with a readable reason. It is pure: the caller decides who may
// use a pool and persists the assignments.
package addresspool

import (
	"fmt"
	"math"
	"math/bits"
	"net/netip"
	"strings"

	"github.com/fairlead/fairlead/core/service"
)

// Family is IPv4 or IPv6.
type Family uint8

// Address families. They also index per-family arrays.
const (
	IPv4 Family = iota
	IPv6
)

// String returns "IPv4" or "IPv6", as in the Kubernetes API.
func (f Family) String() string {
	if f == IPv6 {
		return "IPv6"
	}
	return "IPv4"
}

// FamilyOf returns the family of an address.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// Range is all addresses from First to Last, inclusive.
type Range struct{ First, Last netip.Addr }

// ParseRange parses "10.1.1.5", "10.1.1.0/24" or "10.1.1.5-10.1.1.9": unicast addresses
// of one family.
func ParseRange(text string) (Range, error) {
	low, high, isRange := strings.Cut(text, "-")
	switch {
	case isRange:
		return parseEnds(text, strings.TrimSpace(low), strings.TrimSpace(high))
	case !strings.Contains(text, "/"):
		return parseEnds(text, text, text)
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return Range{}, fmt.Errorf("%q is not a prefix; want one like \"10.1.1.0/24\"", text)
	}
	if p != p.Masked() {
		return Range{}, fmt.Errorf("%s has host bits set; did you mean %s?", p, p.Masked())
	}
	return checked(text, RangeOf(p))
}

// RangeOf returns all addresses of a prefix.
func RangeOf(p netip.Prefix) Range {
	p = p.Masked()
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < p.Addr().BitLen(); i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	last, _ := netip.AddrFromSlice(b)
	return Range{p.Addr(), last}
}

func parseEnds(text, low, high string) (Range, error) {
	first, err := netip.ParseAddr(low)
	if err != nil {
		return Range{}, fmt.Errorf("%q is not an address, a prefix or a range; want one like \"10.1.1.0/24\" or \"10.1.1.5-10.1.1.9\"", text)
	}
	last, err := netip.ParseAddr(high)
	if err != nil {
		return Range{}, fmt.Errorf("%q does not end with an address; want one like \"10.1.1.5-10.1.1.9\"", text)
	}
	return checked(text, Range{first, last})
}

func checked(text string, r Range) (Range, error) {
	for _, a := range []netip.Addr{r.First, r.Last} {
		if err := service.CheckUnicast(a); err != nil {
			return Range{}, fmt.Errorf("%q: %w", text, err)
		}
	}
	switch {
	case r.First.BitLen() != r.Last.BitLen():
		return Range{}, fmt.Errorf("%q mixes IPv4 and IPv6; use two ranges", text)
	case r.Last.Less(r.First):
		return Range{}, fmt.Errorf("%q ends before it begins; want the lower address first", text)
	}
	return r, nil
}

// Contains reports whether an address is in the range.
func (r Range) Contains(a netip.Addr) bool {
	return a.BitLen() == r.First.BitLen() && !a.Less(r.First) && !r.Last.Less(a)
}

// String returns "10.1.1.5-10.1.1.9", or a single address if the range has only one.
func (r Range) String() string {
	if r.First == r.Last {
		return r.First.String()
	}
	return r.First.String() + "-" + r.Last.String()
}

// size returns the number of addresses, at most 2^64-1.
func (r Range) size() uint64 {
	if r.First.Is4() {
		return word(r.Last, 12) - word(r.First, 12) + 1
	}
	low, borrow := bits.Sub64(word(r.Last, 8), word(r.First, 8), 0)
	high, _ := bits.Sub64(word(r.Last, 0), word(r.First, 0), borrow)
	if high > 0 || low == math.MaxUint64 {
		return math.MaxUint64
	}
	return low + 1
}

// word returns up to eight bytes of an address, starting at from, as a number.
func word(a netip.Addr, from int) (n uint64) {
	b := a.As16()
	for _, one := range b[from:min(from+8, len(b))] {
		n = n<<8 | uint64(one)
	}
	return n
}

// withoutBuggy removes the addresses that end in .0 or .255 from an IPv4 range: old
// routers mistake them for network and broadcast addresses (RFC 4632).
func (r Range) withoutBuggy() (rest []Range) {
	for at := r.First; at.IsValid() && !r.Last.Less(at); {
		b := at.As4()
		if b[3] == 0 || b[3] == 255 {
			at = at.Next()
			continue
		}
		b[3] = 254
		end := netip.AddrFrom4(b)
		if r.Last.Less(end) {
			end = r.Last
		}
		rest = append(rest, Range{at, end})
		at = end.Next()
	}
	return rest
}
