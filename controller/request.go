package controller

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/core/addresspool"
	"github.com/fairlead/fairlead/source/object"
)

// isOurs reports whether this controller assigns the addresses of a Service.
func (k *Controller) isOurs(s *corev1.Service) bool {
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return false
	}
	if c := s.Spec.LoadBalancerClass; c != nil {
		return *c == object.LoadBalancerClass
	}
	return !k.RequireClass
}

// request reads a Service's request. Even if it is invalid, the result has its current
// addresses.
func (t *term) request(s *corev1.Service) (addresspool.Request, error) {
	r := addresspool.Request{Barred: t.barred(s)}
	for _, in := range s.Status.LoadBalancer.Ingress {
		if a, err := netip.ParseAddr(in.IP); err == nil {
			r.Current = append(r.Current, a)
		}
	}
	for _, f := range s.Spec.IPFamilies {
		if f == corev1.IPv6Protocol {
			r.Families = append(r.Families, addresspool.IPv6)
		} else {
			r.Families = append(r.Families, addresspool.IPv4)
		}
	}
	if len(r.Families) == 0 {
		r.Families = []addresspool.Family{addresspool.IPv4}
	}
	r.Required = s.Spec.IPFamilyPolicy != nil && *s.Spec.IPFamilyPolicy == corev1.IPFamilyPolicyRequireDualStack
	ask, err := object.ReadAsk(s)
	r.Wanted, r.Named, r.SharingKey = ask.Addresses, ask.Pools, ask.SharingKey
	for _, p := range ask.Ports {
		r.Ports = append(r.Ports, addresspool.Port{Protocol: p.Protocol, First: p.Port, Last: p.Last})
	}
	return r, err
}

// barred returns why a pool is not available to a Service; t.mu must be held when the
// function is called.
func (t *term) barred(s *corev1.Service) func(string) string {
	return func(pool string) string {
		var labels map[string]string
		if o, ok, _ := t.namespaces.GetStore().GetByKey(s.Namespace); ok {
			labels = o.(*corev1.Namespace).Labels
		}
		p, ok := t.known[pool]
		if !ok {
			return fmt.Sprintf("is not known: %v", t.refused[pool])
		}
		return p.Barred(s.Namespace, labels, s.Labels)
	}
}
