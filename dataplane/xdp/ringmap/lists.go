package ringmap

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/xdp/alloc"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
)

// Lists are lists of words in the kernel, one for each number of an index. Equal lists are stored
// once. Only agents read them. A process that ends at any point leaves the list before a change,
// or the one after it.
type Lists struct {
	memory memory
	shared sharing
	index  []uint64 // length << 32 | position, in memory shared with the kernel
}

// NewLists returns lists that are not read yet. segment is the spec of a part of their memory.
func NewLists(segments *ebpf.Map, segment *ebpf.MapSpec) *Lists {
	return &Lists{memory: memory{outer: segments, spec: segment}}
}

// Open reads which lists the kernel has. It may be called again.
func (l *Lists) Open(index *ebpf.Map) (err error) {
	if l.index == nil {
		if l.index, err = bpf.MapMemory[uint64](index); err != nil {
			return err
		}
	}
	if err := l.memory.open(); err != nil {
		return err
	}
	l.read()
	return nil
}

// read finds the lists of the index. A word that is not that of a list becomes that of none.
func (l *Lists) read() {
	l.shared = newSharing()
	for i, w := range l.index {
		p := l.placeOf(w)
		switch one := l.find(p); {
		case w == 0:
		case one != nil && one.N == p.N:
			one.frontends++
		case one == nil && l.memory.mark(p):
			l.shared.add(&stored{place: p, from: originOf(l.memory.at(p))})
		default:
			atomic.StoreUint64(&l.index[i], 0)
		}
	}
}

// Table returns how full the memory of the lists is.
func (l *Lists) Table() dataplane.Table { return l.memory.table("lists") }

// Len is the number of lists of which each may be empty.
func (l *Lists) Len() int { return len(l.index) }

// Get returns a list, which the caller must not change.
func (l *Lists) Get(i uint32) []uint64 {
	if int(i) >= len(l.index) {
		return nil
	}
	return l.memory.at(l.placeOf(l.index[i]))
}

// Set replaces a list: it writes the new one elsewhere, or finds an equal one, and then switches
// to it.
func (l *Lists) Set(i uint32, words []uint64) error {
	if int(i) >= len(l.index) {
		return fmt.Errorf("%s: there are %d, but not list %d", &l.memory, len(l.index), i)
	}
	next, err := l.store(words)
	if err != nil {
		return err
	}
	before := l.find(l.placeOf(l.index[i]))
	atomic.StoreUint64(&l.index[i], l.wordOf(next))
	if before != nil && l.shared.drop(before) {
		l.memory.giveBack(before.place)
	}
	return nil
}

// store returns the place of a list for one more number.
func (l *Lists) store(words []uint64) (place, error) {
	if len(words) == 0 {
		return place{}, nil
	}
	from := originOf(words)
	if one := l.shared.from[from]; one != nil {
		one.frontends++
		return one.place, nil
	}
	p, err := l.memory.room(uint32(len(words)), l.memory.wake)
	if err != nil {
		return place{}, err
	}
	copy(l.memory.at(p), words)
	l.shared.add(&stored{place: p, from: from})
	return p, nil
}

// originOf identifies a list by its content.
func originOf(words []uint64) origin { return sha256.Sum256(bytesOf(words)) }

func bytesOf(words []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), 8*len(words))
}

func (l *Lists) find(p place) *stored {
	if p.N == 0 {
		return nil
	}
	return l.shared.at[location{p.segment, p.First}]
}

// Positions count through all segments.

func (l *Lists) wordOf(p place) uint64 {
	return uint64(p.N)<<32 | uint64(p.segment*l.memory.spec.MaxEntries+p.First)
}

func (l *Lists) placeOf(word uint64) place {
	at, size := uint32(word), l.memory.spec.MaxEntries
	return place{at / size, alloc.Extent{First: at % size, N: uint32(word >> 32)}}
}

// Close closes the lists. The kernel keeps them.
func (l *Lists) Close() error {
	if l == nil {
		return nil
	}
	err := errors.Join(bpf.UnmapMemory(l.index), l.memory.close())
	l.index = nil
	return err
}
