// Package rawbgp writes BGP messages byte by byte, valid and invalid ones, for tests that
// attack a speaker. It neither reads messages nor opens connections.
package rawbgp

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
)

// Message types (RFC 4271, section 4.1, and RFC 2918).
const (
	TypeOpen         = 1
	TypeUpdate       = 2
	TypeNotification = 3
	TypeKeepalive    = 4
	TypeRouteRefresh = 5
)

const headerLength = 19

// Attributes of an UPDATE within an AS (RFC 4271, section 4.3).
var (
	Origin    = []byte{0x40, 1, 1, 0}
	NoPath    = []byte{0x40, 2, 0}
	Preferred = []byte{0x40, 5, 4, 0, 0, 0, 100}
)

// NextHop is the attribute NEXT_HOP.
func NextHop(a netip.Addr) []byte { return append([]byte{0x40, 3, 4}, a.AsSlice()...) }

// Good returns the attributes that every route within an AS needs.
func Good(nextHop netip.Addr) []byte {
	return slices.Concat(Origin, NoPath, NextHop(nextHop), Preferred)
}

// Message is a message of any type.
func Message(typ uint8, body []byte) []byte {
	m := bytes.Repeat([]byte{0xff}, 16)
	m = binary.BigEndian.AppendUint16(m, uint16(headerLength+len(body)))
	return append(append(m, typ), body...)
}

// Keepalive is a KEEPALIVE.
func Keepalive() []byte { return Message(TypeKeepalive, nil) }

// Open is an OPEN with capabilities for both families and four octet AS numbers.
func Open(as uint16, hold uint16, id netip.Addr) []byte {
	body := binary.BigEndian.AppendUint16([]byte{4}, as)
	body = binary.BigEndian.AppendUint16(body, hold)
	body = append(body, id.AsSlice()...)
	capabilities := []byte{65, 4, 0, 0, byte(as >> 8), byte(as), 1, 4, 0, 1, 0, 1, 1, 4, 0, 2, 0, 1}
	options := append([]byte{2, byte(len(capabilities))}, capabilities...)
	return Message(TypeOpen, slices.Concat(body, []byte{byte(len(options))}, options))
}

// Update is an UPDATE without withdrawn routes.
func Update(attrs, nlri []byte) []byte {
	body := binary.BigEndian.AppendUint16([]byte{0, 0}, uint16(len(attrs)))
	return Message(TypeUpdate, slices.Concat(body, attrs, nlri))
}

// perUpdate is the number of addresses per UPDATE; that many IPv6 addresses fit, and IPv4
// addresses more easily.
const perUpdate = 200

// Announce returns the UPDATEs for n single addresses from first on, of either family,
// with additional attributes.
func Announce(first, nextHop netip.Addr, n int, more ...byte) []byte {
	return each(first, n, func(nlri []byte) []byte {
		if first.Is4() {
			return Update(slices.Concat(Good(nextHop), more), nlri)
		}
		value := slices.Concat([]byte{0, 2, 1, 16}, nextHop.AsSlice(), []byte{0}, nlri)
		return Update(slices.Concat(Origin, NoPath, Preferred, more, extended(14, value)), nil)
	})
}

// Withdraw returns the UPDATEs that withdraw what Announce advertises.
func Withdraw(first netip.Addr, n int) []byte {
	return each(first, n, func(nlri []byte) []byte {
		if first.Is4() {
			body := binary.BigEndian.AppendUint16(nil, uint16(len(nlri)))
			return Message(TypeUpdate, append(append(body, nlri...), 0, 0))
		}
		return Update(extended(15, append([]byte{0, 2, 1}, nlri...)), nil)
	})
}

// Communities returns a COMMUNITIES attribute with n communities that depend on seed.
func Communities(n int, seed uint32) []byte {
	var value []byte
	for i := range n {
		value = binary.BigEndian.AppendUint32(value, seed<<10|uint32(i))
	}
	b := extended(8, value)
	b[0] = 0xd0
	return b
}

func extended(typ byte, value []byte) []byte {
	return append(binary.BigEndian.AppendUint16([]byte{0x90, typ}, uint16(len(value))), value...)
}

func each(first netip.Addr, n int, update func(nlri []byte) []byte) (all []byte) {
	for a := first; n > 0; {
		var nlri []byte
		for range min(n, perUpdate) {
			nlri = append(append(nlri, byte(a.BitLen())), a.AsSlice()...)
			a, n = a.Next(), n-1
		}
		all = append(all, update(nlri)...)
	}
	return all
}

