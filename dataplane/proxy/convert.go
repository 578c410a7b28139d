package proxy

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"
	"unsafe"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/netorder"
)

func toAddr(a netip.Addr) proxyAddr { return proxyAddr{Word: netorder.Words(a)} }

func fromAddr(a proxyAddr) netip.Addr { return netorder.Addr(a.Word) }

func toKey(k proxy.Key) proxyServiceKey {
	return proxyServiceKey{Addr: toAddr(k.Addr), Port: netorder.Port(k.Port), Proto: uint8(k.Protocol)}
}

func fromKey(k proxyServiceKey) proxy.Key {
	return proxy.Key{Addr: fromAddr(k.Addr), Port: netorder.Port(k.Port), Protocol: service.Protocol(k.Proto)}
}

// appendTargets returns endpoints in the sorted form that the programs search.
func appendTargets(to []proxyTarget, from []proxy.Target) ([]proxyTarget, error) {
	for i, t := range from {
		if i > 0 && from[i-1].Addr.Compare(t.Addr) >= 0 {
			return nil, fmt.Errorf("endpoint %s follows %s: sort endpoints by address, without duplicates", t.Addr, from[i-1].Addr)
		}
		raw := proxyTarget{Addr: toAddr(t.Addr.Addr()), Port: netorder.Port(t.Addr.Port())}
		if t.Local {
			raw.Local = 1
		}
		to = append(to, raw)
	}
	return to, nil
}

func (t proxyTarget) addrPort() netip.AddrPort {
	return netip.AddrPortFrom(fromAddr(t.Addr), netorder.Port(t.Port))
}

func fromTargets(raw []proxyTarget) []proxy.Target {
	if len(raw) == 0 {
		return nil
	}
	to := make([]proxy.Target, len(raw))
	for i, t := range raw {
		to[i] = proxy.Target{Addr: t.addrPort(), Local: t.Local != 0}
	}
	return to
}

// checkFrontend rejects what the programs could not serve as specified.
func checkFrontend(f *proxy.Frontend) error {
	switch f.Protocol {
	case service.TCP, service.UDP, service.SCTP:
	default:
		return fmt.Errorf("protocol %s: use TCP, UDP or SCTP", f.Protocol)
	}
	if !f.Addr.IsValid() || f.Addr.Is4In6() || f.Addr.Zone() != "" {
		return fmt.Errorf("address %s: use an IPv4 or IPv6 address", f.Addr)
	}
	for _, c := range []proxy.Choice{f.Inside, f.Outside} {
		for _, list := range [][]proxy.Target{c.Targets, c.Keeps} {
			for _, t := range list {
				if t.Addr.Addr().Is4() != f.Addr.Is4() || t.Addr.Addr().Is4In6() {
					return fmt.Errorf("endpoint %s is of another IP family", t.Addr)
				}
			}
		}
	}
	for _, p := range f.Allow {
		if p.Addr().Is4() != f.Addr.Is4() {
			return fmt.Errorf("source range %s is of another IP family", p)
		}
	}
	return nil
}

// toSeconds rounds up, because 0 means none.
func toSeconds(d time.Duration) uint32 {
	return uint32(min((d+time.Second-1)/time.Second, 1<<32-1))
}

func flagsOf(f *proxy.Frontend) proxyServiceFlags {
	switch {
	case f.Closed:
		return proxyServiceFlagsSERVICE_ALLOW | proxyServiceFlagsSERVICE_CLOSED
	case len(f.Allow) > 0:
		return proxyServiceFlagsSERVICE_ALLOW
	}
	return 0
}

// checkOdd is HASH_K0 of bpf/include/hash.h.
const checkOdd uint64 = 0x9e3779b97f4a7c15

// checkOf is service_check of bpf/proxy/find.h.
func checkOf(k proxyServiceKey, s proxyService) uint32 {
	sum, odd := uint64(0), checkOdd
	words := func(at unsafe.Pointer, size uintptr) {
		for _, w := range unsafe.Slice((*uint32)(at), size/4) {
			sum += uint64(w) * odd
			odd *= checkOdd
		}
	}
	words(unsafe.Pointer(&k), unsafe.Sizeof(k))
	words(unsafe.Pointer(&s), unsafe.Offsetof(s.Check))
	return uint32(sum >> 32)
}

// sealService sets the checksum of a service copied from another layout.
func sealService(key, value []byte) {
	var k proxyServiceKey
	var s proxyService
	_, errKey := binary.Decode(key, binary.NativeEndian, &k)
	_, errValue := binary.Decode(value, binary.NativeEndian, &s)
	if errKey != nil || errValue != nil {
		return // it stays without, and is invalid
	}
	s.Check = checkOf(k, s)
	_, _ = binary.Encode(value, binary.NativeEndian, s) // same length as before
}

// idBits is the length of a source range key's prefix before its address.
const idBits = 32

func toRangeKey(id uint32, p netip.Prefix) proxySourceRangeKey {
	n := p.Bits()
	if p.Addr().Is4() {
		n += 96
	}
	return proxySourceRangeKey{Prefixlen: uint32(idBits + n), Id: id, Addr: toAddr(p.Masked().Addr())}
}

// fromRangeKey returns a range in its own family, given by v4, because ::ffff:0:0/96 is
// all of IPv4.
func fromRangeKey(k proxySourceRangeKey, v4 bool) netip.Prefix {
	n := int(k.Prefixlen) - idBits
	a := netip.AddrFrom16(fromAddr(k.Addr).As16())
	if v4 {
		return netip.PrefixFrom(a.Unmap(), n-96)
	}
	return netip.PrefixFrom(a, n)
}
