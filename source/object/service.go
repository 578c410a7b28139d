package object

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/suggest"
)

// LoadBalancerClass is the spec.loadBalancerClass that Fairlead serves, in addition to
// Services without a class unless a class is required.
const LoadBalancerClass = AnnotationPrefix + "fairlead"

// ConditionAssigned is the condition of a Service in which the controller reports whether
// it has the requested addresses, and why not.
const ConditionAssigned = AnnotationPrefix + "AddressAssigned"

// ConditionProgrammed and ConditionAdvertised are the conditions in which the controller
// reports on how many load balancers a Service is programmed and advertised.
const (
	ConditionProgrammed = AnnotationPrefix + "Programmed"
	ConditionAdvertised = AnnotationPrefix + "Advertised"
)

// listener is a Kubernetes Service without its backends.
type listener struct {
	// ours means that Fairlead serves it; otherwise nothing else is set.
	ours bool
	// waiting means that it would be ours if it had an address.
	waiting bool
	// template is the Service with frontends without backends.
	template service.Service
	vips     []netip.Addr
	kinds    []service.AddressKind // of vips, in the same order
	ports    []listenerPort
	weights  map[netip.Addr]uint32
	maxConns maxConns
	// ask is the request for addresses, with the addresses that it has.
	ask Ask
	// network is where the backends are reached; nil: at their own addresses.
	network *onNetwork
	// Lines in the file.
	weightsLine, maxConnsLine int
}

// listenerPort is one of a Service's ports.
type listenerPort struct {
	name     string
	protocol service.Protocol
	number   uint16
	last     uint16 // as in service.Key
	field    string
	line     int
}

// ReadService reads a Kubernetes Service, or returns why it is rejected.
func ReadService(s *corev1.Service, at Origin) (*Object, []Fault) {
	o := newObject(KindService, &s.ObjectMeta, at)
	faults, ours := readType(s, at)
	if !ours && len(faults) == 0 {
		o.Notes = readOthers(s, at)
	}
	beyond := readBeyond(s, at)
	o.service = &listener{}
	switch {
	case !ours && len(beyond) == 0 || len(faults) > 0:
	case ours && at.Assigned && !hasAddress(s) && len(beyond) == 0:
		o.service.waiting = true
	default:
		if !ours { // the addresses in its status are another implementation's
			s = s.DeepCopy()
			s.Status.LoadBalancer = corev1.LoadBalancerStatus{}
		}
		o.service, faults = readListener(s, at, beyond)
	}
	return o, faults
}

// readListener reads a Service that is ours, or that has external or cluster addresses to
// serve.
func readListener(s *corev1.Service, at Origin, beyond []ofKind) (l *listener, faults []Fault) {
	l = &listener{
		ours: true, weightsLine: at.line(annotation(AnnotationWeights)), maxConnsLine: at.line(annotation(AnnotationMaxConnections)),
	}
	note := func(fs []Fault) { faults = append(faults, fs...) }
	l.ports, faults = readPorts(s.Spec.Ports)
	set, fs := readSettings(s.Annotations)
	note(fs)
	l.ports, fs = set.ranges.apply(l.ports)
	note(fs)
	note(set.settleCheck(s.Annotations, l.ports))
	for i := range l.ports {
		l.ports[i].line = at.line(l.ports[i].field)
	}
	note(l.readVIPs(s, set.addresses, at.Assigned))
	note(unserved(s, set.method))
	l.weights, l.maxConns = set.weights, set.maxConns
	l.ask = askOf(&set, l.vips, l.ports)
	if set.network != "" {
		l.network = &onNetwork{set.network, at.line(annotation(AnnotationNetwork))}
	}
	l.template = service.Service{
		ID: service.ID{Namespace: cmp.Or(s.Namespace, metav1.NamespaceDefault), Name: s.Name}, Created: s.CreationTimestamp.UTC(),
		Method: set.method, Encapsulation: set.encapsulation, Scheduler: set.scheduler, Survival: set.survival,
		RingSize: set.ringSize, Health: set.health, Panic: set.panic, Dedicated: set.dedicated, Prefixes: set.prefixes, Deny: set.deny, Limits: set.limits, SYNProtection: set.protection,
	}
	l.template.LocalPolicy = s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	l.template.Labels = s.Labels
	l.template.Affinity, fs = readAffinity(&s.Spec)
	note(fs)
	if p := s.Spec.InternalTrafficPolicy; p != nil {
		l.template.LocalPolicyCluster = *p == corev1.ServiceInternalTrafficPolicyLocal
	}
	l.template.Allow, fs = readSourceRanges(s.Spec.LoadBalancerSourceRanges)
	note(fs)
	l.addBeyond(beyond)
	_, asked := s.Annotations[AnnotationConnectionConsistency]
	note(l.settleSurvival(asked))
	l.frontends()
	return l, append(faults, modelFaults(&l.template, len(faults) > 0)...)
}

