// Package walk reads large BPF maps a piece at a time, in few calls to the
// kernel, so that who reads can do other things in between.
package walk

import (
	"errors"

	"github.com/cilium/ebpf"
)

// Cursor is how far a reading of a map has come. Elements that are added or
// deleted meanwhile may be given or not; the others are given once.
type Cursor[K, V any] struct {
	at     ebpf.MapBatchCursor
	keys   []K
	values []V
	done   bool
}

// New makes a cursor at the beginning that reads so many elements at once: more
// than can be in one bucket of a hash map.
func New[K, V any](step int) *Cursor[K, V] {
	return &Cursor[K, V]{keys: make([]K, step), values: make([]V, step)}
}

// Next gives the next elements, which are good until it is called again.
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

// Done says whether all has been given.
func (c *Cursor[K, V]) Done() bool { return c.done }

// Rewind goes back to the beginning.
func (c *Cursor[K, V]) Rewind() { c.at, c.done = ebpf.MapBatchCursor{}, false }
