package ipvs

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Names from include/uapi/linux/ip_vs.h for its generic netlink family.
const (
	cmdNewService = 1
	cmdSetService = 2
	cmdDelService = 3
	cmdGetService = 4
	cmdNewDest    = 5
	cmdSetDest    = 6
	cmdDelDest    = 7
	cmdGetDest    = 8
	cmdNewDaemon  = 9
	cmdDelDaemon  = 10
	cmdGetDaemon  = 11
	cmdSetConfig  = 12
	cmdGetConfig  = 13

	attrService       = 1
	attrDest          = 2
	attrDaemon        = 3
	attrTimeoutTCP    = 4
	attrTimeoutTCPFin = 5
	attrTimeoutUDP    = 6

	svcFamily    = 1
	svcProtocol  = 2
	svcAddr      = 3
	svcPort      = 4
	svcMark      = 5
	svcScheduler = 6
	svcFlags     = 7
	svcTimeout   = 8
	svcNetmask   = 9
	svcStats64   = 12

	destAddr        = 1
	destPort        = 2
	destForward     = 3
	destWeight      = 4
	destUpper       = 5
	destLower       = 6
	destActive      = 7
	destInactive    = 8
	destFamily      = 11
	destStats64     = 12
	destTunnel      = 13
	destTunnelPort  = 14
	destTunnelFlags = 15

	statsFlows   = 1
	statsPackets = 2
	statsBytes   = 4

	daemonState     = 1
	daemonInterface = 2
	daemonID        = 3
)

const (
	nestedAttr = unix.NLA_F_NESTED
	attrType   = 0x3fff // NLA_TYPE_MASK
	genlHeader = 4
)

// message is a netlink message under construction: its header's length is correct at any
// time except within nested.
type message []byte

// newMessage starts a request to a generic netlink family. The socket sets family and
// number.
func newMessage(command uint8, flags uint16) message {
	m := make(message, unix.NLMSG_HDRLEN+genlHeader, 192)
	binary.NativeEndian.PutUint16(m[6:], unix.NLM_F_REQUEST|flags)
	m[unix.NLMSG_HDRLEN], m[unix.NLMSG_HDRLEN+1] = command, 1
	return m.sized()
}

func (m message) sized() message {
	binary.NativeEndian.PutUint32(m, uint32(len(m)))
	return m
}

func (m message) bytes(kind uint16, value []byte) message {
	m = binary.NativeEndian.AppendUint16(m, uint16(4+len(value)))
	m = binary.NativeEndian.AppendUint16(m, kind)
	m = append(m, value...)
	for len(m)%4 != 0 {
		m = append(m, 0)
	}
	return m.sized()
}

func (m message) u8(kind uint16, v uint8) message { return m.bytes(kind, []byte{v}) }

func (m message) u16(kind, v uint16) message {
	return m.bytes(kind, binary.NativeEndian.AppendUint16(nil, v))
}

func (m message) port(kind, v uint16) message {
	return m.bytes(kind, binary.BigEndian.AppendUint16(nil, v))
}

func (m message) u32(kind uint16, v uint32) message {
	return m.bytes(kind, binary.NativeEndian.AppendUint32(nil, v))
}

func (m message) text(kind uint16, s string) message { return m.bytes(kind, append([]byte(s), 0)) }

func (m message) nested(kind uint16, fill func(message) message) message {
	at := len(m)
	m = fill(m.bytes(kind|nestedAttr, nil))
	binary.NativeEndian.PutUint16(m[at:], uint16(len(m)-at))
	return m.sized()
}

// family returns the number of an address's family.
func family(v6 bool) uint16 {
	if v6 {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// identify writes the attributes that identify a service.
func (m message) identify(s serviceID) message {
	m = m.u16(svcFamily, family(s.v6))
	if s.mark != 0 {
		return m.u32(svcMark, s.mark)
	}
	m = m.u16(svcProtocol, uint16(s.protocol))
	return m.bytes(svcAddr, s.vip.Addr().AsSlice()).port(svcPort, s.vip.Port())
}

// serviceMessage is a message about a whole service.
func serviceMessage(command uint8, v virtual) message {
	return newMessage(command, 0).nested(attrService, func(m message) message {
		m = m.identify(v.serviceID).text(svcScheduler, v.scheduler)
		m = m.bytes(svcFlags, binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(nil, v.flags), ^uint32(0)))
		return m.u32(svcTimeout, v.timeout).u32(svcNetmask, v.netmask)
	})
}

// aboutService is a message that only identifies a service.
func aboutService(command uint8, flags uint16, id serviceID) message {
	return newMessage(command, flags).nested(attrService, func(m message) message { return m.identify(id) })
}

// destMessage is a message about a service's backend.
func destMessage(command uint8, id serviceID, s server) message {
	return aboutService(command, 0, id).nested(attrDest, func(m message) message {
		m = m.bytes(destAddr, s.addr.Addr().AsSlice()).port(destPort, s.addr.Port()).u16(destFamily, family(s.addr.Addr().Is6()))
		if command == cmdDelDest {
			return m
		}
		m = m.u32(destForward, s.forward).u32(destWeight, s.weight).u32(destUpper, s.upper).u32(destLower, s.lower)
		if s.tunnel != tunnelIPIP {
			m = m.u8(destTunnel, s.tunnel).port(destTunnelPort, s.tunnelPort).u16(destTunnelFlags, 0)
		}
		return m
	})
}

var errShort = errors.New("ipvs: truncated netlink message from the kernel")

// attributes calls f with every attribute in b.
func attributes(b []byte, f func(kind uint16, value []byte) error) error {
	for len(b) >= 4 {
		n := int(binary.NativeEndian.Uint16(b))
		if n < 4 || n > len(b) {
			return errShort
		}
		if err := f(binary.NativeEndian.Uint16(b[2:])&attrType, b[4:n]); err != nil {
			return err
		}
		b = b[min((n+3)&^3, len(b)):]
	}
	return nil
}

// nestedIn returns the content of one attribute of a reply.
func nestedIn(reply []byte, kind uint16) (content []byte, err error) {
	if len(reply) < genlHeader {
		return nil, errShort
	}
	err = attributes(reply[genlHeader:], func(k uint16, v []byte) error {
		if k == kind {
			content = v
		}
		return nil
	})
	return content, err
}

// number reads an integer of any netlink size, in the machine's byte order.
func number(b []byte) uint64 {
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.NativeEndian.Uint16(b))
	case 4:
		return uint64(binary.NativeEndian.Uint32(b))
	case 8:
		return binary.NativeEndian.Uint64(b)
	}
	return 0
}

func bigPort(b []byte) uint16 {
	if len(b) < 2 {
		return 0
	}
	return binary.BigEndian.Uint16(b)
}

func cString(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

// address reads one of the kernel's unions, of which IPv4 uses the first word.
func address(b []byte, v6 bool) netip.Addr {
	switch {
	case v6 && len(b) >= 16:
		return netip.AddrFrom16([16]byte(b))
	case !v6 && len(b) >= 4:
		return netip.AddrFrom4([4]byte(b))
	}
	return netip.Addr{}
}
