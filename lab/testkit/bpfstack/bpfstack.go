// Package bpfstack checks that programs fit the stack of the oldest kernel that Fairlead
// supports, on whichever kernel the tests run. It needs no such kernel, and so finds
// only this: the rest is for `make test-kernels`.
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
	// limit is MAX_BPF_STACK of all functions that call each other
	// (include/linux/filter.h).
	limit = 512
	// grain is what each function's share is rounded up to by Linux before 6.9
	// (kernel/bpf/verifier.c, check_max_stack_depth); later kernels round up to 16.
	grain = 32
)

// Check loads programs and reports those whose functions together need more stack than
// Linux 6.1 gives. Maps are not pinned.
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

// chain is functions that call each other.
type chain struct {
	bytes int
	calls []string
}

func (c chain) String() string { return strings.Join(c.calls, " > ") }

// function is what the verifier leaves of one.
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
			// Of a program that is compiled, the kernel shows the callee's number.
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

// readDepths takes each function's stack from the verifier's statistics.
func readDepths(log string, all []function) error {
	m := depths.FindStringSubmatch(log)
	if m == nil {
		return fmt.Errorf("the verifier does not say how deep the stack is: %q", log)
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