// frontends creates a frontend for every VIP and port.
func (l *listener) frontends() {
	for i, vip := range l.vips {
		for _, p := range l.ports {
			l.template.Frontends = append(l.template.Frontends, service.Frontend{
				Key: service.Key{VIP: vip, Port: p.number, Last: p.last, Protocol: p.protocol}, Kind: l.kinds[i], PortName: p.name,
			})
		}
	}
	slices.SortFunc(l.template.Frontends, func(a, b service.Frontend) int { return a.Key.Compare(b.Key) })
}

// settleSurvival sets the default connection consistency, and checks what the model can
// only check with backends.
func (l *listener) settleSurvival(asked bool) []Fault {
	t := &l.template
	switch {
	case !asked && l.maxConns.any():
		t.Survival = service.FlowTable
	case !asked:
		t.Survival = t.DefaultSurvival()
	case l.maxConns.any() && t.Survival != service.FlowTable && slices.Contains(service.Survivals, t.Survival):
		return []Fault{{annotation(AnnotationConnectionConsistency), fmt.Sprintf("%s is not possible with %s, for which flows must be remembered; want %s",
			t.Survival, AnnotationMaxConnections, service.FlowTable)}}
	}
	return nil
}

// modelFaults validates the model, and maps its fields to their source. It omits what may
// follow from other faults: an incomplete list of frontends, an invalid name.
func modelFaults(s *service.Service, already bool) (faults []Fault) {
	follow := []string{"prefixes", "allow", "deny", "health.port"}
	for _, e := range s.Validate() {
		top, _, _ := strings.Cut(e.Field, "[")
		field, ok := modelFields[top]
		switch {
		case ok && !(already && slices.Contains(follow, top)):
			faults = append(faults, Fault{field, e.Message})
		case !ok && !already && top != "id.name":
			faults = append(faults, Fault{"spec", e.Error()})
		}
	}
	return faults
}

// readType reports whether Fairlead must serve a Service.
func readType(s *corev1.Service, at Origin) (faults []Fault, ours bool) {
	types := []string{
		string(corev1.ServiceTypeLoadBalancer), string(corev1.ServiceTypeClusterIP),
		string(corev1.ServiceTypeNodePort), string(corev1.ServiceTypeExternalName),
	}
	if t := string(s.Spec.Type); t != "" && !slices.Contains(types, t) {
		fix := suggest.DidYouMean(t, types)
		if fix == "" {
			fix = "; want " + service.Alternatives(types)
		}
		return []Fault{{"spec.type", fmt.Sprintf("unknown type %q%s", t, fix)}}, false
	}
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return nil, !at.Assigned && len(s.Spec.ExternalIPs) > 0 && s.Spec.Type != corev1.ServiceTypeExternalName
	}
	class := s.Spec.LoadBalancerClass
	if class != nil && *class == "" {
		return []Fault{{"spec.loadBalancerClass", fmt.Sprintf("is empty; leave it out, or want %q", LoadBalancerClass)}}, false
	}
	if class != nil && *class != LoadBalancerClass && suggest.Nearest(*class, []string{LoadBalancerClass}) != "" {
		return []Fault{{"spec.loadBalancerClass", fmt.Sprintf("unknown class %q; did you mean %q?", *class, LoadBalancerClass)}}, false
	}
	return nil, class == nil && !at.RequireClass || class != nil && *class == LoadBalancerClass
}

