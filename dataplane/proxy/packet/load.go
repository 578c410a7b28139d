package packet

import (
	_ "embed"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane/proxy"
	"github.com/fairlead/fairlead/internal/bpffs"
	"github.com/fairlead/fairlead/internal/bpfload"
	"github.com/fairlead/fairlead/internal/features"
	"github.com/fairlead/fairlead/internal/tc"
)

// shared are the maps that dataplane/proxy creates and writes.
var shared = []string{
	packetMapServices, packetMapTargets, packetMapSourceRanges, packetMapConnections,
	packetMapNodeAddresses, packetMapAffinities,
}

// own are this package's maps that outlive the process.
var own = bpfload.KeptMaps{
	packetMapPacketFlows: {Fit: bpfload.Keep, Written: true}, packetMapPacketFragments: {Fit: bpfload.Renew, Written: true}, packetMapPacketCounters: {Fit: bpfload.Renew},
	packetMapPacketMasks: {Fit: bpfload.Renew}, packetMapPacketBridges: {Fit: bpfload.Renew}, packetMapPacketMacs: {Fit: bpfload.Renew},
}

// history contains the layouts that releases pin, as in bpfload.Source.
//
//go:embed layouts.json
var history []byte

// halves of a flow, one entry each.
const halves = 2

// load opens the pins and loads the programs with the maps there.
func (h *Half) load() error {
	if err := bpffs.Mount(h.cfg.PinDir); err != nil {
		return fmt.Errorf("PinDir: %w", err)
	}
	var err error
	if h.dir, err = bpffs.Open(h.cfg.PinDir); err != nil {
		return err
	}
	spec, err := loadPacket()
	if err != nil {
		return err
	}
	if h.state, err = h.openState(spec); err != nil {
		return err
	}
	foreign, err := h.openShared(spec)
	defer closeAll(foreign)
	if err != nil {
		return err
	}
	err = errors.Join(setPorts(spec), spec.Variables[packetVarHasConntrack].Set(hasConntrack()),
		spec.Variables[packetVarFlowKeeps].Get(&h.keep))
	if err != nil {
		return err
	}
	h.missing, err = bpfload.Load(features.PacketProxy, spec, ebpf.CollectionOptions{
		Maps: ebpf.MapOptions{PinPath: h.dir.Path("")}, MapReplacements: foreign,
	}, &h.obj, bpfload.ErrVersion)
	return err
}

// hasConntrack reports whether programs can use connection tracking, built in or as a
// module.
func hasConntrack() bool {
	has := func(types *btf.Spec, err error) bool {
		var f *btf.Func
		return err == nil && types.TypeByName("bpf_skb_ct_lookup", &f) == nil
	}
	return has(btf.LoadKernelSpec()) || has(btf.LoadKernelModuleSpec("nf_conntrack"))
}

// openShared opens what dataplane/proxy has pinned, and adopts its sizes.
func (h *Half) openShared(spec *ebpf.CollectionSpec) (map[string]*ebpf.Map, error) {
	opened := map[string]*ebpf.Map{}
	for _, name := range shared {
		m, err := ebpf.LoadPinnedMap(filepath.Join(h.cfg.Maps, proxy.Pin(name)), nil)
		if err != nil {
			return opened, fmt.Errorf("map %s of the service proxy: %w: open dataplane/proxy first, and set Maps to its folder", name, err)
		}
		opened[name] = m
		spec.Maps[name].MaxEntries = m.MaxEntries()
	}
	return opened, nil
}

func closeAll(opened map[string]*ebpf.Map) {
	for _, m := range opened {
		m.Close()
	}
}

// openState sets the pins and sizes of the own maps.
func (h *Half) openState(spec *ebpf.CollectionSpec) (*bpfload.State, error) {
	flows, requested := spec.Maps[packetMapPacketFlows], h.cfg.MaxFlows
	if requested == 0 {
		var machine unix.Sysinfo_t
		if err := unix.Sysinfo(&machine); err != nil {
			return nil, fmt.Errorf("total memory of the node: %w", err)
		}
		requested = flowsFor(machine.Totalram * uint64(machine.Unit))
	}
	flows.MaxEntries = halves * requested
	attached, err := packetPrograms{}.hooked().Attached(h.dir)
	if err != nil {
		return nil, err
	}
	state, err := bpfload.OpenState(spec, bpfload.Source{Folder: h.dir.Path(""), Maps: own, History: history, Attached: attached})
	if err != nil {
		return nil, err
	}
	if h.cfg.MaxFlows != 0 && flows.MaxEntries != halves*requested {
		h.log.Warn("packets: the flow table keeps its size to preserve its flows; to change it, call Detach first",
			"flows", flows.MaxEntries/halves, "requested", requested)
	}
	return state, nil
}

// flowsFor is the number of tracked flows for a machine with this much memory, in bytes.
func flowsFor(memory uint64) uint32 {
	return uint32(min(max(memory>>16, leastFlows), mostFlows))
}

// hooked are the programs attached to devices. Their numbers are distinct from the DSR
// agent's.
func (p packetPrograms) hooked() tc.Programs {
	return tc.Programs{
		packetProgFromOutside: {Program: p.FromOutside, Handle: 11, Ingress: true},
		packetProgFromInside:  {Program: p.FromInside, Handle: 12, Ingress: true},
		packetProgLeaving:     {Program: p.Leaving, Handle: 13},

		packetProgFromOutsideBare: {Program: p.FromOutsideBare, Handle: 14, Ingress: true},
		packetProgLeavingBare:     {Program: p.LeavingBare, Handle: 15},
	}
}
