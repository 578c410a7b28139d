package xdp

import (
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/dataplane/internal/netorder"
	"github.com/fairlead/fairlead/service"
)

// toAddr and fromAddr are netorder's, for the balancer's own type.
func toAddr(a netip.Addr) balancerAddr { return balancerAddr{Word: netorder.Words(a)} }

func fromAddr(a balancerAddr) netip.Addr { return netorder.Addr(a.Word) }

func toKey(k service.Key) balancerFrontendKey {
	return balancerFrontendKey{Vip: toAddr(k.VIP), Port: netorder.Port(k.Port), Proto: uint8(k.Protocol)}
}

func fromKey(k balancerFrontendKey) service.Key {
	return service.Key{VIP: fromAddr(k.Vip), Port: netorder.Port(k.Port), Protocol: service.Protocol(k.Proto)}
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
	return netip.AddrPortFrom(fromAddr(s.Addr), netorder.Port(s.Port))
}
