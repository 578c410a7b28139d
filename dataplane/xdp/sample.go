package xdp

import (
	"net/netip"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/xdp/lookup"
)

var _ dataplane.Sampler = (*DataPlane)(nil)

// SampleFrontends implements dataplane.Sampler.
func (d *DataPlane) SampleFrontends(f func(service.Key, dataplane.Counts)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	end := uint32(0)
	for _, h := range d.programmed {
		end = max(end, h.value.Id+1)
	}
	counts, err := lookup.AllFrontendCounts(d.kernel.FrontendCounts, end)
	if err != nil {
		return err
	}
	for k, h := range d.programmed {
		f(k, counts[h.value.Id])
	}
	return nil
}

// SampleBackends implements dataplane.Sampler.
func (d *DataPlane) SampleBackends(f func(service.Key, netip.AddrPort, dataplane.Counts)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	end, owners := uint32(0), map[uint32]service.Key{}
	for id := range d.servers.byID {
		end = max(end, id+1)
	}
	for k, h := range d.programmed {
		if owner := ownerOf(h.value); owner != 0 {
			owners[owner] = k
		}
	}
	counts, err := lookup.AllServerCounts(d.kernel.ServerCpu, end)
	if err != nil {
		return err
	}
	for id, s := range d.servers.byID {
		f(owners[s.key.owner], s.key.addr, counts[id])
	}
	return nil
}
