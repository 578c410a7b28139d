package xdp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane/internal/netorder"
)

// packetsARun is PACKETS_A_RUN.
const packetsARun = 128

// rig is the harness of bpf/bench/harness.c around one program.
type rig struct {
	harness *ebpf.Program
	bench   *ebpf.Map
}

// graft gives the harness's instructions with others in place of under_test.
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

// newRig loads the harness around a program: a floor by its name, or the
// balancer on the maps that d has pinned, as on hardware (it returns XDP_TX).
func newRig(d *DataPlane, program string) (*rig, error) {
	spec, err := loadHarness()
	if err != nil {
		return nil, err
	}
	under := spec.Programs[program]
	opts := ebpf.CollectionOptions{}
	if under == nil {
		balancer, err := d.config.spec()
		if err != nil {
			return nil, err
		}
		under = balancer.Programs[program]
		for name, m := range balancer.Maps {
			spec.Maps[name] = m
		}
		for name, v := range balancer.Variables {
			spec.Variables[name] = v
		}
		opts.Maps.PinPath = d.pins.Path("")
	}
	harness := spec.Programs[harnessProgHarness]
	if harness.Instructions, err = graft(harness.Instructions, under.Instructions); err != nil {
		return nil, err
	}
	var out struct {
		Harness *ebpf.Program `ebpf:"harness"`
		Bench   *ebpf.Map     `ebpf:"bench"`
	}
	if strings.HasPrefix(program, "floor_bare") {
		fillBare(spec)
	}
	if err := spec.LoadAndAssign(&out, &opts); err != nil {
		return nil, fmt.Errorf("%s: %+v", program, err)
	}
	return &rig{out.Harness, out.Bench}, nil
}

// fillBare gives the bare balancers their VIPs and servers.
func fillBare(spec *ebpf.CollectionSpec) {
	word := func(host uint32) uint32 {
		return binary.NativeEndian.Uint32(binary.BigEndian.AppendUint32(nil, host))
	}
	for i := range uint32(1024) {
		key := harnessBareVip{Addr: word(firstVIP + i), Port: netorder.Port(80), Proto: 6}
		spec.Maps[harnessMapBareVips].Contents = append(spec.Maps[harnessMapBareVips].Contents, ebpf.MapKV{Key: key, Value: i})
	}
	for i := range uint32(65537) {
		slot := harnessBareSlot{Owners: [4]uint32{i % 4, (i + 1) % 4, (i + 2) % 4, (i + 3) % 4}}
		spec.Maps[harnessMapBareRing].Contents = append(spec.Maps[harnessMapBareRing].Contents, ebpf.MapKV{Key: i, Value: slot})
	}
	for i := range uint32(4) {
		server := ebpf.MapKV{Key: i, Value: word(0xac100801 + i)}
		spec.Maps[harnessMapBareServers].Contents = append(spec.Maps[harnessMapBareServers].Contents, server)
	}
}

func (r *rig) Close() error { return errors.Join(r.harness.Close(), r.bench.Close()) }

// run sends so many packets and gives the nanoseconds of CPU time that each
// took this thread, the harness's own work among it. It works in the network
// namespace of the calling thread.
func (r *rig) run(state *harnessBench, nic uint32, packets uint32) (perPacket float64, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	unpin, err := pin()
	if err != nil {
		return 0, err
	}
	defer unpin()
	if err := r.bench.Put(uint32(0), state); err != nil {
		return 0, err
	}
	before := state.Turn
	frame := make([]byte, len(state.Frame)*8)
	opts := ebpf.RunOptions{Data: frame, Repeat: max(1, packets/packetsARun), Context: xdpMD{DataEnd: uint32(len(frame)), IngressIfindex: nic}}
	began, err := threadTime()
	if err != nil {
		return 0, err
	}
	if _, err := r.harness.Run(&opts); err != nil {
		return 0, err
	}
	ended, err := threadTime()
	if err != nil {
		return 0, err
	}
	if err := r.bench.Lookup(uint32(0), state); err != nil {
		return 0, err
	}
	// Its own count: a run that a signal breaks off is begun anew.
	return float64((ended - began).Nanoseconds()) / float64(state.Turn-before), nil
}

// pin keeps the thread on the CPU where it is.
func pin() (undo func(), err error) {
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return nil, err
	}
	for cpu := range 1024 {
		if before.IsSet(cpu) {
			one.Zero()
			one.Set(cpu) // the last one: interrupts like the first
		}
	}
	return func() { unix.SchedSetaffinity(0, &before) }, unix.SchedSetaffinity(0, &one)
}

func threadTime() (time.Duration, error) {
	var ts unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts)
	return time.Duration(ts.Nano()), err
}
