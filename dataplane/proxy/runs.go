package proxy

import (
	"bytes"
	"cmp"
	"fmt"
	"hash/maphash"
	"net/netip"
	"slices"
	"unsafe"

	"github.com/fairlead/fairlead/proxy"
)

// maxRun is how many targets a run can have: its count has 16 bits.
const maxRun = 1<<16 - 1

// runs are the runs of targets in the kernel's memory, which is mapped here.
// Equal ones are one.
type runs struct {
	memory []proxyTarget // the kernel's
	seed   maphash.Seed
	byHash map[uint64]uint32 // of the targets -> first
	users  map[uint32]users  // by first
	space  space
	// rouse waits until nobody reads what rests, and wakes it.
	rouse   func() error
	scratch []proxyTarget
}

// users says how many entries name a run, and how long that is.
type users struct {
	entries uint32
	count   uint16
}

// newRuns has none in use.
func newRuns(memory []proxyTarget, rouse func() error) runs {
	r := runs{memory: memory, rouse: rouse, seed: maphash.MakeSeed()}
	r.reset()
	return r
}

func (r *runs) reset() {
	r.byHash, r.users = map[uint64]uint32{}, map[uint32]users{}
	r.space = newSpace(uint32(len(r.memory)), nil)
}

// targetBytes are the targets as they lie in memory.
func targetBytes(t []proxyTarget) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(t))), len(t)*int(unsafe.Sizeof(proxyTarget{})))
}

func (r *runs) at(run proxyRun) []proxyTarget {
	return r.memory[run.First:][:run.Count]
}

// has says whether a run has this target.
func (r *runs) has(run proxyRun, target netip.AddrPort) bool {
	_, found := slices.BinarySearchFunc(r.at(run), target, func(t proxyTarget, a netip.AddrPort) int {
		return t.addrPort().Compare(a)
	})
	return found
}

// take gives a run that holds these targets to one entry more. before is what
// the entry has; where that is right, it stays.
func (r *runs) take(c proxy.Choice, before proxyRun) (proxyRun, error) {
	run := proxyRun{Count: uint16(len(c.Targets)), Empty: proxyServiceEmpty(c.Empty)}
	switch {
	case len(c.Targets) == 0:
		return run, nil
	case len(c.Targets) > maxRun:
		return run, fmt.Errorf("%d targets: a frontend can have %d", len(c.Targets), maxRun)
	}
	var err error
	if r.scratch, err = appendTargets(r.scratch[:0], c.Targets); err != nil {
		return run, err
	}
	raw := targetBytes(r.scratch)
	if run.Count == before.Count && bytes.Equal(raw, targetBytes(r.at(before))) {
		run.First = before.First
		r.use(run)
		return run, nil
	}
	hash := maphash.Bytes(r.seed, raw)
	first, known := r.byHash[hash]
	if known && r.users[first].count == run.Count && bytes.Equal(raw, targetBytes(r.memory[first:][:run.Count])) {
		run.First = first
		r.use(run)
		return run, nil
	}
	if run.First, err = r.place(uint32(run.Count)); err != nil {
		return run, err
	}
	copy(r.at(run), r.scratch)
	r.use(run)
	if !known {
		r.byHash[hash] = run.First
	}
	return run, nil
}

// place finds room for n targets.
func (r *runs) place(n uint32) (uint32, error) {
	if first, ok := r.space.take(n); ok {
		return first, nil
	}
	if err := r.rouse(); err != nil {
		return 0, err
	}
	if first, ok := r.space.take(n); ok {
		return first, nil
	}
	return 0, fmt.Errorf("no room for %d targets in a row among %d: raise MaxTargets", n, len(r.memory))
}

func (r *runs) use(run proxyRun) {
	u := r.users[run.First]
	r.users[run.First] = users{u.entries + 1, run.Count}
}

// release says that an entry has a run no longer.
func (r *runs) release(run proxyRun) {
	if run.Count == 0 {
		return
	}
	u := r.users[run.First]
	if u.entries--; u.entries > 0 {
		r.users[run.First] = u
		return
	}
	delete(r.users, run.First)
	hash := maphash.Bytes(r.seed, targetBytes(r.at(run)))
	if first, known := r.byHash[hash]; known && first == run.First {
		delete(r.byHash, hash)
	}
	r.space.giveBack(extent{run.First, uint32(run.Count)})
}

// adopt takes over a run that an entry in the kernel names. settle comes when
// all are.
func (r *runs) adopt(run proxyRun) error {
	if run.Count == 0 {
		return nil
	}
	if uint64(run.First)+uint64(run.Count) > uint64(len(r.memory)) {
		return fmt.Errorf("targets %d to %d of %d", run.First, uint64(run.First)+uint64(run.Count), len(r.memory))
	}
	if u, known := r.users[run.First]; known && u.count != run.Count {
		return fmt.Errorf("targets at %d are %d and %d", run.First, u.count, run.Count)
	}
	r.use(run)
	r.byHash[maphash.Bytes(r.seed, targetBytes(r.at(run)))] = run.First
	return nil
}

// settle finds what is free beside the runs that were adopted.
func (r *runs) settle() error {
	taken := make([]extent, 0, len(r.users)+1)
	for first, u := range r.users {
		taken = append(taken, extent{first, uint32(u.count)})
	}
	slices.SortFunc(taken, func(a, b extent) int { return cmp.Compare(a.first, b.first) })
	for i := 1; i < len(taken); i++ {
		if taken[i-1].end() > taken[i].first {
			return fmt.Errorf("targets at %d belong to two runs", taken[i].first)
		}
	}
	r.space = newSpace(uint32(len(r.memory)), taken)
	return nil
}