// readOthers reports settings of a Service that is not ours that suggest it should be.
func readOthers(s *corev1.Service, at Origin) (notes []Fault) {
	_, asks := s.Annotations[AnnotationAddresses]
	class := s.Spec.LoadBalancerClass
	switch {
	case s.Spec.Type != corev1.ServiceTypeLoadBalancer && asks && !at.Assigned:
		notes = append(notes, Fault{"spec.type", fmt.Sprintf("is %s, so that the Service is not served, though it has the annotation %s; want %s",
			cmp.Or(s.Spec.Type, corev1.ServiceTypeClusterIP), AnnotationAddresses, corev1.ServiceTypeLoadBalancer)})
	case class != nil && *class != LoadBalancerClass && strings.HasPrefix(strings.ToLower(*class), "fairlead"):
		notes = append(notes, Fault{"spec.loadBalancerClass", fmt.Sprintf("%q is not the class of Fairlead, %q: the Service is left to others", *class, LoadBalancerClass)})
	}
	return notes
}

func readPorts(ports []corev1.ServicePort) (out []listenerPort, faults []Fault) {
	if len(ports) == 0 {
		faults = append(faults, Fault{"spec.ports", "is empty; want at least one port"})
	}
	for i, p := range ports {
		field := fmt.Sprintf("spec.ports[%d]", i)
		proto, why := readProtocol(p.Protocol)
		sameName := func(o listenerPort) bool { return o.name == p.Name }
		sameKey := func(o listenerPort) bool { return int32(o.number) == p.Port && o.protocol == proto }
		switch {
		case p.Port < 1 || p.Port > 65535:
			faults = append(faults, Fault{field + ".port", fmt.Sprintf("%d is out of range; want 1 to 65535", p.Port)})
		case why != "":
			faults = append(faults, Fault{field + ".protocol", why})
		case len(ports) > 1 && p.Name == "":
			faults = append(faults, Fault{field + ".name", "is missing; a Service with several ports names each"})
		case slices.ContainsFunc(out, sameName):
			faults = append(faults, Fault{field + ".name", fmt.Sprintf("%q is the name of two ports", p.Name)})
		case slices.ContainsFunc(out, sameKey):
			faults = append(faults, Fault{field + ".port", fmt.Sprintf("%s %d is given twice", proto, p.Port)})
		default:
			out = append(out, listenerPort{name: p.Name, protocol: proto, number: uint16(p.Port), field: field})
		}
	}
	return out, faults
}

// readProtocol returns a protocol, TCP by default, or why it is invalid.
func readProtocol(p corev1.Protocol) (service.Protocol, string) {
	switch p {
	case "", corev1.ProtocolTCP:
		return service.TCP, ""
	case corev1.ProtocolUDP:
		return service.UDP, ""
	case corev1.ProtocolSCTP:
		return service.SCTP, ""
	}
	return 0, fmt.Sprintf("unknown protocol %q; want TCP, UDP or SCTP", p)
}

// hasAddress reports whether a Service has an assigned address.
func hasAddress(s *corev1.Service) bool {
	return slices.ContainsFunc(s.Status.LoadBalancer.Ingress, func(in corev1.LoadBalancerIngress) bool { return in.IP != "" })
}

