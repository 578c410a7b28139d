package wire

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"unique"

	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// Update is what an UPDATE says.
type Update struct {
	Withdrawn []Key
	Announced []Announcement
}

// Announcement is a set of routes with the same attributes.
type Announcement struct {
	Attributes Shared
	Keys       []Key
}

// Routes counts the routes. An UPDATE without any is also work, and counts as one.
func (u Update) Routes() int {
	n := len(u.Withdrawn)
	for _, a := range u.Announced {
		n += len(a.Keys)
	}
	return max(n, 1)
}

// Decoder reads the UPDATEs of a session.
type Decoder struct {
	// Families are those of the session, and in which of them the peer sends path
	// identifiers.
	Families  map[pkt.Family]pkt.BGPAddPathMode
	TwoOctets bool // AS numbers
	External  bool // the peer is in another AS
	Loopback  bool // next hops may be loopback addresses
	Extended  bool // messages
}

// Update parses the body of an UPDATE. Routes with malformed attributes count as withdrawn
// (RFC 7606); an error ends the session.
func (d Decoder) Update(body []byte) (u Update, err error) {
	body = Scrub(body)
	h := &pkt.BGPHeader{Type: pkt.BGP_MSG_UPDATE, Len: uint16(pkt.BGP_HEADER_LENGTH + len(body))}
	m, err := pkt.ParseBGPBody(h, body, &pkt.MarshallingOption{AddPath: d.Families, Use2ByteAS: d.TwoOctets, ExtendedMessage: d.Extended})
	if m == nil || handling(err) > pkt.ERROR_HANDLING_TREAT_AS_WITHDRAW {
		return Update{}, err
	}
	parsed := m.Body.(*pkt.BGPUpdate)
	withdraw := handling(err) == pkt.ERROR_HANDLING_TREAT_AS_WITHDRAW
	if !withdraw { // otherwise attributes are incomplete
		_, err = pkt.ValidateUpdateMsg(parsed, d.Families, d.External, false, d.Loopback)
		if handling(err) > pkt.ERROR_HANDLING_TREAT_AS_WITHDRAW {
			return Update{}, err
		}
		withdraw = handling(err) == pkt.ERROR_HANDLING_TREAT_AS_WITHDRAW
	}
	var attrs Attributes
	if !withdraw {
		attrs = d.attributes(parsed, body)
	}
	announce := func(list []pkt.PathNLRI, hop netip.Addr) {
		switch keys := keysOf(list); {
		case len(keys) == 0:
		case withdraw || !hop.IsValid():
			u.Withdrawn = append(u.Withdrawn, keys...)
		default:
			attrs.NextHop = hop
			u.Announced = append(u.Announced, Announcement{unique.Make(attrs), keys})
		}
	}
	u.Withdrawn = keysOf(parsed.WithdrawnRoutes)
	announce(parsed.NLRI, attrs.NextHop)
	for _, a := range parsed.PathAttributes {
		switch a := a.(type) {
		case *pkt.PathAttributeMpUnreachNLRI:
			u.Withdrawn = append(u.Withdrawn, keysOf(a.Value)...)
		case *pkt.PathAttributeMpReachNLRI:
			announce(a.Value, nextHop(a))
		}
	}
	return u, nil
}

// handling returns what RFC 7606 says about an error.
func handling(err error) pkt.ErrorHandling {
	var e *pkt.MessageError
	switch {
	case err == nil:
		return pkt.ERROR_HANDLING_NONE
	case errors.As(err, &e):
		return e.ErrorHandling
	}
	return pkt.ERROR_HANDLING_SESSION_RESET
}

func keysOf(list []pkt.PathNLRI) []Key {
	keys := make([]Key, 0, len(list))
	for _, n := range list {
		if p, ok := n.NLRI.(*pkt.IPAddrPrefix); ok {
			keys = append(keys, Key{p.Prefix.Masked(), n.ID})
		}
	}
	return keys
}

// nextHop returns the next hop of an MP_REACH_NLRI. Some speakers that only have a
// link-local address write it after one of zeros (RFC 2545, section 3).
func nextHop(a *pkt.PathAttributeMpReachNLRI) netip.Addr {
	if a.Nexthop.IsUnspecified() && a.LinkLocalNexthop.IsValid() {
		return a.LinkLocalNexthop
	}
	return a.Nexthop
}

