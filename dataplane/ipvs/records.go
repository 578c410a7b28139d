package ipvs

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
)

// serviceID identifies a virtual service of the kernel: an address, port and protocol, or
// a firewall mark.
type serviceID struct {
	v6       bool
	protocol service.Protocol // 0 with a mark
	vip      netip.AddrPort   // none with a mark
	mark     uint32
}

// virtual is a virtual service of the kernel.
type virtual struct {
	serviceID
	scheduler string
	flags     uint32
	timeout   uint32 // of persistence, in seconds
	netmask   uint32 // of persistence, in network order; a prefix length for IPv6
}

// server is one of its destinations.
type server struct {
	addr         netip.AddrPort
	forward      uint32
	weight       uint32
	upper, lower uint32 // connection thresholds
	tunnel       uint8
	tunnelPort   uint16
}

// record is a virtual service with its backends, sorted by address, and its source
// filters: allow and deny as in desired.Frontend.
type record struct {
	virtual
	servers     []server
	allow, deny []netip.Prefix
}

// load contains the kernel's counters of a service or a backend.
type load struct {
	dataplane.Counts
	active, inactive uint32 // connections, of a backend
}

// readService parses a service in a reply.
func readService(reply []byte) (v virtual, l load, err error) {
	content, err := nestedIn(reply, attrService)
	if err != nil {
		return v, l, err
	}
	var addr []byte
	var port uint16
	err = attributes(content, func(kind uint16, b []byte) error {
		switch kind {
		case svcFamily:
			v.v6 = number(b) == unix.AF_INET6
		case svcProtocol:
			v.protocol = service.Protocol(number(b))
		case svcAddr:
			addr = b
		case svcPort:
			port = bigPort(b)
		case svcMark:
			v.mark = uint32(number(b))
		case svcScheduler:
			v.scheduler = cString(b)
		case svcFlags:
			if len(b) < 4 {
				return errShort
			}
			v.flags = binary.NativeEndian.Uint32(b) &^ flagHashed
		case svcTimeout:
			v.timeout = uint32(number(b))
		case svcNetmask:
			v.netmask = uint32(number(b))
		case svcStats64:
			return l.read(b)
		}
		return nil
	})
	if v.mark == 0 {
		v.vip = netip.AddrPortFrom(address(addr, v.v6), port)
	}
	return v, l, err
}

// readServer parses a destination of a service in a reply.
func readServer(reply []byte, of serviceID) (s server, l load, err error) {
	content, err := nestedIn(reply, attrDest)
	if err != nil {
		return s, l, err
	}
	var addr []byte
	var port uint16
	v6 := of.v6
	err = attributes(content, func(kind uint16, b []byte) error {
		switch kind {
		case destAddr:
			addr = b
		case destPort:
			port = bigPort(b)
		case destFamily:
			v6 = number(b) == unix.AF_INET6
		case destForward:
			s.forward = uint32(number(b)) & forwardMask
		case destWeight:
			s.weight = uint32(number(b))
		case destUpper:
			s.upper = uint32(number(b))
		case destLower:
			s.lower = uint32(number(b))
		case destTunnel:
			s.tunnel = uint8(number(b))
		case destTunnelPort:
			s.tunnelPort = bigPort(b)
		case destActive:
			l.active = uint32(number(b))
		case destInactive:
			l.inactive = uint32(number(b))
		case destStats64:
			return l.read(b)
		}
		return nil
	})
	s.addr = netip.AddrPortFrom(address(addr, v6), port)
	return s, l, err
}

// read parses nested statistics.
func (l *load) read(b []byte) error {
	return attributes(b, func(kind uint16, b []byte) error {
		switch kind {
		case statsFlows:
			l.Flows = number(b)
		case statsPackets:
			l.Packets = number(b)
		case statsBytes:
			l.Bytes = number(b)
		}
		return nil
	})
}
