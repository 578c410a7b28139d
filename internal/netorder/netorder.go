// Package netorder converts addresses and ports to the types of the BPF programs (struct
// addr in bpf/include/addr.h), and back. It does not access maps.
package netorder

import (
	"encoding/binary"
	"net/netip"
)

// Words returns the 16-byte form of an address, IPv4 mapped to IPv6, as words in network
// byte order; for the zero Addr, zeros.
func Words(a netip.Addr) (words [4]uint32) {
	b := a.As16()
	for i := range words {
		words[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return words
}

// Addr is the inverse of Words; zeros are the address "::".
func Addr(words [4]uint32) netip.Addr {
	var b [16]byte
	for i, w := range words {
		binary.NativeEndian.PutUint32(b[4*i:], w)
	}
	return netip.AddrFrom16(b).Unmap()
}

// Port converts a port from host to network byte order, or back.
func Port(p uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], p)
	return binary.NativeEndian.Uint16(b[:])
}
