package xdp

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/dataplane"
)

// Counters implements dataplane.DataPlane.
func (d *DataPlane) Counters() ([]dataplane.FrontendCounters, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]dataplane.FrontendCounters, 0, len(d.held))
	for k, h := range d.held {
		total, err := readCounts(d.kernel.FrontendCounts, h.value.Id)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", k, err)
		}
		c := dataplane.FrontendCounters{Key: k, Total: total, Backends: map[string]dataplane.Counts{}}
		for addr, s := range h.servers {
			if c.Backends[addr.String()], err = readCounts(d.kernel.ServerCounts, s.id); err != nil {
				return nil, fmt.Errorf("%s: backend %s: %w", k, addr, err)
			}
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b dataplane.FrontendCounters) int { return a.Key.Compare(b.Key) })
	return all, nil
}

// readCounts sums what the CPUs have counted.
func readCounts(m *ebpf.Map, id uint32) (dataplane.Counts, error) {
	var perCPU []balancerCounts
	var sum dataplane.Counts
	if err := m.Lookup(id, &perCPU); err != nil {
		return sum, fmt.Errorf("read counters: %w", err)
	}
	for _, c := range perCPU {
		sum.Packets += c.Packets
		sum.Bytes += c.Bytes
		sum.Flows += c.Flows
	}
	return sum, nil
}

// zeroCounts makes counters new for their next owner.
func zeroCounts(m *ebpf.Map, id uint32) error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	if err := m.Put(id, make([]balancerCounts, cpus)); err != nil {
		return fmt.Errorf("zero counters: %w", err)
	}
	return nil
}

// Describe implements dataplane.DataPlane.
func (d *DataPlane) Describe() dataplane.Description {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := dataplane.Description{Kind: "xdp", Attached: slices.Clone(d.attached), Drops: map[string]uint64{}}
	for i, name := range d.reasons {
		var perCPU []uint64
		if d.kernel.Drops.Lookup(uint32(i), &perCPU) != nil {
			continue // closed meanwhile
		}
		for _, n := range perCPU {
			out.Drops[name] += n
		}
	}
	return out
}
