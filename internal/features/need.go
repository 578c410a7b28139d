package features

import (
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// Need is one interface that a kernel has or rejects.
type Need struct {
	// Kind and Name identify it as in the refusal tests: "map" and "ringbuf".
	Kind, Name string
	words      string
	probe      func(Component) error
	// strip removes the need from a collection; nil if it cannot be removed.
	strip func(*ebpf.CollectionSpec)
}

func (n Need) String() string { return n.words }

// Rule identifies the need for a test in which the kernel rejects it: "map:ringbuf".
func (n Need) Rule() string { return n.Kind + ":" + n.Name }

// programType is one of BPF_PROG_TYPE_*.
func programType(t ebpf.ProgramType) Need {
	return Need{
		Kind: "prog", Name: strings.ToLower(t.String()), words: "program type " + t.String(),
		probe: func(Component) error {
			if t == ebpf.Tracing {
				return loadProgram(smallest(t))
			}
			_, err := loadSmallest(smallest(t))
			return err
		},
		strip: func(spec *ebpf.CollectionSpec) {
			for name, p := range spec.Programs {
				if p.Type == t {
					delete(spec.Programs, name)
				}
			}
		},
	}
}

// attachType is an attach type of a program type.
func attachType(t ebpf.ProgramType, at ebpf.AttachType) Need {
	return Need{
		Kind: "attach", Name: strings.ToLower(at.String()), words: "attach type " + at.String(),
		probe: func(Component) error {
			p := smallest(t)
			p.AttachType = at
			return loadProgram(p)
		},
		strip: func(spec *ebpf.CollectionSpec) {
			for name, p := range spec.Programs {
				if p.AttachType == at {
					delete(spec.Programs, name)
				}
			}
		},
	}
}

// tcx is a tcx attach type. Only attaching shows whether it is supported, not loading.
func tcx(at ebpf.AttachType) Need {
	return Need{
		Kind: "attach", Name: strings.ToLower(at.String()), words: "attach type " + at.String(),
		probe: func(Component) error { return probeTCX(at) },
	}
}

// mapType is one of BPF_MAP_TYPE_*.
func mapType(t ebpf.MapType) Need {
	return Need{
		Kind: "map", Name: strings.ToLower(t.String()), words: "map type " + t.String(),
		probe: func(Component) error {
			spec := smallestMap(t)
			if spec.Key == nil {
				return rawMap(spec)
			}
			m, err := ebpf.NewMap(spec) // requires BTF
			if err != nil {
				return err
			}
			return m.Close()
		},
		strip: func(spec *ebpf.CollectionSpec) { replaceMaps(spec, t) },
	}
}

// replaceMaps replaces maps of a type with arrays that nobody writes. The calls that would
// use them are removed with their helpers.
func replaceMaps(spec *ebpf.CollectionSpec, t ebpf.MapType) {
	for name, m := range spec.Maps {
		if m.Type == t {
			spec.Maps[name] = &ebpf.MapSpec{Name: m.Name, Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}
		}
	}
}

// helper is a BPF_FUNC_*, with its name in C.
func helper(name string, fn asm.BuiltinFunc) Need {
	return Need{
		Kind: "helper", Name: strings.ToLower(strings.TrimPrefix(fn.String(), "Fn")), words: "helper " + name,
		probe: func(c Component) error { return probeHelper(c, fn) },
		strip: func(spec *ebpf.CollectionSpec) {
			eachCall(spec, func(i *asm.Instruction) bool { return i.IsBuiltinCall() && asm.BuiltinFunc(i.Constant) == fn })
		},
	}
}

// kfunc is a kernel function that programs call.
func kfunc(name string) Need {
	return Need{
		Kind: "kfunc", Name: "*", words: "kfunc " + name,
		probe: func(Component) error {
			has := func(types *btf.Spec, err error) bool {
				var f *btf.Func
				return err == nil && types.TypeByName(name, &f) == nil
			}
			if has(btf.LoadKernelSpec()) || has(btf.LoadKernelModuleSpec("nf_conntrack")) {
				return nil
			}
			return fmt.Errorf("%w: the kernel's BTF has no such function", ebpf.ErrNotSupported)
		},
		strip: func(spec *ebpf.CollectionSpec) {
			eachCall(spec, func(i *asm.Instruction) bool {
				return i.IsKfuncCall() && i.Reference() == name
			})
		},
	}
}

// eachCall replaces calls with "r0 = 0": a removed helper returns 0, which all callers of
// optional helpers interpret as nothing (a null pointer, no bytes).
func eachCall(spec *ebpf.CollectionSpec, which func(*asm.Instruction) bool) {
	for _, p := range spec.Programs {
		for i := range p.Instructions {
			if in := &p.Instructions[i]; which(in) {
				*in = asm.Mov.Imm(asm.R0, 0).WithSymbol(in.Symbol()).WithSource(in.Source())
			}
		}
	}
}

// command is a command of bpf(2).
func command(name, words string, probe func() error) Need {
	return Need{Kind: "cmd", Name: name, words: words, probe: func(Component) error { return probe() }}
}

// netlinkNeed is a message that rtnetlink or another netlink family must accept.
func netlinkNeed(name, words string, probe func() error) Need {
	return Need{Kind: "netlink", Name: name, words: words, probe: func(Component) error { return probe() }}
}

// smallest is the smallest valid program of a type.
func smallest(t ebpf.ProgramType) *ebpf.ProgramSpec {
	p := &ebpf.ProgramSpec{
		Name: "probe", Type: t, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	}
	switch t {
	case ebpf.CGroupSockAddr:
		p.AttachType = ebpf.AttachCGroupInet4Connect
		p.Instructions[0] = asm.Mov.Imm(asm.R0, 1) // 0 and 1 are both valid everywhere except in recvmsg and getpeername
	case ebpf.Tracing:
		p.AttachType, p.AttachTo = ebpf.AttachTraceIter, "bpf_sk_storage_map"
	}
	return p
}

func loadProgram(spec *ebpf.ProgramSpec) error {
	if spec.AttachTo == "" {
		_, err := rawLoad(spec)
		return err
	}
	p, err := ebpf.NewProgram(spec) // requires BTF
	if err != nil {
		return err
	}
	return p.Close()
}

// loadSmallest loads a probe. One for socket addresses is tried at a second hook, because
// the first may be the rejected one.
func loadSmallest(p *ebpf.ProgramSpec) (log string, err error) {
	log, err = rawLoad(p)
	if err != nil && log == "" && p.Type == ebpf.CGroupSockAddr {
		p.AttachType = ebpf.AttachCGroupUDP6Sendmsg
		log, err = rawLoad(p)
	}
	return log, err
}

// smallestMap is the smallest valid map of a type.
func smallestMap(t ebpf.MapType) *ebpf.MapSpec {
	m := &ebpf.MapSpec{Name: "probe", Type: t, KeySize: 4, ValueSize: 4, MaxEntries: 1}
	switch t {
	case ebpf.LPMTrie:
		m.KeySize, m.Flags = 8, unix.BPF_F_NO_PREALLOC
	case ebpf.RingBuf:
		m.KeySize, m.ValueSize, m.MaxEntries = 0, 0, 4096
	case ebpf.ArrayOfMaps, ebpf.HashOfMaps:
		m.InnerMap = &ebpf.MapSpec{Name: "probe", Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}
	case ebpf.SkStorage:
		number := &btf.Int{Name: "int", Size: 4}
		m.MaxEntries, m.Flags, m.Key, m.Value = 0, unix.BPF_F_NO_PREALLOC, number, number
	}
	return m
}

// programOf is the type of a component's programs.
func programOf(c Component) ebpf.ProgramType {
	switch c {
	case Balancer:
		return ebpf.XDP
	case SocketProxy:
		return ebpf.CGroupSockAddr
	}
	return ebpf.SchedCLS
}

// probeHelper loads a program that only calls a helper. If the verifier knows the helper,
// it complains about the arguments.
func probeHelper(c Component, fn asm.BuiltinFunc) error {
	p := smallest(programOf(c))
	p.Instructions = append(asm.Instructions{fn.Call()}, p.Instructions...)
	log, err := loadSmallest(p)
	if err == nil || log == "" {
		return err
	}
	for _, unknown := range []string{"invalid func", "unknown func", "cannot use helper"} {
		if strings.Contains(log, unknown) {
			return fmt.Errorf("%w: the verifier says: %s", err, strings.ReplaceAll(log, "\n", "; "))
		}
	}
	return nil
}
