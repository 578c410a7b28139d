package packetfuzz

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// Names of the maps that Instrument adds to an object.
const (
	controlMap  = "fuzz_control"
	coverageMap = "fuzz_coverage"
)

// Control is what an instrumented program reads in place of the kernel's clocks
// and its random numbers, and where it writes what it asks of the kernel that a
// test run does not show. Its layout is controlMap's.
type Control struct {
	Nanoseconds uint64 // of CLOCK_MONOTONIC, coarse and fine alike
	Jiffies     uint64
	Random      uint32 // state; each call of bpf_get_prandom_u32 takes NextRandom
	// Redirect is the helper that the program redirected the frame by last, 0 for
	// none, and what follows its arguments.
	Redirect  uint32
	Ifindex   uint32
	Family    uint32 // of the next hop that bpf_redirect_neigh was given, or 0
	Flags     uint64
	Neighbour [16]byte // that next hop
	// TCIndex is skb->tc_index before and after a program, where that is asked for: a
	// test run can neither set nor show it.
	TCIndex uint32
}

// The helpers that redirect, as Control.Redirect has them.
const (
	Redirect          = uint32(asm.FnRedirect)
	RedirectMap       = uint32(asm.FnRedirectMap)
	RedirectNeighbour = uint32(asm.FnRedirectNeigh)
)

// NextRandom gives the number that a program gets that calls for one while the
// state is r, and is the state after that: a linear congruential generator
// (Numerical Recipes), whose model is this one line.
func NextRandom(r uint32) uint32 { return r*1664525 + 1013904223 }

// Instrument rewrites all programs of an object so that they take time and chance
// from a Control and note which basic blocks have run. Everything else stays as
// it was compiled; the verifier sees the same helpers but for those of time and
// chance, which become loads of values that it does not know either.
//
// It gives the blocks that are counted, in the order of the coverage's bytes, and
// how many are not, because they leave no register free. tcIndex has programs begin with
// the tc_index of their Control and leave theirs there.
func Instrument(spec *ebpf.CollectionSpec, tcIndex bool) (blocks []Block, skipped int, err error) {
	names := make([]string, 0, len(spec.Programs))
	for name := range spec.Programs {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		p := spec.Programs[name]
		r := rewriter{in: p.Instructions, prefix: name, blocks: blocks, tcIndex: tcIndex}
		if p.Instructions, err = r.rewrite(); err != nil {
			return nil, 0, fmt.Errorf("instrument %s: %w", name, err)
		}
		blocks, skipped = r.blocks, skipped+r.skipped
	}
	array := func(name string, bytes int) {
		spec.Maps[name] = &ebpf.MapSpec{
			Name: name, Type: ebpf.Array, KeySize: 4, ValueSize: uint32(bytes), MaxEntries: 1, Flags: mmapable,
		}
	}
	array(controlMap, int(unsafe.Sizeof(Control{})))
	array(coverageMap, (len(blocks)+7)&^7+8)
	return blocks, skipped, nil
}

// Block is a basic block of a program.
type Block struct {
	Program, Function string
	// Source is the line of C that it begins with, as the compiler has it.
	Source string
}

const mmapable = 1 << 10 // BPF_F_MMAPABLE

// rewriter rewrites one program with all its functions.
type rewriter struct {
	in      asm.Instructions
	prefix  string
	out     asm.Instructions
	targets map[int]bool // instructions that are jumped to
	live    []regs
	blocks  []Block // the coverage's bytes
	skipped int
	tcIndex bool
	slot    int16 // below what the program's own function has on its stack

	function, source string // where it is
	functions        int
}

func (r *rewriter) label(i int) string { return fmt.Sprintf("%s@%d", r.prefix, i) }

