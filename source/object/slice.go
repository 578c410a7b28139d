package object

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/suggest"
)

// slice is a parsed Kubernetes EndpointSlice.
type slice struct {
	// serviceName is the Service, in the same namespace, that it belongs to.
	serviceName string
	ipv6        bool
	ports       []slicePort
	endpoints   []endpoint
	weights     map[netip.Addr]uint32
	since       map[netip.Addr]span
	// labels are stored only for a slice in a file; an API server evaluates selectors
	// itself.
	labels map[string]string
	// network is the network whose addresses count for Members; empty for the slice's own.
	network string
	// Lines in the file.
	typeLine, weightsLine, sinceLine int
}

type slicePort struct {
	name     string
	protocol service.Protocol
	number   uint16
}

// endpoint is one endpoint.
type endpoint struct {
	addr       netip.Addr
	name, node string
	use        use
	// terminating and serving are the conditions of these names.
	terminating, serving bool
	isPod                bool // name is the name of a Pod
}

// use is what an endpoint's conditions permit (KEP-1669).
type use uint8

const (
	unused use = iota
	// leaving is an endpoint that terminates but still serves: it keeps its flows, and
	// takes new ones only if no endpoint is ready.
	leaving
	ready
)

// ReadSlice reads an EndpointSlice, or returns why it is rejected.
func ReadSlice(s *discoveryv1.EndpointSlice, at Origin) (*Object, []Fault) {
	o := newObject(KindSlice, &s.ObjectMeta, at)
	var faults []Fault
	o.slice, faults = readSlice(s, at)
	if len(faults) == 0 {
		o.Notes = unusedAddresses(s.Endpoints)
	}
	return o, faults
}

// unusedAddresses reports addresses that are not used: Kubernetes treats several addresses
// of one endpoint as the same server.
func unusedAddresses(endpoints []discoveryv1.Endpoint) (notes []Fault) {
	at := map[string]int{}
	for i, e := range endpoints {
		if n := len(e.Addresses); n > 1 {
			notes = append(notes, Fault{fmt.Sprintf("endpoints[%d].addresses", i),
				fmt.Sprintf("has %d addresses, of which only the first, %s, is used; make each server an endpoint of its own", n, e.Addresses[0])})
		}
		if n := len(e.Addresses); n == 0 {
			continue
		}
		if first, twice := at[e.Addresses[0]]; twice {
			notes = append(notes, Fault{fmt.Sprintf("endpoints[%d].addresses[0]", i), fmt.Sprintf("%s is given twice, first in endpoints[%d]; it counts once", e.Addresses[0], first)})
		} else {
			at[e.Addresses[0]] = i
		}
	}
	return notes
}

func readSlice(s *discoveryv1.EndpointSlice, at Origin) (*slice, []Fault) {
	out := &slice{
		serviceName: s.Labels[discoveryv1.LabelServiceName], ipv6: s.AddressType == discoveryv1.AddressTypeIPv6,
		typeLine: at.line("addressType"), weightsLine: at.line(annotation(AnnotationWeights)),
		sinceLine: at.line(annotation(AnnotationBackendTimestamps)), network: s.Labels[LabelNetwork],
	}
	if at.File != "" {
		out.labels = s.Labels
	}
	var faults []Fault
	if why := serviceLabel(s.Labels); why != "" {
		faults = append(faults, Fault{"metadata.labels[" + discoveryv1.LabelServiceName + "]", why})
	}
	switch s.AddressType {
	case discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6:
	case discoveryv1.AddressTypeFQDN:
		return out, append(faults, Fault{"addressType", "FQDN is not served; want IPv4 or IPv6"})
	case "":
		return out, append(faults, Fault{"addressType", "is missing; want IPv4 or IPv6"})
	default:
		return out, append(faults, Fault{"addressType", fmt.Sprintf("unknown address type %q; want IPv4 or IPv6", s.AddressType)})
	}
	faults = append(faults, out.readAnnotations(s)...)
	faults = append(faults, out.readPorts(s.Ports)...)
	return out, append(faults, out.readEndpoints(s.Endpoints)...)
}

// serviceLabel returns what is wrong with the label that names a slice's Service, or "".
func serviceLabel(labels map[string]string) string {
	name := labels[discoveryv1.LabelServiceName]
	if _, after, other := strings.Cut(name, "/"); other {
		return fmt.Sprintf("%q is no name of a Service; want %q, of a Service in the namespace of the EndpointSlice", name, after)
	}
	if name != "" {
		return ""
	}
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		if suggest.Nearest(k, []string{discoveryv1.LabelServiceName}) != "" || k == "service-name" {
			return fmt.Sprintf("is missing, and is not spelt %q; it names the Service that the endpoints belong to", k)
		}
	}
	return "is missing; it names the Service that the endpoints belong to"
}

