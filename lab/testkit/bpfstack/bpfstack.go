// Package bpfstack checks that programs fit the stack of the oldest kernel that Fairlead
// supports, on whichever kernel the tests run. It detects only this problem of old
// kernels; `make test-kernels` finds the others.
package bpfstack

import (
	"fmt"
	"regexp"
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

// Check loads programs and reports call chains that need more stack than Linux 6.1
// allows. Maps are not pinned.
func Check(t *testing.T, spec *ebpf.CollectionSpec) {
	t.Helper()
	spec = spec.Copy()
	for _, m := range spec.Maps {
		m.Pinning = ebpf.PinNone
	}
	all, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{
		Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer all.Close()
	for name, program := range all.Programs {
		deepest, err := deepest(program)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if deepest.bytes > limit {
			t.Errorf("%s needs %d bytes of stack on Linux 6.1, %d is the most: %s", name, deepest.bytes, limit, deepest)
		}
	}
}

// chain is a chain of function calls.
type chain struct {
	bytes int
	calls []string
}

func (c chain) String() string { return strings.Join(c.calls, " > ") }

// function is a function as the verifier leaves it.
type function struct {
	name  string
	stack int
	calls []int
}

func deepest(program *ebpf.Program) (chain, error) {
	functions, err := functions(program)
	if err != nil {
		return chain{}, err
	}
	var walk func(int) chain
	walk = func(i int) chain {
		f := functions[i]
		var below chain
		for _, callee := range f.calls {
			if c := walk(callee); c.bytes > below.bytes {
				below = c
			}
		}
		own := (max(f.stack, 1) + grain - 1) / grain * grain
		return chain{own + below.bytes, append([]string{fmt.Sprintf("%s %d", f.name, f.stack)}, below.calls...)}
	}
	return walk(0), nil
}

var depths = regexp.MustCompile(`(?m)^stack depth ([0-9+]+)`)

func functions(program *ebpf.Program) ([]function, error) {
	info, err := program.Info()
	if err != nil {
		return nil, err
	}
	instructions, err := info.Instructions()
	if err != nil {
		return nil, err
	}
	var all []function
	for it := instructions.Iterate(); it.Next(); {
		if f := btf.FuncMetadata(it.Ins); f != nil {
			all = append(all, function{name: f.Name})
		}
		if len(all) > 0 && it.Ins.IsFunctionCall() {
			// For a compiled program, the kernel shows the callee's number.
			f := &all[len(all)-1]
			f.calls = append(f.calls, int(it.Ins.Constant))
		}
	}
	for _, f := range all {
		for _, callee := range f.calls {
			if callee < 1 || callee >= len(all) {
				return nil, fmt.Errorf("%s calls function %d of %d", f.name, callee, len(all))
			}
		}
	}
	return all, readDepths(program.VerifierLog, all)
}

// readDepths reads each function's stack size from the verifier's statistics.
func readDepths(log string, all []function) error {
	m := depths.FindStringSubmatch(log)
	if m == nil {
		return fmt.Errorf("the verifier does not report the stack depth: %q", log)
	}
	numbers := strings.Split(m[1], "+")
	if len(numbers) != len(all) {
		return fmt.Errorf("the verifier counts %d functions, the program has %d", len(numbers), len(all))
	}
	for i, text := range numbers {
		n, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		all[i].stack = n
	}
	return nil
}
