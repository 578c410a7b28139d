package schedule

import (
	"encoding/binary"
	"net/netip"
)

// Odd numbers without a pattern: digits of the golden ratio, of the square roots of 2, 3
// and 5, and of pi.
const (
	k0 = 0x9e3779b97f4a7c15
	k1 = 0x6a09e667f3bcc909
	k2 = 0xbb67ae8584caa73b
	k3 = 0x3c6ef372fe94f82b
	k4 = 0x243f6a8885a308d3
)

// Hash returns the 32-bit hash of a flow: the same as flow_hash in bpf/include/hash.h. It
// must never change, because load balancers of different versions share flows.
func Hash(f Flow) uint32 {
	word := binary.LittleEndian.Uint64
	c, v := f.Client.Addr().As16(), f.VIP.As16()
	h := word(c[:8]) * k0
	h ^= word(c[8:]) * k1
	h += word(v[:8]) * k2
	h ^= word(v[8:]) * k3
	h += (uint64(f.Client.Port())<<32 | uint64(f.Port)<<8 | uint64(f.Protocol)) * k4
	return finish(h)
}

// AddrHash returns the 32-bit hash of an address: the same as addr_hash in
// bpf/include/hash.h. Its first bits index the filter of addresses that may be a load
// balancer's own.
func AddrHash(a netip.Addr) uint32 {
	word := binary.LittleEndian.Uint64
	b := a.As16()
	return finish(word(b[:8])*k0 ^ word(b[8:])*k1)
}

// finish makes every output bit depend on every input bit.
func finish(h uint64) uint32 {
	h ^= h >> 32
	h *= k0
	h ^= h >> 29
	h *= k1
	return uint32(h >> 32)
}

// slot maps a hash to one of n slots without a division.
func slot(hash uint32, n int) int { return int(uint64(hash) * uint64(n) >> 32) }
