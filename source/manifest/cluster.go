package manifest

import (
	"net/netip"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead/fairlead/api/v1alpha1"
	"github.com/fairlead/fairlead/source/object"
)

// Kinds that exist only in a cluster.
const kindNetwork, kindLease = "VirtualNetwork", "NetworkLease"

var clusterKinds = []string{kindNetwork, kindLease}

// isForeign reports whether an object of a cluster is not for Fairlead.
func isForeign(kind, version string) bool {
	group, _, _ := strings.Cut(version, "/")
	want := apiVersions[kind]
	switch {
	case group == strings.TrimSuffix(object.AnnotationPrefix, "/"):
		return false
	case want == "", kind == kindSecret, kind == object.KindPod:
		return kind != ""
	}
	wanted, _, _ := strings.Cut(want, "/")
	return version != "" && group != wanted && strings.Contains(version, "/")
}

// service reads a Service. In a cluster, addresses are assigned later: until then, others
// stand in for them, so that everything else can be checked.
func (r *reader) service(s *corev1.Service, at object.Origin) (*object.Object, []object.Fault) {
	if !r.cluster {
		return object.ReadService(s, at)
	}
	at.Assigned = true
	if len(s.Status.LoadBalancer.Ingress) == 0 {
		for _, a := range standIns(s) {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a.String()})
		}
	}
	return object.ReadService(s, at)
}

// Addresses for documentation (RFC 5737, RFC 3849).
var standIn4, standIn6 = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")

func isStandIn(a netip.Addr) bool { return a == standIn4 || a == standIn6 }

// standIns returns the addresses that a Service requests or else one of each family that it
// names.
func standIns(s *corev1.Service) (all []netip.Addr) {
	if ask, _ := object.ReadAsk(s); len(ask.Addresses) > 0 {
		return slices.DeleteFunc(ask.Addresses, func(a netip.Addr) bool { return !a.IsValid() })
	}
	add := func(v6 bool) {
		a := standIn4
		if v6 {
			a = standIn6
		}
		if !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	for _, f := range s.Spec.IPFamilies {
		add(f == corev1.IPv6Protocol)
	}
	if len(s.Spec.IPFamilies) > 0 {
		return all
	}
	for _, text := range s.Spec.LoadBalancerSourceRanges {
		add(strings.Contains(text, ":"))
	}
	if len(all) == 0 {
		add(false)
	}
	return all
}

// network reads a VirtualNetwork or a NetworkLease.
func (r *reader) network(n *yaml.Node, k object.Key, at object.Origin) (o *object.Object, fs []object.Fault, faults []located) {
	if k.Kind == kindLease {
		l := &v1alpha1.NetworkLease{}
		if faults = r.dec.decode(n, l); len(faults) == 0 {
			o, fs = object.Other(k, &l.ObjectMeta, at, l), checkMeta(&l.ObjectMeta, validation.IsDNS1123Subdomain)
		}
		return o, fs, faults
	}
	w := &v1alpha1.VirtualNetwork{}
	if faults = r.dec.decode(n, w); len(faults) == 0 {
		o, fs = object.Other(k, &w.ObjectMeta, at, w), faultsOf(&w.ObjectMeta, nil)
	}
	return o, fs, faults
}
