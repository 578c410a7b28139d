package kube

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/source/object"
)

// sliceEntry is the cached part of an EndpointSlice; a field is nil if its consumer does
// not need it.
type sliceEntry struct {
	proxy  *proxy.Slice
	object *object.Object
	// refused means that the balancer keeps the previous version of the slice.
	refused bool
}

func (s *Source) readSlice(o runtime.Object) (*made[sliceEntry], error) {
	in, ok := o.(*discoveryv1.EndpointSlice)
	if !ok {
		return nil, fmt.Errorf("%T came where an EndpointSlice was awaited", o)
	}
	s.slices.names.slice(in)
	m := &made[sliceEntry]{id: service.ID{Namespace: in.Namespace, Name: in.Name}}
	if in.AddressType == discoveryv1.AddressTypeFQDN {
		return m, nil // FQDNs cannot be served
	}
	if s.config.Sink != nil {
		m.value.proxy, m.refused = proxySlice(in)
	}
	if s.balance {
		o, faults := object.ReadSlice(in, object.Origin{Assigned: true})
		if m.value.refused = len(faults) > 0; !m.value.refused {
			m.value.object = o
		}
		m.refused = append(m.refused, faults...)
	}
	return m, nil
}

func (s *Source) changeSlice(id service.ID, was, now sliceEntry) (sliceEntry, bool) {
	if sink := s.config.Sink; sink != nil {
		now.proxy = settle(was.proxy, now.proxy, sink.SetSlice, func() { sink.DeleteSlice(proxy.SliceID(id)) })
	}
	var kept *object.Object
	if now.refused {
		kept = was.object
		now.object, now.refused = kept, false
	}
	s.balancer.setStale(s.slices.name(id), kept)
	now.object = s.balancer.changeSlice(was.object, now.object)
	if now.object != nil && now.object.Service() == s.config.Balancers || was.object != nil && was.object.Service() == s.config.Balancers {
		s.pods.use(service.ID{Namespace: id.Namespace, Name: "EndpointSlice " + id.Name}, now.object.HasNetwork())
	}
	return now, now.proxy != nil || now.object != nil
}

// proxySlice returns what the proxy needs of an EndpointSlice, or nil if the proxy must
// ignore it (of a headless Service), and the invalid parts, which are left out.
func proxySlice(in *discoveryv1.EndpointSlice) (*proxy.Slice, []object.Fault) {
	if _, headless := in.Labels[corev1.IsHeadlessService]; headless {
		return nil, nil
	}
	out := &proxy.Slice{
		ID: proxy.SliceID{Namespace: in.Namespace, Name: in.Name}, Service: in.Labels[discoveryv1.LabelServiceName],
		IPv6: in.AddressType == discoveryv1.AddressTypeIPv6,
	}
	var faults []object.Fault
	refuse := func(field, format string, args ...any) {
		faults = append(faults, object.Fault{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	out.Ports = make([]proxy.SlicePort, 0, len(in.Ports))
	for i, p := range in.Ports {
		protocol, known := protocolOf(or(p.Protocol, corev1.ProtocolTCP))
		switch port := or(p.Port, 0); {
		case port < 1 || port > 65535:
			refuse(fmt.Sprintf("ports[%d].port", i), "%d is no port; want 1 to 65535; it is left out", port)
		case !known:
			refuse(fmt.Sprintf("ports[%d].protocol", i), "unknown protocol %q; want TCP, UDP or SCTP; the port is left out", *p.Protocol)
		default:
			out.Ports = append(out.Ports, proxy.SlicePort{Name: or(p.Name, ""), Protocol: protocol, Port: uint16(port)})
		}
	}
	out.Endpoints = make([]proxy.Endpoint, 0, len(in.Endpoints))
	for i := range in.Endpoints {
		e := &in.Endpoints[i]
		field := fmt.Sprintf("endpoints[%d].addresses", i)
		if len(e.Addresses) == 0 {
			refuse(field, "is empty; the endpoint is left out")
			continue
		}
		// Like kube-proxy, use only the first; that it is a list is historical.
		a, ok := addr(e.Addresses[0])
		if !ok || a.Is6() != out.IPv6 {
			refuse(field+"[0]", "%q is no address of type %s; the endpoint is left out", e.Addresses[0], in.AddressType)
			continue
		}
		out.Endpoints = append(out.Endpoints, proxyEndpoint(e, a))
	}
	return out, faults
}

func proxyEndpoint(e *discoveryv1.Endpoint, a netip.Addr) proxy.Endpoint {
	out := proxy.Endpoint{
		Addr: a, Node: or(e.NodeName, ""), Ready: or(e.Conditions.Ready, true), Serving: or(e.Conditions.Serving, true),
		Terminating: or(e.Conditions.Terminating, false),
	}
	if e.Hints == nil {
		return out
	}
	for _, z := range e.Hints.ForZones {
		out.ForZones = append(out.ForZones, z.Name)
	}
	for _, n := range e.Hints.ForNodes {
		out.ForNodes = append(out.ForNodes, n.Name)
	}
	return out
}

// or returns what p points to, or a default if p is nil.
func or[T any](p *T, unsaid T) T {
	if p == nil {
		return unsaid
	}
	return *p
}

// names interns strings that occur in many objects.
type names map[string]string

// maxNames limits the interned names, so that changing names do not fill the memory over
// time.
const maxNames = 1 << 16

func (n names) one(s string) string {
	if known, ok := n[s]; ok {
		return known
	}
	if len(n) >= maxNames {
		clear(n)
	}
	n[s] = s
	return s
}

func (n names) pointer(s *string) {
	if s != nil {
		*s = n.one(*s)
	}
}

// slice interns the names of an EndpointSlice.
func (n names) slice(s *discoveryv1.EndpointSlice) {
	s.Namespace = n.one(s.Namespace)
	for i := range s.Ports {
		n.pointer(s.Ports[i].Name)
	}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		n.pointer(e.NodeName)
		if e.Hints == nil {
			continue
		}
		for j := range e.Hints.ForZones {
			n.pointer(&e.Hints.ForZones[j].Name)
		}
		for j := range e.Hints.ForNodes {
			n.pointer(&e.Hints.ForNodes[j].Name)
		}
	}
}