func (r *rewriter) rewrite() (asm.Instructions, error) {
	jumps, err := jumpTargets(r.in)
	if err != nil {
		return nil, err
	}
	r.targets = map[int]bool{}
	for _, to := range jumps {
		r.targets[to] = true
	}
	r.live = liveness(r.in, jumps)
	r.slot = below(r.in)
	for i, ins := range r.in {
		if to, jumps := jumps[i]; jumps {
			ins = ins.WithReference(r.label(to))
			ins.Offset = -1
		}
		r.one(i, ins)
	}
	return r.out, nil
}

// one writes an instruction, behind what counts its block if it begins one. A
// function's first instruction stays first: it carries what BTF says of it.
func (r *rewriter) one(i int, ins asm.Instruction) {
	function := ins.Symbol() != ""
	if function {
		r.function = ins.Symbol()
		r.functions++
	}
	if line, ok := ins.Source().(*btf.Line); ok {
		r.source = fmt.Sprintf("%s:%d", line.FileName(), line.LineNumber())
	}
	first := len(r.out)
	if !function && (r.targets[i] || r.begins(i)) {
		r.count(i)
	}
	if ins.IsBuiltinCall() {
		r.noteRedirect(i, &ins)
	}
	if r.tcIndex && i == 0 {
		ins = r.takeTCIndex(ins)
	}
	if r.tcIndex && r.functions == 1 && isExit(ins) {
		r.leaveTCIndex()
	}
	r.out = append(r.out, replaced(ins)...)
	switch {
	case r.targets[i] && function:
		panic("a jump to the beginning of " + ins.Symbol())
	case r.targets[i]:
		r.out[first] = r.out[first].WithSymbol(r.label(i))
	}
}

// begins says that a block starts here by falling through: behind a jump, and as
// a function's second instruction, for its first.
func (r *rewriter) begins(i int) bool {
	before := r.in[i-1]
	return isJump(before) && before.OpCode.JumpOp() != asm.Ja || before.Symbol() != ""
}

// count writes to the coverage, by a register that nobody needs here.
func (r *rewriter) count(i int) {
	for reg := asm.R0; reg <= asm.R9; reg++ {
		if r.live[i].has(reg) {
			continue
		}
		r.out = append(r.out,
			asm.LoadMapValue(reg, 0, uint32(len(r.blocks))).WithReference(coverageMap),
			asm.StoreImm(reg, 0, 1, asm.Byte))
		r.blocks = append(r.blocks, Block{r.prefix, r.function, r.source})
		return
	}
	r.skipped++
}

var tcIndexAt = int16(unsafe.Offsetof(Control{}.TCIndex))

const skbTCIndex = 44 // in struct __sk_buff

// takeTCIndex begins a program with the tc_index of its Control, and keeps its context for
// when it ends. What comes first carries what BTF says of the program.
func (r *rewriter) takeTCIndex(ins asm.Instruction) asm.Instruction {
	first := asm.LoadMapValue(asm.R2, 0, 0)
	first.Metadata = ins.Metadata
	r.out = append(r.out, first.WithReference(controlMap),
		asm.LoadMem(asm.R2, asm.R2, tcIndexAt, asm.Word),
		asm.StoreMem(asm.R1, skbTCIndex, asm.R2, asm.Word),
		asm.StoreMem(asm.R10, r.slot, asm.R1, asm.DWord))
	source := ins.Source()
	ins.Metadata = asm.Metadata{}
	return ins.WithSource(source)
}

// leaveTCIndex writes it before the program ends: then all registers but its verdict are
// free.
func (r *rewriter) leaveTCIndex() {
	r.out = append(r.out,
		asm.LoadMem(asm.R1, asm.R10, r.slot, asm.DWord),
		asm.LoadMem(asm.R1, asm.R1, skbTCIndex, asm.Word),
		asm.LoadMapValue(asm.R2, 0, 0).WithReference(controlMap),
		asm.StoreMem(asm.R2, tcIndexAt, asm.R1, asm.Word))
}

func isExit(ins asm.Instruction) bool {
	return ins.OpCode.Class().IsJump() && ins.OpCode.JumpOp() == asm.Exit
}

