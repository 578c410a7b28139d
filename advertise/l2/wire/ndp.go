package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// ICMPv6 (RFC 4861).
const (
	nextHeaderICMPv6     = 58
	neighborSolicitation = 135
	neighborAdvertise    = 136
	optionSourceMAC      = 1
	optionTargetMAC      = 2
	hopLimit             = 255
	ipv6Header           = 40
	ndpLength            = 24 // type to target, in bytes

	flagSolicited = 1 << 30
	flagOverride  = 1 << 29
)

var (
	allNodes    = netip.MustParseAddr("ff02::1")
	allNodesMAC = multicastMAC(allNodes)
)

// multicastMAC returns the MAC of a multicast group (RFC 2464, section 7).
func multicastMAC(group netip.Addr) MAC {
	a := group.As16()
	return MAC{0x33, 0x33, a[12], a[13], a[14], a[15]}
}

// SolicitedNode returns the multicast group on which an address is solicited (RFC 4291,
// section 2.7.1).
func SolicitedNode(a netip.Addr) netip.Addr {
	group := netip.MustParseAddr("ff02::1:ff00:0").As16()
	of := a.As16()
	copy(group[13:], of[13:])
	return netip.AddrFrom16(group)
}

// solicit returns a solicitation for duplicate address detection, with unspecified
// source.
func solicit(target netip.Addr, from MAC) []byte {
	group := SolicitedNode(target)
	return icmp(multicastMAC(group), from, netip.IPv6Unspecified(), group, neighborSolicitation, 0, target, nil)
}

func advertise(target netip.Addr, from, toMAC MAC, to netip.Addr, solicited bool) []byte {
	flags := uint32(flagOverride)
	if solicited {
		flags |= flagSolicited
	}
	option := append([]byte{optionTargetMAC, 1}, from[:]...)
	return icmp(toMAC, from, target, to, neighborAdvertise, flags, target, option)
}

func icmp(toMAC, fromMAC MAC, from, to netip.Addr, kind byte, flags uint32, target netip.Addr, option []byte) []byte {
	body := []byte{kind, 0, 0, 0}
	body = binary.BigEndian.AppendUint32(body, flags)
	body = append(body, target.AsSlice()...)
	body = append(body, option...)
	binary.BigEndian.PutUint16(body[2:], ^sum(from, to, body))
	frame := header(toMAC, fromMAC, EtherTypeIPv6)
	frame = append(frame, 6<<4, 0, 0, 0, 0, byte(len(body)), nextHeaderICMPv6, hopLimit)
	frame = append(frame, from.AsSlice()...)
	frame = append(frame, to.AsSlice()...)
	return append(frame, body...)
}

// sum is the Internet checksum sum (RFC 1071) of ICMPv6 with its pseudo header (RFC 8200,
// section 8.1): 0xffff if its checksum is correct.
func sum(from, to netip.Addr, body []byte) uint16 {
	s := uint32(len(body)) + nextHeaderICMPv6
	add := func(b []byte) {
		for ; len(b) > 1; b = b[2:] {
			s += uint32(binary.BigEndian.Uint16(b))
		}
		if len(b) == 1 {
			s += uint32(b[0]) << 8
		}
	}
	add(from.AsSlice())
	add(to.AsSlice())
	add(body)
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

// parseNDP parses what follows an Ethernet header, by the rules of RFC 4861, sections
// 7.1.1 and 7.1.2. It ignores packets with extension headers.
func parseNDP(frameFrom MAC, b []byte) (Message, error) {
	if len(b) < ipv6Header || b[0]>>4 != 6 {
		return Message{}, errors.New("truncated IPv6 header")
	}
	length := int(binary.BigEndian.Uint16(b[4:]))
	from, to := netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
	next, hops := b[6], b[7]
	if b = b[ipv6Header:]; next != nextHeaderICMPv6 || len(b) == 0 || b[0] != neighborSolicitation && b[0] != neighborAdvertise {
		return Message{}, ErrOther
	}
	if length < ndpLength || length > len(b) {
		return Message{}, fmt.Errorf("neighbor discovery of %d bytes in a frame of %d", length, len(b))
	}
	b = b[:length]
	switch {
	case hops != hopLimit:
		return Message{}, fmt.Errorf("hop limit %d: it came through a router", hops)
	case b[1] != 0:
		return Message{}, fmt.Errorf("code %d, want 0", b[1])
	case sum(from, to, b) != 0xffff:
		return Message{}, errors.New("wrong checksum")
	}
	asks := b[0] == neighborSolicitation
	m := Message{Asks: asks, Sender: from, Target: netip.AddrFrom16([16]byte(b[8:24])), From: frameFrom}
	mac, err := linkAddress(b[ndpLength:], asks)
	switch {
	case err != nil:
		return Message{}, err
	case m.Target.IsMulticast():
		return Message{}, errors.New("the target is a group")
	case !asks:
		m.Sender = m.Target
		if mac != (MAC{}) {
			m.From = mac
		}
	case from.IsUnspecified():
		if mac != (MAC{}) || to != SolicitedNode(m.Target) {
			return Message{}, errors.New("a probe with an address, or to one")
		}
		m.Sender = netip.Addr{}
	case mac != (MAC{}):
		m.From = mac
	}
	return m, nil
}

// linkAddress returns the Ethernet address in the options of a solicitation or an
// advertisement; zero without one.
func linkAddress(options []byte, asks bool) (mac MAC, err error) {
	want := byte(optionTargetMAC)
	if asks {
		want = optionSourceMAC
	}
	for len(options) > 0 {
		if len(options) < 2 || options[1] == 0 || int(options[1])*8 > len(options) {
			return MAC{}, errors.New("an option has an invalid length")
		}
		if options[0] == want && options[1] == 1 {
			mac = MAC(options[2:8])
		}
		options = options[int(options[1])*8:]
	}
	return mac, nil
}
