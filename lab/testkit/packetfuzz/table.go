package packetfuzz

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Table is a small array map that cannot be mmapped, such as one with locks in it. It is
// read and cleared by one system call.
type Table struct {
	fd    int
	size  int
	keys  []byte
	read  []byte // the keys that were read
	zeros []byte
	// Values are the values read by Read, one after the other.
	Values []byte
}

// NewTable returns the table of a map, or its first most entries.
func NewTable(m *ebpf.Map, most int) *Table {
	n, size := min(int(m.MaxEntries()), most), int(m.ValueSize())
	t := &Table{fd: m.FD(), size: size, Values: make([]byte, n*size), zeros: make([]byte, n*size)}
	for i := range n {
		t.keys = binary.NativeEndian.AppendUint32(t.keys, uint32(i))
	}
	return t
}

// batch is the argument of bpf(2) for batch commands.
type batch struct {
	in, out, keys, values uint64
	count, fd             uint32
	elemFlags, flags      uint64
}

// Commands of bpf(2) for many elements of a map (linux/bpf.h).
const (
	lookupBatch          = 24
	lookupAndDeleteBatch = 25
	updateBatch          = 26
)

// runBatch runs a command on up to count elements of a map, and returns their number.
// Read commands store their progress in position.
func runBatch(command uintptr, fd int, position *uint32, keys, values []byte, count int) (int, error) {
	b := batch{
		out: address(unsafe.Pointer(position)), keys: address(unsafe.Pointer(&keys[0])), values: address(unsafe.Pointer(&values[0])),
		count: uint32(count), fd: uint32(fd),
	}
	_, _, errno := unix.RawSyscall(unix.SYS_BPF, command, uintptr(unsafe.Pointer(&b)), unsafe.Sizeof(b))
	if errno != 0 && errno != unix.ENOENT { // the end of the map
		return 0, errno
	}
	return int(b.count), nil
}

// Read reads the first most values, or all.
func (t *Table) Read(most int) error {
	var position uint32
	if t.read == nil {
		t.read = make([]byte, len(t.keys))
	}
	if _, err := runBatch(lookupBatch, t.fd, &position, t.read, t.Values, min(most, t.Len())); err != nil {
		return fmt.Errorf("read a table as a whole: %w", err)
	}
	return nil
}

// Clear makes all values zero.
func (t *Table) Clear() error {
	if _, err := runBatch(updateBatch, t.fd, nil, t.keys, t.zeros, t.Len()); err != nil {
		return fmt.Errorf("clear a table as a whole: %w", err)
	}
	return nil
}

// At returns one of the values that were read.
func (t *Table) At(i int) []byte { return t.Values[i*t.size:][:t.size] }

// Len is the number of entries.
func (t *Table) Len() int { return len(t.keys) / 4 }

func address(p unsafe.Pointer) uint64 { return uint64(uintptr(p)) }

// Hash is a hash map that is read, or read and emptied, by one system call.
type Hash struct {
	fd, keySize, valueSize int
	keys, values           []byte
}

// NewHash returns the hash of a map.
func NewHash(m *ebpf.Map) *Hash {
	h := &Hash{fd: m.FD(), keySize: int(m.KeySize()), valueSize: int(m.ValueSize())}
	h.keys = make([]byte, h.keySize*int(m.MaxEntries()))
	h.values = make([]byte, h.valueSize*int(m.MaxEntries()))
	return h
}

// Drain reads and deletes all entries, and returns their number.
func (h *Hash) Drain() (int, error) { return h.read(lookupAndDeleteBatch) }

// Read reads all entries, and returns their number.
func (h *Hash) Read() (int, error) { return h.read(lookupBatch) }

func (h *Hash) read(command uintptr) (int, error) {
	var position uint32
	n, err := runBatch(command, h.fd, &position, h.keys, h.values, len(h.keys)/h.keySize)
	if err != nil {
		return 0, fmt.Errorf("read a hash map as a whole: %w", err)
	}
	return n, nil
}

// Entry returns one of the entries that have been read.
func (h *Hash) Entry(i int) (key, value []byte) {
	return h.keys[i*h.keySize:][:h.keySize], h.values[i*h.valueSize:][:h.valueSize]
}
