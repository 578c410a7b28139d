package xdpbench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane/xdp"
	"github.com/fairlead/fairlead/dataplane/xdp/device"
	"github.com/fairlead/fairlead/internal/netorder"
	"github.com/fairlead/fairlead/lab/cputime"
)

// packetsARun is PACKETS_A_RUN.
const packetsARun = 128

// xdpMD is struct xdp_md (linux/bpf.h), the program's context.
type xdpMD struct {
	Data, DataEnd, DataMeta, IngressIfindex, RxQueueIndex, EgressIfindex uint32
}

// rig is the harness of bpf/bench/harness.c around one program, with what it sends.
type Rig struct {
	harness *ebpf.Program
	bench   *ebpf.Map
	state   harnessBench
	nic     uint32
}

// graft returns the harness's instructions with under_test replaced by program.
func graft(harness, program asm.Instructions) (asm.Instructions, error) {
	const place = "under_test"
	begin := slices.IndexFunc(harness, func(i asm.Instruction) bool { return i.Symbol() == place })
	if begin < 0 {
		return nil, fmt.Errorf("the harness has no %s", place)
	}
	end := len(harness)
	if next := slices.IndexFunc(harness[begin+1:], func(i asm.Instruction) bool { return i.Symbol() != "" }); next >= 0 {
		end = begin + 1 + next
	}
	program = slices.Clone(program)
	program[0] = program[0].WithSymbol(place)
	return slices.Concat(harness[:begin], program, harness[end:]), nil
}

// newRig loads the harness around a program of spec.
func newRig(spec *ebpf.CollectionSpec, program *ebpf.ProgramSpec, opts ebpf.CollectionOptions, nic int) (r *Rig, err error) {
	harness := spec.Programs[harnessProgHarness]
	if harness.Instructions, err = graft(harness.Instructions, program.Instructions); err != nil {
		return nil, err
	}
	var out struct {
		Harness *ebpf.Program `ebpf:"harness"`
		Bench   *ebpf.Map     `ebpf:"bench"`
	}
	if err := spec.LoadAndAssign(&out, &opts); err != nil {
		return nil, fmt.Errorf("%s: %+v", program.Name, err)
	}
	return &Rig{harness: out.Harness, bench: out.Bench, nic: uint32(nic)}, nil
}

// BalancerRig returns a rig with the load balancer, on the maps that d has pinned. It
// answers XDP_TX, both here and on hardware.
func BalancerRig(d *xdp.DataPlane, nic int) (*Rig, error) {
	balancer, pins, err := d.Programs()
	if err != nil {
		return nil, err
	}
	return rigOf(balancer, pins, d.Settings(), nic)
}

// rigOf returns a rig with a load balancer's program, on the maps that are pinned in a
// folder, and those in shared.
func rigOf(balancer *ebpf.CollectionSpec, pins string, shared map[string]*ebpf.Map, nic int) (*Rig, error) {
	spec, err := harnessWith(balancer)
	if err != nil {
		return nil, err
	}
	device.PresetMAC(spec, uint32(nic), [6]byte(macBalancer))
	return newRig(spec, balancer.Programs["balancer"], ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: pins}, MapReplacements: shared}, nic)
}

// harnessWith returns the harness with everything that a load balancer's programs need.
func harnessWith(balancer *ebpf.CollectionSpec) (*ebpf.CollectionSpec, error) {
	spec, err := loadHarness()
	if err != nil {
		return nil, err
	}
	maps.Copy(spec.Maps, balancer.Maps)
	maps.Copy(spec.Variables, balancer.Variables)
	maps.Copy(spec.Programs, balancer.Programs)
	return spec, nil
}

