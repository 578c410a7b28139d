package packetfuzz

import (
	"encoding/binary"
	"testing"
)

// Records are counted since Skip, which frees memory only when half of the buffer is full.
func TestRing(t *testing.T) {
	const size = 1024 // the buffer is mapped twice
	r := Ring{consumer: make([]byte, 8), producer: make([]byte, 8), data: make([]byte, 2*size)}
	at := uint64(0)
	write := func(head uint32) {
		binary.NativeEndian.PutUint32(r.data[at%size:], head)
		at += 8 + 56
		binary.NativeEndian.PutUint64(r.producer, at)
	}
	for n := range 40 {
		r.Skip()
		write(56)
		write(56 | 1<<30) // discarded
		write(56)
		if got, err := r.Records(); got != 2 || err != nil {
			t.Fatalf("case %d: %d records, %v", n, got, err)
		}
		if used := at - binary.NativeEndian.Uint64(r.consumer); used > size/2+3*64 || n == 1 && used != 6*64 {
			t.Fatalf("case %d: %d bytes are used", n, used)
		}
	}
	write(1 << 31)
	if _, err := r.Records(); err == nil {
		t.Error("no error for a record that is not committed")
	}
}