// attributes reads the values of attributes that were parsed without error, the first of
// each type; NextHop is the one for IPv4.
func (d Decoder) attributes(u *pkt.BGPUpdate, body []byte) (a Attributes) {
	_, attrs, _, _ := splitUpdate(body)
	all, _ := readAttributes(attrs)
	values := map[pkt.BGPAttrType]string{}
	for _, r := range all {
		if _, twice := values[r.typ]; !twice {
			values[r.typ] = string(r.value)
		}
	}
	for _, p := range u.PathAttributes {
		value := values[p.GetType()]
		switch p := p.(type) {
		case *pkt.PathAttributeOrigin:
			a.Origin = p.Value
		case *pkt.PathAttributeAsPath:
			if a.ASPath = value; d.TwoOctets {
				a.ASPath = widen(value, values[pkt.BGP_ATTR_TYPE_AS4_PATH])
			}
		case *pkt.PathAttributeNextHop:
			a.NextHop = p.Value
		case *pkt.PathAttributeMultiExitDisc:
			a.MED, a.HasMED = p.Value, true
		case *pkt.PathAttributeLocalPref:
			if !d.External { // RFC 7606, section 7.5
				a.LocalPref, a.HasPref = p.Value, true
			}
		case *pkt.PathAttributeCommunities:
			a.Communities = value
		case *pkt.PathAttributeExtendedCommunities:
			a.ExtendedCommunities = value
		case *pkt.PathAttributeLargeCommunities:
			a.LargeCommunities = value
		case *pkt.PathAttributeOriginatorId:
			if !d.External { // RFC 7606, sections 7.9 and 7.10
				a.Originator = value
			}
		case *pkt.PathAttributeClusterList:
			if !d.External {
				a.Clusters = value
			}
		}
	}
	return a
}

// Encoder writes the UPDATEs of a session.
type Encoder struct {
	// IDs lists the families in which path identifiers are written.
	IDs       map[pkt.Family]bool
	TwoOctets bool // AS numbers
}

// room is what a message without a header has room for. Longer messages are never sent.
const room = pkt.BGP_MAX_MESSAGE_LENGTH - pkt.BGP_HEADER_LENGTH

// Withdraw returns the messages that withdraw routes.
func (e Encoder) Withdraw(keys []Key) (all [][]byte) {
	for _, f := range Families {
		head := 4
		if f == pkt.RF_IPv6_UC {
			head = 4 + 4 + 3
		}
		e.chunks(f, keys, room-head, func(nlri []byte) {
			body := binary.BigEndian.AppendUint16(nil, uint16(len(nlri)))
			if f == pkt.RF_IPv6_UC {
				body = []byte{0, 0}
				attr := attributeOf(pkt.BGP_ATTR_FLAG_OPTIONAL, pkt.BGP_ATTR_TYPE_MP_UNREACH_NLRI, "\x00\x02\x01"+string(nlri))
				body = append(binary.BigEndian.AppendUint16(body, uint16(len(attr))), attr...)
			} else {
				body = append(append(body, nlri...), 0, 0)
			}
			all = append(all, message(pkt.BGP_MSG_UPDATE, body))
		})
	}
	return all
}

// Announce returns the messages that advertise routes with the same attributes.
func (e Encoder) Announce(s Shared, keys []Key) (all [][]byte) {
	a := s.Value()
	rest := e.encode(&a)
	for _, f := range Families {
		if f == pkt.RF_IPv4_UC && a.NextHop.Is4() {
			hop := attributeOf(pkt.BGP_ATTR_FLAG_TRANSITIVE, pkt.BGP_ATTR_TYPE_NEXT_HOP, string(a.NextHop.AsSlice()))
			attrs := append(hop, rest...)
			e.chunks(f, keys, room-4-len(attrs), func(nlri []byte) { all = append(all, update(attrs, nlri)) })
			continue
		}
		hop := a.NextHop.As16()
		head := string([]byte{byte(f.Afi() >> 8), byte(f.Afi()), f.Safi(), byte(len(hop))}) + string(hop[:]) + "\x00"
		e.chunks(f, keys, room-4-4-len(head)-len(rest), func(nlri []byte) {
			// It comes first (RFC 7606, section 5.1).
			reach := attributeOf(pkt.BGP_ATTR_FLAG_OPTIONAL, pkt.BGP_ATTR_TYPE_MP_REACH_NLRI, head+string(nlri))
			all = append(all, update(append(reach, rest...), nil))
		})
	}
	return all
}

