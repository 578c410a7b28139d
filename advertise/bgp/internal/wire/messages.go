package wire

import (
	"errors"
	"math"
	"net/netip"
	"os"
	"strings"

	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// Families are those of every session, whatever its own family.
var Families = []pkt.Family{pkt.RF_IPv4_UC, pkt.RF_IPv6_UC}

// Hello is what our OPEN says.
type Hello struct {
	AS   uint32
	ID   netip.Addr
	Hold uint16 // seconds
	// Paths says whether several paths of a prefix may be sent or received (ADD-PATH,
	// RFC 7911).
	Paths pkt.BGPAddPathMode
}

// Message returns the OPEN.
func (h Hello) Message() ([]byte, error) {
	name, _ := os.Hostname()
	list := []pkt.ParameterCapabilityInterface{
		pkt.NewCapRouteRefresh(), pkt.NewCapFQDN(name, ""), pkt.NewCapExtendedMessage(), pkt.NewCapFourOctetASNumber(h.AS),
		pkt.NewCapExtendedNexthop([]*pkt.CapExtendedNexthopTuple{pkt.NewCapExtendedNexthopTuple(pkt.RF_IPv4_UC, pkt.AFI_IP6)}),
	}
	var paths []*pkt.CapAddPathTuple
	for _, f := range Families {
		list = append(list, pkt.NewCapMultiProtocol(f))
		paths = append(paths, pkt.NewCapAddPathTuple(f, h.Paths))
	}
	if h.Paths != pkt.BGP_ADD_PATH_NONE {
		list = append(list, pkt.NewCapAddPath(paths))
	}
	as := uint16(pkt.AS_TRANS)
	if h.AS <= math.MaxUint16 {
		as = uint16(h.AS)
	}
	m, err := pkt.NewBGPOpenMessage(as, h.Hold, h.ID, []pkt.OptionParameterInterface{pkt.NewOptionParameterCapability(list)})
	if err != nil {
		return nil, err
	}
	return m.Serialize()
}

// Open is what an OPEN message says about a peer.
type Open struct {
	// AS is the four-octet one if present (RFC 6793).
	AS   uint32
	ID   netip.Addr
	Hold uint16 // seconds
	// FourOctets and Extended say whether the peer supports RFC 6793 and RFC 8654.
	FourOctets, Extended bool
	// Speaks are the peer's families, with how many paths of a prefix it sends and
	// receives (RFC 7911).
	Speaks map[pkt.Family]pkt.BGPAddPathMode
	parsed *pkt.BGPOpen
}

// ReadOpen parses the body of an OPEN.
func ReadOpen(body []byte) (Open, error) {
	h := &pkt.BGPHeader{Type: pkt.BGP_MSG_OPEN, Len: uint16(pkt.BGP_HEADER_LENGTH + len(body))}
	m, err := pkt.ParseBGPBody(h, body)
	if err != nil {
		return Open{}, err
	}
	open := m.Body.(*pkt.BGPOpen)
	o := Open{AS: uint32(open.MyAS), ID: open.ID, Hold: open.HoldTime, Speaks: map[pkt.Family]pkt.BGPAddPathMode{}, parsed: open}
	paths := map[pkt.Family]pkt.BGPAddPathMode{}
	for _, p := range open.OptParams {
		caps, ok := p.(*pkt.OptionParameterCapability)
		if !ok {
			continue
		}
		for _, c := range caps.Capability {
			switch c := c.(type) {
			case *pkt.CapFourOctetASNumber:
				o.AS, o.FourOctets = c.CapValue, true
			case *pkt.CapExtendedMessage:
				o.Extended = true
			case *pkt.CapMultiProtocol:
				o.Speaks[c.CapValue] = pkt.BGP_ADD_PATH_NONE
			case *pkt.CapAddPath:
				for _, f := range c.Tuples {
					paths[f.Family] = f.Mode
				}
			}
		}
	}
	if len(o.Speaks) == 0 { // a peer without RFC 4760
		o.Speaks[pkt.RF_IPv4_UC] = pkt.BGP_ADD_PATH_NONE
	}
	for f := range o.Speaks {
		o.Speaks[f] = paths[f]
	}
	return o, nil
}

// Check returns why a peer that should be in an AS cannot have a session with us.
func (o Open) Check(peerAS uint32, ours Hello) error {
	_, err := pkt.ValidateOpenMsg(o.parsed, peerAS, ours.AS, ours.ID)
	return err
}

// ErrorCode returns the codes of the NOTIFICATION for an error in a message.
func ErrorCode(err error) (code, sub uint8, is bool) {
	var e *pkt.MessageError
	if !errors.As(err, &e) {
		return 0, 0, false
	}
	if e.TypeCode == 0 { // routes of a family that the session does not have
		return pkt.BGP_ERROR_UPDATE_MESSAGE_ERROR, pkt.BGP_ERROR_SUB_OPTIONAL_ATTRIBUTE_ERROR, true
	}
	return e.TypeCode, e.SubTypeCode, true
}

// NotificationCode returns the codes in the body of a NOTIFICATION; 0 if it is too short.
func NotificationCode(body []byte) (code, sub uint8) {
	if len(body) < 2 {
		return 0, 0
	}
	return body[0], body[1]
}

// ShutdownMessage returns the text for operators in the body of a NOTIFICATION (RFC 9003).
func ShutdownMessage(body []byte) string {
	code, sub := NotificationCode(body)
	shutdown := code == pkt.BGP_ERROR_CEASE && (sub == pkt.BGP_ERROR_SUB_ADMINISTRATIVE_SHUTDOWN || sub == pkt.BGP_ERROR_SUB_ADMINISTRATIVE_RESET)
	if !shutdown || len(body) < 3 || len(body) < 3+int(body[2]) {
		return ""
	}
	return strings.ToValidUTF8(string(body[3:3+int(body[2])]), "?")
}

// NotificationName returns the name of a NOTIFICATION, for people.
func NotificationName(code, sub uint8) string {
	return pkt.NewNotificationErrorCode(code, sub).String()
}

// Notification returns a NOTIFICATION message with these codes.
func Notification(code, sub uint8) []byte {
	return message(pkt.BGP_MSG_NOTIFICATION, []byte{code, sub})
}

// Keepalive returns a KEEPALIVE message.
func Keepalive() []byte { return message(pkt.BGP_MSG_KEEPALIVE, nil) }
