// Package wire is what announcements on a segment look like in bytes: ARP
// (RFC 826, RFC 5227), neighbour discovery (RFC 4861), and the hello by which
// the members of layer 2 know of each other. It is pure: bytes in, values out.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// MAC is an Ethernet address.
type MAC [6]byte

// String gives "02:00:00:00:00:01".
func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// Broadcast is everybody on the segment.
var Broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// EtherTypes (IEEE 802).
const (
	EtherTypeARP  = 0x0806
	EtherTypeIPv6 = 0x86dd
)

// ethernet is the length of an Ethernet header, and leastFrame that of the
// shortest frame without its checksum (IEEE 802.3), in bytes.
const (
	ethernet   = 14
	leastFrame = 60
)

// ErrOther is a frame that is whole, but none of what this package reads.
var ErrOther = errors.New("neither ARP nor a neighbour's solicitation or advertisement")

// Message is what a frame says of an address, whatever the family.
type Message struct {
	// Target is the address asked for or told of.
	Target netip.Addr
	// Asks: the sender wants to know who has Target. Otherwise it says that it
	// has it itself.
	Asks bool
	// Sender is the asking side's own address; invalid (ARP's 0.0.0.0, ::) in a
	// probe, which asks whether Target is free. For those that tell it is
	// Target.
	Sender netip.Addr
	// From is the sender's Ethernet address.
	From MAC
}

// Probe says that the sender means to take Target if nobody has it.
func (m Message) Probe() bool { return m.Asks && !m.Sender.IsValid() }

// Parse reads an Ethernet frame. What breaks a rule of its protocol is an
// error, as is everything else (ErrOther).
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

// header begins a frame.
func header(to, from MAC, etherType uint16) []byte {
	frame := make([]byte, 0, 128)
	frame = append(frame, to[:]...)
	frame = append(frame, from[:]...)
	return binary.BigEndian.AppendUint16(frame, etherType)
}

// pad makes a frame as long as Ethernet wants.
func pad(frame []byte) []byte {
	for len(frame) < leastFrame {
		frame = append(frame, 0)
	}
	return frame
}

// Probe asks whether vip is free (RFC 5227, section 2.1.1; RFC 4862, section
// 5.4.2).
func Probe(vip netip.Addr, from MAC) []byte {
	if vip.Is4() {
		return arp(Broadcast, arpRequest, from, netip.IPv4Unspecified(), MAC{}, vip)
	}
	return solicit(vip, from)
}

// Announce gives the frames that tell everybody that vip is at from: an ARP
// request and a reply, since hosts differ in which they believe (RFC 5227,
// section 3), or an unsolicited advertisement (RFC 4861, section 7.2.6).
func Announce(vip netip.Addr, from MAC) [][]byte {
	if vip.Is4() {
		return [][]byte{
			arp(Broadcast, arpRequest, from, vip, MAC{}, vip),
			arp(Broadcast, arpReply, from, vip, Broadcast, vip),
		}
	}
	return [][]byte{advertise(vip, from, allNodesMAC, allNodes, false)}
}

// Answer tells whoever asked that its target is at from. A probe is answered,
// too: that is how its sender learns that the address is taken.
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
