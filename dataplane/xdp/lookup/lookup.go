// Package lookup reads single entries of the balancer's maps: a frontend, and the counters of a
// frontend or a server. Decoding them is up to entry, and reading all of them to dataplane/xdp,
// whose tests cover both.
package lookup

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/entry"
)

// Frontend reads the kernel's entry of a key. Its method is none if no frontend has the key.
func Frontend(frontends, portRanges *ebpf.Map, k service.Key) (v bpf.BalancerFrontend, err error) {
	if err := bpf.IgnoreAbsent(frontends.Lookup(entry.ToKey(k), &v)); err != nil {
		return v, fmt.Errorf("xdp: read frontend %s: %w", k, err)
	}
	if !k.Range() || k.Whole() {
		return v, nil
	}
	for i := range v.Ranges {
		var r bpf.BalancerPortRange
		if err := portRanges.Lookup(v.Range+i, &r); err != nil {
			return v, fmt.Errorf("xdp: read port ranges of %s: %w", k.VIP, err)
		}
		if r.First == k.Port && r.Last == k.Last && service.Protocol(r.Proto) == k.Protocol {
			return r.F, nil
		}
	}
	return bpf.BalancerFrontend{}, nil
}

// FrontendCounts reads the counters of the frontend with a number.
func FrontendCounts(m *ebpf.Map, id uint32) (sum dataplane.Counts, err error) {
	err = bpf.EachCPU(m, id, func(c bpf.BalancerCounts) { add(&sum, c.Packets, c.Bytes, c.Flows) })
	return sum, err
}

// ServerCounts reads the counters of the server with a number.
func ServerCounts(m *ebpf.Map, id uint32) (sum dataplane.Counts, err error) {
	err = bpf.EachCPU(m, id, func(c bpf.BalancerServerCpu) { add(&sum, c.Packets, c.Bytes, c.Flows) })
	return sum, err
}

// AllFrontendCounts reads the counters of all frontends with numbers below end.
func AllFrontendCounts(m *ebpf.Map, end uint32) ([]dataplane.Counts, error) {
	all := make([]dataplane.Counts, end)
	err := bpf.EachOnCPUs(m, end, func(id uint32, c *bpf.BalancerCounts) { add(&all[id], c.Packets, c.Bytes, c.Flows) })
	return all, err
}

// AllServerCounts reads the counters of all servers with numbers below end.
func AllServerCounts(m *ebpf.Map, end uint32) ([]dataplane.Counts, error) {
	all := make([]dataplane.Counts, end)
	err := bpf.EachOnCPUs(m, end, func(id uint32, c *bpf.BalancerServerCpu) { add(&all[id], c.Packets, c.Bytes, c.Flows) })
	return all, err
}

func add(sum *dataplane.Counts, packets, bytes, flows uint64) {
	sum.Packets += packets
	sum.Bytes += bytes
	sum.Flows += flows
}
