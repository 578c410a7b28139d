package gateway

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fairlead/fairlead/core/service"
)

// Objects are all relevant objects of the cluster.
type Objects struct {
	Classes              []*Class
	Gateways             []*Gateway
	TCPRoutes, UDPRoutes []*Route
	Grants               []*Grant
	// Namespace returns the labels of a namespace.
	Namespace func(name string) map[string]string
	// Service returns the ports of a Service that has a cluster IP; false if there is no
	// such Service.
	Service func(service.ID) ([]Port, bool)
}

// Port is a port of a Service.
type Port struct {
	Name     string
	Protocol service.Protocol
	Port     uint16
}

// PortsOf returns the ports of a Service; nil if routes cannot refer to it.
func PortsOf(s *corev1.Service) (all []Port) {
	if s.Spec.Type == corev1.ServiceTypeExternalName || s.Spec.ClusterIP == "" || s.Spec.ClusterIP == corev1.ClusterIPNone {
		return nil
	}
	protocols := map[corev1.Protocol]service.Protocol{"": service.TCP, corev1.ProtocolTCP: service.TCP, corev1.ProtocolUDP: service.UDP}
	for _, p := range s.Spec.Ports {
		if protocol, ok := protocols[p.Protocol]; ok && p.Port > 0 && p.Port <= 65535 {
			all = append(all, Port{Name: p.Name, Protocol: protocol, Port: uint16(p.Port)})
		}
	}
	return all
}

// Verdict is the result for all objects.
type Verdict struct {
	Classes  []*Class  // ours
	Gateways []*Judged // of these classes, by namespace and name
	Routes   []*Routed // attached to these Gateways, oldest first
}

// Behind returns the Services that listeners route to.
func (v *Verdict) Behind() map[service.ID]bool {
	all := map[service.ID]bool{}
	for _, g := range v.Gateways {
		for _, l := range g.Listeners {
			for _, b := range l.Backends {
				all[b.Service] = true
			}
		}
	}
	return all
}

// Judged is a Gateway of one of our classes.
type Judged struct {
	*Gateway
	// Accepted is its condition. All conditions here have no times.
	Accepted  metav1.Condition
	Listeners []*Listening
}

// Listening is a listener of a Gateway.
type Listening struct {
	Listener
	Transport service.Protocol // 0 if it is rejected
	Kinds     []Kind
	// Conditions are Accepted, Conflicted and ResolvedRefs.
	Conditions []metav1.Condition
	// Route is the attached route, and Backends are its backends.
	Route    *Route
	Backends []Backend
	gateway  *Gateway
}

// Backend is a port of a Service, with its weight.
type Backend struct {
	Service service.ID
	Port    Port
	Weight  uint32
}

// Routed is a route attached to one of our Gateways.
type Routed struct {
	*Route
	Kind    string
	Parents []ParentStatus // only ours
}

// ID is the name under which a Gateway has addresses and is served. No Service can have it.
func ID(g *Gateway) service.ID { return service.ID{Namespace: g.Namespace, Name: "gateway/" + g.Name} }

