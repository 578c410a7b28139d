package walk_test

import (
	"testing"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/dataplane/internal/walk"
)

// TestNext reads maps of several kinds and sizes, empty or in several batches, and
// deletes the elements that it read.
func TestNext(t *testing.T) {
	for _, kind := range []ebpf.MapType{ebpf.Hash, ebpf.LRUHash} {
		for _, n := range []uint32{0, 1, 99, 1000} {
			m, err := ebpf.NewMap(&ebpf.MapSpec{Type: kind, KeySize: 4, ValueSize: 8, MaxEntries: 5000})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			for i := range n {
				if err := m.Put(i, uint64(i)+1); err != nil {
					t.Fatal(err)
				}
			}
			seen := map[uint32]bool{}
			c := walk.New[uint32, uint64](100)
			for !c.Done() {
				keys, values, err := c.Next(m)
				if err != nil || len(keys) != len(values) {
					t.Fatal(len(keys), len(values), err)
				}
				for i, k := range keys {
					if seen[k] || values[i] != uint64(k)+1 {
						t.Errorf("%s: element %d: %d; seen before: %t", kind, k, values[i], seen[k])
					}
					seen[k] = true
					if err := m.Delete(k); err != nil {
						t.Fatal(err)
					}
				}
				if c.Done() {
					if keys, _, err := c.Next(m); len(keys) > 0 || err != nil {
						t.Errorf("%s: behind the end: %d elements, %v", kind, len(keys), err)
					}
				}
			}
			if len(seen) != int(n) {
				t.Errorf("%s: %d elements of %d", kind, len(seen), n)
			}
			if err := m.Put(uint32(7), uint64(8)); err != nil {
				t.Fatal(err)
			}
			c.Rewind()
			if keys, values, err := c.Next(m); len(keys) != 1 || keys[0] != 7 || values[0] != 8 || err != nil || !c.Done() {
				t.Errorf("%s: from the beginning: %v, %v, %v", kind, keys, values, err)
			}
		}
	}
}
