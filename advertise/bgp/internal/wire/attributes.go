package wire

import (
	"encoding/binary"
	"net/netip"
	"unique"

	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// Key identifies a route of a peer: ID is 0 without ADD-PATH (RFC 7911).
type Key struct {
	Prefix netip.Prefix
	ID     uint32
}

// Family returns the family of a prefix.
func Family(p netip.Prefix) pkt.Family {
	if p.Addr().Is4() {
		return pkt.RF_IPv4_UC
	}
	return pkt.RF_IPv6_UC
}

// Attributes are those of a route that matter here. Strings are values as in an UPDATE,
// so that attributes can be compared and are stored once however many routes have them.
type Attributes struct {
	Origin uint8
	// ASPath has AS numbers of four octets.
	ASPath              string
	NextHop             netip.Addr
	MED, LocalPref      uint32
	HasMED, HasPref     bool
	Communities         string
	ExtendedCommunities string
	LargeCommunities    string
	Originator          string // empty or four octets
	Clusters            string
}

// Shared are attributes that are stored once.
type Shared = unique.Handle[Attributes]

// PathLength returns the length of the AS path (RFC 4271, section 9.1.2.2).
func (a *Attributes) PathLength() (n int) {
	a.segments(func(typ uint8, as string) {
		switch typ {
		case pkt.BGP_ASPATH_ATTR_TYPE_SEQ:
			n += len(as) / 4
		case pkt.BGP_ASPATH_ATTR_TYPE_SET:
			n++
		}
	})
	return n
}

// FirstAS returns the AS from which the route came; 0 within ours.
func (a *Attributes) FirstAS() (first uint32) {
	a.segments(func(_ uint8, as string) {
		if first == 0 && len(as) >= 4 {
			first = binary.BigEndian.Uint32([]byte(as[:4]))
		}
	})
	return first
}

// Passed reports whether a route has come through an AS.
func (a *Attributes) Passed(number uint32) (is bool) {
	a.segments(func(_ uint8, as string) {
		for ; len(as) >= 4; as = as[4:] {
			is = is || binary.BigEndian.Uint32([]byte(as[:4])) == number
		}
	})
	return is
}

func (a *Attributes) segments(each func(typ uint8, as string)) {
	for p := a.ASPath; len(p) >= 2 && len(p) >= 2+4*int(p[1]); p = p[2+4*int(p[1]):] {
		each(p[0], p[2:2+4*int(p[1])])
	}
}

// InCluster reports whether a reflector of a cluster has reflected a route (RFC 4456).
func (a *Attributes) InCluster(id netip.Addr) bool {
	for c := a.Clusters; len(c) >= 4; c = c[4:] {
		if c[:4] == string(id.AsSlice()) {
			return true
		}
	}
	return false
}

// GracefulShutdown reports whether a route has the community of RFC 8326.
func (a *Attributes) GracefulShutdown() bool {
	for c := a.Communities; len(c) >= 4; c = c[4:] {
		if c[:4] == "\xff\xff\x00\x00" {
			return true
		}
	}
	return false
}

// widen returns an AS path of two-octet numbers with four-octet ones, completed by the
// four-octet path that newer ASes have added (RFC 6793, section 4.2.3).
func widen(path, as4 string) string {
	type segment struct {
		typ uint8
		as  []uint32
	}
	var all []segment
	n := 0
	for p := path; len(p) >= 2 && len(p) >= 2+2*int(p[1]); p = p[2+2*int(p[1]):] {
		s := segment{typ: p[0]}
		for i := range int(p[1]) {
			s.as = append(s.as, uint32(p[2+2*i])<<8|uint32(p[3+2*i]))
		}
		all, n = append(all, s), n+len(s.as)
	}
	newer := &Attributes{ASPath: as4}
	count := 0
	newer.segments(func(_ uint8, as string) { count += len(as) / 4 })
	if as4 == "" || count > n {
		as4, count = "", 0
	}
	out, left := []byte(nil), n-count
	for _, s := range all {
		k := min(left, len(s.as))
		if left -= k; k == 0 {
			continue
		}
		out = append(out, s.typ, byte(k))
		for _, as := range s.as[:k] {
			out = binary.BigEndian.AppendUint32(out, as)
		}
	}
	return string(out) + as4
}

// narrow returns an AS path with two-octet numbers, and whether any did not fit.
func narrow(path string) (out []byte, lossy bool) {
	a := &Attributes{ASPath: path}
	a.segments(func(typ uint8, as string) {
		out = append(out, typ, byte(len(as)/4))
		for ; len(as) >= 4; as = as[4:] {
			if as[:2] == "\x00\x00" {
				out = append(out, as[2:4]...)
			} else {
				out, lossy = binary.BigEndian.AppendUint16(out, pkt.AS_TRANS), true
			}
		}
	})
	return out, lossy
}
