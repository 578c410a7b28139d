package kube

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/utils/net"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/source/gateway"
	"github.com/fairlead/fairlead/source/object"
)

// labelProxyName means that another service proxy serves a Service (kube-proxy's
// pkg/proxy/apis).
const labelProxyName = "service.kubernetes.io/service-proxy-name"

// serviceEntry is the cached part of a Service; a field is nil if its consumer does not
// need it.
type serviceEntry struct {
	proxy  *proxy.Service
	object *object.Object
	ports  []gateway.Port // for Gateways
	// refused means that the object has faults. The balancer keeps the previous version of
	// the Service, unless its addresses have changed, because the old ones may belong to
	// another Service now. Stored entries are never refused.
	refused bool
}

func (s *Source) readService(o runtime.Object) (*made[serviceEntry], error) {
	in, ok := o.(*corev1.Service)
	if !ok {
		return nil, fmt.Errorf("%T came where a Service was awaited", o)
	}
	in.Namespace = s.services.names.one(in.Namespace)
	for i := range in.Spec.Ports {
		in.Spec.Ports[i].Name = s.services.names.one(in.Spec.Ports[i].Name)
	}
	m := &made[serviceEntry]{id: service.ID{Namespace: in.Namespace, Name: in.Name}}
	if s.config.Sink != nil {
		m.value.proxy, m.refused = proxyService(in)
	}
	if s.balance {
		s.readBalanced(in, m)
	}
	if s.config.GatewayAPI {
		m.value.ports = gateway.PortsOf(in)
	}
	return m, nil
}

// readBalanced reads a Service for the balancer, which keeps only Fairlead's.
func (s *Source) readBalanced(in *corev1.Service, m *made[serviceEntry]) {
	o, faults := object.ReadService(in, object.Origin{Assigned: true, RequireClass: s.config.RequireClass, Beyond: s.routing.beyond.reads.Load().Kinds})
	switch {
	case len(faults) > 0:
		m.value.object, m.value.refused = o, true
		m.refused = append(m.refused, faults...)
	case o.Waiting():
		m.refused = append(m.refused, waiting(in))
	case o.Ours():
		m.value.object = o
	}
	m.refused = append(m.refused, o.Notes...)
}

func (s *Source) changeService(id service.ID, was, now serviceEntry) (serviceEntry, bool) {
	if sink := s.config.Sink; sink != nil {
		now.proxy = settle(was.proxy, now.proxy, sink.SetService, func() { sink.DeleteService(id) })
	}
	var kept *object.Object
	if now.refused {
		if was.object != nil && now.object.SameAddresses(was.object) {
			kept = was.object
		}
		now.object, now.refused = kept, false
	}
	s.balancer.setStale(s.services.name(id), kept)
	now.object = s.balancer.changeService(id, was.object, now.object)
	s.pods.use(id, now.object.Network() != "")
	if !slices.Equal(was.ports, now.ports) {
		s.gateways.stale = true
	}
	return now, now.proxy != nil || now.object != nil || now.ports != nil
}

// proxyService returns what the proxy needs of a Service, or nil if the proxy must ignore
// it (like kube-proxy: headless, ExternalName, or another proxy's), and the invalid parts,
// which are left out.
func proxyService(in *corev1.Service) (*proxy.Service, []object.Fault) {
	_, another := in.Labels[labelProxyName]
	spec := &in.Spec
	if another || spec.Type == corev1.ServiceTypeExternalName || spec.ClusterIP == "" || spec.ClusterIP == corev1.ClusterIPNone {
		return nil, nil
	}
	r := &serviceReader{}
	out := &proxy.Service{
		ID: service.ID{Namespace: in.Namespace, Name: in.Name}, Created: in.CreationTimestamp.UTC(),
		ClusterIPs:      r.addrs("spec.clusterIPs", spec.ClusterIPs),
		ExternalIPs:     r.addrs("spec.externalIPs", spec.ExternalIPs),
		LoadBalancerIPs: r.ingress(in.Status.LoadBalancer.Ingress),
		Ports:           r.ports(spec.Ports),
		InternalLocal:   spec.InternalTrafficPolicy != nil && *spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal,
		ExternalLocal:   spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal,
		SourceRanges:    r.ranges(spec.LoadBalancerSourceRanges),
	}
	if len(spec.ClusterIPs) == 0 { // stored before Kubernetes 1.20
		out.ClusterIPs = r.addrs("spec.clusterIP", []string{spec.ClusterIP})
	}
	if spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		out.Affinity = affinity(spec.SessionAffinityConfig)
	}
	if out.ExternalLocal && spec.Type == corev1.ServiceTypeLoadBalancer {
		out.HealthCheckNodePort = r.port("spec.healthCheckNodePort", spec.HealthCheckNodePort)
	}
	return out, r.faults
}

