// Package walk reads large BPF maps in batches, with few calls to the kernel, so that the
// reader can do other work in between.
package walk

import (
	"errors"

	"github.com/cilium/ebpf"
)

// Cursor is the position in a map. Elements added or deleted meanwhile may or may not be
// returned. All others are returned once.
type Cursor[K, V any] struct {
	at     ebpf.MapBatchCursor
	keys   []K
	values []V
	done   bool
}

// New returns a cursor at the beginning that reads step elements per batch, which must
// exceed the size of one hash map bucket.
func New[K, V any](step int) *Cursor[K, V] {
	return &Cursor[K, V]{keys: make([]K, step), values: make([]V, step)}
}

// Next returns the next elements, which are valid until the next call.
func (c *Cursor[K, V]) Next(m *ebpf.Map) (keys []K, values []V, err error) {
	if c.done {
		return nil, nil, nil
	}
	n, err := m.BatchLookup(&c.at, c.keys, c.values, nil)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		c.done, err = true, nil
	}
	return c.keys[:n], c.values[:n], err
}

// Done reports whether all elements have been returned.
func (c *Cursor[K, V]) Done() bool { return c.done }

// Rewind goes back to the beginning.
func (c *Cursor[K, V]) Rewind() { c.at, c.done = ebpf.MapBatchCursor{}, false }
