package wire

import (
	"net/netip"

	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// Open is what an OPEN message says about a peer.
type Open struct {
	// AS is the four-octet one if present (RFC 6793).
	AS uint32
	ID netip.Addr
	// Receives are the families in which the peer receives several paths of a prefix, and
	// Sends those in which it sends them (ADD-PATH, RFC 7911).
	Receives, Sends map[pkt.Family]bool
}

// ReadOpen parses the body of an OPEN; the result is empty if that is impossible.
func ReadOpen(body []byte) Open {
	h := &pkt.BGPHeader{Type: pkt.BGP_MSG_OPEN, Len: uint16(pkt.BGP_HEADER_LENGTH + len(body))}
	m, err := pkt.ParseBGPBody(h, body)
	if err != nil {
		return Open{}
	}
	open := m.Body.(*pkt.BGPOpen)
	o := Open{AS: uint32(open.MyAS), ID: open.ID, Receives: map[pkt.Family]bool{}, Sends: map[pkt.Family]bool{}}
	for _, p := range open.OptParams {
		caps, ok := p.(*pkt.OptionParameterCapability)
		if !ok {
			continue
		}
		for _, c := range caps.Capability {
			switch c := c.(type) {
			case *pkt.CapFourOctetASNumber:
				o.AS = c.CapValue
			case *pkt.CapAddPath:
				for _, f := range c.Tuples {
					o.Receives[f.Family] = o.Receives[f.Family] || f.Mode&pkt.BGP_ADD_PATH_RECEIVE != 0
					o.Sends[f.Family] = o.Sends[f.Family] || f.Mode&pkt.BGP_ADD_PATH_SEND != 0
				}
			}
		}
	}
	return o
}

// WantsNoHold reports whether an OPEN has a hold time of 0.
func WantsNoHold(open []byte) bool {
	return len(open) >= 5 && open[3] == 0 && open[4] == 0
}

// NotificationCode returns the codes in the body of a NOTIFICATION; 0 if it is too short.
func NotificationCode(body []byte) (code, sub uint8) {
	if len(body) < 2 {
		return 0, 0
	}
	return body[0], body[1]
}

// NotificationName returns the name of a NOTIFICATION, for people.
func NotificationName(code, sub uint8) string {
	return pkt.NewNotificationErrorCode(code, sub).String()
}

// Notification returns a NOTIFICATION message with these codes.
func Notification(code, sub uint8) []byte {
	b, _ := pkt.NewBGPNotificationMessage(code, sub, nil).Serialize() // cannot fail without data
	return b
}

// ReadUpdate parses the body of an UPDATE, with path identifiers in the families of ids.
func ReadUpdate(body []byte, ids map[pkt.Family]bool) (*pkt.BGPUpdate, error) {
	h := &pkt.BGPHeader{Type: pkt.BGP_MSG_UPDATE, Len: uint16(pkt.BGP_HEADER_LENGTH + len(body))}
	m, err := pkt.ParseBGPBody(h, body, addPath(ids, pkt.BGP_ADD_PATH_RECEIVE))
	if err != nil {
		return nil, err
	}
	return m.Body.(*pkt.BGPUpdate), nil
}

// Withdrawal returns an UPDATE that withdraws a prefix, with its path identifier in the
// families of ids.
func Withdrawal(p netip.Prefix, id uint32, ids map[pkt.Family]bool) ([]byte, error) {
	nlri, err := pkt.NewIPAddrPrefix(p)
	if err != nil {
		return nil, err
	}
	list := []pkt.PathNLRI{{NLRI: nlri, ID: id}}
	msg := pkt.NewBGPUpdateMessage(list, nil, nil)
	if p.Addr().Is6() {
		gone, err := pkt.NewPathAttributeMpUnreachNLRI(pkt.RF_IPv6_UC, list)
		if err != nil {
			return nil, err
		}
		msg = pkt.NewBGPUpdateMessage(nil, []pkt.PathAttributeInterface{gone}, nil)
	}
	return msg.Serialize(addPath(ids, pkt.BGP_ADD_PATH_SEND))
}

func addPath(ids map[pkt.Family]bool, mode pkt.BGPAddPathMode) *pkt.MarshallingOption {
	modes := map[pkt.Family]pkt.BGPAddPathMode{}
	for f, is := range ids {
		if is {
			modes[f] = mode
		}
	}
	return &pkt.MarshallingOption{AddPath: modes}
}

// CountRoutes counts the routes that an UPDATE advertises and withdraws. An UPDATE
// without any is also work, and counts as one.
func CountRoutes(body []byte, ids map[pkt.Family]bool) int {
	before, attrs, nlri, ok := splitUpdate(body)
	if !ok {
		return 1
	}
	n := countPrefixes(before[2:], ids[pkt.RF_IPv4_UC]) + countPrefixes(nlri, ids[pkt.RF_IPv4_UC])
	all, _ := readAttributes(attrs)
	for _, a := range all {
		skip := 0
		switch {
		case a.typ == pkt.BGP_ATTR_TYPE_MP_REACH_NLRI && len(a.value) > 4:
			skip = 5 + int(a.value[3])
		case a.typ == pkt.BGP_ATTR_TYPE_MP_UNREACH_NLRI:
			skip = 3
		}
		if skip > 0 && skip <= len(a.value) {
			family := pkt.NewFamily(uint16(a.value[0])<<8|uint16(a.value[1]), a.value[2])
			n += countPrefixes(a.value[skip:], ids[family])
		}
	}
	return max(n, 1)
}

// countPrefixes counts prefixes as encoded in an UPDATE (RFC 4271, section 4.3), with or
// without path identifiers (RFC 7911).
func countPrefixes(b []byte, ids bool) (n int) {
	for ; len(b) > 0; n++ {
		at := 0
		if ids {
			at = 4
		}
		if len(b) <= at {
			return n + 1
		}
		b = b[min(at+1+(int(b[at])+7)/8, len(b)):]
	}
	return n
}
