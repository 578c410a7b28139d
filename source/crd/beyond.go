package crd

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/fairlead/fairlead/api/v1alpha1"
)

// kinds reads address kinds; the default is LoadBalancerIP.
func (f *fields) kinds(all []v1alpha1.AddressKind) []v1alpha1.AddressKind {
	known := []v1alpha1.AddressKind{v1alpha1.AddressLoadBalancerIP, v1alpha1.AddressExternalIP, v1alpha1.AddressClusterIP}
	for _, k := range all {
		if !slices.Contains(known, k) {
			f.refuse("addresses", "%q is none of LoadBalancerIP, ExternalIP and ClusterIP", k)
		}
	}
	if len(all) == 0 {
		return known[:1]
	}
	return all
}

// kindList returns text like "LoadBalancerIP and ClusterIP".
func kindList(kinds []v1alpha1.AddressKind) string {
	words := make([]string, len(kinds))
	for i, k := range kinds {
		words[i] = string(k)
	}
	return strings.Join(words, " and ")
}

// Beyond selects the Services that have external or cluster addresses advertised, in addition to
// load balancer addresses. The zero value selects none. It is immutable.
type Beyond struct {
	all []beyond
	// key differs if the Services or the kinds do.
	key string
}

type beyond struct {
	services          labels.Selector // nil: all
	external, cluster bool
}

// BeyondOf returns what Advertisements for any node select, because the backends of a
// Service may be on other nodes than its balancers. AdvertisedBy reports invalid ones.
func BeyondOf(advertisements []*v1alpha1.Advertisement) *Beyond {
	made := &Beyond{}
	sorted := slices.SortedFunc(slices.Values(advertisements), func(a, b *v1alpha1.Advertisement) int { return cmp.Compare(a.Name, b.Name) })
	for _, a := range sorted {
		one := beyond{external: slices.Contains(a.Spec.Addresses, v1alpha1.AddressExternalIP), cluster: slices.Contains(a.Spec.Addresses, v1alpha1.AddressClusterIP)}
		if !one.external && !one.cluster || ValidateAdvertisement(a) != nil {
			continue
		}
		one.services, _ = selector("", a.Spec.ServiceSelector) // already validated
		made.all = append(made.all, one)
		made.key += kindList(a.Spec.Addresses) + " "
		if one.services != nil {
			made.key += one.services.String()
		}
		made.key += "\n"
	}
	return made
}

// Equal reports whether two select the same Services and kinds.
func (b *Beyond) Equal(o *Beyond) bool { return b.key == o.key }

// Kinds returns which such addresses are advertised for a Service with these labels.
func (b *Beyond) Kinds(ofService map[string]string) (external, cluster bool) {
	for _, one := range b.all {
		if matches(one.services, ofService) {
			external, cluster = external || one.external, cluster || one.cluster
		}
	}
	return external, cluster
}
