package proxy

import (
	"bytes"
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
	users  []users           // by first
	space  space
	recent recent
	// rouse waits until nobody reads what rests, and wakes it.
	rouse   func() error
	scratch []proxyTarget
}

// users says how many entries name a run, and how long that is.
type users struct {
	entries uint32
	count   uint16
}

// recent is what was taken last: frontends of one port follow each other and
// share their targets.
type recent struct {
	targets []proxy.Target
	first   uint32
}

// newRuns has none in use.
func newRuns(memory []proxyTarget, rouse func() error) runs {
	r := runs{memory: memory, rouse: rouse, seed: maphash.MakeSeed(), byHash: map[uint64]uint32{}, users: make([]users, len(memory))}
	r.reset()
	return r
}

func (r *runs) reset() {
	clear(r.byHash)
	clear(r.users)
	r.recent = recent{}
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
	if last := r.recent.targets; len(last) == len(c.Targets) && &last[0] == &c.Targets[0] {
		run.First = r.recent.first
		r.use(run)
		return run, nil
	}
	first, err := r.find(c.Targets, before)
	if err != nil {
		return run, err
	}
	run.First, r.recent = first, recent{c.Targets, first}
	r.use(run)
	return run, nil
}

// find gives the first place of a run with these targets, which it writes where
// there is none.
func (r *runs) find(targets []proxy.Target, before proxyRun) (first uint32, err error) {
	if r.scratch, err = appendTargets(r.scratch[:0], targets); err != nil {
		return 0, err
	}
	raw := targetBytes(r.scratch)
	if bytes.Equal(raw, targetBytes(r.at(before))) {
		return before.First, nil
	}
	hash := maphash.Bytes(r.seed, raw)
	first, known := r.byHash[hash]
	if known && bytes.Equal(raw, targetBytes(r.memory[first:][:r.users[first].count])) {
		return first, nil
	}
	if first, err = r.place(uint32(len(targets))); err != nil {
		return 0, err
	}
	copy(r.memory[first:], r.scratch)
	if !known {
		r.byHash[hash] = first
	}
	return first, nil
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
	return 0, fmt.Errorf("no room for %d targets in a row among %d: raise MaxTargets (--proxy-max-targets)", n, len(r.memory))
}

func (r *runs) use(run proxyRun) {
	u := &r.users[run.First]
	u.entries, u.count = u.entries+1, run.Count
}

// release says that an entry has a run no longer.
func (r *runs) release(run proxyRun) {
	if run.Count == 0 {
		return
	}
	u := &r.users[run.First]
	if u.entries--; u.entries > 0 {
		return
	}
	if r.recent.first == run.First {
		r.recent = recent{}
	}
	hash := maphash.Bytes(r.seed, targetBytes(r.at(run)))
	if first, known := r.byHash[hash]; known && first == run.First {
		delete(r.byHash, hash)
	}
	r.space.giveBack(extent{run.First, uint32(run.Count)})
}

// adopt takes over what an entry in the kernel names, all of it or nothing.
// settle comes when all are.
func (r *runs) adopt(named ...proxyRun) error {
	for _, run := range named {
		end := uint64(run.First) + uint64(run.Count)
		if end > uint64(len(r.memory)) {
			return fmt.Errorf("it names targets %d to %d of %d", run.First, end, len(r.memory))
		}
		if run.Count == 0 {
			continue
		}
		if u := r.users[run.First]; u.entries > 0 && u.count != run.Count {
			return fmt.Errorf("it names %d targets at %d, where another has %d", run.Count, run.First, u.count)
		}
	}
	for _, run := range named {
		if run.Count > 0 {
			r.use(run)
			r.byHash[maphash.Bytes(r.seed, targetBytes(r.at(run)))] = run.First
		}
	}
	return nil
}

// settle finds what is free beside the runs that were adopted.
func (r *runs) settle() error {
	var taken []extent
	end := uint32(0)
	for first, u := range r.users {
		if u.entries == 0 {
			continue
		}
		if uint32(first) < end {
			return fmt.Errorf("targets at %d belong to two runs", first)
		}
		end = uint32(first) + uint32(u.count)
		taken = append(taken, extent{uint32(first), uint32(u.count)})
	}
	r.space = newSpace(uint32(len(r.memory)), taken)
	return nil
}
