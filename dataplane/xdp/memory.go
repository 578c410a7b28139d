package xdp

import (
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// mapMemory returns an array map's elements in shared memory. T must have the size of the
// kernel's element, a multiple of eight bytes.
func mapMemory[T any](m *ebpf.Map) ([]T, error) {
	var t T
	bytes := int(m.MaxEntries()) * int(unsafe.Sizeof(t))
	memory, err := unix.Mmap(m.FD(), 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("xdp: mmap %v: %w", m, err)
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(memory))), m.MaxEntries()), nil
}

func unmapMemory[T any](elements []T) error {
	if elements == nil {
		return nil
	}
	bytes := len(elements) * int(unsafe.Sizeof(elements[0]))
	return unix.Munmap(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(elements))), bytes))
}