// Malformed returns UPDATEs with one error each, all for 10.3.0.0/24.
func Malformed(nextHop netip.Addr) map[string][]byte {
	via, prefix := NextHop(nextHop), []byte{24, 10, 3, 0}
	good := Good(nextHop)
	with := func(at int, value byte) []byte {
		m := Update(good, prefix)
		m[at] = value
		return m
	}
	return map[string][]byte{
		"nothing in it but its type":              Message(TypeUpdate, nil),
		"withdrawn routes beyond the end":         Message(TypeUpdate, []byte{0xff, 0xff, 0, 0}),
		"attributes beyond the end":               Message(TypeUpdate, []byte{0, 0, 0xff, 0xff}),
		"an attribute beyond the attributes":      Update(slices.Concat(NoPath, via, []byte{0x40, 1, 200, 0}), prefix),
		"an ORIGIN that is optional":              Update(slices.Concat([]byte{0x80, 1, 1, 0}, NoPath, via, Preferred), prefix),
		"an ORIGIN of 9":                          Update(slices.Concat([]byte{0x40, 1, 1, 9}, NoPath, via, Preferred), prefix),
		"ORIGIN twice":                            Update(slices.Concat(Origin, good), prefix),
		"no ORIGIN":                               Update(slices.Concat(NoPath, via, Preferred), prefix),
		"an AS_PATH segment of type 9":            Update(slices.Concat(Origin, []byte{0x40, 2, 6, 9, 1, 0, 0, 0, 1}, via, Preferred), prefix),
		"an AS_PATH segment cut short":            Update(slices.Concat(Origin, []byte{0x40, 2, 4, 2, 9, 0, 1}, via, Preferred), prefix),
		"no NEXT_HOP":                             Update(slices.Concat(Origin, NoPath, Preferred), prefix),
		"a NEXT_HOP of 3 bytes":                   Update(slices.Concat(Origin, NoPath, []byte{0x40, 3, 3, 10, 0, 0}, Preferred), prefix),
		"the NEXT_HOP 0.0.0.0":                    Update(slices.Concat(Origin, NoPath, []byte{0x40, 3, 4, 0, 0, 0, 0}, Preferred), prefix),
		"the NEXT_HOP 224.0.0.1":                  Update(slices.Concat(Origin, NoPath, []byte{0x40, 3, 4, 224, 0, 0, 1}, Preferred), prefix),
		"an unknown attribute that must be known": Update(slices.Concat(good, []byte{0x40, 99, 1, 0}), prefix),
		"COMMUNITIES of 5 bytes":                  Update(slices.Concat(good, []byte{0xc0, 8, 5, 1, 2, 3, 4, 5}), prefix),
		"LARGE_COMMUNITY of 7 bytes":              Update(slices.Concat(good, []byte{0xc0, 32, 7, 1, 2, 3, 4, 5, 6, 7}), prefix),
		"EXTENDED_COMMUNITIES of 7 bytes":         Update(slices.Concat(good, []byte{0xc0, 16, 7, 0x40, 4, 0, 1, 0, 0, 0}), prefix),
		"a link bandwidth that is no number":      Update(slices.Concat(good, []byte{0xc0, 16, 8, 0x40, 4, 0, 1, 0x7f, 0xc0, 0, 0}), prefix),
		"a link bandwidth without end":            Update(slices.Concat(good, []byte{0xc0, 16, 8, 0x40, 4, 0, 1, 0x7f, 0x80, 0, 0}), prefix),
		"a link bandwidth below 0":                Update(slices.Concat(good, []byte{0xc0, 16, 8, 0x40, 4, 0, 1, 0xc8, 0, 0, 0}), prefix),
		"an MP_REACH_NLRI of a byte":              Update(slices.Concat(good, []byte{0x80, 14, 1, 0}), prefix),
		"an IPv6 next hop of 3 bytes":             Update(slices.Concat(good, []byte{0x80, 14, 8, 0, 2, 1, 3, 1, 2, 3, 0}), prefix),
		"an IPv6 prefix of 129 bits":              Update(slices.Concat(good, []byte{0x80, 14, 22, 0, 2, 1, 16, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 129}), prefix),
		"a prefix of 33 bits":                     Update(good, []byte{33, 10, 3, 0, 0, 0}),
		"a prefix cut short":                      Update(good, []byte{24, 10}),
		"a length below a header's":               with(17, 10),
		"a length of 65,535":                      slices.Concat(Message(TypeKeepalive, nil)[:16], []byte{0xff, 0xff, 2}),
		"a marker with a hole":                    with(3, 0),
		"an unknown type":                         with(18, 9),
	}
}
