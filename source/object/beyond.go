package object

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/core/service"
)

// ofKind is an address and where a Service has it from.
type ofKind struct {
	addr netip.Addr
	kind service.AddressKind
}

// readBeyond gives the addresses of a Service that count though nobody has given
// them to it as a load balancer's. What is no address an API server does not let
// pass.
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

// addBeyond takes addresses in beside those that there are. One of a family of
// which loadBalancerSourceRanges lets nobody in is left out.
func (l *listener) addBeyond(beyond []ofKind) {
	allow := l.template.Allow
	for _, one := range beyond {
		sameFamily := func(p netip.Prefix) bool { return p.Addr().Is6() == one.addr.Is6() }
		if len(allow) == 0 || slices.ContainsFunc(allow, sameFamily) {
			l.addVIP(one.addr, one.kind)
		}
	}
}
