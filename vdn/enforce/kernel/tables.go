package kernel

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"github.com/fairlead/fairlead/internal/bpfmap"
	"github.com/fairlead/fairlead/internal/netorder"
	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/enforce"
)

// applyTables fills the maps of prefix owners, allowed outside prefixes, and pairs of
// slices that may communicate.
func (k *Kernel) applyTables(slices []vdn.Slice) error {
	prefixes := map[vdnVdnPrefix]vdnVdnOwner{}
	outside := map[vdnVdnOutsidePrefix]uint8{}
	reach := map[vdnVdnPair]uint8{}
	for _, s := range slices {
		owner := vdnVdnOwner{Slice: s.ID}
		if s.GuaranteedRate > 0 || s.MaxRate > 0 {
			owner.Rated = 1
		}
		for _, p := range s.Prefixes {
			key := vdnVdnPrefix{Bits: mappedBits(p)}
			key.Addr.Word = netorder.Words(p.Masked().Addr())
			prefixes[key] = owner
			if _, there := prefixes[allIPv4]; !there && holdsIPv4(p) {
				prefixes[allIPv4] = vdnVdnOwner{} // owned by none
			}
		}
		for _, p := range s.AllowedCIDRs {
			key := vdnVdnOutsidePrefix{Bits: 32 + mappedBits(p), Slice: bigEndian(uint32(s.ID))}
			key.Addr.Word = netorder.Words(p.Masked().Addr())
			outside[key] = 1
			key.Bits, key.Addr = 32+allIPv4.Bits, allIPv4.Addr
			if _, there := outside[key]; !there && holdsIPv4(p) {
				outside[key] = 0
			}
		}
	}
	for pair := range enforce.Reach(slices) {
		reach[vdnVdnPair{From: pair[0], To: pair[1]}] = 1
	}
	return errors.Join(
		bpfmap.Hold(k.shared.Prefixes, prefixes), bpfmap.Hold(k.shared.Outside, outside), bpfmap.Hold(k.shared.Reach, reach))
}

// allIPv4 is 0.0.0.0/0 as an IPv4-mapped IPv6 prefix.
var allIPv4 = func() (p vdnVdnPrefix) {
	p.Bits, p.Addr.Word = 96, netorder.Words(netip.IPv4Unspecified())
	return p
}()

// holdsIPv4 reports whether an IPv6 prefix is short enough to contain the IPv4-mapped
// addresses. The maps exclude IPv4 from such a prefix.
func holdsIPv4(p netip.Prefix) bool {
	return p.Addr().Is6() && p.Bits() <= 96 && p.Contains(netip.AddrFrom16(netip.IPv4Unspecified().As16()))
}

// mappedBits is a prefix's length after mapping IPv4 to IPv6.
func mappedBits(p netip.Prefix) uint32 {
	if p.Addr().Is4() {
		return uint32(p.Bits()) + 96
	}
	return uint32(p.Bits())
}

// bigEndian converts a number to network byte order.
func bigEndian(n uint32) uint32 {
	return binary.NativeEndian.Uint32(binary.BigEndian.AppendUint32(nil, n))
}
