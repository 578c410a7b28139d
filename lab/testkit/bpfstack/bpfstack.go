// Package bpfstack checks that programs fit the stack of the oldest kernel that Fairlead
// supports, on whichever kernel the tests run. It detects only this problem of old
// kernels; `make test-kernels` finds the others.
package bpfstack

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

const (
	// limit is MAX_BPF_STACK for a chain of function calls (include/linux/filter.h).
	limit = 512
	// grain is what Linux before 6.9 rounds each function's stack up to
	// (kernel/bpf/verifier.c, check_max_stack_depth); later kernels round up to 16.
	grain = 32
)

// Check loads programs and reports call chains that need more stack than Linux 6.1 allows.
// Variants are the same programs with other values of their constants. A new kernel leaves
// out of each what its constants exclude, an old one does not: so each function counts with
// its most stack in any of them. Maps are not pinned.
func Check(t *testing.T, variants ...*ebpf.CollectionSpec) {
	t.Helper()
	programs := map[string]map[string]*function{}
	for _, v := range variants {
		if err := read(v.Copy(), programs); err != nil {
			t.Fatal(err)
		}
	}
	for name, functions := range programs {
		if deepest := deepest(functions, name); deepest.bytes > limit {
			t.Errorf("%s needs %d bytes of stack on Linux 6.1, %d is the most: %s", name, deepest.bytes, limit, deepest)
		}
	}
}

// read adds the functions of a variant to those of the same programs.
func read(spec *ebpf.CollectionSpec, programs map[string]map[string]*function) error {
	for _, m := range spec.Maps {
		m.Pinning = ebpf.PinNone
	}
	all, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{
		Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats},
	})
	if err != nil {
		return err
	}
	defer all.Close()
	for name, program := range all.Programs {
		if programs[name] == nil {
			programs[name] = calls(spec.Programs[name])
		}
		if err := addDepths(programs[name], program); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// function is a function of a program, with its most stack, in bytes, and what it calls, also
// in code that the verifier removes: it does so after it has checked the stack.
type function struct {
	stack int
	calls []string
}

func calls(spec *ebpf.ProgramSpec) map[string]*function {
	all := map[string]*function{}
	var caller *function
	for _, ins := range spec.Instructions {
		if f := btf.FuncMetadata(&ins); f != nil {
			caller = &function{}
			all[f.Name] = caller
		}
		if callee := ins.Reference(); caller != nil && (ins.IsFunctionCall() || ins.IsFunctionReference()) && !slices.Contains(caller.calls, callee) {
			caller.calls = append(caller.calls, callee)
		}
	}
	return all
}

// chain is a chain of function calls.
type chain struct {
	bytes int
	calls []string
}

func (c chain) String() string { return strings.Join(c.calls, " > ") }

func deepest(functions map[string]*function, from string) chain {
	f := functions[from]
	var below chain
	for _, callee := range f.calls {
		if c := deepest(functions, callee); c.bytes > below.bytes {
			below = c
		}
	}
	own := (max(f.stack, 1) + grain - 1) / grain * grain
	return chain{own + below.bytes, append([]string{fmt.Sprintf("%s %d", from, f.stack)}, below.calls...)}
}

var depths = regexp.MustCompile(`(?m)^stack depth ([0-9+]+)`)

// addDepths reads each function's stack from the verifier's statistics, which list the
// functions that it has not removed, in their order.
func addDepths(all map[string]*function, program *ebpf.Program) error {
	info, err := program.Info()
	if err != nil {
		return err
	}
	instructions, err := info.Instructions()
	if err != nil {
		return err
	}
	var left []*function
	for it := instructions.Iterate(); it.Next(); {
		if f := btf.FuncMetadata(it.Ins); f != nil {
			if all[f.Name] == nil {
				return fmt.Errorf("the object has no function %s", f.Name)
			}
			left = append(left, all[f.Name])
		}
	}
	m := depths.FindStringSubmatch(program.VerifierLog)
	if m == nil {
		return fmt.Errorf("the verifier does not report the stack depth: %q", program.VerifierLog)
	}
	numbers := strings.Split(m[1], "+")
	if len(numbers) != len(left) {
		return fmt.Errorf("the verifier counts %d functions, the program has %d", len(numbers), len(left))
	}
	for i, text := range numbers {
		n, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		left[i].stack = max(left[i].stack, n)
	}
	return nil
}
