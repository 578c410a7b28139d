package packet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane/internal/bpffs"
	"github.com/fairlead/fairlead/dataplane/internal/tc"
)

// shared are the maps that dataplane/proxy makes and writes.
var shared = []string{
	packetMapServices, packetMapTargets, packetMapSourceRanges, packetMapConnections,
	packetMapNodeAddresses, packetMapAffinities,
}

// own are the maps of this half that outlive the process.
var own = []string{
	packetMapPacketFlows, packetMapPacketFragments, packetMapPacketCounters,
	packetMapPacketMasks, packetMapPacketBridges, packetMapPacketMacs,
}

// halves of a flow, each an entry.
const halves = 2

// load opens the pins and loads the programs onto the maps there.
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
	if err := h.fit(spec); err != nil {
		return err
	}
	foreign, err := h.openShared(spec)
	defer closeAll(foreign)
	if err != nil {
		return err
	}
	if err := errors.Join(setPorts(spec), spec.Variables[packetVarHasConntrack].Set(hasConntrack())); err != nil {
		return err
	}
	return explain(spec.LoadAndAssign(&h.obj, &ebpf.CollectionOptions{
		Maps: ebpf.MapOptions{PinPath: h.dir.Path("")}, MapReplacements: foreign,
	}))
}

// hasConntrack says whether programs may ask connection tracking, be it built in
// or a module.
func hasConntrack() bool {
	has := func(types *btf.Spec, err error) bool {
		var f *btf.Func
		return err == nil && types.TypeByName("bpf_skb_ct_lookup", &f) == nil
	}
	return has(btf.LoadKernelSpec()) || has(btf.LoadKernelModuleSpec("nf_conntrack"))
}

// openShared opens what dataplane/proxy has pinned, and takes its sizes.
func (h *Half) openShared(spec *ebpf.CollectionSpec) (map[string]*ebpf.Map, error) {
	maps := map[string]*ebpf.Map{}
	for _, name := range shared {
		m, err := ebpf.LoadPinnedMap(filepath.Join(h.cfg.Maps, name), nil)
		if err != nil {
			return maps, fmt.Errorf("map %s of the service proxy: %w: open dataplane/proxy before, and give its folder as Maps", name, err)
		}
		maps[name] = m
		spec.Maps[name].MaxEntries = m.MaxEntries()
	}
	return maps, nil
}

func closeAll(maps map[string]*ebpf.Map) {
	for _, m := range maps {
		m.Close()
	}
}

// fit sets the own maps to be pinned, and to the sizes they are to have. A
// table of flows keeps the size that it is pinned with; counters of another
// version start anew.
func (h *Half) fit(spec *ebpf.CollectionSpec) error {
	spec.Maps[packetMapPacketFlows].MaxEntries = halves * h.cfg.MaxFlows
	for _, name := range own {
		m := spec.Maps[name]
		m.Pinning = ebpf.PinByName
		old, err := ebpf.LoadPinnedMap(h.dir.Path(name), nil)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("pinned map %s: %w", name, err)
		}
		size := old.MaxEntries()
		old.Close()
		switch {
		case size == m.MaxEntries:
		case name == packetMapPacketFlows:
			h.log.Warn("packets: the table of flows keeps its size, for its flows' sake; Detach first to change it",
				"flows", size/halves, "asked", h.cfg.MaxFlows)
			m.MaxEntries = size
		default:
			if err := h.dir.Remove(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// hooked are the programs that are held at devices. Their numbers are apart
// from the server half's.
func (p packetPrograms) hooked() tc.Programs {
	return tc.Programs{
		packetProgFromOutside: {Program: p.FromOutside, Handle: 11, Ingress: true},
		packetProgFromInside:  {Program: p.FromInside, Handle: 12, Ingress: true},
		packetProgLeaving:     {Program: p.Leaving, Handle: 13},

		packetProgFromOutsideBare: {Program: p.FromOutsideBare, Handle: 14, Ingress: true},
		packetProgLeavingBare:     {Program: p.LeavingBare, Handle: 15},
	}
}

// explain adds the mend to an error of the loader.
func explain(err error) error {
	var verifier *ebpf.VerifierError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ebpf.ErrMapIncompatible):
		return fmt.Errorf("a pinned map is of another version of Fairlead: detach that one first, which ends its flows: %w", err)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("load the programs: needs root (CAP_BPF, CAP_NET_ADMIN): %w", err)
	case errors.As(err, &verifier):
		return fmt.Errorf("load the programs: this kernel refuses one; Fairlead needs Linux 6.1 or later: %+v", verifier)
	}
	return fmt.Errorf("load the programs: %w", err)
}
