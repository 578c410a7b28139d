// Package route contains the routes that a load balancer may advertise: their attributes,
// and the offers from which they are planned. Advertising routes belongs in package
// advertise.
package route

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
)

// Route is one prefix that this load balancer advertises.
type Route struct {
	Prefix  netip.Prefix `json:"prefix"`
	NextHop netip.Addr   `json:"nextHop"`
	Attributes
}

// Attributes are the path attributes of a route. They are comparable; the zero value sets
// none.
type Attributes struct {
	// Communities of the route.
	Communities Communities `json:"communities,omitempty"`
	// LocalPreference is sent to peers in the same AS, which prefer the highest value.
	// They assume 100 if it is 0.
	LocalPreference uint32 `json:"localPreference,omitempty"`
	// MED is sent to all peers. Among routes from one AS, they prefer the lowest value.
	MED uint32 `json:"med,omitempty"`
	// ASPathPrepend is how often the load balancers' AS is prepended to the AS path, in
	// addition, for peers in other ASes. At most MaxASPathPrepend.
	ASPathPrepend uint32 `json:"asPathPrepend,omitempty"`
	// Weight is this load balancer's share of the flows, for routers that support link
	// bandwidth (RFC 10005); 0 if not set.
	Weight uint32 `json:"weight,omitempty"`
	// Peers names the peers to which the route is advertised; all if empty.
	Peers Names `json:"peers,omitempty"`
	// Mode is how the route is advertised; in every available way if empty.
	Mode Mode `json:"mode,omitempty"`
}

// MaxASPathPrepend limits Attributes.ASPathPrepend: some routers reject much longer paths.
const MaxASPathPrepend = 10

// Compare orders routes by prefix, then next hop.
func (r Route) Compare(o Route) int {
	return cmp.Or(r.Prefix.Addr().Compare(o.Prefix.Addr()), cmp.Compare(r.Prefix.Bits(), o.Prefix.Bits()),
		r.NextHop.Compare(o.NextHop))
}

// String returns "10.1.1.0/24 via 10.0.0.105", followed by the attributes, if any.
func (r Route) String() string {
	s := fmt.Sprintf("%s via %s", r.Prefix, r.NextHop)
	if r.Attributes != (Attributes{}) {
		s += " (" + r.Attributes.String() + ")"
	}
	return s
}

// String describes the attributes, or returns "" if none is set.
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
	add(a.ASPathPrepend != 0, "prepended %d times", a.ASPathPrepend)
	add(a.Weight != 0, "weight %d", a.Weight)
	add(a.Peers != "", "to %s", a.Peers)
	add(a.Mode != ModeAny, "by %s", a.Mode)
	return strings.Join(words, ", ")
}