// FloorRig returns a rig with a floor, by its name in harness.c. rings and slots are the
// number and the size of the tables of floor_bare_rings.
func FloorRig(name string, rings, slots, nic int) (*Rig, error) {
	spec, err := loadHarness()
	if err != nil {
		return nil, err
	}
	fillBare(spec)
	opts := ebpf.CollectionOptions{}
	if name == harnessProgFloorBareRings {
		m := spec.Maps[harnessMapBareRings]
		m.MaxEntries = uint32(rings * slots)
		if err := spec.Variables[harnessVarBareSlots].Set(uint32(slots)); err != nil {
			return nil, err
		}
		memory, err := ebpf.NewMap(m)
		if err != nil {
			return nil, fmt.Errorf("%s: memory for %d rings: %w", name, rings, err)
		}
		defer memory.Close()
		if err := fillRings(memory); err != nil {
			return nil, err
		}
		opts.MapReplacements = map[string]*ebpf.Map{harnessMapBareRings: memory}
	}
	return newRig(spec, spec.Programs[name], opts, nic)
}

// bareServers is the number of backends of the bare load balancers.
const bareServers = 100

// fillBare sets the VIPs and backends of the bare load balancers.
func fillBare(spec *ebpf.CollectionSpec) {
	word := func(host uint32) uint32 {
		return binary.NativeEndian.Uint32(binary.BigEndian.AppendUint32(nil, host))
	}
	put := func(name string, key, value any) {
		spec.Maps[name].Contents = append(spec.Maps[name].Contents, ebpf.MapKV{Key: key, Value: value})
	}
	for i := range uint32(manyVIPs) {
		put(harnessMapBareVips, harnessBareVip{Addr: word(firstVIP + i), Port: netorder.Port(80), Proto: 6}, i)
	}
	for i := range uint32(65537) {
		put(harnessMapBareRing, i, harnessBareSlot{Owners: [4]uint32{i % 4, (i + 1) % 4, (i + 2) % 4, (i + 3) % 4}})
	}
	for i := range uint32(bareServers) {
		put(harnessMapBareServers, i, word(firstBackend+i))
	}
}

// fillRings assigns a backend to every slot.
func fillRings(m *ebpf.Map) error {
	memory, err := unix.Mmap(m.FD(), 0, int(m.MaxEntries())*8, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map the bare rings into memory: %w", err)
	}
	slots := unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(memory))), m.MaxEntries())
	for i := range slots {
		slots[i] = uint64(i % bareServers)
	}
	return unix.Munmap(memory)
}

func (r *Rig) Close() error { return errors.Join(r.harness.Close(), r.bench.Close()) }

// Run sends packets and returns the CPU time per packet in nanoseconds, including the
// harness's own work. It must run on a pinned thread in the load balancer's namespace.
func (r *Rig) Run(packets int) (perPacket float64, err error) {
	if err := r.bench.Put(uint32(0), &r.state); err != nil {
		return 0, err
	}
	before := r.state.Turn
	frame := make([]byte, len(r.state.Frame)*8)
	opts := ebpf.RunOptions{
		Data: frame, Repeat: uint32(max(1, packets/packetsARun)),
		Context: xdpMD{DataEnd: uint32(len(frame)), IngressIfindex: r.nic},
	}
	began := cputime.Thread()
	if _, err := r.harness.Run(&opts); err != nil {
		return 0, err
	}
	used := cputime.Thread() - began
	if err := r.bench.Lookup(uint32(0), &r.state); err != nil {
		return 0, err
	}
	// Divide by the harness's own count, because a run interrupted by a signal is started
	// again.
	return float64(used.Nanoseconds()) / float64(r.state.Turn-before), nil
}

// pinned returns the maps of a spec that are pinned in a folder, and adapts the spec to
// their sizes.
func pinned(spec *ebpf.CollectionSpec, folder string) (map[string]*ebpf.Map, error) {
	found := map[string]*ebpf.Map{}
	for name, s := range spec.Maps {
		if strings.HasPrefix(name, ".") {
			continue // internal to a program, and not a valid name for a pin
		}
		m, err := ebpf.LoadPinnedMap(filepath.Join(folder, name), nil)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("pinned map %s: %w", name, err)
		}
		s.MaxEntries = m.MaxEntries()
		found[name] = m
	}
	return found, nil
}