// sliceAnnotations are those of an EndpointSlice, sorted.
var sliceAnnotations = []string{AnnotationBackendTimestamps, AnnotationWeights}

func (s *slice) readAnnotations(o *discoveryv1.EndpointSlice) []Fault {
	faults := unknownAnnotations(o.Annotations, sliceAnnotations, misplaced)
	var err error
	if v, ok := o.Annotations[AnnotationWeights]; ok {
		if s.weights, err = parseWeights(v); err != nil {
			faults = append(faults, Fault{annotation(AnnotationWeights), err.Error()})
		}
	}
	if v, ok := o.Annotations[AnnotationBackendTimestamps]; ok {
		if s.since, err = parseSince(v); err != nil {
			faults = append(faults, Fault{annotation(AnnotationBackendTimestamps), err.Error()})
		}
	}
	return faults
}

// misplaced is the hint for an annotation of a Service on a slice.
func misplaced(name string) string {
	if setters[name] == nil {
		return ""
	}
	return " of an EndpointSlice; it belongs on the Service"
}

func (s *slice) readPorts(ports []discoveryv1.EndpointPort) (faults []Fault) {
	for i, p := range ports {
		field := fmt.Sprintf("ports[%d]", i)
		var name string
		if p.Name != nil {
			name = *p.Name
		}
		var asked corev1.Protocol
		if p.Protocol != nil {
			asked = *p.Protocol
		}
		proto, why := readProtocol(asked)
		sameName := func(o slicePort) bool { return o.name == name }
		switch {
		case p.Port == nil:
			faults = append(faults, Fault{field + ".port", "is missing; want 1 to 65535"})
		case *p.Port < 1 || *p.Port > 65535:
			faults = append(faults, Fault{field + ".port", fmt.Sprintf("%d is out of range; want 1 to 65535", *p.Port)})
		case why != "":
			faults = append(faults, Fault{field + ".protocol", why})
		case slices.ContainsFunc(s.ports, sameName):
			faults = append(faults, Fault{field + ".name", fmt.Sprintf("%q is the name of two ports", name)})
		default:
			s.ports = append(s.ports, slicePort{name, proto, uint16(*p.Port)})
		}
	}
	return faults
}

func (s *slice) readEndpoints(endpoints []discoveryv1.Endpoint) (faults []Fault) {
	for i, e := range endpoints {
		field := fmt.Sprintf("endpoints[%d].addresses", i)
		if len(e.Addresses) == 0 {
			faults = append(faults, Fault{field, "is empty; want one address"})
			continue
		}
		out := endpoint{use: readConditions(e.Conditions), terminating: is(e.Conditions.Terminating, false), serving: is(e.Conditions.Serving, true)}
		if e.NodeName != nil {
			out.node = *e.NodeName
		}
		switch {
		case e.TargetRef != nil && e.TargetRef.Name != "":
			out.name, out.isPod = e.TargetRef.Name, e.TargetRef.Kind == KindPod
		case e.Hostname != nil:
			out.name = *e.Hostname
		}
		// Kubernetes treats the addresses of one endpoint as the same server; like
		// kube-proxy, use the first.
		for j := range slices.Backward(e.Addresses) {
			a, err := parseAddr(e.Addresses[j])
			switch {
			case err != nil:
				faults = append(faults, Fault{fmt.Sprintf("%s[%d]", field, j), err.Error()})
			case a.Is6() != s.ipv6:
				faults = append(faults, Fault{fmt.Sprintf("%s[%d]", field, j),
					fmt.Sprintf("%s is not of addressType %s", a, family(s.ipv6))})
			}
			out.addr = a
		}
		s.endpoints = append(s.endpoints, out)
	}
	return faults
}

// readConditions evaluates conditions as in KEP-1669; the defaults are ready, serving, and
// not terminating.
func readConditions(c discoveryv1.EndpointConditions) use {
	switch {
	case is(c.Ready, true):
		return ready
	case is(c.Serving, true) && is(c.Terminating, false):
		return leaving
	}
	return unused
}

func is(b *bool, unsaid bool) bool {
	if b == nil {
		return unsaid
	}
	return *b
}

// family returns an address family as EndpointSlices name it.
func family(ipv6 bool) discoveryv1.AddressType {
	if ipv6 {
		return discoveryv1.AddressTypeIPv6
	}
	return discoveryv1.AddressTypeIPv4
}
