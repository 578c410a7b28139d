// Package netorder turns addresses and ports into the form that the BPF programs'
// types have (struct addr in bpf/include/addr.h), and back. It knows no map.
package netorder

import (
	"encoding/binary"
	"net/netip"
)

// Words gives the 16-byte form of an address, IPv4 mapped into IPv6, as words
// in network order; of the zero Addr, zeros.
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

// Port turns a port from host to network byte order, or back.
func Port(p uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], p)
	return binary.NativeEndian.Uint16(b[:])
}
