// Package bpf contains the balancer's compiled programs, the Go types of their maps, and
// helpers to access such maps. It knows no value of the model: dataplane/xdp/entry encodes
// those, dataplane/xdp/program loads the programs. Most is generated from bpf/balancer.c;
// the packages above test the rest.
package bpf

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// MapMemory returns an array map's elements in shared memory. T must have the size of the
// kernel's element, a multiple of eight bytes.
func MapMemory[T any](m *ebpf.Map) ([]T, error) {
	var t T
	bytes := int(m.MaxEntries()) * int(unsafe.Sizeof(t))
	memory, err := unix.Mmap(m.FD(), 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("xdp: mmap %v: %w", m, err)
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(memory))), m.MaxEntries()), nil
}

// UnmapMemory ends MapMemory, if elements is not nil.
func UnmapMemory[T any](elements []T) error {
	if elements == nil {
		return nil
	}
	bytes := len(elements) * int(unsafe.Sizeof(elements[0]))
	return unix.Munmap(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(elements))), bytes))
}

// ReadArray fills values from an array map in one call and returns how many there are.
func ReadArray[T any](m *ebpf.Map, values []T) (int, error) {
	keys := make([]uint32, len(values))
	var cursor ebpf.MapBatchCursor
	n, err := m.BatchLookup(&cursor, keys, values, nil)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return 0, err
	}
	return n, nil
}

// IgnoreAbsent returns the error of a lookup or deletion, nil if the entry was absent.
func IgnoreAbsent(err error) error {
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}

// ReadHash reads a hash map in large batches.
func ReadHash[K, V any](m *ebpf.Map, each func(K, V)) error {
	const step = 4096
	keys, values := make([]K, step), make([]V, step)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		for i := range n {
			each(keys[i], values[i])
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// EachCPU reads the per-CPU values of an id.
func EachCPU[T any](m *ebpf.Map, id uint32, each func(T)) error {
	var perCPU []T
	if err := m.Lookup(id, &perCPU); err != nil {
		return fmt.Errorf("read counters: %w", err)
	}
	for _, v := range perCPU {
		each(v)
	}
	return nil
}

// EachOnCPUs reads the first values of an array with per-CPU values in few calls: f is
// called with each value on each CPU.
func EachOnCPUs[T any](m *ebpf.Map, end uint32, f func(id uint32, value *T)) error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	const step = 4096
	keys := make([]uint32, min(step, end))
	values := make([]T, len(keys)*cpus)
	var cursor ebpf.MapBatchCursor
	for done := uint32(0); done < end; {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		for i := range values[:n*cpus] {
			if id := keys[i/cpus]; id < end {
				f(id, &values[i])
			}
		}
		if err != nil || n == 0 {
			return IgnoreAbsent(err)
		}
		done += uint32(n)
	}
	return nil
}

// ZeroCPUs resets the per-CPU values of an id for its next owner.
func ZeroCPUs(m *ebpf.Map, id uint32) error {
	if err := m.Put(id, []uint64{}); err != nil { // the value of a CPU that is missing is zero
		return fmt.Errorf("zero counters: %w", err)
	}
	return nil
}

// EnumNames returns the names of a C enum's first n values: with the prefix DROP_,
// DROP_TOO_BIG is "too-big".
func EnumNames(spec *ebpf.CollectionSpec, enum, prefix string, n int) ([]string, error) {
	var e *btf.Enum
	if err := spec.Types.TypeByName(enum, &e); err != nil {
		return nil, fmt.Errorf("xdp: the object lacks the names of %s: %w", enum, err)
	}
	names := make([]string, n)
	for _, v := range e.Values {
		if v.Value < uint64(n) {
			names[v.Value] = strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(v.Name, prefix)), "_", "-")
		}
	}
	return names, nil
}

// NameOf returns a number's name, or the number if it has none.
func NameOf(names []string, n uint32) string {
	if int(n) < len(names) {
		return names[n]
	}
	return fmt.Sprint(n)
}

// Context is struct xdp_md (linux/bpf.h), the context of a test run.
type Context struct {
	Data, DataEnd, DataMeta, IngressIfindex, RxQueueIndex, EgressIfindex uint32
}
