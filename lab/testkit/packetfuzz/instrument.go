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

// Control is what an instrumented program reads instead of the kernel's clocks and random
// numbers, and where it writes the calls that a test run does not show. Its layout is
// controlMap's.
type Control struct {
	Nanoseconds uint64 // CLOCK_MONOTONIC, both coarse and fine
	Jiffies     uint64
	Random      uint32 // state; each call of bpf_get_prandom_u32 takes NextRandom
	// Redirect is the last helper with which the program redirected the frame, 0 for
	// none; its arguments follow.
	Redirect uint32
	Ifindex  uint32
	Family   uint32 // family of the next hop passed to bpf_redirect_neigh, or 0
	Flags    uint64
	Neighbor [16]byte // that next hop
	// TCIndex is skb->tc_index before and after a program, if requested: a test run can
	// neither set nor show it.
	TCIndex uint32
}

// The redirect helpers, as in Control.Redirect.
const (
	Redirect         = uint32(asm.FnRedirect)
	RedirectMap      = uint32(asm.FnRedirectMap)
	RedirectNeighbor = uint32(asm.FnRedirectNeigh)
)

// NextRandom returns the number that a program gets in state r, which is also the next
// state: a linear congruential generator (Numerical Recipes), so that its model is this
// one line.
func NextRandom(r uint32) uint32 { return r*1664525 + 1013904223 }

// Instrument rewrites all programs of an object so that they take time and random numbers
// from a Control and record which basic blocks have run. Everything else stays as
// compiled. The verifier sees the same helpers except those for time and random numbers,
// which become loads of values that are also unknown to it.
//
// It returns the counted blocks, in the order of the coverage's bytes, and how many are
// not counted because they leave no register free. With tcIndex, programs start with the
// tc_index of their Control and store theirs there.
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
	// Source is the line of C at its beginning, from the compiler.
	Source string
}

const mmapable = 1 << 10 // BPF_F_MMAPABLE

// rewriter rewrites one program with all its functions.
type rewriter struct {
	in      asm.Instructions
	prefix  string
	out     asm.Instructions
	targets map[int]bool // jump targets
	live    []regs
	blocks  []Block // one for each byte of the coverage
	skipped int
	tcIndex bool
	slot    int16 // below the stack of the program's main function

	function, source string // the current position
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

// one writes an instruction, after the code that counts its block if it begins one. A
// function's first instruction stays first: it carries the function's BTF.
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

// begins reports whether a block starts here by fall-through: after a jump, and at a
// function's second instruction, for the first one.
func (r *rewriter) begins(i int) bool {
	before := r.in[i-1]
	return isJump(before) && before.OpCode.JumpOp() != asm.Ja || before.Symbol() != ""
}

// count writes to the coverage, with a register that is not live here.
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

// takeTCIndex makes a program start with the tc_index of its Control, and saves its
// context for its end. The first instruction carries the program's BTF.
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

// leaveTCIndex stores it before the program ends, when all registers except the verdict
// are free.
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

// below returns a stack offset that a program's main function does not use.
func below(in asm.Instructions) int16 {
	lowest := int64(0)
	for i, ins := range in {
		if i > 0 && ins.Symbol() != "" {
			break
		}
		switch class := ins.OpCode.Class(); {
		case class.IsALU() && ins.OpCode.ALUOp() == asm.Add && ins.OpCode.Source() == asm.ImmSource && ins.Constant > -512:
			lowest = min(lowest, ins.Constant) // possibly of a pointer to the stack
		case !class.IsALU() && (ins.Src == asm.R10 || ins.Dst == asm.R10):
			lowest = min(lowest, int64(ins.Offset))
		}
	}
	return int16(lowest-8) &^ 7
}

// noteRedirect writes the arguments of a redirect helper to Control. Before a call
// register 0 is free, and so is register 5 if the helper has fewer arguments.
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
				asm.StoreMem(asm.R0, to(unsafe.Offsetof(c.Neighbor))+word, asm.R5, asm.Word))
		}
		*ins = ins.WithSymbol(after)
	}
}

// replaced returns the replacement of an instruction: loads from Control for time and
// random helpers. Registers 1 to 5 are free, because a call clobbers them.
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
