// Package vipbits is the bitmap that lets the program ignore packets to other addresses
// with one memory access. Which addresses are in it is up to dataplane/xdp, whose tests
// cover it.
package vipbits

import (
	"math/bits"
	"net/netip"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/core/schedule"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
)

// Bits is a bitmap of addresses that may be VIPs or our own: if an address's bit is
// clear, the program ignores the packet.
type Bits struct {
	words  []uint64 // the kernel's
	counts map[uint32]int
}

// Open maps the memory of a map.
func (b *Bits) Open(m *ebpf.Map) error {
	words, err := bpf.MapMemory[uint64](m)
	if err != nil {
		return err
	}
	b.words = words
	b.counts = map[uint32]int{}
	return nil
}

// bitOf returns an address's bit: VIP_BITS_SHIFT in bpf/balancer/maps.h.
func (b *Bits) bitOf(a netip.Addr) uint32 {
	return uint32(uint64(schedule.AddrHash(a)) * uint64(len(b.words)*64) >> 32)
}

// Set adds an address.
func (b *Bits) Set(a netip.Addr) {
	bit := b.bitOf(a)
	b.counts[bit]++
	atomic.OrUint64(&b.words[bit/64], 1<<(bit%64))
}

// Clear is the inverse of Set.
func (b *Bits) Clear(a netip.Addr) {
	bit := b.bitOf(a)
	if b.counts[bit]--; b.counts[bit] > 0 {
		return
	}
	delete(b.counts, bit)
	atomic.AndUint64(&b.words[bit/64], ^uint64(1<<(bit%64)))
}

// Replace sets the bits of exactly these addresses. A bit that stays set is never cleared
// in between.
func (b *Bits) Replace(all []netip.Addr) {
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

// Count returns the number of set bits.
func (b *Bits) Count() (n int) {
	for _, w := range b.words {
		n += bits.OnesCount64(w)
	}
	return n
}

// Close unmaps the memory.
func (b *Bits) Close() error {
	words := b.words
	b.words = nil
	return bpf.UnmapMemory(words)
}
