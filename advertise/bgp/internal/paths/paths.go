// Package paths converts between our routes and what gobgp stores and sends: paths with
// attributes. It knows which attributes mean what (weights as link bandwidths, for
// example), and which routes cannot be sent.
//
// What is sent to which neighbor is decided in package engine, by policies. Everything here
// is a function of its arguments, so tests are tables.
package paths

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unique"

	"github.com/osrg/gobgp/v4/pkg/apiutil"
	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/fairlead/fairlead/core/route"
)

// bandwidthOfWeight is the link bandwidth of weight 1, in bytes per second: 1 Mbit/s, the
// smallest unit that routers display.
const bandwidthOfWeight = 125000

// ReservedAS identifies our internal marks on routes of a speaker (engine/export.go): large
// communities that are never sent to a peer. No AS can have this number (RFC 7300).
const ReservedAS = math.MaxUint32

// Key identifies a route on the wire: ID is 0 without ADD-PATH (RFC 7911).
type Key struct {
	Prefix netip.Prefix
	ID     uint32
}

// Sent is what is sent for a prefix.
type Sent struct {
	NextHop netip.Addr
	// Attributes describes all other attributes that matter to us.
	Attributes unique.Handle[string]
}

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
	if slices.ContainsFunc(communities, func(c route.Community) bool { return c.Large && c.Global == ReservedAS }) {
		return fmt.Errorf("communities: AS %d is reserved (RFC 7300)", uint32(ReservedAS))
	}
	if a.ASPathPrepend > route.MaxASPathPrepend {
		return fmt.Errorf("asPathPrepend: %d is not between 0 and %d", a.ASPathPrepend, route.MaxASPathPrepend)
	}
	return nil
}

// encode converts attributes to BGP path attributes, including those that not every peer
// is sent; as is our AS.
func encode(a route.Attributes, as uint32) (attrs []pkt.PathAttributeInterface) {
	if a.MED != 0 {
		attrs = append(attrs, pkt.NewPathAttributeMultiExitDisc(a.MED))
	}
	if a.LocalPreference != 0 {
		attrs = append(attrs, pkt.NewPathAttributeLocalPref(a.LocalPreference))
	}
	var standard []uint32
	var large []*pkt.LargeCommunity
	communities, _ := a.Communities.Parse() // checked
	for _, c := range communities {
		if c.Large {
			large = append(large, pkt.NewLargeCommunity(c.Global, c.Local1, c.Local2))
		} else {
			standard = append(standard, c.Global<<16|c.Local1)
		}
	}
	if len(standard) > 0 {
		attrs = append(attrs, pkt.NewPathAttributeCommunities(standard))
	}
	if len(large) > 0 {
		attrs = append(attrs, pkt.NewPathAttributeLargeCommunities(large))
	}
	if a.Weight != 0 {
		attrs = append(attrs, pkt.NewPathAttributeExtendedCommunities(bandwidth(a.Weight, as)))
	}
	return attrs
}

// bandwidth returns the communities that carry a weight (RFC 10005): a non-transitive
// one, which older routers support, and a transitive one. A receiver of both uses the
// lower value; they are equal.
func bandwidth(weight, as uint32) []pkt.ExtendedCommunityInterface {
	if as > math.MaxUint16 {
		as = pkt.AS_TRANS
	}
	value := float32(weight) * bandwidthOfWeight
	return []pkt.ExtendedCommunityInterface{
		pkt.NewTwoOctetAsSpecificExtended(pkt.EC_SUBTYPE_LINK_BANDWIDTH, uint16(as), math.Float32bits(value), true),
		pkt.NewLinkBandwidthExtended(uint16(as), value),
	}
}

// Words formats attributes canonically.
func Words(attrs []pkt.PathAttributeInterface) unique.Handle[string] {
	var parts []string
	add := func(name string, values ...string) {
		if len(values) > 0 {
			slices.Sort(values)
			parts = append(parts, name+" "+strings.Join(slices.Compact(values), " "))
		}
	}
	for _, a := range attrs {
		switch a := a.(type) {
		case *pkt.PathAttributeAsPath:
			if n := pathLength(a); n > 0 {
				add("path", fmt.Sprint(n))
			}
		case *pkt.PathAttributeMultiExitDisc:
			add("med", fmt.Sprint(a.Value))
		case *pkt.PathAttributeLocalPref:
			add("preference", fmt.Sprint(a.Value))
		case *pkt.PathAttributeCommunities:
			add("communities", each(a.Value, func(c uint32) string { return fmt.Sprint(c) })...)
		case *pkt.PathAttributeLargeCommunities:
			add("large", each(a.Values, (*pkt.LargeCommunity).String)...)
		case *pkt.PathAttributeExtendedCommunities:
			add("extended", each(a.Value, extendedWords)...)
		}
	}
	slices.Sort(parts)
	return unique.Make(strings.Join(parts, "; "))
}

// pathLength returns the number of ASes in a path: their encoding depends on the peer's
// capabilities.
func pathLength(a *pkt.PathAttributeAsPath) (n int) {
	for _, segment := range a.Value {
		n += len(segment.GetAS())
	}
	return n
}

// extendedWords ignores whether a link bandwidth is transitive, like gobgp's parser.
func extendedWords(c pkt.ExtendedCommunityInterface) string {
	b, _ := c.Serialize()
	if typ, sub := c.GetTypes(); sub == pkt.EC_SUBTYPE_LINK_BANDWIDTH {
		b[0] = byte(typ &^ 0x40)
	}
	return fmt.Sprintf("%x", b)
}

func each[T any](list []T, text func(T) string) (texts []string) {
	for _, v := range list {
		texts = append(texts, text(v))
	}
	return texts
}

// Local returns a route of ours as gobgp stores it, with marks for the peers that may
// receive it.
func Local(r route.Route, as uint32, marks []*pkt.LargeCommunity) *apiutil.Path {
	nlri, _ := pkt.NewIPAddrPrefix(r.Prefix)
	family := pkt.RF_IPv4_UC
	attrs := append([]pkt.PathAttributeInterface{pkt.NewPathAttributeOrigin(pkt.BGP_ORIGIN_ATTR_TYPE_IGP)}, encode(r.Attributes, as)...)
	if r.Prefix.Addr().Is6() {
		family = pkt.RF_IPv6_UC
	}
	if r.NextHop.Is4() {
		nh, _ := pkt.NewPathAttributeNextHop(r.NextHop)
		attrs = append(attrs, nh)
	} else {
		reach, _ := pkt.NewPathAttributeMpReachNLRI(family, []pkt.PathNLRI{{NLRI: nlri}}, r.NextHop)
		attrs = append(attrs, reach)
	}
	i := slices.IndexFunc(attrs, func(a pkt.PathAttributeInterface) bool { return a.GetType() == pkt.BGP_ATTR_TYPE_LARGE_COMMUNITY })
	if i >= 0 {
		marks = append(marks, attrs[i].(*pkt.PathAttributeLargeCommunities).Values...)
		attrs = slices.Delete(attrs, i, i+1)
	}
	attrs = append(attrs, pkt.NewPathAttributeLargeCommunities(marks))
	return &apiutil.Path{Family: family, Nlri: nlri, Attrs: attrs, Age: time.Now().Unix()}
}

// Mark returns an internal mark for a route.
func Mark(kind, value uint32) *pkt.LargeCommunity {
	return pkt.NewLargeCommunity(ReservedAS, kind, value)
}
