package xdp

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/service"
)

// toAddr gives the 16-byte form of an address; of none, zeros.
func toAddr(a netip.Addr) balancerAddr {
	var out balancerAddr
	if !a.IsValid() {
		return out
	}
	b := a.As16()
	for i := range out.Word {
		out.Word[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return out
}

func fromAddr(a balancerAddr) netip.Addr {
	var b [16]byte
	for i, w := range a.Word {
		binary.NativeEndian.PutUint32(b[4*i:], w)
	}
	return netip.AddrFrom16(b).Unmap()
}

// swap16 turns a number from host to network byte order, or back.
func swap16(n uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], n)
	return binary.NativeEndian.Uint16(b[:])
}

func toKey(k service.Key) balancerFrontendKey {
	return balancerFrontendKey{Vip: toAddr(k.VIP), Port: swap16(k.Port), Proto: uint8(k.Protocol)}
}

func fromKey(k balancerFrontendKey) service.Key {
	return service.Key{VIP: fromAddr(k.Vip), Port: swap16(k.Port), Protocol: service.Protocol(k.Proto)}
}

// The names of methods and schedulers, and their numbers in C.
var (
	methods = map[service.Method]balancerMethod{
		service.FullNAT:   balancerMethodMETHOD_FULLNAT,
		service.DirectNAT: balancerMethodMETHOD_DIRECT_NAT,
		service.Tunnel:    balancerMethodMETHOD_TUNNEL,
	}
	schedulers = map[service.Scheduler]balancerScheduler{
		service.Maglev:     balancerSchedulerSCHEDULER_MAGLEV,
		service.RoundRobin: balancerSchedulerSCHEDULER_RR,
	}
)

// nameOf finds the name of a number.
func nameOf[Name ~string, Number ~uint32](names map[Name]Number, n Number) Name {
	for name, number := range names {
		if number == n {
			return name
		}
	}
	return Name(fmt.Sprintf("unknown(%d)", n))
}

func serverAddr(s balancerServer) netip.AddrPort {
	return netip.AddrPortFrom(fromAddr(s.Addr), swap16(s.Port))
}
