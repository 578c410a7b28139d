package packetfuzz

import (
	"fmt"

	"github.com/cilium/ebpf/asm"
)

// regs is a set of registers.
type regs uint16

func (s regs) has(r asm.Register) bool { return s>>r&1 != 0 }

func of(all ...asm.Register) (s regs) {
	for _, r := range all {
		s |= 1 << r
	}
	return s
}

// isJump reports whether execution may continue elsewhere in the function after an
// instruction.
func isJump(ins asm.Instruction) bool {
	if !ins.OpCode.Class().IsJump() {
		return false
	}
	op := ins.OpCode.JumpOp()
	return op != asm.Call && op != asm.Exit
}

// jumpTargets returns the target of each jump, by instruction number.
func jumpTargets(in asm.Instructions) (map[int]int, error) {
	at := map[asm.RawInstructionOffset]int{}
	for it := in.Iterate(); it.Next(); {
		at[it.Offset] = it.Index
	}
	jumps := map[int]int{}
	for it := in.Iterate(); it.Next(); {
		if !isJump(*it.Ins) {
			continue
		}
		if it.Ins.Reference() != "" || it.Ins.OpCode.Class() == asm.Jump32Class && it.Ins.OpCode.JumpOp() == asm.Ja {
			return nil, fmt.Errorf("instruction %d: %v is a jump that clang -mcpu=v3 does not generate", it.Index, it.Ins)
		}
		to, ok := at[it.Offset+1+asm.RawInstructionOffset(int64(it.Ins.Offset))]
		if !ok {
			return nil, fmt.Errorf("instruction %d: %v jumps to no instruction", it.Index, it.Ins)
		}
		jumps[it.Index] = to
	}
	return jumps, nil
}

// liveness returns the registers whose values may be read from each instruction on.
// Helpers and functions count as readers of all five argument registers, whatever they
// have.
func liveness(in asm.Instructions, jumps map[int]int) []regs {
	live := make([]regs, len(in)+1)
	for changed := true; changed; {
		changed = false
		for i := len(in) - 1; i >= 0; i-- {
			var after regs
			op := in[i].OpCode
			isExit := op.Class().IsJump() && op.JumpOp() == asm.Exit
			isAlways := op.Class().IsJump() && op.JumpOp() == asm.Ja
			if !isExit && !isAlways && i+1 < len(in) && in[i+1].Symbol() == "" {
				after = live[i+1]
			}
			if to, ok := jumps[i]; ok {
				after |= live[to]
			}
			reads, writes := uses(in[i])
			if now := after&^writes | reads; now != live[i] {
				live[i], changed = now, true
			}
		}
	}
	return live[:len(in)]
}

// uses returns what an instruction reads and what it definitely writes.
func uses(ins asm.Instruction) (reads, writes regs) {
	op := ins.OpCode
	switch class := op.Class(); {
	case class.IsLoad():
		if ins.IsConstantLoad(asm.DWord) || op.IsDWordLoad() {
			return 0, of(ins.Dst)
		}
		return of(ins.Src), of(ins.Dst)
	case class == asm.StClass:
		return of(ins.Dst), 0
	case class == asm.StXClass:
		reads = of(ins.Dst, ins.Src)
		if op.Mode() == asm.AtomicMode {
			return reads | of(asm.R0), 0 // compare-and-exchange reads and writes it; treating it as read is safe
		}
		return reads, 0
	case class.IsALU():
		return usesOfALU(ins)
	case class.IsJump():
		return usesOfJump(ins)
	}
	return ^regs(0), 0
}

func usesOfALU(ins asm.Instruction) (reads, writes regs) {
	op := ins.OpCode
	if op.ALUOp() != asm.Mov && op.ALUOp() != asm.MovSX8 && op.ALUOp() != asm.MovSX16 && op.ALUOp() != asm.MovSX32 {
		reads = of(ins.Dst)
	}
	if op.ALUOp() != asm.Swap && op.ALUOp() != asm.Neg && op.Source() == asm.RegSource {
		reads |= of(ins.Src)
	}
	return reads, of(ins.Dst)
}

func usesOfJump(ins asm.Instruction) (reads, writes regs) {
	op := ins.OpCode
	switch op.JumpOp() {
	case asm.Call:
		return of(asm.R1, asm.R2, asm.R3, asm.R4, asm.R5), of(asm.R0, asm.R1, asm.R2, asm.R3, asm.R4, asm.R5)
	case asm.Exit:
		return of(asm.R0), 0
	case asm.Ja:
		return 0, 0
	}
	reads = of(ins.Dst)
	if op.Source() == asm.RegSource {
		reads |= of(ins.Src)
	}
	return reads, 0
}
