package entry

import (
	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
)

// Flags of a frontend only for user space: when to protect it. SYNAuto is while it is under
// pressure.
const (
	SYNAuto   bpf.BalancerFrontendFlags = 1 << 28
	synAlways bpf.BalancerFrontendFlags = 1 << 29
)

// SYNActive are the flags set by pressure.
const SYNActive = bpf.BalancerFrontendFlagsFRONTEND_SYN_GUARDED | bpf.BalancerFrontendFlagsFRONTEND_SYN_CHECKED

// synFlags are those of a frontend without previous state.
func synFlags(f desired.Frontend) bpf.BalancerFrontendFlags {
	switch f.Protection() {
	case service.SYNAuto:
		return SYNAuto
	case service.SYNAlways:
		return synAlways | SYNActive
	}
	return 0
}

// KeepPressure are those that a frontend keeps from its previous state.
func KeepPressure(now, before bpf.BalancerFrontendFlags) bpf.BalancerFrontendFlags {
	if now&SYNAuto == 0 {
		return 0
	}
	return before & SYNActive
}

// protectionOf is the inverse of synFlags, with SYNOff as the zero value.
func protectionOf(flags bpf.BalancerFrontendFlags) service.SYNProtection {
	switch {
	case flags&SYNAuto != 0:
		return service.SYNAuto
	case flags&synAlways != 0:
		return service.SYNAlways
	}
	return ""
}