// affinity returns how long a client stays with its endpoint.
func affinity(c *corev1.SessionAffinityConfig) time.Duration {
	if c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil || *c.ClientIP.TimeoutSeconds <= 0 {
		return service.DefaultAffinity
	}
	return time.Duration(*c.ClientIP.TimeoutSeconds) * time.Second
}

// serviceReader collects invalid fields.
type serviceReader struct{ faults []object.Fault }

func (r *serviceReader) refuse(field, format string, args ...any) {
	r.faults = append(r.faults, object.Fault{Field: field, Message: fmt.Sprintf(format, args...)})
}

// addr parses an address as Kubernetes does: leading zeros are allowed, and an IPv4-mapped
// IPv6 address is an IPv4 address.
func addr(text string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(text)
	if err != nil {
		a, _ = netip.AddrFromSlice(utilnet.ParseIPSloppy(text))
	}
	return a.Unmap(), a.IsValid() && a.Zone() == ""
}

func (r *serviceReader) addrs(field string, texts []string) (out []netip.Addr) {
	for i, text := range texts {
		if a, ok := addr(text); ok {
			out = append(out, a)
		} else {
			r.refuse(fmt.Sprintf("%s[%d]", field, i), "%q is not an IP address; it is left out", text)
		}
	}
	return out
}

// ingress returns the addresses that a load balancer delivers unchanged.
func (r *serviceReader) ingress(all []corev1.LoadBalancerIngress) (out []netip.Addr) {
	for i, in := range all {
		if in.IP == "" || in.IPMode != nil && *in.IPMode != corev1.LoadBalancerIPModeVIP {
			continue
		}
		if a, ok := addr(in.IP); ok {
			out = append(out, a)
		} else {
			r.refuse(fmt.Sprintf("status.loadBalancer.ingress[%d].ip", i), "%q is not an IP address; it is left out", in.IP)
		}
	}
	return out
}

func (r *serviceReader) ports(all []corev1.ServicePort) []proxy.ServicePort {
	out := make([]proxy.ServicePort, 0, len(all))
	for i, p := range all {
		field := fmt.Sprintf("spec.ports[%d]", i)
		protocol, ok := protocolOf(p.Protocol)
		if !ok {
			r.refuse(field+".protocol", "unknown protocol %q; want TCP, UDP or SCTP; the port is left out", p.Protocol)
			continue
		}
		if p.Port == 0 {
			r.refuse(field+".port", "0 is no port; want 1 to 65535; it is left out")
			continue
		}
		port := proxy.ServicePort{Name: p.Name, Protocol: protocol, Port: r.port(field+".port", p.Port), NodePort: r.port(field+".nodePort", p.NodePort)}
		if port.Port != 0 {
			out = append(out, port)
		}
	}
	return out
}

// port returns a port, or 0 for none and for an invalid one.
func (r *serviceReader) port(field string, n int32) uint16 {
	if n < 0 || n > 65535 {
		r.refuse(field, "%d is no port; want 1 to 65535; it is left out", n)
		return 0
	}
	return uint16(n)
}

// nobody matches no client.
var nobody = netip.MustParsePrefix("::/128")

func (r *serviceReader) ranges(texts []string) (out []netip.Prefix) {
	for i, text := range texts {
		text = strings.TrimSpace(text) // the API accepts spaces
		p, err := netip.ParsePrefix(text)
		if err != nil {
			if _, n, sloppy := utilnet.ParseCIDRSloppy(text); sloppy == nil {
				ones, _ := n.Mask.Size()
				a, _ := netip.AddrFromSlice(n.IP)
				p = netip.PrefixFrom(a.Unmap(), ones)
			}
		}
		if !p.IsValid() {
			r.refuse(fmt.Sprintf("spec.loadBalancerSourceRanges[%d]", i), "%q is not a prefix; want one like \"10.1.1.0/24\"; nobody is let in by it", text)
			p = nobody // a typo must not let anybody in
		}
		out = append(out, p.Masked())
	}
	return out
}

// protocolOf returns a protocol; the default is TCP.
func protocolOf(p corev1.Protocol) (service.Protocol, bool) {
	switch p {
	case "", corev1.ProtocolTCP:
		return service.TCP, true
	case corev1.ProtocolUDP:
		return service.UDP, true
	case corev1.ProtocolSCTP:
		return service.SCTP, true
	}
	return 0, false
}
