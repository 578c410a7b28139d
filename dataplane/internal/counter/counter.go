// Package counter reads counters by their names in a BPF object: a per-CPU array with an
// enum as its index.
package counter

import (
	"fmt"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// Read returns the counters in m, summed over the CPUs, by the names of the enum that is
// their index: PACKET_COUNTER_NO_WAY of packet_counter is "no-way". Names without the
// enum's own name and an underscore as prefix are ignored, so the number of counters can
// be at the end. The object is loaded only the first time, which takes milliseconds.
func Read(load func() (*ebpf.CollectionSpec, error), enum string, m *ebpf.Map) (map[string]uint64, error) {
	names, err := Names(load, enum)
	if err != nil {
		return nil, err
	}
	counters := make(map[string]uint64, len(names))
	for i, name := range names {
		var perCPU []uint64
		if err := m.Lookup(uint32(i), &perCPU); err != nil {
			return nil, fmt.Errorf("read counter %s: %w", name, err)
		}
		for _, n := range perCPU {
			counters[name] += n
		}
	}
	return counters, nil
}

var known sync.Map // names by the enum's name

// Names returns the names of an enum's counters, in the order of its values.
func Names(load func() (*ebpf.CollectionSpec, error), name string) ([]string, error) {
	if names, ok := known.Load(name); ok {
		return names.([]string), nil
	}
	spec, err := load()
	if err != nil {
		return nil, err
	}
	var enum *btf.Enum
	if err := spec.Types.TypeByName(name, &enum); err != nil {
		return nil, err
	}
	var names []string
	for _, v := range enum.Values {
		short, ok := strings.CutPrefix(v.Name, strings.ToUpper(name)+"_")
		if !ok {
			continue
		}
		if v.Value != uint64(len(names)) {
			return nil, fmt.Errorf("enum %s has holes", name)
		}
		names = append(names, strings.ReplaceAll(strings.ToLower(short), "_", "-"))
	}
	known.Store(name, names)
	return names, nil
}

// Dropped returns the counters of dropped packets, those with the prefix "dropped-",
// without that prefix.
func Dropped(counters map[string]uint64) map[string]uint64 {
	drops := map[string]uint64{}
	for name, n := range counters {
		if reason, ok := strings.CutPrefix(name, "dropped-"); ok {
			drops[reason] = n
		}
	}
	return drops
}
