package xdp

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/schedule"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
)

// Fields that a frontend left empty. The program ignores these flags. They let List
// return the frontend as it was given.
const (
	leftEncapsulation balancerFrontendFlags = 1 << 30
	leftSurvival      balancerFrontendFlags = 1 << 31
)

// check rejects configuration that the program does not support.
func (d *DataPlane) check(f desired.Frontend) error {
	if len(f.Backends) == 0 {
		return fmt.Errorf("%s: no backends: delete a frontend that has none", f.Key)
	}
	if f.RingSize < 0 || f.RingSize > int(d.ringMemory.spec.MaxEntries) {
		return fmt.Errorf("%s: ring size %d: want at most %d", f.Key, f.RingSize, d.ringMemory.spec.MaxEntries)
	}
	for _, check := range []func(desired.Frontend) string{checkNames, checkKey, checkTimes, d.checkBackends} {
		if what := check(f); what != "" {
			return dataplane.Unsupported(f.Key, what)
		}
	}
	return nil
}

// checkNames rejects names without a number in C.
func checkNames(f desired.Frontend) string {
	if _, ok := methods[f.Method]; !ok {
		return fmt.Sprintf("forwarding mode %q", f.Method)
	}
	if _, ok := schedulers[f.Scheduler]; !ok {
		return fmt.Sprintf("scheduler %q", f.Scheduler)
	}
	if _, ok := encapsulations[f.Encapsulation]; !ok && f.Encapsulation != "" {
		return fmt.Sprintf("encapsulation %q", f.Encapsulation)
	}
	if _, ok := survivals[f.Survival]; !ok && f.Survival != "" {
		return fmt.Sprintf("connection consistency %q", f.Survival)
	}
	if f.SYNProtection != "" && !slices.Contains(service.SYNProtections, f.SYNProtection) {
		return fmt.Sprintf("SYN protection %q", f.SYNProtection)
	}
	return ""
}

func checkKey(f desired.Frontend) string { return dataplane.RefuseKey(f.Key) }

func checkTimes(f desired.Frontend) string {
	if f.Affinity < 0 || f.Affinity%time.Second != 0 || f.Affinity/time.Second > math.MaxUint32 {
		return fmt.Sprintf("affinity of %s: use whole seconds", f.Affinity)
	}
	return ""
}

// checkBackends rejects backends that the forwarding mode cannot reach.
func (d *DataPlane) checkBackends(f desired.Frontend) string {
	v4 := f.Backends[0].Addr.Addr().Unmap().Is4()
	keeps := f.Backends[0].Addr.Port() == 0
	for _, b := range f.Backends {
		if b.Addr.Addr().Unmap().Is4() != v4 {
			return "backends of both IP families: use one family per frontend"
		}
		if (b.Addr.Port() == 0) != keeps {
			return "only some backends have a port: set the port of all of them, or of none for a port range"
		}
		if f.Method == service.DR && !keeps && (f.Range() || b.Addr.Port() != f.Port) {
			return fmt.Sprintf("dr to port %d of %s: forwarding mode dr does not change the port", b.Addr.Port(), b.Addr.Addr())
		}
	}
	if keeps && !f.Range() {
		return "backends without a port: only a port range may have them"
	}
	if f.Method != service.Tunnel && f.VIP.Unmap().Is4() != v4 {
		return fmt.Sprintf("%s to backends of another IP family than the VIP: use tunnel", f.Method)
	}
	return d.checkSource(f, v4)
}

// checkSource rejects forwarding modes that need an own address if none is configured.
func (d *DataPlane) checkSource(f desired.Frontend, v4 bool) string {
	source, family := d.config.SourceV4, "IPv4"
	if !v4 {
		source, family = d.config.SourceV6, "IPv6"
	}
	if needs := f.Method == service.Tunnel || f.Method == service.FullNAT; needs && !source.IsValid() {
		return fmt.Sprintf("%s to %s: the first --interface has no %s address to use as source", f.Method, f.Backends[0].Addr, family)
	}
	return ""
}

// entryOf returns a frontend's entry, without the location of its ring.
func entryOf(f desired.Frontend) balancerFrontend {
	v := balancerFrontend{
		Method: methods[f.Method], Scheduler: schedulers[f.Scheduler],
		Encapsulation: encapsulations[f.Encapsulation], Survival: survivals[f.Survival],
		RingSize: uint32(f.RingSize), Affinity: uint32(f.Affinity / time.Second),
	}
	if f.Encapsulation == "" && f.Method == service.Tunnel {
		v.Encapsulation = balancerEncapsulationENCAPSULATION_IPIP
	}
	if f.SecondChance() {
		v.Survival = balancerSurvivalSURVIVAL_SECOND_CHANCE
	}
	v.Flags = synFlags(f)
	for flag, set := range map[balancerFrontendFlags]bool{
		balancerFrontendFlagsFRONTEND_STATEFUL:    f.Stateful(),
		balancerFrontendFlagsFRONTEND_GUARDED:     f.Guarded(),
		balancerFrontendFlagsFRONTEND_CLIENT_HASH: f.HashBy() == schedule.ByClient,
		balancerFrontendFlagsFRONTEND_VIP_HASH:    f.HashBy() == schedule.ByVIP,
		balancerFrontendFlagsFRONTEND_KEEP_PORT:   f.Backends[0].Addr.Port() == 0,
		leftEncapsulation:                         f.Encapsulation == "",
		leftSurvival:                              f.Survival == "",
	} {
		if set {
			v.Flags |= flag
		}
	}
	return v
}

// requested returns the input of entryOf, except key, guard and backends.
func requested(v balancerFrontend) desired.Frontend {
	f := desired.Frontend{
		Method: nameOf(methods, v.Method), Scheduler: nameOf(schedulers, v.Scheduler),
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

// hasChains reports whether the frontend's slots have chains.
func hasChains(v balancerFrontend) bool {
	return v.Flags&balancerFrontendFlagsFRONTEND_STATEFUL == 0 && v.Survival == balancerSurvivalSURVIVAL_SECOND_CHANCE
}

// hasHistory reports whether the frontend's next ring is derived from this one.
func hasHistory(v balancerFrontend) bool {
	switch v.Scheduler {
	case balancerSchedulerSCHEDULER_MAGLEV, balancerSchedulerSCHEDULER_SH, balancerSchedulerSCHEDULER_DH:
		return true
	}
	return false
}

// hasWeights reports whether the frontend's slots contain weights instead of chains.
func hasWeights(v balancerFrontend) bool {
	switch v.Scheduler {
	case balancerSchedulerSCHEDULER_LC, balancerSchedulerSCHEDULER_WLC, balancerSchedulerSCHEDULER_P2C:
		return true
	}
	return false
}

// wholeAddress is the key for all ports and protocols of a VIP.
func wholeAddress(vip netip.Addr) service.Key {
	return service.Key{VIP: vip, Last: math.MaxUint16}
}
