// Package hashes implements the hashes of bpf/include/hash.h again, for the balancer's
// model: those that select backends, and the keyed ones that place entries in tables.
//
// What does not belong here: what is done with them, and the hash of cookies (cookie).
package hashes

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

func FlowHash(t *wire.Tuple) uint32 {
	h := half(t.Src[:]) * hashK0
	h ^= half(t.Src[8:]) * hashK1
	h += half(t.Dst[:]) * hashK2
	h ^= half(t.Dst[8:]) * hashK3
	h += (uint64(t.SPort)<<32 | uint64(t.DPort)<<8 | uint64(t.Proto)) * hashK4
	return hashFinish(h)
}

func AddrHash(a *wire.Addr) uint32 { return hashFinish(half(a[:])*hashK0 ^ half(a[8:])*hashK1) }

// SlotOf returns the slot of a hash among n.
func SlotOf(hash uint32, n uint32) uint32 { return uint32(uint64(hash) * uint64(n) >> 32) }

// PortTries is how many source ports fullnat tries at most.
const PortTries = 64

// PortSlot returns the i-th source port of count that is tried.
func PortSlot(seed, i, count uint32) uint32 {
	switch {
	case count <= PortTries:
		return (SlotOf(seed, count) + i) % count
	case i == 0:
		return SlotOf(seed, count)
	}
	x := seed + i
	x = (x ^ x>>16) * 0x85ebca6b
	x = (x ^ x>>13) * 0xc2b2ae35
	return SlotOf(x^x>>16, count)
}

func keyedAddr(k []uint64, a *wire.Addr, v6 bool) uint64 {
	h := k[0] * word32(a[12:])
	if v6 {
		h += k[1]*word32(a[:]) + k[2]*word32(a[4:]) + k[3]*word32(a[8:])
	}
	return h
}

func swap16(p uint16) uint64 { return uint64(p<<8 | p>>8) }

// FlowTag is a flow's tag in the table.
func FlowTag(t *wire.Tuple) uint64 {
	v6 := !t.Dst.Is4()
	k := FlowSecret[:]
	h := keyedAddr(k, &t.Src, v6) + keyedAddr(k[4:], &t.Dst, v6)
	h += k[8] * (swap16(t.SPort)<<16 | swap16(t.DPort))
	proto := uint64(t.Proto)
	if v6 {
		proto |= 0x100
	}
	return tagFinish(h + k[9]*proto)
}

// ClientTag is the tag of a client's affinity.
func ClientTag(client *wire.Addr, frontend uint32) uint64 {
	k := FlowSecret[:]
	return tagFinish(keyedAddr(k, client, true) + k[10]*uint64(frontend) + k[11])
}

// SourceTag is the set that stores a validated source, and its tag there.
func SourceTag(a *wire.Addr) (set, tag uint32) {
	k := FlowSecret[:]
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

// GuardSet is the set that stores the rate limits of a client.
func GuardSet(frontend uint32, client *wire.Addr) uint32 {
	h := (half(client[:]) ^ GuardKey[0]) * hashK0
	h ^= (half(client[8:]) ^ GuardKey[1]) * hashK1
	h ^= h >> 32
	h += (uint64(frontend) ^ GuardKey[0]) * hashK2
	h *= hashK0
	h ^= h >> 29
	h *= hashK1
	return uint32((h ^ h>>32) % 32768)
}

// Keys that an agent generates at random. Here they are always the same, so that cases
// are reproducible.
var (
	GuardKey   = [2]uint64{0x0123456789abcdef, 0xfedcba9876543210}
	FlowSecret [12]uint64
)

func init() {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range FlowSecret {
		FlowSecret[i] = rng.Uint64() | 1
	}
}

// Datagram identifies the fragments of a packet.
type Datagram struct {
	Src, Dst wire.Addr
	ID       uint32
	Proto    byte // 0 for IPv6
}

// Bytes encodes struct fragment_key.
func (d Datagram) Bytes() []byte {
	b := append(append([]byte(nil), d.Src[:]...), d.Dst[:]...)
	return append(binary.NativeEndian.AppendUint32(b, d.ID), d.Proto, 0, 0, 0)
}

// Slot is where the rejection of a datagram's first fragment is recorded.
func (d Datagram) Slot() uint64 {
	t := wire.Tuple{Src: d.Src, Dst: d.Dst, Proto: d.Proto}
	t.SPort, t.DPort = uint16(swap16(uint16(d.ID>>16))), uint16(swap16(uint16(d.ID)))
	return FlowTag(&t) >> 32 % 64
}
