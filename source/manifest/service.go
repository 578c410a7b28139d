package manifest

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/service"
)

// LoadBalancerClass is the spec.loadBalancerClass that Fairlead serves, beside
// none at all.
const LoadBalancerClass = AnnotationPrefix + "fairlead"

// listener is a Kubernetes Service as Fairlead sees it, before its servers are
// known.
type listener struct {
	// ours says that Fairlead serves it; nothing else is set where not.
	ours bool
	// template is the Service with frontends that have no backends.
	template service.Service
	vips     []netip.Addr
	ports    []listenerPort
	weights  map[netip.Addr]uint32
	// weightsLine is where the weights stand.
	weightsLine int
}

// listenerPort is one of a Service's ports.
type listenerPort struct {
	name     string
	protocol service.Protocol
	number   uint16
	field    string
	line     int
}

// readService turns a Kubernetes Service into a listener, or says why not.
func readService(s *corev1.Service, line func(field string) int) (*listener, []fault) {
	faults, ours := readType(s)
	if !ours || len(faults) > 0 {
		return &listener{}, faults
	}
	l := &listener{ours: true, weightsLine: line(annotation(AnnotationWeights))}
	l.ports, faults = readPorts(s.Spec.Ports)
	for i := range l.ports {
		l.ports[i].line = line(l.ports[i].field)
	}
	isTCP := func(p listenerPort) bool { return p.protocol == service.TCP }
	set, fs := readSettings(s.Annotations, !slices.ContainsFunc(l.ports, isTCP))
	faults = append(faults, fs...)
	l.vips, fs = readVIPs(s, set.addresses)
	faults = append(append(faults, fs...), unserved(s, set.method)...)
	l.weights = set.weights
	l.template = service.Service{
		ID: service.ID{Namespace: s.Namespace, Name: s.Name}, Created: s.CreationTimestamp.UTC(),
		Method: set.method, Scheduler: set.scheduler, RingSize: set.ringSize, Health: set.health, Panic: set.panic,
		Prefixes: set.prefixes,
	}
	if s.Namespace == "" {
		l.template.ID.Namespace = "default"
	}
	l.frontends()
	return l, append(faults, modelFaults(&l.template, len(faults) > 0)...)
}

// frontends makes one for every VIP and port.
func (l *listener) frontends() {
	for _, vip := range l.vips {
		for _, p := range l.ports {
			l.template.Frontends = append(l.template.Frontends, service.Frontend{
				Key: service.Key{VIP: vip, Port: p.number, Protocol: p.protocol}, PortName: p.name,
			})
		}
	}
	slices.SortFunc(l.template.Frontends, func(a, b service.Frontend) int { return a.Key.Compare(b.Key) })
}

// modelFaults asks the model, and names the annotations that its fields come
// from. What follows from other faults is left out: frontends that could not
// all be made, an invalid name.
func modelFaults(s *service.Service, already bool) (faults []fault) {
	for _, e := range s.Validate() {
		top, _, _ := strings.Cut(e.Field, "[")
		name, ok := modelFields[top]
		switch {
		case ok && !(already && top == "prefixes"):
			faults = append(faults, fault{annotation(name), e.Message})
		case !ok && !already && top != "id.name":
			faults = append(faults, fault{"spec", e.Error()})
		}
	}
	return faults
}

// readType says whether a Service is one for Fairlead.
func readType(s *corev1.Service) (faults []fault, ours bool) {
	types := []string{
		string(corev1.ServiceTypeLoadBalancer), string(corev1.ServiceTypeClusterIP),
		string(corev1.ServiceTypeNodePort), string(corev1.ServiceTypeExternalName),
	}
	if t := string(s.Spec.Type); t != "" && !slices.Contains(types, t) {
		mend := didYouMean(t, types)
		if mend == "" {
			mend = "; want " + service.Alternatives(types)
		}
		return []fault{{"spec.type", fmt.Sprintf("unknown type %q%s", t, mend)}}, false
	}
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return nil, len(s.Spec.ExternalIPs) > 0 && s.Spec.Type != corev1.ServiceTypeExternalName
	}
	class := s.Spec.LoadBalancerClass
	return nil, class == nil || *class == LoadBalancerClass
}

