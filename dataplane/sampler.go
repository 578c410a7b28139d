package dataplane

import (
	"net/netip"

	"github.com/fairlead/fairlead/core/service"
)

// Sampler is a data plane that reads the counters of all objects of one kind in few calls,
// so that they can be read every second. The functions that it calls must not call it.
type Sampler interface {
	// SampleFrontends calls f with the totals of every programmed frontend, in any order.
	SampleFrontends(f func(service.Key, Counts)) error
	// SampleBackends calls f with the counters of every backend, in any order. A backend
	// that is counted once for several frontends has a zero Key.
	SampleBackends(f func(service.Key, netip.AddrPort, Counts)) error
}

// SampleFrontends samples a data plane, also one that is no Sampler.
func SampleFrontends(d DataPlane, f func(service.Key, Counts)) error {
	if s, ok := d.(Sampler); ok {
		return s.SampleFrontends(f)
	}
	all, err := d.Counters()
	for i := range all {
		f(all[i].Key, all[i].Total)
	}
	return err
}

// SampleBackends samples a data plane, also one that is no Sampler.
func SampleBackends(d DataPlane, f func(service.Key, netip.AddrPort, Counts)) error {
	if s, ok := d.(Sampler); ok {
		return s.SampleBackends(f)
	}
	all, err := d.Counters()
	for i := range all {
		for text, c := range all[i].Backends {
			addr, err := netip.ParseAddrPort(text)
			if err != nil {
				return err
			}
			f(all[i].Key, addr, c)
		}
	}
	return err
}
