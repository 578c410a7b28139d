package balancer

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// The hashes of bpf/include/hash.h, implemented again. All read words in memory order,
// the first byte lowest.

const (
	hashK0 = 0x9e3779b97f4a7c15
	hashK1 = 0x6a09e667f3bcc909
	hashK2 = 0xbb67ae8584caa73b
	hashK3 = 0x3c6ef372fe94f82b
	hashK4 = 0x243f6a8885a308d3
)

func half(b []byte) uint64   { return binary.LittleEndian.Uint64(b) }
func word32(b []byte) uint64 { return uint64(binary.LittleEndian.Uint32(b)) }

func hashFinish(h uint64) uint32 {
	h ^= h >> 32
	h *= hashK0
	h ^= h >> 29
	h *= hashK1
	return uint32(h >> 32)
}

func flowHash(t *wire.Tuple) uint32 {
	h := half(t.Src[:]) * hashK0
	h ^= half(t.Src[8:]) * hashK1
	h += half(t.Dst[:]) * hashK2
	h ^= half(t.Dst[8:]) * hashK3
	h += (uint64(t.SPort)<<32 | uint64(t.DPort)<<8 | uint64(t.Proto)) * hashK4
	return hashFinish(h)
}

func addrHash(a *wire.Addr) uint32 { return hashFinish(half(a[:])*hashK0 ^ half(a[8:])*hashK1) }

// slotOf returns the slot of a hash among n.
func slotOf(hash uint32, n uint32) uint32 { return uint32(uint64(hash) * uint64(n) >> 32) }

func keyedAddr(k []uint64, a *wire.Addr, v6 bool) uint64 {
	h := k[0] * word32(a[12:])
	if v6 {
		h += k[1]*word32(a[:]) + k[2]*word32(a[4:]) + k[3]*word32(a[8:])
	}
	return h
}

func swap16(p uint16) uint64 { return uint64(p<<8 | p>>8) }

// flowTag is a flow's tag in the table.
func flowTag(t *wire.Tuple) uint64 {
	v6 := !t.Dst.Is4()
	k := flowSecret[:]
	h := keyedAddr(k, &t.Src, v6) + keyedAddr(k[4:], &t.Dst, v6)
	h += k[8] * (swap16(t.SPort)<<16 | swap16(t.DPort))
	proto := uint64(t.Proto)
	if v6 {
		proto |= 0x100
	}
	return tagFinish(h + k[9]*proto)
}

// clientTag is the tag of a client's affinity.
func clientTag(client *wire.Addr, frontend uint32) uint64 {
	k := flowSecret[:]
	return tagFinish(keyedAddr(k, client, true) + k[10]*uint64(frontend) + k[11])
}

// sourceTag is the set that stores a validated source, and its tag there.
func sourceTag(a *wire.Addr) (set, tag uint32) {
	k := flowSecret[:]
	h := tagFinish(keyedAddr(k[4:], a, true) + k[11])
	return uint32(h>>32) % 32768, uint32(h) | 1
}

func tagFinish(h uint64) uint64 {
	const m = 0xd6e8feb86659fd93
	h ^= h >> 32
	h *= m
	h ^= h >> 32
	h *= m
	h ^= h >> 32
	if h &^= 1; h == 0 {
		return 2
	}
	return h
}

// guardSet is the set that stores the rate limits of a client.
func guardSet(frontend uint32, client *wire.Addr) uint32 {
	h := (half(client[:]) ^ guardKey[0]) * hashK0
	h ^= (half(client[8:]) ^ guardKey[1]) * hashK1
	h ^= h >> 32
	h += (uint64(frontend) ^ guardKey[0]) * hashK2
	h *= hashK0
	h ^= h >> 29
	h *= hashK1
	return uint32((h ^ h>>32) % 32768)
}

// Keys that an agent generates at random. Here they are always the same, so that cases
// are reproducible.
var (
	guardKey   = [2]uint64{0x0123456789abcdef, 0xfedcba9876543210}
	flowSecret [12]uint64
)

func init() {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range flowSecret {
		flowSecret[i] = rng.Uint64() | 1
	}
}
