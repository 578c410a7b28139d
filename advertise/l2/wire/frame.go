// Package wire is the wire format of layer-2 advertisements: ARP (RFC 826, RFC 5227),
// neighbor discovery (RFC 4861), and the hello messages of members. It is pure: bytes in,
// values out.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// MAC is an Ethernet address.
type MAC [6]byte

// String returns "02:00:00:00:00:01".
func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// Broadcast addresses all hosts on the segment.
var Broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// EtherTypes (IEEE 802).
const (
	EtherTypeARP  = 0x0806
	EtherTypeIPv6 = 0x86dd
)

// ethernet is the length of an Ethernet header, and leastFrame that of the shortest frame
// without its checksum (IEEE 802.3), in bytes.
const (
	ethernet   = 14
	leastFrame = 60
)

// ErrOther means that a frame is valid, but not of a kind that this package parses.
var ErrOther = errors.New("neither ARP nor a neighbor's solicitation or advertisement")

// Message is the content of a frame about an address, of either family.
type Message struct {
	// Target is the address that is queried or announced.
	Target netip.Addr
	// Asks means that the sender queries who has Target. Otherwise it announces that it
	// has it itself.
	Asks bool
	// Sender is the querying host's own address; invalid (ARP's 0.0.0.0, ::) in a probe,
	// which checks whether Target is free. In announcements it equals Target.
	Sender netip.Addr
	// From is the sender's Ethernet address.
	From MAC
}

// Probe reports whether the sender intends to take Target if nobody has it.
func (m Message) Probe() bool { return m.Asks && !m.Sender.IsValid() }

// Parse parses an Ethernet frame. It returns an error for protocol violations and for all
// other frames (ErrOther).
func Parse(frame []byte) (Message, error) {
	if len(frame) < ethernet {
		return Message{}, fmt.Errorf("%d bytes are no Ethernet frame", len(frame))
	}
	from := MAC(frame[6:12])
	switch binary.BigEndian.Uint16(frame[12:]) {
	case EtherTypeARP:
		return parseARP(frame[ethernet:])
	case EtherTypeIPv6:
		return parseNDP(from, frame[ethernet:])
	}
	return Message{}, ErrOther
}

// header returns the start of a frame.
func header(to, from MAC, etherType uint16) []byte {
	frame := make([]byte, 0, 128)
	frame = append(frame, to[:]...)
	frame = append(frame, from[:]...)
	return binary.BigEndian.AppendUint16(frame, etherType)
}

// pad extends a frame to the minimum length of Ethernet.
func pad(frame []byte) []byte {
	for len(frame) < leastFrame {
		frame = append(frame, 0)
	}
	return frame
}

// Probe returns a frame that checks whether vip is free (RFC 5227, section 2.1.1; RFC
// 4862, section 5.4.2).
func Probe(vip netip.Addr, from MAC) []byte {
	if vip.Is4() {
		return arp(Broadcast, arpRequest, from, netip.IPv4Unspecified(), MAC{}, vip)
	}
	return solicit(vip, from)
}

// Announce returns the frames that announce to everyone that vip is at from: an ARP
// request and a reply, because hosts differ in which they accept (RFC 5227, section 3),
// or an unsolicited advertisement (RFC 4861, section 7.2.6).
func Announce(vip netip.Addr, from MAC) [][]byte {
	if vip.Is4() {
		return [][]byte{
			arp(Broadcast, arpRequest, from, vip, MAC{}, vip),
			arp(Broadcast, arpReply, from, vip, Broadcast, vip),
		}
	}
	return [][]byte{advertise(vip, from, allNodesMAC, allNodes, false)}
}

// Answer returns a frame that informs the sender of a query that its target is at from.
// Probes are answered, too: that is how the sender learns that the address is in use.
func Answer(m Message, from MAC) []byte {
	switch {
	case m.Target.Is4() && m.Probe():
		return arp(m.From, arpReply, from, m.Target, m.From, netip.IPv4Unspecified())
	case m.Target.Is4():
		return arp(m.From, arpReply, from, m.Target, m.From, m.Sender)
	case m.Probe(): // RFC 4861, section 7.2.4
		return advertise(m.Target, from, allNodesMAC, allNodes, false)
	}
	return advertise(m.Target, from, m.From, m.Sender, true)
}
