package ipvs

import (
	"slices"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
)

// Counters implements dataplane.DataPlane. The kernel sums the counters every two
// seconds, so they may be that old.
func (d *DataPlane) Counters() ([]dataplane.FrontendCounters, error) {
	d.mu.Lock()
	if err := d.fresh(); err != nil {
		d.mu.Unlock()
		return nil, err
	}
	ids := make(map[serviceID]service.Key, len(d.programmed))
	for k, r := range d.programmed {
		ids[r.serviceID] = k
	}
	d.mu.Unlock()
	var all []dataplane.FrontendCounters
	var services []serviceID
	err := d.eachService(func(v virtual, l load) {
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