// Judge computes the verdict. If two routes claim one listener, the older one gets it.
func Judge(o Objects) *Verdict {
	j := &judge{Objects: o, v: &Verdict{}, gateways: map[service.ID]*Judged{}}
	for _, c := range o.Classes {
		if c.Spec.ControllerName == ControllerName {
			j.v.Classes = append(j.v.Classes, c)
		}
	}
	for _, g := range o.Gateways {
		if slices.ContainsFunc(j.v.Classes, func(c *Class) bool { return c.Name == g.Spec.GatewayClassName }) {
			made := judgeGateway(g)
			j.v.Gateways = append(j.v.Gateways, made)
			j.gateways[service.ID{Namespace: g.Namespace, Name: g.Name}] = made
		}
	}
	slices.SortFunc(j.v.Gateways, func(a, b *Judged) int { return ID(a.Gateway).Compare(ID(b.Gateway)) })
	var routes []*Routed
	for _, r := range o.TCPRoutes {
		routes = append(routes, &Routed{Route: r, Kind: KindTCPRoute})
	}
	for _, r := range o.UDPRoutes {
		routes = append(routes, &Routed{Route: r, Kind: KindUDPRoute})
	}
	slices.SortFunc(routes, func(a, b *Routed) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
	for _, r := range routes {
		j.route(r)
	}
	return j.v
}

type judge struct {
	Objects
	v        *Verdict
	gateways map[service.ID]*Judged
}

func condition(of *metav1.ObjectMeta, kind string, ok bool, reason, format string, args ...any) metav1.Condition {
	status := metav1.ConditionFalse
	if ok {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: fmt.Sprintf(format, args...), ObservedGeneration: of.Generation}
}

func judgeGateway(g *Gateway) *Judged {
	made := &Judged{Gateway: g, Accepted: condition(&g.ObjectMeta, "Accepted", true, "Accepted", "it is served by Fairlead")}
	good := 0
	for _, l := range g.Spec.Listeners {
		one := judgeListener(g, l, made.Listeners)
		if made.Listeners = append(made.Listeners, one); one.Transport != 0 {
			good++
		}
	}
	if good < len(g.Spec.Listeners) {
		made.Accepted = condition(&g.ObjectMeta, "Accepted", good > 0, "ListenersNotValid",
			"%d of %d listeners are served; see the conditions of the others for the reason", good, len(g.Spec.Listeners))
	}
	for i, a := range g.Spec.Addresses {
		if a.Type != nil && *a.Type != TypeIPAddress {
			made.Accepted = condition(&g.ObjectMeta, "Accepted", false, "UnsupportedAddress",
				"spec.addresses[%d].type: %s is not served; want %s", i, *a.Type, TypeIPAddress)
		}
	}
	if made.Accepted.Status == metav1.ConditionFalse {
		for _, l := range made.Listeners {
			l.Transport = 0
		}
	}
	return made
}

func judgeListener(g *Gateway, l Listener, before []*Listening) *Listening {
	kinds := map[string]string{"TCP": KindTCPRoute, "UDP": KindUDPRoute}
	transports := map[string]service.Protocol{"TCP": service.TCP, "UDP": service.UDP}
	made := &Listening{Listener: l, Transport: transports[l.Protocol], gateway: g, Kinds: []Kind{}}
	accepted := condition(&g.ObjectMeta, "Accepted", true, "Accepted", "it is served")
	conflicted := condition(&g.ObjectMeta, "Conflicted", false, "NoConflicts", "no other listener has its port")
	resolved := condition(&g.ObjectMeta, "ResolvedRefs", true, "ResolvedRefs", "all its kinds of routes are known")
	group := Group
	if made.Transport == 0 {
		accepted = condition(&g.ObjectMeta, "Accepted", false, "UnsupportedProtocol", "protocol %s is not served; want TCP or UDP", l.Protocol)
	} else {
		made.Kinds = []Kind{{&group, kinds[l.Protocol]}}
	}
	if i := slices.IndexFunc(before, func(o *Listening) bool { return o.Port == l.Port && o.Protocol == l.Protocol }); i >= 0 {
		conflicted = condition(&g.ObjectMeta, "Conflicted", true, "ProtocolConflict", "listener %s has %s %d, too", before[i].Name, l.Protocol, l.Port)
		accepted = condition(&g.ObjectMeta, "Accepted", false, "PortUnavailable", "listener %s has %s %d", before[i].Name, l.Protocol, l.Port)
		made.Transport = 0
	}
	if l.AllowedRoutes != nil && len(l.AllowedRoutes.Kinds) > 0 {
		all := made.Kinds
		made.Kinds = []Kind{}
		for _, k := range l.AllowedRoutes.Kinds {
			if len(all) > 0 && (k.Group == nil || *k.Group == Group) && k.Kind == all[0].Kind {
				made.Kinds = all
			} else {
				resolved = condition(&g.ObjectMeta, "ResolvedRefs", false, "InvalidRouteKinds", "allowedRoutes.kinds: %s is not for protocol %s", k.Kind, l.Protocol)
			}
		}
	}
	made.Conditions = []metav1.Condition{accepted, conflicted, resolved}
	return made
}

// route attaches a route to the listeners of the Gateways that it names.
func (j *judge) route(r *Routed) {
	var backends []Backend
	var resolved metav1.Condition
	for _, ref := range r.Spec.ParentRefs {
		if or(ref.Group, Group) != Group || or(ref.Kind, KindGateway) != KindGateway {
			continue
		}
		g := j.gateways[service.ID{Namespace: or(ref.Namespace, r.Namespace), Name: ref.Name}]
		if g == nil {
			continue // absent or not ours
		}
		if r.Parents == nil {
			backends, resolved = j.backends(r)
			j.v.Routes = append(j.v.Routes, r)
		}
		r.Parents = append(r.Parents, ParentStatus{
			ParentRef: ref, ControllerName: ControllerName, Conditions: []metav1.Condition{j.attach(r, ref, g, backends), resolved},
		})
	}
}

// attach attaches a route to the listeners of a Gateway that it refers to and that allow
// it.
func (j *judge) attach(r *Routed, ref ParentRef, g *Judged, backends []Backend) metav1.Condition {
	var named, got, had int
	no := ""
	for _, l := range g.Listeners {
		if ref.SectionName != nil && *ref.SectionName != l.Name || ref.Port != nil && *ref.Port != l.Port {
			continue
		}
		named++
		why := j.bars(l, r)
		switch {
		case why != "":
			no += "; listener " + l.Name + " " + why
		case l.Route != nil && l.Route != r.Route:
			had++
			no += fmt.Sprintf("; listener %s has %s %s/%s, which is older", l.Name, r.Kind, l.Route.Namespace, l.Route.Name)
		default:
			got++
			l.Route, l.Backends = r.Route, backends
		}
	}
	switch {
	case got > 0:
		return condition(&r.ObjectMeta, "Accepted", true, "Accepted", "Gateway %s/%s serves it", g.Namespace, g.Name)
	case named == 0:
		return condition(&r.ObjectMeta, "Accepted", false, "NoMatchingParent", "Gateway %s/%s has no such listener", g.Namespace, g.Name)
	case had > 0:
		return condition(&r.ObjectMeta, "Accepted", false, "Conflicted", "no listener is left: %s", no[2:])
	}
	return condition(&r.ObjectMeta, "Accepted", false, "NotAllowedByListeners", "no listener takes it: %s", no[2:])
}

// bars returns why a listener does not accept a route; "" if it does.
func (j *judge) bars(l *Listening, r *Routed) string {
	if l.Transport == 0 {
		return "is not served"
	}
	if !slices.ContainsFunc(l.Kinds, func(k Kind) bool { return k.Kind == r.Kind }) {
		return fmt.Sprintf("(%s) takes no %s", l.Protocol, r.Kind)
	}
	from, selector := "Same", (*metav1.LabelSelector)(nil)
	if l.AllowedRoutes != nil && l.AllowedRoutes.Namespaces != nil {
		from, selector = or(l.AllowedRoutes.Namespaces.From, from), l.AllowedRoutes.Namespaces.Selector
	}
	switch from {
	case "All":
		return ""
	case "Same":
		if r.Namespace == l.gateway.Namespace {
			return ""
		}
	case "Selector":
		s, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil {
			return fmt.Sprintf("has a selector that cannot be read: %v", err)
		}
		if s.Matches(labels.Set(j.Namespace(r.Namespace))) {
			return ""
		}
	}
	return fmt.Sprintf("takes no routes of namespace %s (allowedRoutes.namespaces.from: %s)", r.Namespace, from)
}

// backends returns the backends of a route, and a condition that reports invalid
// references.
func (j *judge) backends(r *Routed) (all []Backend, resolved metav1.Condition) {
	resolved = condition(&r.ObjectMeta, "ResolvedRefs", true, "ResolvedRefs", "all its Services are there")
	for i, rule := range r.Spec.Rules {
		for k, ref := range rule.BackendRefs {
			b, reason, why := j.backend(r, ref)
			if why == "" {
				all = append(all, b)
			} else if resolved.Status == metav1.ConditionTrue {
				resolved = condition(&r.ObjectMeta, "ResolvedRefs", false, reason, "spec.rules[%d].backendRefs[%d]: %s; it is left out", i, k, why)
			}
		}
	}
	return all, resolved
}

func (j *judge) backend(r *Routed, ref BackendRef) (b Backend, reason, why string) {
	b = Backend{Service: service.ID{Namespace: or(ref.Namespace, r.Namespace), Name: ref.Name}, Weight: uint32(min(max(or(ref.Weight, 1), 0), 1e6))}
	if or(ref.Group, "") != "" || or(ref.Kind, "Service") != "Service" {
		return b, "InvalidKind", fmt.Sprintf("%s is no kind that is served; want Service", or(ref.Kind, "Service"))
	}
	if b.Service.Namespace != r.Namespace && !j.granted(r, b.Service) {
		return b, "RefNotPermitted", fmt.Sprintf("no ReferenceGrant in namespace %s lets %ss of namespace %s lead to Service %s",
			b.Service.Namespace, r.Kind, r.Namespace, b.Service.Name)
	}
	ports, ok := j.Service(b.Service)
	if !ok {
		return b, "BackendNotFound", fmt.Sprintf("there is no Service %s with an address in the cluster", b.Service)
	}
	i := slices.IndexFunc(ports, func(p Port) bool { return int32(p.Port) == or(ref.Port, 0) && kindOf(p.Protocol) == r.Kind })
	if i < 0 {
		if slices.ContainsFunc(ports, func(p Port) bool { return int32(p.Port) == or(ref.Port, 0) }) {
			return b, "UnsupportedProtocol", fmt.Sprintf("port %d of Service %s is none for a %s", *ref.Port, b.Service, r.Kind)
		}
		return b, "BackendNotFound", fmt.Sprintf("Service %s has no port %d", b.Service, or(ref.Port, 0))
	}
	b.Port = ports[i]
	return b, "", ""
}

func kindOf(p service.Protocol) string {
	return map[service.Protocol]string{service.TCP: KindTCPRoute, service.UDP: KindUDPRoute}[p]
}

// granted reports whether a route may refer to a Service of another namespace.
func (j *judge) granted(r *Routed, to service.ID) bool {
	return slices.ContainsFunc(j.Grants, func(g *Grant) bool {
		return g.Namespace == to.Namespace &&
			slices.Contains(g.Spec.From, GrantFrom{Group, r.Kind, r.Namespace}) &&
			slices.ContainsFunc(g.Spec.To, func(t GrantTo) bool {
				return t.Group == "" && t.Kind == "Service" && (or(t.Name, "") == "" || *t.Name == to.Name)
			})
	})
}

// or returns what p points to, or a default if p is nil.
func or[T any](p *T, unsaid T) T {
	if p == nil {
		return unsaid
	}
	return *p
}
