package crd

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/fairlead/fairlead/api/v1alpha1"
)

// kinds reads those of addresses; LoadBalancer for none.
func (f *fields) kinds(all []v1alpha1.AddressKind) []v1alpha1.AddressKind {
	known := []v1alpha1.AddressKind{v1alpha1.AddressLoadBalancer, v1alpha1.AddressExternal, v1alpha1.AddressCluster}
	for _, k := range all {
		if !slices.Contains(known, k) {
			f.refuse("addresses", "%q is none of LoadBalancer, External and Cluster", k)
		}
	}
	if len(all) == 0 {
		return known[:1]
	}
	return all
}

// kindList gives "LoadBalancer and Cluster".
func kindList(kinds []v1alpha1.AddressKind) string {
	words := make([]string, len(kinds))
	for i, k := range kinds {
		words[i] = string(k)
	}
	return strings.Join(words, " and ")
}

// Beyond says of which Services addresses are announced that they do not have as
// load balancers'. The zero value says of none. It is never changed.
type Beyond struct {
	all []beyond
	// key is another where the Services or the kinds are.
	key string
}

type beyond struct {
	services          labels.Selector // nil: all
	external, cluster bool
}

// BeyondOf gives what Announcements, whatever nodes they are for, say of such
// addresses: servers of a Service may be on other nodes than its balancers. What is
// wrong with them AnnouncedBy tells.
func BeyondOf(announcements []*v1alpha1.Announcement) *Beyond {
	made := &Beyond{}
	sorted := slices.SortedFunc(slices.Values(announcements), func(a, b *v1alpha1.Announcement) int { return cmp.Compare(a.Name, b.Name) })
	for _, a := range sorted {
		one := beyond{external: slices.Contains(a.Spec.Addresses, v1alpha1.AddressExternal), cluster: slices.Contains(a.Spec.Addresses, v1alpha1.AddressCluster)}
		if !one.external && !one.cluster || ValidateAnnouncement(a) != nil {
			continue
		}
		one.services, _ = selector("", a.Spec.ServiceSelector) // valid
		made.all = append(made.all, one)
		made.key += kindList(a.Spec.Addresses) + " "
		if one.services != nil {
			made.key += one.services.String()
		}
		made.key += "\n"
	}
	return made
}

// Equal says that two are of the same Services and kinds.
func (b *Beyond) Equal(o *Beyond) bool { return b.key == o.key }

// Kinds says which such addresses count of a Service with these labels.
func (b *Beyond) Kinds(ofService map[string]string) (external, cluster bool) {
	for _, one := range b.all {
		if matches(one.services, ofService) {
			external, cluster = external || one.external, cluster || one.cluster
		}
	}
	return external, cluster
}
