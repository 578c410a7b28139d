package paths

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/osrg/gobgp/v4/pkg/apiutil"
	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/fairlead/fairlead/advertise"
)

// offer is a next hop with its advertised bandwidth, in octets per second; 0 if it has
// none.
type offer struct {
	nextHop   netip.Addr
	bandwidth float64
}

// RouteSet returns the next hops of the best paths to a prefix, with their weights.
func RouteSet(prefix netip.Prefix, paths []*apiutil.Path) advertise.RouteSet {
	var offers []offer
	for _, p := range paths {
		if nh := NextHop(p.Attrs, prefix.Addr().Is4()); p.Best && nh.IsValid() {
			offers = append(offers, offer{nh, offered(p.Attrs)})
		}
	}
	return fromOffers(prefix, offers)
}

// fromOffers sorts next hops and assigns weights. If two reflectors send different
// bandwidths, as can happen for a moment, the larger one is used.
func fromOffers(prefix netip.Prefix, offers []offer) advertise.RouteSet {
	slices.SortFunc(offers, func(a, b offer) int {
		return cmp.Or(a.nextHop.Compare(b.nextHop), cmp.Compare(b.bandwidth, a.bandwidth))
	})
	offers = slices.CompactFunc(offers, func(a, b offer) bool { return a.nextHop == b.nextHop })
	set := advertise.RouteSet{Prefix: prefix}
	var bandwidths []float64
	var with, without netip.Addr
	for _, o := range offers {
		set.NextHops, bandwidths = append(set.NextHops, o.nextHop), append(bandwidths, o.bandwidth)
		if o.bandwidth > 0 {
			with = o.nextHop
		} else {
			without = o.nextHop
		}
	}
	if with.IsValid() && without.IsValid() {
		set.Uneven = fmt.Sprintf("%s has a bandwidth and %s does not: all next hops get equal shares", with, without)
		return set
	}
	set.Weights = advertise.Shares(bandwidths)
	return set
}

// NextHop returns the next hop of a path to an IPv4 prefix or to another. In an UPDATE
// with both kinds, NEXT_HOP is for the former, MP_REACH_NLRI for those of its own family
// (RFC 4760 section 3). Some speakers that only have a link-local address write it after
// one of zeros (RFC 2545 section 3).
func NextHop(attrs []pkt.PathAttributeInterface, v4 bool) (nh netip.Addr) {
	for _, a := range attrs {
		switch a := a.(type) {
		case *pkt.PathAttributeNextHop:
			if v4 && !nh.IsValid() {
				nh = a.Value
			}
		case *pkt.PathAttributeMpReachNLRI:
			if (a.AFI == pkt.AFI_IP) != v4 {
				continue
			}
			if nh = a.Nexthop; nh.IsUnspecified() && a.LinkLocalNexthop.IsValid() {
				nh = a.LinkLocalNexthop
			}
		}
	}
	return nh
}

// offered returns the link bandwidth of a path (RFC 10005), whether transitive or not:
// gobgp treats both alike. Of two, the lower one counts; 0 without any.
func offered(attrs []pkt.PathAttributeInterface) (lowest float64) {
	for _, a := range attrs {
		list, ok := a.(*pkt.PathAttributeExtendedCommunities)
		if !ok {
			continue
		}
		for _, c := range list.Value {
			b, ok := c.(*pkt.LinkBandwidthExtended)
			if ok && b.Bandwidth > 0 && (lowest == 0 || float64(b.Bandwidth) < lowest) {
				lowest = float64(b.Bandwidth)
			}
		}
	}
	return lowest
}

// Prefix returns the prefix of a route.
func Prefix(n pkt.NLRI) netip.Prefix {
	if p, ok := n.(*pkt.IPAddrPrefix); ok {
		return p.Prefix
	}
	p, _ := netip.ParsePrefix(n.String())
	return p
}
