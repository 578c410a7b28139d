package program

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/dataplane/auth"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/entry"
	"github.com/fairlead/fairlead/internal/bpfload"
	"github.com/fairlead/fairlead/internal/nodekey"
)

// Options are what the object must be adapted to: capacity, own addresses and the maps that
// outlive the agent. dataplane/xdp.Config documents and validates them.
type Options struct {
	MaxFrontends, MaxBackends, MaxMembers, MaxChains, MaxFlows int

	SourceV4, SourceV6  netip.Addr
	FirstPort, LastPort uint16
	GUEPort             uint16
	Auth                nodekey.Auth
	Kept                bpfload.KeptMaps
}

// maxMirror limits map members, which has what the lists have, as long as these are short
// (dataplane/xdp/backendlist). It is the usual size in releases whose only record it was.
const maxMirror = 1 << 18

// Spec returns the programs and their maps for these options.
func (o Options) Spec() (*ebpf.CollectionSpec, error) { return o.specOf(bpf.LoadBalancer) }

// specOf does so for an object compiled from bpf/balancer.c.
func (o Options) specOf(load func() (*ebpf.CollectionSpec, error)) (*ebpf.CollectionSpec, error) {
	spec, err := load()
	if err != nil {
		return nil, err
	}
	for name, n := range map[string]int{
		bpf.BalancerMapFrontends:      2 * o.MaxFrontends, // each may have its own VIP
		bpf.BalancerMapFrontendCounts: o.MaxFrontends,
		bpf.BalancerMapPortRanges:     4 * o.MaxFrontends, // a VIP's are contiguous, and are written next to the old ones
		bpf.BalancerMapChains:         o.MaxChains + 1,    // 0 is none
		bpf.BalancerMapServers:        o.MaxBackends + 1,  // 0 is none
		bpf.BalancerMapServerCpu:      o.MaxBackends + 1,
		bpf.BalancerMapMemberIndex:    o.MaxFrontends,
		bpf.BalancerMapMembers:        min(o.MaxMembers, maxMirror),
		bpf.BalancerMapGuardRanges:    o.MaxFrontends,
		bpf.BalancerMapGuardLimits:    o.MaxFrontends,
		bpf.BalancerMapGuardBuckets:   o.MaxFrontends,
		bpf.BalancerMapGuardCredit:    o.MaxFrontends,
		bpf.BalancerMapSynCounts:      o.MaxFrontends,
	} {
		spec.Maps[name].MaxEntries = uint32(n)
	}
	if err := errors.Join(o.sizeFlows(spec), o.sizeHops(spec)); err != nil {
		return nil, err
	}
	if err := auth.Preset(spec, o.Auth); err != nil {
		return nil, fmt.Errorf("xdp: %w", err)
	}
	for name := range o.Kept {
		spec.Maps[name].Pinning, spec.Maps[name].Name = ebpf.PinByName, o.Kept.Pin(name)
	}
	return spec, o.presetSettings(spec)
}

// sizeFlows sets the sizes of the flow table's maps, and the same numbers in the program.
func (o Options) sizeFlows(spec *ebpf.CollectionSpec) error {
	const flowWays = uint32(len(bpf.BalancerFlowSet{}.Way))
	sets := (uint32(o.MaxFlows) + flowWays - 1) / flowWays
	for name, n := range map[string]uint32{
		bpf.BalancerMapFlows:       sets,
		bpf.BalancerMapFlowData:    sets * flowWays,
		bpf.BalancerMapFlowRecent:  max(1, sets/8),
		bpf.BalancerMapFlowBack:    2 * sets, // half of the entries are free if all flows need one
		bpf.BalancerMapConnections: uint32(o.MaxBackends) + 1,
		bpf.BalancerMapSynFlows:    sets * flowWays,
	} {
		if m := spec.Maps[name]; m != nil { // a benchmark loads other versions
			m.MaxEntries = n
		}
	}
	err := errors.Join(spec.Variables[bpf.BalancerVarFlowSets].Set(sets), spec.Variables[bpf.BalancerVarFlowBackLines].Set(2*sets),
		spec.Variables[bpf.BalancerVarStoresInOrder].Set(runtime.GOARCH == "amd64"))
	if err != nil {
		return fmt.Errorf("xdp: flow table: %w", err)
	}
	return nil
}

// maxHops limits the next hops that each CPU caches by the backend's address: 1 MB.
const maxHops = 1 << 14

// sizeHops sets the size of the cache of next hops, and the same number in the program.
func (o Options) sizeHops(spec *ebpf.CollectionSpec) error {
	hops := uint32(min(o.MaxBackends, maxHops))
	if m := spec.Maps[bpf.BalancerMapAddressHops]; m != nil { // a benchmark loads other versions
		m.MaxEntries = hops
	}
	if err := spec.Variables[bpf.BalancerVarAddressHopCount].Set(hops); err != nil {
		return fmt.Errorf("xdp: next hops: %w", err)
	}
	return nil
}

// presetSettings sets the settings in the object, so that no packet is processed with
// others.
func (o Options) presetSettings(spec *ebpf.CollectionSpec) error {
	variable := spec.Variables[bpf.BalancerVarSet]
	var set bpf.BalancerSettings
	if err := variable.Get(&set); err != nil {
		return fmt.Errorf("xdp: settings: %w", err)
	}
	set.Own4.Word, set.Own6.Word = entry.ToAddr(o.SourceV4).Word, entry.ToAddr(o.SourceV6).Word
	set.GuePort = o.GUEPort
	set.PortFirst, set.PortCount = o.FirstPort, o.LastPort-o.FirstPort+1
	if err := variable.Set(set); err != nil {
		return fmt.Errorf("xdp: settings: %w", err)
	}
	return nil
}
