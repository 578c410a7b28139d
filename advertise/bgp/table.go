package bgp

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/fairlead/fairlead/advertise"
)

// routes lists the table, or only some prefixes of it: the best paths of each, every next
// hop once even if two reflectors pass it on, sorted by prefix.
func (e *engine) routes(only ...netip.Prefix) ([]advertise.RouteSet, error) {
	var all []advertise.RouteSet
	for _, family := range []pkt.Family{pkt.RF_IPv4_UC, pkt.RF_IPv6_UC} {
		var lookups []*apiutil.LookupPrefix
		for _, p := range only {
			if p.Addr().Is4() == (family == pkt.RF_IPv4_UC) {
				lookups = append(lookups, &apiutil.LookupPrefix{Prefix: p.String()})
			}
		}
		if len(only) > 0 && len(lookups) == 0 {
			continue
		}
		req := apiutil.ListPathRequest{TableType: api.TableType_TABLE_TYPE_GLOBAL, Family: family, Prefixes: lookups}
		err := e.server.ListPath(req, func(nlri pkt.NLRI, paths []*apiutil.Path) {
			if set := routeSet(nlriPrefix(nlri), paths); len(set.NextHops) > 0 {
				all = append(all, set)
			}
		})
		if err != nil {
			return nil, fmt.Errorf("BGP table of %s: %w", family, err)
		}
	}
	slices.SortFunc(all, func(a, b advertise.RouteSet) int { return a.Prefix.Compare(b.Prefix) })
	return all, nil
}

// offer is a next hop with its advertised bandwidth, in octets per second; 0 if it has
// none.
type offer struct {
	nextHop   netip.Addr
	bandwidth float64
}

func routeSet(prefix netip.Prefix, paths []*apiutil.Path) advertise.RouteSet {
	var offers []offer
	for _, p := range paths {
		if nh := nextHop(p.Attrs, prefix.Addr().Is4()); p.Best && nh.IsValid() {
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

// nextHop returns the next hop of a path to an IPv4 prefix or to another. In an UPDATE
// with both kinds, NEXT_HOP is for the former, MP_REACH_NLRI for those of its own family
// (RFC 4760 section 3). Some speakers that only have a link-local address write it after
// one of zeros (RFC 2545 section 3).
func nextHop(attrs []pkt.PathAttributeInterface, v4 bool) (nh netip.Addr) {
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
