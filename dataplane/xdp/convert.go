package xdp

import (
	"net/netip"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/netorder"
)

// toAddr and fromAddr are netorder's, for the balancer program's own type.
func toAddr(a netip.Addr) balancerAddr { return balancerAddr{Word: netorder.Words(a)} }

func fromAddr(a balancerAddr) netip.Addr { return netorder.Addr(a.Word) }

// toKey returns the key of the last entry in a frontend's lookup: its own, or for a port
// range that of the whole address.
func toKey(k service.Key) balancerFrontendKey {
	if k.Range() {
		return balancerFrontendKey{Vip: toAddr(k.VIP)}
	}
	return balancerFrontendKey{Vip: toAddr(k.VIP), Port: netorder.Port(k.Port), Proto: uint8(k.Protocol)}
}

func fromKey(k balancerFrontendKey) service.Key {
	if k.Port == 0 && k.Proto == 0 {
		return wholeAddress(fromAddr(k.Vip))
	}
	return service.Key{VIP: fromAddr(k.Vip), Port: netorder.Port(k.Port), Protocol: service.Protocol(k.Proto)}
}

// Names in the model, and their numbers in C.
var (
	methods = map[service.Method]balancerMethod{
		service.NAT:     balancerMethodMETHOD_NAT,
		service.FullNAT: balancerMethodMETHOD_FULLNAT,
		service.DSRNAT:  balancerMethodMETHOD_DIRECT_NAT,
		service.DR:      balancerMethodMETHOD_DR,
		service.Tunnel:  balancerMethodMETHOD_TUNNEL,
	}
	encapsulations = map[service.Encapsulation]balancerEncapsulation{
		service.IPIP: balancerEncapsulationENCAPSULATION_IPIP,
		service.GUE:  balancerEncapsulationENCAPSULATION_GUE,
	}
	schedulers = map[service.Scheduler]balancerScheduler{
		service.Maglev:             balancerSchedulerSCHEDULER_MAGLEV,
		service.RoundRobin:         balancerSchedulerSCHEDULER_RR,
		service.WeightedRoundRobin: balancerSchedulerSCHEDULER_WRR,
		service.LeastConn:          balancerSchedulerSCHEDULER_LC,
		service.WeightedLeastConn:  balancerSchedulerSCHEDULER_WLC,
		service.SourceHash:         balancerSchedulerSCHEDULER_SH,
		service.DestinationHash:    balancerSchedulerSCHEDULER_DH,
		service.PowerOfTwo:         balancerSchedulerSCHEDULER_P2C,
	}
	survivals = map[service.Survival]balancerSurvival{
		service.HashOnly:     balancerSurvivalSURVIVAL_NONE,
		service.SecondChance: balancerSurvivalSURVIVAL_SECOND_CHANCE,
		service.FlowTable:    balancerSurvivalSURVIVAL_FLOW_TABLE,
	}
)

// nameOf returns the name of a number, or an empty name.
func nameOf[Name ~string, Number ~uint8](names map[Name]Number, n Number) Name {
	for name, number := range names {
		if number == n {
			return name
		}
	}
	return ""
}
