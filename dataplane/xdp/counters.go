package xdp

import (
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/fragment"
	"github.com/fairlead/fairlead/dataplane/xdp/lookup"
	"github.com/fairlead/fairlead/dataplane/xdp/synflood"
	"github.com/fairlead/fairlead/internal/features"
)

// Counters implements dataplane.DataPlane. A server shared by several frontends has the
// same counters in each of them.
func (d *DataPlane) Counters() ([]dataplane.FrontendCounters, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]dataplane.FrontendCounters, 0, len(d.programmed))
	servers := make(map[uint32]dataplane.Counts, len(d.servers.byID))
	for k, h := range d.programmed {
		c, err := d.countersOf(k, h, servers)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b dataplane.FrontendCounters) int { return a.Key.Compare(b.Key) })
	return all, nil
}

// countersOf reads the counters of one frontend. servers has those of backends that are
// already read.
func (d *DataPlane) countersOf(k service.Key, h *programmed, servers map[uint32]dataplane.Counts) (c dataplane.FrontendCounters, err error) {
	c = dataplane.FrontendCounters{Key: k, Backends: make(map[string]dataplane.Counts, len(h.members))}
	if c.Total, err = lookup.FrontendCounts(d.kernel.FrontendCounts, h.value.Id); err != nil {
		return c, fmt.Errorf("%s: %w", k, err)
	}
	if c.SYN, err = synflood.Counts(d.kernel.SynCounts, h.value.Id); err != nil {
		return c, fmt.Errorf("%s: %w", k, err)
	}
	c.SYN.Guarded = h.value.Flags&bpf.BalancerFrontendFlagsFRONTEND_SYN_GUARDED != 0
	for _, m := range h.members {
		counts, read := servers[m.id]
		if !read {
			if counts, err = lookup.ServerCounts(d.kernel.ServerCpu, m.id); err != nil {
				return c, fmt.Errorf("%s: backend %s: %w", k, m.key.addr, err)
			}
			servers[m.id] = counts
		}
		c.Backends[m.key.addr.String()] = counts
	}
	return c, nil
}

// Describe implements dataplane.DataPlane.
func (d *DataPlane) Describe() dataplane.Description {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := dataplane.Description{Kind: "xdp", Attached: d.links.Describe(), Drops: map[string]uint64{}}
	if n := d.rings.Lacking(); n > 0 {
		out.Warnings = append(out.Warnings, fmt.Sprintf("chains: all %d were in use when slots needed to list earlier backends: "+
			"%d times one was left out, whose connections may break (MaxChains)", d.config.MaxChains, n))
	}
	if d.synError != nil {
		out.Warnings = append(out.Warnings, fmt.Sprintf("SYN protection: frontends under pressure are not protected: %v", d.synError))
	}
	drops, _ := d.observer.DropsByCPU() // it fails if the data plane is closed
	for name, perCPU := range drops {
		for _, n := range perCPU {
			out.Drops[name] += n
		}
	}
	if d.orphans != nil {
		out.Drops[fragment.Lost] += d.orphans.Missed()
	}
	return out
}

// Tables returns how full the tables of limited size are, without reading the kernel.
func (d *DataPlane) Tables() []dataplane.Table {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Concat(d.rings.Tables(), d.lists.Tables(), []dataplane.Table{
		{Name: "frontends", Used: len(d.programmed), Size: d.config.MaxFrontends},
		{Name: "backends", Used: len(d.servers.byID), Size: d.config.MaxBackends},
	})
}

// FlowTable returns how full the flow table is, which takes a while if it is large.
func (d *DataPlane) FlowTable() (dataplane.Table, error) {
	used, err := d.Remembered()
	return dataplane.Table{Name: "flows", Used: used, Size: d.config.MaxFlows}, err
}

// Replaced lists the interfaces on which Open replaced the program of an earlier process.
func (d *DataPlane) Replaced() []string { return d.links.Replaced() }

// Degraded lists the optional features that this kernel, or the driver of an interface,
// does not support.
func (d *DataPlane) Degraded() []features.Degraded {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Concat(d.program.Missing, d.links.Degraded())
}
