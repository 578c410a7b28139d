// Package route has the routes that a balancer may announce: their attributes, and the
// offers that they are planned from. What makes routes known belongs in advertise.
package route

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
)

// Route is one prefix that this balancer offers to carry.
type Route struct {
	Prefix  netip.Prefix `json:"prefix"`
	NextHop netip.Addr   `json:"nextHop"`
	Attributes
}

// Attributes say how a route is to be taken. They are comparable; the zero value
// says nothing.
type Attributes struct {
	Communities Communities `json:"communities,omitempty"`
	// LocalPreference is for peers of our own AS: the highest wins. 0: none is
	// given, which they take for 100.
	LocalPreference uint32 `json:"localPreference,omitempty"`
	// MED is for all peers: of the routes from one AS the lowest wins. 0: none is
	// given, which nearly all take for 0.
	MED uint32 `json:"med,omitempty"`
	// Prepend is how often more our AS stands in the path, at most MaxPrepend:
	// the shortest path wins. It is for peers of other ASes.
	Prepend uint32 `json:"prepend,omitempty"`
	// Weight is this balancer's share of the flows relative to the others', for
	// routers that honour link bandwidths (RFC 10005). 0: none
	// is given.
	Weight uint32 `json:"weight,omitempty"`
	// Peers are the names of those to which the route is advertised; none: all.
	Peers Names `json:"peers,omitempty"`
	// Mode is how the route is made known; none: in all ways that there are.
	Mode Mode `json:"mode,omitempty"`
}

// MaxPrepend bounds Attributes.Prepend; paths that are far longer some routers
// refuse.
const MaxPrepend = 10

// Compare orders routes by prefix, then next hop.
func (r Route) Compare(o Route) int {
	return cmp.Or(r.Prefix.Addr().Compare(o.Prefix.Addr()), cmp.Compare(r.Prefix.Bits(), o.Prefix.Bits()),
		r.NextHop.Compare(o.NextHop))
}

// String gives "10.1.1.0/24 via 10.0.0.105", and the attributes if there are any.
func (r Route) String() string {
	s := fmt.Sprintf("%s via %s", r.Prefix, r.NextHop)
	if r.Attributes != (Attributes{}) {
		s += " (" + r.Attributes.String() + ")"
	}
	return s
}

// String gives the attributes in words, empty where they say nothing.
func (a Attributes) String() string {
	var words []string
	add := func(given bool, format string, value any) {
		if given {
			words = append(words, fmt.Sprintf(format, value))
		}
	}
	add(a.Communities != "", "communities %s", a.Communities)
	add(a.LocalPreference != 0, "local preference %d", a.LocalPreference)
	add(a.MED != 0, "MED %d", a.MED)
	add(a.Prepend != 0, "prepended %d times", a.Prepend)
	add(a.Weight != 0, "weight %d", a.Weight)
	add(a.Peers != "", "to %s", a.Peers)
	add(a.Mode != ModeAny, "by %s", a.Mode)
	return strings.Join(words, ", ")
}