// below gives a place on the stack that a program's own function does not use.
func below(in asm.Instructions) int16 {
	lowest := int64(0)
	for i, ins := range in {
		if i > 0 && ins.Symbol() != "" {
			break
		}
		switch class := ins.OpCode.Class(); {
		case class.IsALU() && ins.OpCode.ALUOp() == asm.Add && ins.OpCode.Source() == asm.ImmSource && ins.Constant > -512:
			lowest = min(lowest, ins.Constant) // of a pointer to the stack, perhaps
		case !class.IsALU() && (ins.Src == asm.R10 || ins.Dst == asm.R10):
			lowest = min(lowest, int64(ins.Offset))
		}
	}
	return int16(lowest-8) &^ 7
}

// noteRedirect writes the arguments of a helper that redirects to Control. Before a
// call register 0 is free, and register 5 where the helper does not take as many.
func (r *rewriter) noteRedirect(i int, ins *asm.Instruction) {
	to := func(field uintptr) int16 { return int16(field) }
	var c Control
	begin := func(ifindex, flags asm.Register) {
		r.out = append(r.out,
			asm.LoadMapValue(asm.R0, 0, 0).WithReference(controlMap),
			asm.StoreImm(asm.R0, to(unsafe.Offsetof(c.Redirect)), ins.Constant, asm.Word),
			asm.StoreMem(asm.R0, to(unsafe.Offsetof(c.Ifindex)), ifindex, asm.Word),
			asm.StoreMem(asm.R0, to(unsafe.Offsetof(c.Flags)), flags, asm.DWord))
	}
	switch asm.BuiltinFunc(ins.Constant) {
	case asm.FnRedirect:
		begin(asm.R1, asm.R2)
	case asm.FnRedirectMap:
		begin(asm.R2, asm.R3)
	case asm.FnRedirectNeigh:
		begin(asm.R1, asm.R4)
		after := r.label(i) + ".call"
		family := to(unsafe.Offsetof(c.Family))
		r.out = append(r.out, asm.StoreImm(asm.R0, family, 0, asm.Word), asm.JEq.Imm(asm.R2, 0, after))
		r.out = append(r.out, asm.LoadMem(asm.R5, asm.R2, 0, asm.Word), asm.StoreMem(asm.R0, family, asm.R5, asm.Word))
		for word := int16(0); word < 16; word += 4 {
			r.out = append(r.out, asm.LoadMem(asm.R5, asm.R2, 4+word, asm.Word),
				asm.StoreMem(asm.R0, to(unsafe.Offsetof(c.Neighbour))+word, asm.R5, asm.Word))
		}
		*ins = ins.WithSymbol(after)
	}
}

// replaced gives what stands for an instruction: for the helpers of time and chance
// loads from Control. Registers 1 to 5 are free: a call leaves nothing in them.
func replaced(ins asm.Instruction) asm.Instructions {
	var offset uint32
	if !ins.IsBuiltinCall() {
		return asm.Instructions{ins}
	}
	switch asm.BuiltinFunc(ins.Constant) {
	case asm.FnKtimeGetNs, asm.FnKtimeGetCoarseNs:
	case asm.FnJiffies64:
		offset = 8
	case asm.FnGetPrandomU32:
		return asm.Instructions{
			asm.LoadMapValue(asm.R1, 0, 16).WithReference(controlMap).WithSource(ins.Source()),
			asm.LoadMem(asm.R0, asm.R1, 0, asm.Word),
			asm.Mul.Imm32(asm.R0, 1664525),
			asm.Add.Imm32(asm.R0, 1013904223),
			asm.StoreMem(asm.R1, 0, asm.R0, asm.Word),
		}
	default:
		return asm.Instructions{ins}
	}
	return asm.Instructions{
		asm.LoadMapValue(asm.R0, 0, offset).WithReference(controlMap).WithSource(ins.Source()),
		asm.LoadMem(asm.R0, asm.R0, 0, asm.DWord),
	}
}
