package refuse

import (
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/cilium/ebpf"
)

// bpfMatcher matches calls of bpf(2) with certain commands.
type bpfMatcher struct {
	commands []uint32
	// use looks at the arguments; nil matches the command as such.
	use func(cmd uint32, a attr, c *call) bool
}

func (m bpfMatcher) watch(f *filter) { f.commands = append(f.commands, m.commands...) }

func (m bpfMatcher) matches(c *call) bool {
	cmd := uint32(c.args[0])
	if c.nr != unix.SYS_BPF || !slices.Contains(m.commands, cmd) {
		return false
	}
	return m.use == nil || m.use(cmd, c.attr(), c)
}

// attr is a union bpf_attr as far as the caller has given it. The kernel takes
// what is missing as zero.
type attr []byte

func (a attr) u32(offset int) uint32 {
	if len(a) < offset+4 {
		return 0
	}
	return binary.NativeEndian.Uint32(a[offset:])
}

func (a attr) u64(offset int) uint64 {
	if len(a) < offset+8 {
		return 0
	}
	return binary.NativeEndian.Uint64(a[offset:])
}

// Offsets in union bpf_attr, by command.
const (
	mapCreateType = 0

	progLoadType     = 0
	progLoadCount    = 4
	progLoadCode     = 8
	progLoadExpected = 68

	attachType      = 8 // of BPF_PROG_ATTACH and BPF_LINK_CREATE
	linkCreateFlags = 12

	attrLen = progLoadExpected + 4 // what the matchers look at
)

func parseProgram(name string) (matcher, []string) {
	return parseField(name, programTypes(), unix.BPF_PROG_LOAD, progLoadType)
}

func parseMap(name string) (matcher, []string) {
	return parseField(name, mapTypes(), unix.BPF_MAP_CREATE, mapCreateType)
}

func parseField(name string, all names, cmd uint32, offset int) (matcher, []string) {
	values := all.find(name)
	if values == nil {
		return nil, all.list()
	}
	return bpfMatcher{[]uint32{cmd}, func(_ uint32, a attr, _ *call) bool {
		return slices.Contains(values, a.u32(offset))
	}}, nil
}

func parseCommand(name string) (matcher, []string) {
	values := commands().find(name)
	if values == nil {
		return nil, commands().list()
	}
	return bpfMatcher{commands: values}, nil
}

func parseAttach(name string) (matcher, []string) {
	values := attachTypes().find(name)
	if values == nil {
		return nil, attachTypes().list()
	}
	use := func(cmd uint32, a attr, _ *call) bool {
		if cmd != unix.BPF_PROG_LOAD {
			return slices.Contains(values, a.u32(attachType))
		}
		// 0 is cgroupinetingress, but also the value of programs that expect nothing.
		expected := a.u32(progLoadExpected)
		return expected != 0 && slices.Contains(values, expected)
	}
	return bpfMatcher{[]uint32{unix.BPF_PROG_LOAD, unix.BPF_LINK_CREATE, unix.BPF_PROG_ATTACH}, use}, nil
}

func parseXDPMode(name string) (matcher, []string) {
	if name != "native" && name != "generic" {
		return nil, []string{"native", "generic"}
	}
	return bpfMatcher{[]uint32{unix.BPF_LINK_CREATE}, func(_ uint32, a attr, _ *call) bool {
		flags := a.u32(linkCreateFlags)
		generic := flags&unix.XDP_FLAGS_SKB_MODE != 0
		return a.u32(attachType) == uint32(ebpf.AttachXDP) && flags&unix.XDP_FLAGS_HW_MODE == 0 && generic == (name == "generic")
	}}, nil
}

// A BPF call instruction: its opcode, and the source register's value, which gives the
// kind of callee.
const (
	insnLen      = 8
	opCall       = unix.BPF_JMP | unix.BPF_CALL
	sourceHelper = 0
	sourceKfunc  = 2
	maxInsns     = 1_000_000 // the kernel rejects more
)

func parseHelper(name string) (matcher, []string) {
	values := helpers().find(name)
	if values == nil {
		return nil, helpers().list()
	}
	return callMatcher(func(source byte, callee uint32) bool {
		return source == sourceHelper && slices.Contains(values, callee)
	}), nil
}

// parseKfunc accepts no names: a program refers to a kfunc by an ID in the BTF of one
// kernel.
func parseKfunc(name string) (matcher, []string) {
	if name != "*" {
		return nil, []string{"*"}
	}
	return callMatcher(func(source byte, _ uint32) bool { return source == sourceKfunc }), nil
}

// callMatcher matches programs in which an instruction calls something.
func callMatcher(calls func(source byte, callee uint32) bool) matcher {
	return bpfMatcher{[]uint32{unix.BPF_PROG_LOAD}, func(_ uint32, a attr, c *call) bool {
		code := c.read(a.u64(progLoadCode), insnLen*min(int(a.u32(progLoadCount)), maxInsns))
		for insn := range slices.Chunk(code, insnLen) {
			if len(insn) == insnLen && insn[0] == opCall && calls(insn[1]>>4, binary.NativeEndian.Uint32(insn[4:])) {
				return true
			}
		}
		return false
	}}
}
