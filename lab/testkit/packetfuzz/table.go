package packetfuzz

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Table is a small array map that cannot be mapped into memory, as one with locks in
// it, read and cleared as a whole by one system call.
type Table struct {
	fd    int
	size  int
	keys  []byte
	read  []byte // the keys that were read
	zeros []byte
	// Values are what Read has read, one behind the other.
	Values []byte
}

// NewTable gives the table of a map, or so much of it.
func NewTable(m *ebpf.Map, most int) *Table {
	n, size := min(int(m.MaxEntries()), most), int(m.ValueSize())
	t := &Table{fd: m.FD(), size: size, Values: make([]byte, n*size), zeros: make([]byte, n*size)}
	for i := range n {
		t.keys = binary.NativeEndian.AppendUint32(t.keys, uint32(i))
	}
	return t
}

// batch is what bpf(2) takes for BPF_MAP_LOOKUP_BATCH and BPF_MAP_UPDATE_BATCH.
type batch struct {
	in, out, keys, values uint64
	count, fd             uint32
	elemFlags, flags      uint64
}

// Read reads all values, or so many of the first.
func (t *Table) Read(most int) error {
	var position uint32
	if t.read == nil {
		t.read = make([]byte, len(t.keys))
	}
	b := batch{out: address(unsafe.Pointer(&position)), keys: address(unsafe.Pointer(&t.read[0])), values: address(unsafe.Pointer(&t.Values[0]))}
	return t.do(24, &b, min(most, t.Len()))
}

// Clear makes all values zero.
func (t *Table) Clear() error {
	b := batch{keys: address(unsafe.Pointer(&t.keys[0])), values: address(unsafe.Pointer(&t.zeros[0]))}
	return t.do(26, &b, t.Len())
}

// At gives one of the values that were read.
func (t *Table) At(i int) []byte { return t.Values[i*t.size:][:t.size] }

// Len is how many there are.
func (t *Table) Len() int { return len(t.keys) / 4 }

func address(p unsafe.Pointer) uint64 { return uint64(uintptr(p)) }

func (t *Table) do(command uintptr, b *batch, count int) error {
	b.count, b.fd = uint32(count), uint32(t.fd)
	_, _, errno := unix.RawSyscall(unix.SYS_BPF, command, uintptr(unsafe.Pointer(b)), unsafe.Sizeof(*b))
	if errno != 0 && errno != unix.ENOENT { // the end of the table
		return fmt.Errorf("read or write a table as a whole: %w", errno)
	}
	return nil
}

// Hash is a hash map that is read and emptied as a whole by one system call.
type Hash struct {
	fd, keySize, valueSize int
	count                  int
	keys, values           []byte
}

// NewHash gives the hash of a map.
func NewHash(m *ebpf.Map) *Hash {
	h := &Hash{fd: m.FD(), keySize: int(m.KeySize()), valueSize: int(m.ValueSize())}
	h.keys = make([]byte, h.keySize*int(m.MaxEntries()))
	h.values = make([]byte, h.valueSize*int(m.MaxEntries()))
	return h
}

// Drain reads and deletes all entries, and gives their number.
func (h *Hash) Drain() (int, error) {
	var position uint32
	b := batch{
		out: address(unsafe.Pointer(&position)), keys: address(unsafe.Pointer(&h.keys[0])), values: address(unsafe.Pointer(&h.values[0])),
		count: uint32(len(h.keys) / h.keySize), fd: uint32(h.fd),
	}
	const lookupAndDeleteBatch = 25
	_, _, errno := unix.RawSyscall(unix.SYS_BPF, lookupAndDeleteBatch, uintptr(unsafe.Pointer(&b)), unsafe.Sizeof(b))
	if errno != 0 && errno != unix.ENOENT { // the end of the map
		return 0, fmt.Errorf("read and empty a hash map: %w", errno)
	}
	h.count = int(b.count)
	return h.count, nil
}

// Entry gives one of the entries that Drain has read.
func (h *Hash) Entry(i int) (key, value []byte) {
	return h.keys[i*h.keySize:][:h.keySize], h.values[i*h.valueSize:][:h.valueSize]
}
