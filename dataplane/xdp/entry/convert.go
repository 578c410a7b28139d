// Package entry encodes values of the model as entries of the balancer's maps, and decodes
// them: addresses, keys, frontends, chains. It computes only: it opens no map. Tests need no
// kernel.
package entry

import (
	"math"
	"net/netip"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/internal/netorder"
)

// ToAddr is netorder's, for the balancer program's own type.
func ToAddr(a netip.Addr) bpf.BalancerAddr { return bpf.BalancerAddr{Word: netorder.Words(a)} }

// FromAddr is the inverse of ToAddr.
func FromAddr(a bpf.BalancerAddr) netip.Addr { return netorder.Addr(a.Word) }

// ToKey returns the key of the last entry in a frontend's lookup: its own, or for a port
// range that of the whole address.
func ToKey(k service.Key) bpf.BalancerFrontendKey {
	if k.Range() {
		return bpf.BalancerFrontendKey{Vip: ToAddr(k.VIP)}
	}
	return bpf.BalancerFrontendKey{Vip: ToAddr(k.VIP), Port: netorder.Port(k.Port), Proto: uint8(k.Protocol)}
}

// FromKey is the inverse of ToKey.
func FromKey(k bpf.BalancerFrontendKey) service.Key {
	if k.Port == 0 && k.Proto == 0 {
		return Whole(FromAddr(k.Vip))
	}
	return service.Key{VIP: FromAddr(k.Vip), Port: netorder.Port(k.Port), Protocol: service.Protocol(k.Proto)}
}

// Names in the model, and their numbers in C.
var (
	methods = map[service.Method]bpf.BalancerMethod{
		service.NAT:     bpf.BalancerMethodMETHOD_NAT,
		service.FullNAT: bpf.BalancerMethodMETHOD_FULLNAT,
		service.DSRNAT:  bpf.BalancerMethodMETHOD_DIRECT_NAT,
		service.DR:      bpf.BalancerMethodMETHOD_DR,
		service.Tunnel:  bpf.BalancerMethodMETHOD_TUNNEL,
	}
	encapsulations = map[service.Encapsulation]bpf.BalancerEncapsulation{
		service.IPIP: bpf.BalancerEncapsulationENCAPSULATION_IPIP,
		service.GUE:  bpf.BalancerEncapsulationENCAPSULATION_GUE,
	}
	schedulers = map[service.Scheduler]bpf.BalancerScheduler{
		service.Maglev:             bpf.BalancerSchedulerSCHEDULER_MAGLEV,
		service.RoundRobin:         bpf.BalancerSchedulerSCHEDULER_RR,
		service.WeightedRoundRobin: bpf.BalancerSchedulerSCHEDULER_WRR,
		service.LeastConn:          bpf.BalancerSchedulerSCHEDULER_LC,
		service.WeightedLeastConn:  bpf.BalancerSchedulerSCHEDULER_WLC,
		service.SourceHash:         bpf.BalancerSchedulerSCHEDULER_SH,
		service.DestinationHash:    bpf.BalancerSchedulerSCHEDULER_DH,
		service.PowerOfTwo:         bpf.BalancerSchedulerSCHEDULER_P2C,
	}
	survivals = map[service.Survival]bpf.BalancerSurvival{
		service.HashOnly:     bpf.BalancerSurvivalSURVIVAL_NONE,
		service.SecondChance: bpf.BalancerSurvivalSURVIVAL_SECOND_CHANCE,
		service.FlowTable:    bpf.BalancerSurvivalSURVIVAL_FLOW_TABLE,
	}
)

// Method returns the name of a number, or an empty name.
func Method(n bpf.BalancerMethod) service.Method { return nameOf(methods, n) }

// Scheduler returns the name of a number, or an empty name.
func Scheduler(n bpf.BalancerScheduler) service.Scheduler {
	return nameOf(schedulers, n&^bpf.BalancerSchedulerSCHEDULER_NARROW)
}

// nameOf returns the name of a number, or an empty name.
func nameOf[Name ~string, Number ~uint8](names map[Name]Number, n Number) Name {
	for name, number := range names {
		if number == n {
			return name
		}
	}
	return ""
}

// Whole is the key for all ports and protocols of a VIP.
func Whole(vip netip.Addr) service.Key {
	return service.Key{VIP: vip, Last: math.MaxUint16}
}
