package wire

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// ARP operations (RFC 826).
const (
	arpRequest = 1
	arpReply   = 2
)

// arpLength is the length of ARP for IPv4 over Ethernet, in bytes.
const arpLength = 28

// arpKind is the start of the packet: Ethernet, IPv4, and the lengths of both addresses.
const arpKind = 0x0001_0800_0604

func arp(to MAC, operation uint16, fromMAC MAC, from netip.Addr, targetMAC MAC, target netip.Addr) []byte {
	frame := header(to, fromMAC, EtherTypeARP)
	frame = binary.BigEndian.AppendUint64(frame, arpKind<<16|uint64(operation))
	frame = append(frame, fromMAC[:]...)
	frame = append(frame, from.AsSlice()...)
	frame = append(frame, targetMAC[:]...)
	frame = append(frame, target.AsSlice()...)
	return pad(frame)
}

// parseARP parses what follows an Ethernet header. A host that announces an address, by a
// request for it or by a reply, claims it: the sender's addresses are relevant in both
// (RFC 5227, section 2.4).
func parseARP(b []byte) (Message, error) {
	if len(b) < arpLength {
		return Message{}, fmt.Errorf("ARP of %d bytes, want %d", len(b), arpLength)
	}
	head := binary.BigEndian.Uint64(b)
	operation := uint16(head)
	if head>>16 != arpKind || operation != arpRequest && operation != arpReply {
		return Message{}, ErrOther // another medium or another network protocol
	}
	m := Message{From: MAC(b[8:14]), Sender: netip.AddrFrom4([4]byte(b[14:18])), Target: netip.AddrFrom4([4]byte(b[24:28]))}
	if m.From[0]&1 != 0 {
		return Message{}, fmt.Errorf("ARP from %s, which is no host's", m.From)
	}
	if operation == arpReply || m.Sender == m.Target {
		m.Target = m.Sender
		return m, nil
	}
	m.Asks = true
	if m.Sender.IsUnspecified() {
		m.Sender = netip.Addr{}
	}
	return m, nil
}
