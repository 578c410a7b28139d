package entry

import (
	"time"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/schedule"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
)

// Fields that a frontend left empty. The program ignores these flags. They let List
// return the frontend as it was given.
const (
	leftEncapsulation bpf.BalancerFrontendFlags = 1 << 30
	leftSurvival      bpf.BalancerFrontendFlags = 1 << 31
)

// Of returns a frontend's entry, without the location of its ring.
func Of(f desired.Frontend) bpf.BalancerFrontend {
	v := bpf.BalancerFrontend{
		Method: methods[f.Method], Scheduler: schedulers[f.Scheduler],
		Encapsulation: encapsulations[f.Encapsulation], Survival: survivals[f.Survival],
		RingSize: uint32(f.RingSize), Affinity: uint32(f.Affinity / time.Second),
	}
	if f.Encapsulation == "" && f.Method == service.Tunnel {
		v.Encapsulation = bpf.BalancerEncapsulationENCAPSULATION_IPIP
	}
	if f.SecondChance() {
		v.Survival = bpf.BalancerSurvivalSURVIVAL_SECOND_CHANCE
	}
	v.Flags = synFlags(f)
	for flag, set := range map[bpf.BalancerFrontendFlags]bool{
		bpf.BalancerFrontendFlagsFRONTEND_STATEFUL:    f.Stateful(),
		bpf.BalancerFrontendFlagsFRONTEND_GUARDED:     f.Guarded(),
		bpf.BalancerFrontendFlagsFRONTEND_CLIENT_HASH: f.HashBy() == schedule.ByClient,
		bpf.BalancerFrontendFlagsFRONTEND_VIP_HASH:    f.HashBy() == schedule.ByVIP,
		bpf.BalancerFrontendFlagsFRONTEND_KEEP_PORT:   f.Backends[0].Addr.Port() == 0,
		leftEncapsulation: f.Encapsulation == "",
		leftSurvival:      f.Survival == "",
	} {
		if set {
			v.Flags |= flag
		}
	}
	return v
}

// Requested returns the input of Of, except key, guard and backends.
func Requested(v bpf.BalancerFrontend) desired.Frontend {
	f := desired.Frontend{
		Method: nameOf(methods, v.Method), Scheduler: Scheduler(v.Scheduler),
		Encapsulation: nameOf(encapsulations, v.Encapsulation), Survival: nameOf(survivals, v.Survival),
		RingSize: int(v.RingSize), Affinity: time.Duration(v.Affinity) * time.Second, SYNProtection: protectionOf(v.Flags),
	}
	if v.Flags&leftEncapsulation != 0 {
		f.Encapsulation = ""
	}
	if v.Flags&leftSurvival != 0 {
		f.Survival = ""
	}
	return f
}

// HasChains reports whether the frontend's slots have chains.
func HasChains(v bpf.BalancerFrontend) bool {
	return v.Flags&bpf.BalancerFrontendFlagsFRONTEND_STATEFUL == 0 && v.Survival == bpf.BalancerSurvivalSURVIVAL_SECOND_CHANCE
}

// HasHistory reports whether the frontend's next ring is derived from this one.
func HasHistory(v bpf.BalancerFrontend) bool {
	switch v.Scheduler &^ bpf.BalancerSchedulerSCHEDULER_NARROW {
	case bpf.BalancerSchedulerSCHEDULER_MAGLEV, bpf.BalancerSchedulerSCHEDULER_SH, bpf.BalancerSchedulerSCHEDULER_DH:
		return true
	}
	return false
}

// HasWeights reports whether the frontend's slots contain weights instead of chains.
func HasWeights(v bpf.BalancerFrontend) bool {
	switch v.Scheduler {
	case bpf.BalancerSchedulerSCHEDULER_LC, bpf.BalancerSchedulerSCHEDULER_WLC, bpf.BalancerSchedulerSCHEDULER_P2C:
		return true
	}
	return false
}
