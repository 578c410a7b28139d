package ipvs

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
)

// Counters implements dataplane.DataPlane. The kernel sums the counters every two
// seconds, so they may be that old.
func (d *DataPlane) Counters() ([]dataplane.FrontendCounters, error) {
	ids, err := d.keys()
	if err != nil {
		return nil, err
	}
	var all []dataplane.FrontendCounters
	var services []serviceID
	err = d.eachService(func(v virtual, l load) {
		if k, ok := ids[v.serviceID]; ok {
			all = append(all, dataplane.FrontendCounters{Key: k, Total: l.Counts, Backends: map[string]dataplane.Counts{}})
			services = append(services, v.serviceID)
		}
	})
	for i := range all {
		if err != nil {
			return nil, err
		}
		err = d.eachServer(services[i], func(s server, l load) { all[i].Backends[s.addr.String()] = l.Counts })
	}
	slices.SortFunc(all, func(a, b dataplane.FrontendCounters) int { return a.Key.Compare(b.Key) })
	return all, err
}

// SampleFrontends implements dataplane.Sampler: one question to the kernel.
func (d *DataPlane) SampleFrontends(f func(service.Key, dataplane.Counts)) error {
	ids, err := d.keys()
	if err != nil {
		return err
	}
	return d.eachService(func(v virtual, l load) {
		if k, ok := ids[v.serviceID]; ok {
			f(k, l.Counts)
		}
	})
}

// SampleBackends implements dataplane.Sampler: one question for each frontend, because the
// kernel lists the servers of one service only (IPVS_CMD_GET_DEST), and /proc/net/ip_vs has
// no packets and bytes. Package rates bounds how often that happens by what it costs.
func (d *DataPlane) SampleBackends(f func(service.Key, netip.AddrPort, dataplane.Counts)) error {
	ids, err := d.keys()
	if err != nil {
		return err
	}
	for id, k := range ids {
		if err := d.eachServer(id, func(s server, l load) { f(k, s.addr, l.Counts) }); err != nil {
			return err
		}
	}
	return nil
}

// keys returns the keys of what is programmed.
func (d *DataPlane) keys() (map[serviceID]service.Key, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.fresh(); err != nil {
		return nil, err
	}
	ids := make(map[serviceID]service.Key, len(d.programmed))
	for k, r := range d.programmed {
		ids[r.serviceID] = k
	}
	return ids, nil
}