// readVIPs reads a Service's addresses: those assigned in its status, else those of the
// annotation, else the deprecated spec.loadBalancerIP; and externalIPs in any case. If
// addresses are assigned in the status, only those count.
func (l *listener) readVIPs(s *corev1.Service, annotated []netip.Addr, assigned bool) (faults []Fault) {
	add := func(field, text string) {
		if a, err := parseAddr(text); err != nil {
			faults = append(faults, Fault{field, err.Error()})
		} else {
			l.addVIP(a, service.LoadBalancerAddress)
		}
	}
	for i, in := range s.Status.LoadBalancer.Ingress {
		if in.IP != "" {
			add(fmt.Sprintf("status.loadBalancer.ingress[%d].ip", i), in.IP)
		}
	}
	if assigned {
		return faults
	}
	if len(l.vips) == 0 && len(faults) == 0 {
		for _, a := range slices.SortedFunc(slices.Values(annotated), netip.Addr.Compare) {
			l.addVIP(a, service.LoadBalancerAddress)
		}
	}
	if len(l.vips) == 0 && len(faults) == 0 && s.Spec.LoadBalancerIP != "" {
		add("spec.loadBalancerIP", s.Spec.LoadBalancerIP)
	}
	for i, ip := range s.Spec.ExternalIPs {
		add(fmt.Sprintf("spec.externalIPs[%d]", i), ip)
	}
	if len(l.vips) == 0 && len(faults) == 0 && !triesAddresses(s.Annotations) {
		faults = append(faults, Fault{"status.loadBalancer.ingress", "the Service has no address; give it one by annotation " +
			AnnotationAddresses + " (or by status.loadBalancer.ingress[].ip, spec.loadBalancerIP or spec.externalIPs)"})
	}
	return faults
}

// triesAddresses reports whether there is an annotation for addresses, even a misspelled
// one.
func triesAddresses(annotations map[string]string) bool {
	if _, ok := annotations[AnnotationAddresses]; ok {
		return true
	}
	known := Annotations()
	for name := range annotations {
		if misspelt(name, known) == AnnotationAddresses {
			return true
		}
	}
	return false
}

// addVIP adds an address, unless it is already there.
func (l *listener) addVIP(a netip.Addr, kind service.AddressKind) {
	if !slices.Contains(l.vips, a) {
		l.vips = append(l.vips, a)
		l.kinds = append(l.kinds, kind)
	}
}

// unserved rejects settings that cannot be fulfilled.
func unserved(s *corev1.Service, m service.Method) (faults []Fault) {
	refuse := func(field, message string) { faults = append(faults, Fault{field, message}) }
	switch p := s.Spec.ExternalTrafficPolicy; p {
	case "", corev1.ServiceExternalTrafficPolicyCluster:
	case corev1.ServiceExternalTrafficPolicyLocal:
		if m == service.FullNAT {
			refuse("spec.externalTrafficPolicy", "Local asks to keep the client's address, which forwarding mode fullnat rewrites; want Cluster, or another forwarding mode")
		}
	default:
		refuse("spec.externalTrafficPolicy", fmt.Sprintf("unknown policy %q; want Cluster or Local", p))
	}
	return faults
}

// readAffinity returns how long a client stays with its backend.
func readAffinity(s *corev1.ServiceSpec) (time.Duration, []Fault) {
	var timeout *int32
	if c := s.SessionAffinityConfig; c != nil && c.ClientIP != nil {
		timeout = c.ClientIP.TimeoutSeconds
		if s.SessionAffinity != corev1.ServiceAffinityClientIP {
			return 0, []Fault{{"spec.sessionAffinityConfig", "has no meaning without sessionAffinity ClientIP; leave it out"}}
		}
	}
	switch a := s.SessionAffinity; {
	case a == "" || a == corev1.ServiceAffinityNone:
		return 0, nil
	case a != corev1.ServiceAffinityClientIP:
		return 0, []Fault{{"spec.sessionAffinity", fmt.Sprintf("unknown session affinity %q; want None or ClientIP", a)}}
	case timeout == nil:
		return service.DefaultAffinity, nil
	case *timeout < 1 || time.Duration(*timeout)*time.Second > service.MaxAffinity:
		return 0, []Fault{{"spec.sessionAffinityConfig.clientIP.timeoutSeconds",
			fmt.Sprintf("%d is out of range; want 1 to %d", *timeout, service.MaxAffinity/time.Second)}}
	}
	return time.Duration(*timeout) * time.Second, nil
}

func readSourceRanges(ranges []string) (prefixes []netip.Prefix, faults []Fault) {
	for i, text := range ranges {
		p, err := parsePrefix(strings.TrimSpace(text))
		if err != nil {
			faults = append(faults, Fault{fmt.Sprintf("spec.loadBalancerSourceRanges[%d]", i), err.Error()})
		}
		prefixes = append(prefixes, p)
	}
	return prefixes, faults
}
