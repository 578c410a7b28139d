package serverhalf

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"sync"

	"github.com/cilium/ebpf/btf"

	"github.com/fairlead/fairlead/dataplane"
)

// State is what the half does at one moment.
type State struct {
	// Attached has one line a device: "veth1: tcx: servers behind it".
	Attached []string
	// Abroad are the servers desired that are not on this node, and why not.
	Abroad map[netip.Addr]string
	// Entries are as List gives them, Flows and Counters as those methods do.
	Entries  []Entry
	Flows    []dataplane.Flow
	Counters map[string]uint64
}

// State looks at everything at once.
func (h *Half) State() (s State, err error) {
	err = h.do(func() error {
		rows, err := h.rows()
		flows, err2 := h.flows()
		counters, err3 := h.counters()
		s = State{
			Attached: h.hook.describe(), Abroad: maps.Clone(h.abroad), Entries: entriesOf(rows), Flows: flows, Counters: counters,
		}
		return errors.Join(err, err2, err3)
	})
	return s, err
}

// Counters gives what became of packets since the half was first opened, by
// the names of bpf/server/maps.h ("tunnel-delivered", "passed-fragment",
// "dropped-rewrite").
func (h *Half) Counters() (counters map[string]uint64, err error) {
	err = h.do(func() error {
		counters, err = h.counters()
		return err
	})
	return counters, err
}

func (h *Half) counters() (map[string]uint64, error) {
	names, err := counterNames()
	if err != nil {
		return nil, err
	}
	counters := make(map[string]uint64, len(names))
	for i, name := range names {
		var perCPU []uint64
		if err := h.obj.ServerCounters.Lookup(uint32(i), &perCPU); err != nil {
			return nil, fmt.Errorf("read counter %s: %w", name, err)
		}
		for _, n := range perCPU {
			counters[name] += n
		}
	}
	return counters, nil
}

// counterNames reads the names of enum server_counter from the object, once.
var counterNames = sync.OnceValues(func() ([]string, error) {
	spec, err := loadServer()
	if err != nil {
		return nil, err
	}
	var enum *btf.Enum
	if err := spec.Types.TypeByName("server_counter", &enum); err != nil {
		return nil, err
	}
	var names []string
	for _, v := range enum.Values {
		name, ok := strings.CutPrefix(v.Name, "SERVER_COUNTER_")
		if !ok {
			continue // the number of counters, at the end
		}
		if v.Value != uint64(len(names)) {
			return nil, errors.New("enum server_counter has holes")
		}
		names = append(names, strings.ReplaceAll(strings.ToLower(name), "_", "-"))
	}
	return names, nil
})

// onlyDropped picks the counters of packets that ended here, without the prefix.
func onlyDropped(counters map[string]uint64) map[string]uint64 {
	drops := map[string]uint64{}
	for name, n := range counters {
		if reason, ok := strings.CutPrefix(name, "dropped-"); ok {
			drops[reason] = n
		}
	}
	return drops
}
