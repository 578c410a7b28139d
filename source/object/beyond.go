package object

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/core/service"
)

// ofKind is an address with its kind.
type ofKind struct {
	addr netip.Addr
	kind service.AddressKind
}

// readBeyond returns the external and cluster addresses of a Service to serve in addition
// to load balancer addresses. The API server rejects invalid ones.
func readBeyond(s *corev1.Service, at Origin) (all []ofKind) {
	if at.Beyond == nil || s.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	external, cluster := at.Beyond(s.Labels)
	add := func(texts []string, kind service.AddressKind) {
		for _, text := range texts {
			if a, err := parseAddr(text); err == nil {
				all = append(all, ofKind{a, kind})
			}
		}
	}
	if external {
		add(s.Spec.ExternalIPs, service.ExternalAddress)
	}
	if cluster {
		add(s.Spec.ClusterIPs, service.ClusterAddress)
	}
	return all
}

// addBeyond adds these addresses to the existing ones, except of a family of which
// loadBalancerSourceRanges permits no clients.
func (l *listener) addBeyond(beyond []ofKind) {
	allow := l.template.Allow
	for _, one := range beyond {
		sameFamily := func(p netip.Prefix) bool { return p.Addr().Is6() == one.addr.Is6() }
		if len(allow) == 0 || slices.ContainsFunc(allow, sameFamily) {
			l.addVIP(one.addr, one.kind)
		}
	}
}
