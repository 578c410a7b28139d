package packetfuzz

import (
	"encoding/binary"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Ring is the consumer of a BPF ring buffer that has no other consumer.
type Ring struct {
	consumer, producer, data []byte
	from                     uint64 // the first record that is not skipped
}

// NewRing maps a ring buffer (kernel/bpf/ringbuf.c: the consumer's page, the
// producer's page, and the records).
func NewRing(m *ebpf.Map) (r Ring, err error) {
	page := os.Getpagesize()
	if r.consumer, err = unix.Mmap(m.FD(), 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return r, fmt.Errorf("map ring buffer: %w", err)
	}
	rest, err := unix.Mmap(m.FD(), int64(page), page+2*int(m.MaxEntries()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return r, fmt.Errorf("map ring buffer: %w", err)
	}
	r.producer, r.data = rest[:page], rest[page:]
	return r, nil
}

// Skip skips all records. It frees their memory only when half of the buffer is full: a
// record that follows no other one wakes readers, which costs as much as a packet.
func (r *Ring) Skip() {
	if r.from = binary.NativeEndian.Uint64(r.producer); r.from-binary.NativeEndian.Uint64(r.consumer) > uint64(len(r.data)/4) {
		binary.NativeEndian.PutUint64(r.consumer, r.from)
	}
}

// Records counts the records since Skip that are not discarded.
func (r *Ring) Records() (n int, err error) {
	from, to := r.from, binary.NativeEndian.Uint64(r.producer)
	for from < to {
		const busy, discarded = 1 << 31, 1 << 30
		head := binary.NativeEndian.Uint32(r.data[from%uint64(len(r.data)/2):])
		if head&busy != 0 {
			return n, fmt.Errorf("a record is not committed")
		}
		if head&discarded == 0 {
			n++
		}
		from += uint64(head&^(busy|discarded)+8+7) &^ 7
	}
	return n, nil
}
