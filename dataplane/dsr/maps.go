package dsr

import (
	"crypto/rand"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"runtime"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/auth"
	"github.com/fairlead/fairlead/dataplane/internal/clock"
	"github.com/fairlead/fairlead/internal/bpffs"
	"github.com/fairlead/fairlead/internal/bpfload"
	"github.com/fairlead/fairlead/internal/bpfmap"
	"github.com/fairlead/fairlead/internal/features"
	"github.com/fairlead/fairlead/internal/netorder"
	"github.com/fairlead/fairlead/internal/tc"
)

// load opens the pins, loads the programs with the pinned maps, and replaces a
// predecessor's.
func (h *Agent) load(newHook tc.Opener) error {
	if err := bpffs.Mount(h.cfg.PinDir); err != nil {
		return fmt.Errorf("PinDir: %w", err)
	}
	dir, err := bpffs.Open(h.cfg.PinDir)
	if err != nil {
		return err
	}
	h.dir = dir
	spec, err := loadDsr()
	if err != nil {
		return err
	}
	state, err := h.openState(spec)
	if err != nil {
		return err
	}
	key, err := h.flowKey()
	if err != nil {
		return err
	}
	if err := errors.Join(
		spec.Variables[dsrVarFlowKey].Set(key),
		spec.Variables[dsrVarClampMss].Set(!h.cfg.KeepMSS),
		auth.Preset(spec, h.cfg.Auth),
		spec.Variables[dsrVarGuePort].Set(h.cfg.GUEPort),
		spec.Variables[dsrVarFlowSets].Set(spec.Maps[dsrMapFlowTable].MaxEntries),
		spec.Variables[dsrVarStoresInOrder].Set(runtime.GOARCH == "amd64"),
	); err != nil {
		return err
	}
	opts := ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: h.dir.Path(layout)}}
	if h.missing, err = bpfload.Load(features.DSRAgent, spec, opts, &h.obj, bpfload.ErrVersion); err != nil {
		return err
	}
	if h.routes, err = newRoutes(); err != nil {
		return err
	}
	return h.takeOver(state, newHook)
}

// kept are the maps that outlive the agent.
var kept = bpfload.KeptMaps{
	dsrMapLocalVips:   {},
	dsrMapFlowTable:   {Fit: bpfload.Keep, Written: true, Hashed: true, Enums: []string{"flow_state"}},
	dsrMapNextServers: {}, dsrMapSourceRanges: {}, dsrMapBalancers: {},
	dsrMapServerCounters: {Fit: bpfload.Renew},
}

// openState sets the pins and sizes of the kept maps.
func (h *Agent) openState(spec *ebpf.CollectionSpec) (*bpfload.State, error) {
	if err := os.MkdirAll(h.dir.Path(layout), 0o700); err != nil {
		return nil, fmt.Errorf("pins: %w", err)
	}
	if err := h.forgetLeft(); err != nil {
		return nil, err
	}
	flows := spec.Maps[dsrMapFlowTable]
	flows.MaxEntries = flowSets(h.cfg.MaxFlows)
	attached, err := dsrPrograms{}.hooked().Attached(h.dir)
	if err != nil {
		return nil, err
	}
	state, err := bpfload.OpenState(spec, bpfload.Source{Folder: h.dir.Path(layout), Maps: kept, History: history, Attached: attached})
	if err != nil {
		return nil, err
	}
	if flows.MaxEntries != flowSets(h.cfg.MaxFlows) {
		h.log.Warn("DSR agent: the flow table keeps its size to preserve its flows; to change it, call Detach first",
			"flows", flows.MaxEntries*flowWays, "requested", h.cfg.MaxFlows)
	}
	return state, nil
}

// history contains the layouts that releases pin, as in bpfload.Source.
//
//go:embed layouts.json
var history []byte

