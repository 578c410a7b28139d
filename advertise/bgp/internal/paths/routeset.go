package paths

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/advertise/bgp/internal/wire"
)

// offer is a next hop with its advertised bandwidth, in octets per second; 0 if it has
// none.
type offer struct {
	nextHop   netip.Addr
	bandwidth float64
}

// RouteSet returns the next hops of paths to a prefix, with their weights.
func RouteSet(prefix netip.Prefix, paths []wire.Shared) advertise.RouteSet {
	offers := make([]offer, 0, len(paths))
	for _, p := range paths {
		a := p.Value()
		offers = append(offers, offer{a.NextHop, offered(a.ExtendedCommunities)})
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

// offered returns the link bandwidth of a path (RFC 10005), whether transitive or not. Of
// two, the lower one counts; 0 without any.
func offered(extended string) (lowest float64) {
	for e := []byte(extended); len(e) >= 8; e = e[8:] {
		if e[0]&^nonTransitive != 0 || e[1] != linkBandwidth {
			continue
		}
		b := float64(math.Float32frombits(binary.BigEndian.Uint32(e[4:])))
		if b > 0 && (lowest == 0 || b < lowest) {
			lowest = b
		}
	}
	return lowest
}
