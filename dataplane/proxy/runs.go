package proxy

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"net/netip"
	"slices"
	"unsafe"

	"github.com/fairlead/fairlead/core/proxy"
)

// maxRun is the maximum number of endpoints of each kind in a run: the counts have 16
// bits.
const maxRun = 1<<16 - 1

// runs are the runs of endpoints in the kernel's memory, which is mapped here. Equal ones
// are shared.
type runs struct {
	memory []proxyTarget // the kernel's
	seed   maphash.Seed
	byHash map[uint64]uint32 // of the endpoints -> first
	users  []users           // by first
	space  space
	recent recent
	// rouse waits until no program reads what rests, and wakes it.
	rouse   func() error
	scratch []proxyTarget
}

// users is the number of entries that refer to a run, and its length.
type users struct{ entries, length uint32 }

// recent is the last result: frontends of one port follow each other and share their
// endpoints.
type recent struct {
	targets, keeps []proxy.Target
	first          uint32
}

func sameMemory(a, b []proxy.Target) bool {
	return len(a) == len(b) && unsafe.SliceData(a) == unsafe.SliceData(b)
}

func (run proxyRun) length() uint32 { return uint32(run.Count) + uint32(run.Keeps) }

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

// targetBytes are the endpoints as stored in memory.
func targetBytes(t []proxyTarget) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(t))), len(t)*int(unsafe.Sizeof(proxyTarget{})))
}

func (r *runs) at(run proxyRun) []proxyTarget {
	return r.memory[run.First:][:run.length()]
}

// keeps reports whether a flow of this endpoint continues.
func (r *runs) keeps(run proxyRun, target netip.AddrPort) bool {
	all := r.at(run)
	for _, some := range [][]proxyTarget{all[:run.Count], all[run.Count:]} {
		if _, found := slices.BinarySearchFunc(some, target, func(t proxyTarget, a netip.AddrPort) int {
			return t.addrPort().Compare(a)
		}); found {
			return true
		}
	}
	return false
}

// take returns a run with these endpoints for one more entry. before is the entry's
// current run, which stays if it matches.
func (r *runs) take(c proxy.Choice, before proxyRun) (proxyRun, error) {
	run := proxyRun{Count: uint16(len(c.Targets)), Keeps: uint16(len(c.Keeps))}
	switch most := max(len(c.Targets), len(c.Keeps)); {
	case most == 0:
		return run, nil
	case most > maxRun:
		return run, fmt.Errorf("%d endpoints exceed the limit of %d per frontend", most, maxRun)
	}
	if sameMemory(r.recent.targets, c.Targets) && sameMemory(r.recent.keeps, c.Keeps) {
		run.First = r.recent.first
		r.use(run)
		return run, nil
	}
	first, err := r.find(c, before)
	if err != nil {
		return run, err
	}
	run.First, r.recent = first, recent{c.Targets, c.Keeps, first}
	r.use(run)
	return run, nil
}

// find returns the start of a run with these endpoints, which it writes if missing.
func (r *runs) find(c proxy.Choice, before proxyRun) (first uint32, err error) {
	if r.scratch, err = appendTargets(r.scratch[:0], c.Targets); err != nil {
		return 0, err
	}
	if r.scratch, err = appendTargets(r.scratch, c.Keeps); err != nil {
		return 0, err
	}
	raw := targetBytes(r.scratch)
	if bytes.Equal(raw, targetBytes(r.at(before))) {
		return before.First, nil
	}
	hash := maphash.Bytes(r.seed, raw)
	first, known := r.byHash[hash]
	if known && bytes.Equal(raw, targetBytes(r.memory[first:][:r.users[first].length])) {
		return first, nil
	}
	if first, err = r.place(uint32(len(r.scratch))); err != nil {
		return 0, err
	}
	copy(r.memory[first:], r.scratch)
	if !known {
		r.byHash[hash] = first
	}
	return first, nil
}

// place finds room for n endpoints.
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
	return 0, fmt.Errorf("no %d contiguous free entries among %d endpoints: raise MaxTargets (--proxy-max-targets)", n, len(r.memory))
}

func (r *runs) use(run proxyRun) {
	u := &r.users[run.First]
	u.entries, u.length = u.entries+1, run.length()
}

// release records that an entry no longer refers to a run.
func (r *runs) release(run proxyRun) {
	if run.length() == 0 {
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
	r.space.giveBack(extent{run.First, run.length()})
}

// adopt takes over the runs that a kernel entry refers to, all or none. Call settle after
// all of them.
func (r *runs) adopt(named ...proxyRun) error {
	for _, run := range named {
		end := uint64(run.First) + uint64(run.length())
		if end > uint64(len(r.memory)) {
			return fmt.Errorf("it refers to endpoints %d to %d of %d", run.First, end, len(r.memory))
		}
		if run.length() == 0 {
			continue
		}
		if u := r.users[run.First]; u.entries > 0 && u.length != run.length() {
			return fmt.Errorf("it has %d endpoints at %d, where another frontend has %d", run.length(), run.First, u.length)
		}
	}
	for _, run := range named {
		if run.length() > 0 {
			r.use(run)
			r.byHash[maphash.Bytes(r.seed, targetBytes(r.at(run)))] = run.First
		}
	}
	return nil
}

// settle computes what is free outside the adopted runs.
func (r *runs) settle() error {
	var taken []extent
	end := uint32(0)
	for first, u := range r.users {
		if u.entries == 0 {
			continue
		}
		if uint32(first) < end {
			return fmt.Errorf("endpoints at %d belong to two runs", first)
		}
		end = uint32(first) + u.length
		taken = append(taken, extent{uint32(first), u.length})
	}
	r.space = newSpace(uint32(len(r.memory)), taken)
	return nil
}