// flowKey is flow_key, generated if absent. It is stored as long as the table, in a map
// that the programs do not use.
func (h *Agent) flowKey() (key [serverHashKeys]uint64, err error) {
	m, err := ebpf.NewMapWithOptions(&ebpf.MapSpec{
		Name: flowKeyPin, Type: ebpf.Array, KeySize: 4, ValueSize: uint32(binary.Size(key)), MaxEntries: 1, Pinning: ebpf.PinByName,
	}, ebpf.MapOptions{PinPath: h.dir.Path(layout)})
	if err != nil {
		return key, features.Refused(features.DSRAgent, "key of the flow table", err)
	}
	defer m.Close()
	if err := m.Lookup(uint32(0), &key); err != nil || key[0] != 0 {
		return key, err
	}
	if err := binary.Read(rand.Reader, binary.NativeEndian, &key); err != nil {
		return key, err
	}
	for i := range key {
		key[i] |= 1
	}
	return key, m.Put(uint32(0), key)
}

// flowKeyPin is that map's pin.
const flowKeyPin = "flow_key"

// serverHashKeys is HASH_KEYS.
const serverHashKeys = 10

// flowWays is FLOW_WAYS.
const flowWays = uint32(len(dsrServerFlowSet{}.Flow))

// flowSets is the number of sets in a table for this many flows.
func flowSets(flows uint32) uint32 { return max(1, (flows+flowWays-1)/flowWays) }

// release closes what is open. Pinned objects stay.
func (h *Agent) release() error {
	var errs []error
	if h.hook != nil {
		errs = append(errs, h.hook.Close())
	}
	if h.routes != nil {
		h.routes.close()
	}
	errs = append(errs, h.obj.Close())
	if h.dir != nil {
		errs = append(errs, h.dir.Close())
	}
	return errors.Join(errs...)
}

// rows returns the contents of local_vips.
func (h *Agent) rows() (rows, error) {
	return bpfmap.Read[dsrLocalVipKey, dsrLocalVip](h.obj.LocalVips)
}

// upsert writes a row.
func (h *Agent) upsert(key dsrLocalVipKey, row dsrLocalVip) error {
	if err := h.obj.LocalVips.Put(key, row); err != nil {
		return fmt.Errorf("write %s: %w", entryOf(key, row), err)
	}
	return nil
}

// delete removes a row. An absent one is not an error.
func (h *Agent) delete(key dsrLocalVipKey) error {
	if err := h.obj.LocalVips.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("delete an entry: %w", err)
	}
	return nil
}

// change updates the map to the wanted rows. Rows that are no longer wanted are marked as
// left: they keep serving until sweep removes them.
func (h *Agent) change(programmed, wanted rows) error {
	var errs []error
	for key, row := range wanted {
		if programmed[key] != row {
			errs = append(errs, h.upsert(key, row))
		}
	}
	for key, row := range programmed {
		if _, keep := wanted[key]; !keep && row.Left == 0 {
			row.Left = uint64(clock.Now())
			errs = append(errs, h.upsert(key, row))
		}
	}
	return errors.Join(append(errs, h.forgetRows())...)
}

// forgetRows invalidates the programs' row caches, which may be one packet late.
func (h *Agent) forgetRows() error {
	h.generation = max(1, h.generation+1)
	return h.obj.RowsGeneration.Set(h.generation)
}

// sweep deletes rows that left long ago, have not come back, and whose flows have been
// silent since.
func (h *Agent) sweep(programmed, wanted rows) error {
	before := uint64(max(0, clock.Now()-h.cfg.Linger))
	old := maps.Clone(programmed)
	maps.DeleteFunc(old, func(key dsrLocalVipKey, row dsrLocalVip) bool {
		_, back := wanted[key]
		return back || row.Left == 0 || row.Left > before
	})
	if len(old) == 0 {
		return nil
	}
	used := map[netip.AddrPort]bool{}
	err := h.scanFlows(func(f dataplane.Flow) bool {
		if f.Idle < h.cfg.Linger {
			used[f.Server] = true
			used[netip.AddrPortFrom(f.Server.Addr(), 0)] = true
		}
		return true
	})
	if err != nil {
		return err
	}
	var errs []error
	for key, row := range old {
		if !used[netip.AddrPortFrom(row.Deliver.netip(), netorder.Port(row.Port))] {
			errs = append(errs, h.delete(key))
		}
	}
	return errors.Join(append(errs, h.forgetRows())...)
}