func readPorts(ports []corev1.ServicePort) (out []listenerPort, faults []fault) {
	if len(ports) == 0 {
		faults = append(faults, fault{"spec.ports", "is empty; want at least one port"})
	}
	for i, p := range ports {
		field := fmt.Sprintf("spec.ports[%d]", i)
		proto, why := readProtocol(p.Protocol)
		sameName := func(o listenerPort) bool { return o.name == p.Name }
		sameKey := func(o listenerPort) bool { return int32(o.number) == p.Port && o.protocol == proto }
		switch {
		case p.Port < 1 || p.Port > 65535:
			faults = append(faults, fault{field + ".port", fmt.Sprintf("%d is out of range; want 1 to 65535", p.Port)})
		case why != "":
			faults = append(faults, fault{field + ".protocol", why})
		case len(ports) > 1 && p.Name == "":
			faults = append(faults, fault{field + ".name", "is missing; a Service with several ports names each"})
		case slices.ContainsFunc(out, sameName):
			faults = append(faults, fault{field + ".name", fmt.Sprintf("%q is the name of two ports", p.Name)})
		case slices.ContainsFunc(out, sameKey):
			faults = append(faults, fault{field + ".port", fmt.Sprintf("%s %d is given twice", proto, p.Port)})
		default:
			out = append(out, listenerPort{name: p.Name, protocol: proto, number: uint16(p.Port), field: field})
		}
	}
	return out, faults
}

// readProtocol gives a protocol, TCP for none, or says why not.
func readProtocol(p corev1.Protocol) (service.Protocol, string) {
	switch p {
	case "", corev1.ProtocolTCP:
		return service.TCP, ""
	case corev1.ProtocolUDP:
		return service.UDP, ""
	case corev1.ProtocolSCTP:
		return 0, "SCTP is not served yet; want TCP or UDP"
	}
	return 0, fmt.Sprintf("unknown protocol %q; want TCP or UDP", p)
}

// readVIPs gives a Service's addresses: those assigned in its status, else
// those of the annotation, else the old spec.loadBalancerIP; and externalIPs
// in any case.
func readVIPs(s *corev1.Service, annotated []netip.Addr) (vips []netip.Addr, faults []fault) {
	add := func(field, text string) {
		a, err := parseAddr(text)
		if err != nil {
			faults = append(faults, fault{field, err.Error()})
		} else if !slices.Contains(vips, a) {
			vips = append(vips, a)
		}
	}
	for i, in := range s.Status.LoadBalancer.Ingress {
		if in.IP != "" {
			add(fmt.Sprintf("status.loadBalancer.ingress[%d].ip", i), in.IP)
		}
	}
	if len(vips) == 0 && len(faults) == 0 {
		vips = append(vips, annotated...)
		slices.SortFunc(vips, netip.Addr.Compare)
		vips = slices.Compact(vips)
	}
	if len(vips) == 0 && len(faults) == 0 && s.Spec.LoadBalancerIP != "" {
		add("spec.loadBalancerIP", s.Spec.LoadBalancerIP)
	}
	for i, ip := range s.Spec.ExternalIPs {
		add(fmt.Sprintf("spec.externalIPs[%d]", i), ip)
	}
	_, tried := s.Annotations[AnnotationAddresses]
	if len(vips) == 0 && len(faults) == 0 && !(tried && len(annotated) == 0) {
		faults = append(faults, fault{"status.loadBalancer.ingress", "the Service has no address; give it one by annotation " +
			AnnotationAddresses + " (or by status.loadBalancer.ingress[].ip, spec.loadBalancerIP or spec.externalIPs)"})
	}
	return vips, faults
}

// unserved refuses what a Service asks for and would not get.
func unserved(s *corev1.Service, m service.Method) (faults []fault) {
	refuse := func(field, message string) { faults = append(faults, fault{field, message}) }
	switch a := s.Spec.SessionAffinity; a {
	case "", corev1.ServiceAffinityNone:
		if s.Spec.SessionAffinityConfig != nil && s.Spec.SessionAffinityConfig.ClientIP != nil {
			refuse("spec.sessionAffinityConfig", "has no meaning without sessionAffinity ClientIP; leave it out")
		}
	case corev1.ServiceAffinityClientIP:
		refuse("spec.sessionAffinity", "ClientIP is not served yet; want None")
	default:
		refuse("spec.sessionAffinity", fmt.Sprintf("unknown session affinity %q; want None", a))
	}
	if len(s.Spec.LoadBalancerSourceRanges) > 0 {
		refuse("spec.loadBalancerSourceRanges", "is not served yet, so everybody would be let in; leave it out and filter elsewhere")
	}
	switch p := s.Spec.ExternalTrafficPolicy; p {
	case "", corev1.ServiceExternalTrafficPolicyCluster:
	case corev1.ServiceExternalTrafficPolicyLocal:
		if m == service.FullNAT {
			refuse("spec.externalTrafficPolicy", "Local asks to keep the client's address, which method fullnat rewrites; want Cluster, or method tunnel or direct-nat")
		}
	default:
		refuse("spec.externalTrafficPolicy", fmt.Sprintf("unknown policy %q; want Cluster or Local", p))
	}
	return faults
}