func update(attrs, nlri []byte) []byte {
	body := binary.BigEndian.AppendUint16([]byte{0, 0}, uint16(len(attrs)))
	return message(pkt.BGP_MSG_UPDATE, append(append(body, attrs...), nlri...))
}

// encode returns all attributes except the next hop.
func (e Encoder) encode(a *Attributes) (out []byte) {
	const transitive, optional = pkt.BGP_ATTR_FLAG_TRANSITIVE, pkt.BGP_ATTR_FLAG_OPTIONAL
	add := func(flags pkt.BGPAttrFlag, typ pkt.BGPAttrType, value string) {
		if value != "" {
			out = append(out, attributeOf(flags, typ, value)...)
		}
	}
	number := func(is bool, n uint32) string {
		if !is {
			return ""
		}
		return string(binary.BigEndian.AppendUint32(nil, n))
	}
	path, as4 := a.ASPath, ""
	if e.TwoOctets {
		short, lossy := narrow(a.ASPath)
		if path = string(short); lossy {
			as4 = a.ASPath
		}
	}
	add(transitive, pkt.BGP_ATTR_TYPE_ORIGIN, string([]byte{a.Origin}))
	out = append(out, attributeOf(transitive, pkt.BGP_ATTR_TYPE_AS_PATH, path)...) // may be empty
	add(optional, pkt.BGP_ATTR_TYPE_MULTI_EXIT_DISC, number(a.HasMED, a.MED))
	add(transitive, pkt.BGP_ATTR_TYPE_LOCAL_PREF, number(a.HasPref, a.LocalPref))
	add(optional|transitive, pkt.BGP_ATTR_TYPE_COMMUNITIES, a.Communities)
	add(optional, pkt.BGP_ATTR_TYPE_ORIGINATOR_ID, a.Originator)
	add(optional, pkt.BGP_ATTR_TYPE_CLUSTER_LIST, a.Clusters)
	add(optional|transitive, pkt.BGP_ATTR_TYPE_EXTENDED_COMMUNITIES, a.ExtendedCommunities)
	add(optional|transitive, pkt.BGP_ATTR_TYPE_AS4_PATH, as4)
	add(optional|transitive, pkt.BGP_ATTR_TYPE_LARGE_COMMUNITY, a.LargeCommunities)
	return out
}

func attributeOf(flags pkt.BGPAttrFlag, typ pkt.BGPAttrType, value string) []byte {
	if len(value) < 256 {
		return append([]byte{byte(flags), byte(typ), byte(len(value))}, value...)
	}
	b := []byte{byte(flags | pkt.BGP_ATTR_FLAG_EXTENDED_LENGTH), byte(typ)}
	return append(binary.BigEndian.AppendUint16(b, uint16(len(value))), value...)
}

// chunks calls each with the prefixes of a family, as many as fit.
func (e Encoder) chunks(f pkt.Family, keys []Key, most int, each func(nlri []byte)) {
	var nlri, one []byte
	for _, k := range keys {
		if Family(k.Prefix) != f {
			continue
		}
		one = one[:0]
		if e.IDs[f] {
			one = binary.BigEndian.AppendUint32(one, k.ID)
		}
		one = append(one, byte(k.Prefix.Bits()))
		one = append(one, k.Prefix.Addr().AsSlice()[:(k.Prefix.Bits()+7)/8]...)
		if len(nlri)+len(one) > most && len(nlri) > 0 {
			each(nlri)
			nlri = nil
		}
		nlri = append(nlri, one...)
	}
	if len(nlri) > 0 {
		each(nlri)
	}
}
