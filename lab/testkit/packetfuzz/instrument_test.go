package packetfuzz

import (
	"encoding/binary"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/fairlead/fairlead/lab/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// loadOne instruments and loads an XDP program.
func loadOne(t *testing.T, code asm.Instructions) (*ebpf.Program, *Control, []byte, []Block) {
	t.Helper()
	spec := &ebpf.CollectionSpec{
		Maps:     map[string]*ebpf.MapSpec{},
		Programs: map[string]*ebpf.ProgramSpec{"p": {Name: "p", Type: ebpf.XDP, Instructions: code, License: "GPL"}},
	}
	blocks, _, err := Instrument(spec, false)
	if err != nil {
		t.Fatal(err)
	}
	c, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	control, err := Memory(c.Maps[controlMap])
	if err != nil {
		t.Fatal(err)
	}
	coverage, err := Memory(c.Maps[coverageMap])
	if err != nil {
		t.Fatal(err)
	}
	return c.Programs["p"], (*Control)(unsafe.Pointer(&control[0])), coverage, blocks
}

// A program takes time and random numbers from its Control, and otherwise behaves as
// before; exactly the blocks that have run are recorded.
func TestInstrument(t *testing.T) {
	late := asm.JGT.Imm(asm.R0, 5, "")
	late.Offset = 2
	p, control, coverage, blocks := loadOne(t, asm.Instructions{
		asm.FnKtimeGetNs.Call().WithSymbol("p"),
		asm.Mov.Reg(asm.R6, asm.R0),
		asm.FnGetPrandomU32.Call(),
		asm.Add.Reg(asm.R0, asm.R6),
		asm.Mov.Reg(asm.R7, asm.R0),
		asm.FnJiffies64.Call(),
		late,
		asm.Mov.Imm(asm.R0, 1),
		asm.Return(),
		asm.Mov.Reg(asm.R0, asm.R7),
		asm.Return(),
	})
	var r Runner
	run := func() int32 {
		verdict, _, err := r.Run(p.FD(), make([]byte, 64), nil)
		if err != nil {
			t.Fatal(err)
		}
		return verdict
	}
	control.Nanoseconds, control.Random, control.Jiffies = 1000, 42, 5
	if got := run(); got != 1 {
		t.Errorf("early: %d", got)
	}
	early := noted(coverage)
	if control.Random != NextRandom(42) {
		t.Errorf("the next random number is %d", control.Random)
	}
	clear(coverage)
	control.Jiffies = 6
	if got, want := run(), int32(uint32(1000)+NextRandom(NextRandom(42))); got != want {
		t.Errorf("late: %d, want %d", got, want)
	}
	if then := noted(coverage); early == then || early == 0 || then == 0 || len(blocks) < 3 {
		t.Errorf("blocks %b and %b of %d", early, then, len(blocks))
	}
}

// noted returns the blocks that have run, as bits.
func noted(coverage []byte) (bits uint64) {
	for i, b := range coverage {
		if b != 0 {
			bits |= 1 << i
		}
	}
	return bits
}

// A tc program starts with a tc_index and stores one, whatever is on its stack.
func TestTCIndex(t *testing.T) {
	stamped := asm.JEq.Imm(asm.R2, 7, "")
	stamped.Offset = 4
	spec := &ebpf.CollectionSpec{Maps: map[string]*ebpf.MapSpec{}, Programs: map[string]*ebpf.ProgramSpec{"p": {
		Name: "p", Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
			asm.Mov.Imm(asm.R3, 3).WithSymbol("p"),
			asm.StoreMem(asm.R10, -8, asm.R3, asm.DWord),
			asm.LoadMem(asm.R2, asm.R1, skbTCIndex, asm.Word),
			stamped,
			asm.Mov.Imm(asm.R3, 9),
			asm.StoreMem(asm.R1, skbTCIndex, asm.R3, asm.Word),
			asm.LoadMem(asm.R0, asm.R10, -8, asm.DWord),
			asm.Return(),
			asm.Mov.Imm(asm.R0, 1),
			asm.Return(),
		},
	}}}
	if _, _, err := Instrument(spec, true); err != nil {
		t.Fatal(err)
	}
	c, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	memory, err := Memory(c.Maps[controlMap])
	if err != nil {
		t.Fatal(err)
	}
	control := (*Control)(unsafe.Pointer(&memory[0]))
	var r Runner
	for before, want := range map[uint32][2]uint32{7: {1, 7}, 8: {3, 9}} {
		control.TCIndex = before
		verdict, _, err := r.Run(c.Programs["p"].FD(), make([]byte, 64), SKBContext(1, 0))
		if err != nil || uint32(verdict) != want[0] || control.TCIndex != want[1] {
			t.Errorf("of %d: verdict %d, tc_index %d, %v, want %v", before, verdict, control.TCIndex, err, want)
		}
	}
}

// The calls of a program that a test run does not show are recorded.
func TestRedirectIsNoted(t *testing.T) {
	p, control, _, _ := loadOne(t, asm.Instructions{
		asm.Mov.Imm(asm.R1, 1).WithSymbol("p"),
		asm.Mov.Imm(asm.R2, 0),
		asm.FnRedirect.Call(),
		asm.Return(),
	})
	var r Runner
	if _, _, err := r.Run(p.FD(), make([]byte, 64), nil); err != nil {
		t.Fatal(err)
	}
	if control.Redirect != Redirect || control.Ifindex != 1 {
		t.Errorf("%+v", *control)
	}
}

// The kernel's routes in a namespace that has only the loopback device.
func TestRoutes(t *testing.T) {
	r, err := NewRoutes()
	if err != nil {
		t.Fatal(err)
	}
	to := [16]byte{10: 0xff, 11: 0xff, 12: 192, 13: 0, 14: 2, 15: 1}
	if way := r.To(1, false, to); way.Answer == RouteFound {
		t.Errorf("a way to nowhere: %+v", way)
	}
}

func TestCanRun(t *testing.T) {
	frame := make([]byte, 14+40)
	for kind, least := range map[uint16]int{0x0800: 34, 0x86dd: 54, 0x0806: 15} {
		binary.BigEndian.PutUint16(frame[12:], kind)
		if CanRun(frame[:least-1]) || !CanRun(frame[:least]) {
			t.Errorf("type %#x: %d bytes are the least", kind, least)
		}
	}
}
