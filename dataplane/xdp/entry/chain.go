package entry

import (
	"encoding/binary"
	"net/netip"

	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
)

// Chain encodes a list of endpoints as in the Fairlead option (bpf/include/option.h).
func Chain(owners []netip.AddrPort) (c bpf.BalancerChain) {
	b := c.Bytes[:0]
	for _, e := range owners {
		if e.Addr().Is6() {
			c.V6 = 1
		}
		b = append(b, e.Addr().AsSlice()...)
		b = binary.BigEndian.AppendUint16(b, e.Port())
		c.N++
	}
	c.Sum = foldedSum(c.Bytes[:])
	return c
}

// Owners is the inverse of Chain.
func Owners(c bpf.BalancerChain) (all []netip.AddrPort) {
	size := 4
	if c.V6 != 0 {
		size = 16
	}
	b := c.Bytes[:]
	for range c.N {
		if len(b) < size+2 {
			break
		}
		a, _ := netip.AddrFromSlice(b[:size])
		all = append(all, netip.AddrPortFrom(a, binary.BigEndian.Uint16(b[size:])))
		b = b[size+2:]
	}
	return all
}

// foldedSum is the ones' complement sum of 16-bit words (RFC 1071), in the machine's byte
// order, as the program uses it.
func foldedSum(b []byte) uint16 {
	sum := uint32(0)
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.NativeEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}
