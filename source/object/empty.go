package object

import (
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/core/service"
)

// noBackends returns why a frontend has no backends. its are the slices of a usable family.
func (j *Joined) noBackends(f *service.Frontend, its []*Object) string {
	id := j.object.service.template.ID
	switch {
	case len(j.given) == 0:
		return fmt.Sprintf("no EndpointSlice belongs to the Service: add one in namespace %s with the label kubernetes.io/service-name: %s", id.Namespace, id.Name)
	case len(j.slices) == 0:
		return fmt.Sprintf("no endpoint in its EndpointSlices is on network %q", j.object.Network())
	case !slices.ContainsFunc(j.slices, hasEndpoints) && len(j.slices) == 1:
		return fmt.Sprintf("EndpointSlice %s has no endpoints", j.slices[0].Key.Name)
	case !slices.ContainsFunc(j.slices, hasEndpoints):
		return fmt.Sprintf("none of the %d EndpointSlices of the Service has endpoints", len(j.slices))
	case len(its) == 0:
		have, want := family(!f.VIP.Is6()), family(f.VIP.Is6())
		return fmt.Sprintf("its EndpointSlices have %s endpoints only, which forwarding mode %s does not support for the %s address %s: add %s endpoints, or use forwarding mode %s",
			have, j.object.service.template.Method, want, f.VIP, want, service.Tunnel)
	case !f.Whole() && !slices.ContainsFunc(its, func(o *Object) bool { return o.slice.hasPort(f) }):
		return fmt.Sprintf("no EndpointSlice of the Service has the port %s", portName(f.Protocol, f.PortName))
	}
	all, usable := 0, 0
	for _, o := range its {
		for _, e := range o.slice.endpoints {
			all++
			if e.use != unused {
				usable++
			}
		}
	}
	if usable == 0 {
		return fmt.Sprintf("none of the %d endpoints in its EndpointSlices is ready", all)
	}
	return "none of its endpoints can serve this port: fairlead status has the problems of its EndpointSlices"
}

func hasEndpoints(o *Object) bool { return len(o.slice.endpoints) > 0 }

// hasPort reports whether a slice has the port of a frontend.
func (s *slice) hasPort(f *service.Frontend) bool {
	return slices.ContainsFunc(s.ports, func(p slicePort) bool { return p.name == f.PortName && p.protocol == f.Protocol })
}

// portName formats what identifies a port of a Service and of a slice.
func portName(p service.Protocol, name string) string {
	if name == "" {
		return fmt.Sprintf("%s without a name", p)
	}
	return fmt.Sprintf("%s %q", p, name)
}
