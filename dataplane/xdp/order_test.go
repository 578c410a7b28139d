package xdp

import (
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
)

// The protocol of bpf/include/order.h, tried in every order in which a CPU that reorders
// loads may make them, with every time at which the stores of a writer may become
// visible: a model of a reader and a writer of one entry.

// The fields of an entry. The value of each is its owner.
const (
	entryTag = iota
	entryWord
	entryData
	entryFields
)

const nobodys = 0

// writes are a writer's stores, in the order in which all CPUs see them: it reassigns the
// entry from flow 1 to flow 2. order_store keeps them in order.
var writes = []struct{ field, owner int }{{entryTag, nobodys}, {entryWord, 2}, {entryData, 2}, {entryTag, 2}}

// A reader's loads.
const (
	loadTag = iota
	loadWord
	loadData
	loadTagAgain
	loads
)

var loadedField = [loads]int{entryTag, entryWord, entryData, entryTag}

// before requires that one load is made before another, on any CPU.
type before struct{ first, second int }

// discipline is the protocol of order.h for a reader: order_after after the first load,
// and order_loads before the last.
var discipline = []before{{loadTag, loadWord}, {loadTag, loadData}, {loadWord, loadTagAgain}, {loadData, loadTagAgain}}

// reads returns what a reader of a flow finds with its loads in this order, where
// visible[i] stores are visible at the i-th load.
func reads(order []int, visible []int) (found [loads]int) {
	for i, load := range order {
		owner := 1
		for _, w := range writes[:visible[i]] {
			if w.field == loadedField[load] {
				owner = w.owner
			}
		}
		found[load] = owner
	}
	return found
}

// mixed reports whether some execution lets a reader take fields of two flows for its own
// entry.
func mixed(rules []before) bool {
	torn := false
	eachOrder(nil, rules, func(order []int) {
		eachMoment(nil, func(visible []int) {
			got := reads(order, visible)
			mine := got[loadTag]
			if mine != nobodys && got[loadTagAgain] == mine && (got[loadWord] != mine || got[loadData] != mine) {
				torn = true
			}
		})
	})
	return torn
}

// eachOrder generates every order of the loads that rules allow.
func eachOrder(order []int, rules []before, give func([]int)) {
	if len(order) == loads {
		give(order)
		return
	}
	for load := range loads {
		waits := slices.ContainsFunc(rules, func(r before) bool { return r.second == load && !slices.Contains(order, r.first) })
		if !waits && !slices.Contains(order, load) {
			eachOrder(append(slices.Clone(order), load), rules, give)
		}
	}
}

// eachMoment generates every way in which stores become visible between loads.
func eachMoment(visible []int, give func([]int)) {
	if len(visible) == loads {
		give(visible)
		return
	}
	least := 0
	if len(visible) > 0 {
		least = visible[len(visible)-1]
	}
	for n := least; n <= len(writes); n++ {
		eachMoment(append(slices.Clone(visible), n), give)
	}
}

// The protocol prevents mixtures, and no part of it is redundant: without any of them
// there is one.
func TestOrderOfLoads(t *testing.T) {
	if mixed(discipline) {
		t.Error("the discipline lets a reader mix two flows")
	}
	for i, rule := range discipline {
		if !mixed(slices.Delete(slices.Clone(discipline), i, i+1)) {
			t.Errorf("without %+v nothing goes wrong: the model misses it", rule)
		}
	}
	if !mixed(nil) {
		t.Error("a CPU that reorders loads as it likes mixes nothing: the model misses it")
	}
}

// barriers counts a program's full barriers, as order_all makes them: exchanges with
// memory on the stack.
func barriers(t *testing.T, inOrder bool) map[string]int {
	t.Helper()
	spec, err := config().withDefaults().program().Spec()
	must(t, err)
	must(t, spec.Variables[bpf.BalancerVarStoresInOrder].Set(inOrder))
	for _, m := range spec.Maps {
		m.Pinning = ebpf.PinNone
	}
	coll, err := ebpf.NewCollection(spec)
	must(t, err)
	defer coll.Close()
	found := map[string]int{}
	for name, p := range coll.Programs {
		info, err := p.Info()
		must(t, err)
		code, err := info.Instructions()
		must(t, err)
		for _, i := range code {
			if i.OpCode.Class() == asm.StXClass && i.OpCode.Mode() == asm.AtomicMode && i.Dst == asm.RFP {
				found[name]++
			}
		}
	}
	return found
}

// On a CPU that keeps loads in order the verifier has removed all barriers from what
// runs. On others they are there.
func TestBarriersCostNothingWhereLoadsAreInOrder(t *testing.T) {
	if found := barriers(t, true); len(found) > 0 {
		t.Errorf("on a CPU that keeps its loads in order programs have barriers: %v", found)
	}
	found := barriers(t, false)
	for _, name := range []string{"balancer", "slow_path", "handover", "syn"} {
		if found[name] == 0 {
			t.Errorf("on other CPUs the program %s has no barrier: %v", name, found)
		}
	}
	t.Log(found)
}
