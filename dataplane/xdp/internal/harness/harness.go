// Package harness measures an XDP program as bpf/bench/harness.c does: every
// packet is written anew and is of the flow whose turn it is, the program is
// grafted into the loop, and what counts is the thread's own processor time.
// It knows no program of Fairlead's.
package harness

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// State is what the harness is told, and what it counts (struct bench).
type State = harnessBench

// The harness's own programs that can be measured: what no balancer can be
// cheaper than.
const (
	FloorTX    = harnessProgFloorTx
	FloorParse = harnessProgFloorParse
)

// packetsARun is PACKETS_A_RUN.
const packetsARun = 128

// Rig is the harness around one program.
type Rig struct {
	harness *ebpf.Program
	bench   *ebpf.Map
}

// md is struct xdp_md (linux/bpf.h), a program's context.
type md struct {
	Data, DataEnd, DataMeta, IngressIfindex, RxQueueIndex, EgressIfindex uint32
}

// Floor gives a rig around one of the harness's own programs.
func Floor(name string) (*Rig, error) {
	spec, err := loadHarness()
	if err != nil {
		return nil, err
	}
	return newRig(spec, spec.Programs[name], ebpf.CollectionOptions{})
}

// New gives a rig around a program of another object, on that object's maps,
// those that are pinned among them.
func New(of *ebpf.CollectionSpec, name, pins string) (*Rig, error) {
	spec, err := loadHarness()
	if err != nil {
		return nil, err
	}
	for name, m := range of.Maps {
		spec.Maps[name] = m
	}
	return newRig(spec, of.Programs[name], ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: pins}})
}

func newRig(spec *ebpf.CollectionSpec, under *ebpf.ProgramSpec, opts ebpf.CollectionOptions) (*Rig, error) {
	if under == nil {
		return nil, errors.New("harness: there is no such program")
	}
	loop := spec.Programs[harnessProgHarness]
	var err error
	if loop.Instructions, err = graft(loop.Instructions, under.Instructions); err != nil {
		return nil, err
	}
	var out struct {
		Harness *ebpf.Program `ebpf:"harness"`
		Bench   *ebpf.Map     `ebpf:"bench"`
	}
	if err := spec.LoadAndAssign(&out, &opts); err != nil {
		return nil, fmt.Errorf("harness: %s: %w", under.Name, err)
	}
	return &Rig{out.Harness, out.Bench}, nil
}

// graft gives the harness's instructions with others in place of under_test.
func graft(harness, program asm.Instructions) (asm.Instructions, error) {
	const place = "under_test"
	begin := slices.IndexFunc(harness, func(i asm.Instruction) bool { return i.Symbol() == place })
	if begin < 0 {
		return nil, fmt.Errorf("harness: it has no %s", place)
	}
	end := len(harness)
	if next := slices.IndexFunc(harness[begin+1:], func(i asm.Instruction) bool { return i.Symbol() != "" }); next >= 0 {
		end = begin + 1 + next
	}
	program = slices.Clone(program)
	program[0] = program[0].WithSymbol(place)
	return slices.Concat(harness[:begin], program, harness[end:]), nil
}

// Close unloads the rig.
func (r *Rig) Close() error { return errors.Join(r.harness.Close(), r.bench.Close()) }

// Run sends so many packets, as if they came in by nic, and gives the
// nanoseconds of processor time that each took this thread, the harness's own
// work among it. It works in the network namespace of the calling thread.
func (r *Rig) Run(state *State, nic uint32, packets uint64) (perPacket float64, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	unpin, err := Pin()
	if err != nil {
		return 0, err
	}
	defer unpin()
	if err := r.bench.Put(uint32(0), state); err != nil {
		return 0, err
	}
	before := state.Turn
	frame := make([]byte, len(state.Frame)*8)
	opts := ebpf.RunOptions{
		Data: frame, Repeat: uint32(max(1, packets/packetsARun)), Context: md{DataEnd: uint32(len(frame)), IngressIfindex: nic},
	}
	began, err := ThreadTime()
	if err != nil {
		return 0, err
	}
	if _, err := r.harness.Run(&opts); err != nil {
		return 0, err
	}
	ended, err := ThreadTime()
	if err != nil {
		return 0, err
	}
	if err := r.bench.Lookup(uint32(0), state); err != nil {
		return 0, err
	}
	// Its own count: a run that a signal breaks off is begun anew.
	return float64((ended - began).Nanoseconds()) / float64(state.Turn-before), nil
}

// Pin keeps the calling thread on one CPU: the last that it may run on, as
// interrupts like the first.
func Pin() (undo func(), err error) {
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return nil, err
	}
	for cpu := range 1024 {
		if before.IsSet(cpu) {
			one.Zero()
			one.Set(cpu)
		}
	}
	return func() { _ = unix.SchedSetaffinity(0, &before) }, unix.SchedSetaffinity(0, &one)
}

// ThreadTime is the processor time that the calling thread has taken.
func ThreadTime() (time.Duration, error) {
	var ts unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts)
	return time.Duration(ts.Nano()), err
}
