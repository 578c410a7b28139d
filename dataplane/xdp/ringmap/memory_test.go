package ringmap

import (
	"testing"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/dataplane/xdp/alloc"
)

// TestLacking checks that the room that rings of given sizes need is enough, by taking it.
func TestLacking(t *testing.T) {
	spec := &ebpf.MapSpec{MaxEntries: 100}
	for name, c := range map[string]struct {
		taken []uint32 // of the existing segments
		sizes []uint32
		want  int
	}{
		"nothing":              {[]uint32{0}, nil, 0},
		"in the first segment": {[]uint32{0}, []uint32{40, 40, 20}, 0},
		"two more":             {[]uint32{0}, []uint32{60, 60, 60}, 2},
		"a used segment":       {[]uint32{10}, []uint32{60, 60}, 2},
		"none without a ring":  {[]uint32{100}, []uint32{0, 0}, 0},
		"full size":            {nil, []uint32{100, 100, 1}, 3},
	} {
		m := &memory{spec: spec}
		for _, n := range c.taken {
			s := &segment{Extents: alloc.NewExtents(100)}
			s.Take(n)
			m.segments = append(m.segments, s)
		}
		got := m.lacking(c.sizes)
		if got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
		for range got {
			m.segments = append(m.segments, &segment{Extents: alloc.NewExtents(100)})
		}
		for _, n := range c.sizes {
			if _, ok := m.take(n); n > 0 && !ok {
				t.Errorf("%s: no room for %d", name, n)
			}
		}
	}
}
