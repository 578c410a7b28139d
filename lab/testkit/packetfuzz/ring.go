package packetfuzz

import (
	"encoding/binary"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Ring is the consumer of a BPF ring buffer that has no other consumer.
type Ring struct{ consumer, producer, data []byte }

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

// Skip skips all records.
func (r *Ring) Skip() {
	binary.NativeEndian.PutUint64(r.consumer, binary.NativeEndian.Uint64(r.producer))
}

// Records counts the records since Skip that are not discarded.
func (r *Ring) Records() (n int, err error) {
	from, to := binary.NativeEndian.Uint64(r.consumer), binary.NativeEndian.Uint64(r.producer)
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
