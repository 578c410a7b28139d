package xdp

import (
	_ "embed"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/internal/bpfload"
)

// kept are the maps that outlive the agent. Constants, settings, steps, scratch memory
// and what only the agent of a program reads belong to that program.
var kept = bpfload.KeptMaps{
	balancerMapFrontends: {}, balancerMapPortRanges: {}, balancerMapVipBits: {}, balancerMapRings: {}, balancerMapChains: {},
	balancerMapServers: {}, balancerMapServerCpu: {}, balancerMapMembers: {}, balancerMapFrontendCounts: {},
	balancerMapGuardRanges: {}, balancerMapGuardLimits: {}, balancerMapGuardBuckets: {}, balancerMapGuardCredit: {}, balancerMapGuardClients: {},
	balancerMapHandoverPeers: {}, balancerMapBalancers: {}, balancerMapTxPorts: {}, balancerMapNatBits: {},
	balancerMapFragments: {Fit: bpfload.Renew},
	// The first had as many entries as there were reasons: releases that pin it so
	// would empty their flow table for another number.
	balancerMapDrops: {Fit: bpfload.Renew, Version: 2},
	// One table: these have one version.
	balancerMapFlows:      {Hashed: true, Enums: []string{"flow_state"}},
	balancerMapFlowData:   {Hashed: true},
	balancerMapFlowBack:   {Hashed: true},
	balancerMapFlowSecret: {}, balancerMapConnections: {},
}

// history has the layouts that releases pin, as bpfload.Source has it.
//
//go:embed layouts.json
var history []byte

// openState finds what a predecessor left in the folder of pins.
func (d *DataPlane) openState(spec *ebpf.CollectionSpec, maps bpfload.KeptMaps) (*bpfload.State, error) {
	attached, err := bpfload.Attached(d.pins, linkPrefix)
	if err != nil {
		return nil, fmt.Errorf("xdp: PinDir: %w", err)
	}
	state, err := bpfload.OpenState(spec, bpfload.Source{Folder: d.pins.Path(""), Maps: maps, History: history, Attached: attached})
	if err != nil {
		return nil, fmt.Errorf("xdp: PinDir: %w", err)
	}
	return state, nil
}

// carry copies what another release holds in maps of other layouts. Its programs go
// on meanwhile.
func (d *DataPlane) carry() error {
	carried, err := d.state.Carry()
	if len(carried) > 0 {
		slog.Info("took over maps of another release", "maps", carried)
	}
	if err != nil {
		return fmt.Errorf("xdp: %w", err)
	}
	if _, table := carried[balancerMapFlows]; table {
		d.flows.unlock()
	}
	return nil
}

// unlock takes away the locks that were copied with the table, and the entries that
// were being given to another flow just then.
func (t *flowTable) unlock() {
	for i := range t.sets {
		tag := &t.sets[i].Way[0].Tag
		atomic.StoreUint64(tag, *tag&^flowLocked)
	}
}
