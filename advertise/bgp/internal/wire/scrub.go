package wire

import (
	"encoding/binary"
	"net/netip"
	"slices"

	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// maxAttributes limits the size of the attributes of a route, in bytes, without
// MP_REACH_NLRI and MP_UNREACH_NLRI. Ours have about a hundred. More could make a table of
// permitted size large, and not fit into 4096 bytes when passed on to a peer without
// extended messages (RFC 8654).
const maxAttributes = 2048

// knownAttributes are the attributes that routes to load balancers need. All other
// optional ones are removed (attribute discard, RFC 7606): what nobody here reads cannot
// do harm here, or at the routers behind a reflector.
var knownAttributes = map[pkt.BGPAttrType]bool{
	pkt.BGP_ATTR_TYPE_ORIGIN: true, pkt.BGP_ATTR_TYPE_AS_PATH: true, pkt.BGP_ATTR_TYPE_NEXT_HOP: true,
	pkt.BGP_ATTR_TYPE_MULTI_EXIT_DISC: true, pkt.BGP_ATTR_TYPE_LOCAL_PREF: true, pkt.BGP_ATTR_TYPE_AS4_PATH: true,
	pkt.BGP_ATTR_TYPE_COMMUNITIES: true, pkt.BGP_ATTR_TYPE_EXTENDED_COMMUNITIES: true, pkt.BGP_ATTR_TYPE_LARGE_COMMUNITY: true,
	pkt.BGP_ATTR_TYPE_ORIGINATOR_ID: true, pkt.BGP_ATTR_TYPE_CLUSTER_LIST: true,
	pkt.BGP_ATTR_TYPE_MP_REACH_NLRI: true, pkt.BGP_ATTR_TYPE_MP_UNREACH_NLRI: true,
}

// attribute is a path attribute as received.
type attribute struct {
	flags pkt.BGPAttrFlag
	typ   pkt.BGPAttrType
	value []byte
	whole []byte
}

// Scrub removes attributes that are not for us from an UPDATE. If the rest cannot be a
// valid route, it removes everything except the prefixes: the routes then miss ORIGIN and
// count as withdrawn (RFC 7606).
func Scrub(body []byte) []byte {
	before, attrs, nlri, ok := splitUpdate(body)
	if !ok {
		return body // the parser rejects it
	}
	all, whole := readAttributes(attrs)
	good, size := whole, 0
	var kept, prefixes []byte
	for _, a := range all {
		switch {
		case a.typ == pkt.BGP_ATTR_TYPE_MP_REACH_NLRI, a.typ == pkt.BGP_ATTR_TYPE_MP_UNREACH_NLRI:
			good = good && (a.typ != pkt.BGP_ATTR_TYPE_MP_REACH_NLRI || goodReach(a.value))
			prefixes = append(prefixes, a.whole...)
		case knownAttributes[a.typ], a.flags&pkt.BGP_ATTR_FLAG_OPTIONAL == 0:
			size += len(a.whole)
		default:
			continue
		}
		kept = append(kept, a.whole...)
	}
	if !good || size > maxAttributes {
		kept = prefixes
	}
	out := binary.BigEndian.AppendUint16(slices.Clone(before), uint16(len(kept)))
	return append(append(out, kept...), nlri...)
}

// splitUpdate returns the parts of an UPDATE: what precedes the length of the attributes,
// the attributes, and the prefixes (RFC 4271, section 4.3).
func splitUpdate(body []byte) (before, attrs, nlri []byte, ok bool) {
	if len(body) < 4 {
		return nil, nil, nil, false
	}
	start := 2 + int(binary.BigEndian.Uint16(body))
	if start+2 > len(body) {
		return nil, nil, nil, false
	}
	end := start + 2 + int(binary.BigEndian.Uint16(body[start:]))
	if end > len(body) {
		return nil, nil, nil, false
	}
	return body[:start], body[start+2 : end], body[end:], true
}

// readAttributes returns the attributes up to the first that does not fit; whole means
// that all fit.
func readAttributes(b []byte) (all []attribute, whole bool) {
	for len(b) > 0 {
		if len(b) < 3 {
			return all, false
		}
		a := attribute{flags: pkt.BGPAttrFlag(b[0]), typ: pkt.BGPAttrType(b[1])}
		head, length := 3, int(b[2])
		if a.flags&pkt.BGP_ATTR_FLAG_EXTENDED_LENGTH != 0 {
			if len(b) < 4 {
				return all, false
			}
			head, length = 4, int(binary.BigEndian.Uint16(b[2:]))
		}
		if head+length > len(b) {
			return all, false
		}
		a.value, a.whole = b[head:head+length], b[:head+length]
		all, b = append(all, a), b[head+length:]
	}
	return all, true
}

// goodReach reports whether the next hop in an MP_REACH_NLRI is valid; the library only
// checks the one in NEXT_HOP. A value that is too short is left to the parser.
func goodReach(value []byte) bool {
	if len(value) < 4 || len(value) < 4+int(value[3]) {
		return true
	}
	switch hops := value[4 : 4+int(value[3])]; len(hops) {
	case 4, 16:
		nh, _ := netip.AddrFromSlice(hops)
		return goodNextHop(nh)
	case 32: // zeros before a link-local address: see nextHop
		global, local := netip.AddrFrom16([16]byte(hops)), netip.AddrFrom16([16]byte(hops[16:]))
		return goodNextHop(global) || global.IsUnspecified() && local.IsLinkLocalUnicast()
	}
	return true
}

func goodNextHop(a netip.Addr) bool {
	return !a.IsUnspecified() && !a.IsLoopback() && !a.IsMulticast() && !a.Is4In6()
}
