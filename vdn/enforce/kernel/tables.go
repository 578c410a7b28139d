package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/internal/netorder"
	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/enforce"
)

// applyTables makes the maps say whose addresses are, and who may talk to whom.
func (k *Kernel) applyTables(slices []vdn.Slice) error {
	prefixes := map[vdnVdnPrefix]vdnVdnOwner{}
	outside := map[vdnVdnOutsidePrefix]uint8{}
	reach := map[vdnVdnPair]uint8{}
	for _, s := range slices {
		owner := vdnVdnOwner{Slice: s.ID}
		if s.Guarantee > 0 || s.Max > 0 {
			owner.Rated = 1
		}
		for _, p := range s.Prefixes {
			key := vdnVdnPrefix{Bits: mappedBits(p)}
			key.Addr.Word = netorder.Words(p.Masked().Addr())
			prefixes[key] = owner
		}
		for _, p := range s.Outside {
			key := vdnVdnOutsidePrefix{Bits: 32 + mappedBits(p), Slice: bigEndian(uint32(s.ID))}
			key.Addr.Word = netorder.Words(p.Masked().Addr())
			outside[key] = 1
		}
	}
	for pair := range enforce.Reach(slices) {
		reach[vdnVdnPair{From: pair[0], To: pair[1]}] = 1
	}
	return errors.Join(
		hold(k.shared.Prefixes, prefixes), hold(k.shared.Outside, outside), hold(k.shared.Reach, reach))
}

// mappedBits is a prefix's length where IPv4 is mapped into IPv6.
func mappedBits(p netip.Prefix) uint32 {
	if p.Addr().Is4() {
		return uint32(p.Bits()) + 96
	}
	return uint32(p.Bits())
}

// bigEndian gives a number as it lies in memory in network order.
func bigEndian(n uint32) uint32 {
	return binary.NativeEndian.Uint32(binary.BigEndian.AppendUint32(nil, n))
}

// hold makes a map hold exactly these rows: what is to come first, that nothing is
// refused in between.
func hold[K, V comparable](m *ebpf.Map, wanted map[K]V) error {
	held := map[K]V{}
	var key K
	var value V
	it := m.Iterate()
	for it.Next(&key, &value) {
		held[key] = value
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("read map %s: %w", m, err)
	}
	var errs []error
	for key, value := range wanted {
		if have, there := held[key]; !there || have != value {
			errs = append(errs, m.Put(key, value))
		}
	}
	for key := range held {
		if _, keep := wanted[key]; keep {
			continue
		}
		if err := m.Delete(key); !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("write map %s: %w", m, err)
	}
	return nil
}
