package xdp

import (
	_ "embed"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/dataplane/xdp/attach"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/internal/bpfload"
)

// kept are the maps that outlive the agent. Constants, settings, steps, scratch memory
// and what only a program's own agent reads belong to that program.
var kept = bpfload.KeptMaps{
	// The first version had no narrow rings.
	bpf.BalancerMapFrontends: {Version: 2}, bpf.BalancerMapPortRanges: {Version: 2},
	bpf.BalancerMapVipBits: {}, bpf.BalancerMapRings: {}, bpf.BalancerMapChains: {},
	bpf.BalancerMapServers: {}, bpf.BalancerMapServerCpu: {}, bpf.BalancerMapFrontendCounts: {},
	bpf.BalancerMapMemberIndex: {}, bpf.BalancerMapMemberLists: {}, bpf.BalancerMapMembers: {},
	bpf.BalancerMapGuardRanges: {}, bpf.BalancerMapGuardLimits: {},
	bpf.BalancerMapGuardBuckets: {Written: true}, bpf.BalancerMapGuardCredit: {Written: true}, bpf.BalancerMapGuardClients: {Written: true},
	bpf.BalancerMapHandoverPeers: {}, bpf.BalancerMapBalancers: {}, bpf.BalancerMapTxPorts: {}, bpf.BalancerMapNatBits: {},
	bpf.BalancerMapFragments: {Fit: bpfload.Renew, Written: true},
	// The first version had one entry per reason: releases that pin it that way would
	// empty their flow table for another number.
	bpf.BalancerMapDrops: {Fit: bpfload.Renew, Version: 2},
	// One table: these have one version. States 9 to 13 came without a new one,
	// because a copy would contain them as well: an older release lets flows in these
	// states expire, which are about to open or to end. An established flow has none
	// of them.
	bpf.BalancerMapFlows:      {Written: true, Hashed: true, Enums: []string{"flow_state"}},
	bpf.BalancerMapFlowData:   {Written: true, Hashed: true},
	bpf.BalancerMapFlowBack:   {Written: true, Hashed: true},
	bpf.BalancerMapFlowSecret: {}, bpf.BalancerMapConnections: {Written: true},
	bpf.BalancerMapSynKeys: {}, bpf.BalancerMapSynCounts: {}, bpf.BalancerMapSynSources: {Written: true},
	bpf.BalancerMapSynFlows: {Written: true, Hashed: true}, // by an index into the flow table
}

// history contains the layouts that releases pin, as in bpfload.Source.
//
//go:embed layouts.json
var history []byte

// openState finds what a predecessor left in the pin directory.
func (d *DataPlane) openState(spec *ebpf.CollectionSpec, maps bpfload.KeptMaps) (*bpfload.State, error) {
	attached, err := bpfload.Attached(d.pins, attach.Prefix)
	if err != nil {
		return nil, fmt.Errorf("xdp: PinDir: %w", err)
	}
	state, err := bpfload.OpenState(spec, bpfload.Source{Folder: d.pins.Path(""), Maps: maps, History: history, Attached: attached})
	if err != nil {
		return nil, fmt.Errorf("xdp: PinDir: %w", err)
	}
	return state, nil
}

// carry copies what another release stores in maps of other layouts, the second time only
// changes. Its programs keep running: a flow that opens after its set was read, in the
// milliseconds before the programs are replaced, is unknown here.
func (d *DataPlane) carry() (bpfload.Carried, error) {
	carried, err := d.state.Carry()
	if err != nil {
		return carried, fmt.Errorf("xdp: %w", err)
	}
	if _, table := carried[bpf.BalancerMapFlows]; table {
		d.flows.Unlock()
	}
	return carried, nil
}
