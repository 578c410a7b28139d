package xdp

import (
	"net/netip"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/core/schedule"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
)

// vipBits is a bitmap of addresses that may be VIPs or our own: if an address's bit is
// clear, the program ignores the packet.
type vipBits struct {
	words  []uint64 // the kernel's
	counts map[uint32]int
}

func (b *vipBits) open(m *ebpf.Map) error {
	words, err := bpf.MapMemory[uint64](m)
	if err != nil {
		return err
	}
	b.words = words
	b.counts = map[uint32]int{}
	return nil
}

// bitOf returns an address's bit: VIP_BITS_SHIFT in bpf/balancer/maps.h.
func (b *vipBits) bitOf(a netip.Addr) uint32 {
	return uint32(uint64(schedule.AddrHash(a)) * uint64(len(b.words)*64) >> 32)
}

func (b *vipBits) set(a netip.Addr) {
	bit := b.bitOf(a)
	b.counts[bit]++
	atomic.OrUint64(&b.words[bit/64], 1<<(bit%64))
}

func (b *vipBits) clear(a netip.Addr) {
	bit := b.bitOf(a)
	if b.counts[bit]--; b.counts[bit] > 0 {
		return
	}
	delete(b.counts, bit)
	atomic.AndUint64(&b.words[bit/64], ^uint64(1<<(bit%64)))
}

// replace sets the bits of exactly these addresses. A bit that stays set is never cleared
// in between.
func (b *vipBits) replace(all []netip.Addr) {
	counts, words := map[uint32]int{}, make([]uint64, len(b.words))
	for _, a := range all {
		bit := b.bitOf(a)
		counts[bit]++
		words[bit/64] |= 1 << (bit % 64)
	}
	b.counts = counts
	for i, w := range words {
		if b.words[i] != w {
			atomic.StoreUint64(&b.words[i], w)
		}
	}
}

func (b *vipBits) close() error {
	words := b.words
	b.words = nil
	return bpf.UnmapMemory(words)
}

// rebuildBits sets the bits of all VIPs and of our own addresses.
func (d *DataPlane) rebuildBits() {
	var all []netip.Addr
	for addr := range d.vips {
		all = append(all, addr)
	}
	all = append(all, d.config.ownAddresses()...)
	d.bits.replace(all)
}
