// Package paths converts between our routes and the attributes with which they are sent. It
// knows which attributes mean what (weights as link bandwidths, for example), and which
// routes cannot be sent.
//
// Everything here is a function of its arguments, so tests are tables.
package paths

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/fairlead/fairlead/advertise/bgp/internal/wire"
	"github.com/fairlead/fairlead/core/route"
)

// bandwidthOfWeight is the link bandwidth of weight 1, in bytes per second: 1 Mbit/s, the
// smallest unit that routers display.
const bandwidthOfWeight = 125000

// reservedAS is an AS that cannot exist (RFC 7300).
const reservedAS = math.MaxUint32

// defaultLocalPref applies within an AS to a route without a local preference.
const defaultLocalPref = 100

// Check rejects routes that cannot be sent to any peer.
func Check(r route.Route) error {
	switch {
	case !r.Prefix.IsValid():
		return errors.New("a route has no prefix")
	case r.Prefix != r.Prefix.Masked():
		return fmt.Errorf("it has host bits set; use %s", r.Prefix.Masked())
	case !r.NextHop.IsValid() || r.NextHop.IsUnspecified():
		return errors.New("it has no next hop; use the node's address")
	case r.NextHop.Is4() && r.Prefix.Addr().Is6():
		return fmt.Errorf("by %s: an IPv6 prefix needs an IPv6 next hop", r.NextHop)
	}
	return checkAttributes(r.Attributes)
}

// checkAttributes rejects attributes that cannot be sent to any peer.
func checkAttributes(a route.Attributes) error {
	communities, err := a.Communities.Parse()
	if err != nil {
		return fmt.Errorf("communities: %w", err)
	}
	if slices.ContainsFunc(communities, func(c route.Community) bool { return c.Large && c.Global == reservedAS }) {
		return fmt.Errorf("communities: AS %d is reserved (RFC 7300)", uint32(reservedAS))
	}
	if a.ASPathPrepend > route.MaxASPathPrepend {
		return fmt.Errorf("asPathPrepend: %d is not between 0 and %d", a.ASPathPrepend, route.MaxASPathPrepend)
	}
	return nil
}

// Local returns the attributes with which a neighbor is sent a route of ours, or false if it
// is not for that neighbor; as is our AS, external whether the neighbor is in another.
func Local(r route.Route, peer string, as uint32, external bool, nextHop netip.Addr) (a wire.Attributes, is bool) {
	if r.Peers != "" && !slices.Contains(r.Peers.List(), peer) {
		return a, false
	}
	a = wire.Attributes{NextHop: nextHop, MED: r.MED, HasMED: r.MED != 0}
	if external {
		n := 1 + r.ASPathPrepend
		a.ASPath = string([]byte{pkt.BGP_ASPATH_ATTR_TYPE_SEQ, byte(n)}) + strings.Repeat(octets(as), int(n))
	} else {
		a.LocalPref, a.HasPref = defaultLocalPref, true
		if r.LocalPreference != 0 {
			a.LocalPref = r.LocalPreference
		}
	}
	communities, _ := r.Communities.Parse() // checked
	for _, c := range communities {
		if c.Large {
			a.LargeCommunities += octets(c.Global) + octets(c.Local1) + octets(c.Local2)
		} else {
			a.Communities += octets(c.Global<<16 | c.Local1)
		}
	}
	if r.Weight != 0 {
		a.ExtendedCommunities = bandwidth(r.Weight, as, external)
	}
	return a, true
}

// Reflected returns the attributes with which a route from a neighbor with a router ID is
// passed on within our AS (RFC 4456).
func Reflected(a wire.Attributes, from, cluster netip.Addr) wire.Attributes {
	if !a.HasPref {
		a.LocalPref, a.HasPref = defaultLocalPref, true
	}
	if a.Originator == "" {
		a.Originator = string(from.AsSlice())
	}
	a.Clusters = string(cluster.AsSlice()) + a.Clusters
	return a
}

func octets(n uint32) string { return string(binary.BigEndian.AppendUint32(nil, n)) }

// The link bandwidth community (RFC 10005): the second octet, and the bit of the first that
// makes it non-transitive.
const (
	linkBandwidth = 0x04
	nonTransitive = 0x40
)

// bandwidth returns the communities that carry a weight (RFC 10005): a non-transitive
// one, which older routers support, and a transitive one. A receiver of both uses the
// lower value; they are equal. Another AS is sent only the latter (RFC 4360).
func bandwidth(weight, as uint32, external bool) string {
	if as > math.MaxUint16 {
		as = pkt.AS_TRANS
	}
	rest := string([]byte{linkBandwidth, byte(as >> 8), byte(as)}) + octets(math.Float32bits(float32(weight)*bandwidthOfWeight))
	if external {
		return "\x00" + rest
	}
	return "\x00" + rest + string([]byte{nonTransitive}) + rest
}
