package crd

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/fairlead/fairlead/api/v1alpha1"
	"github.com/fairlead/fairlead/core/addresspool"
)

// Pool is an AddressPool, parsed.
type Pool struct {
	addresspool.Pool
	namespaces            []string
	ofNamespace, ofObject labels.Selector // nil: not given
}

// ByAge sorts AddressPools, oldest first: if two overlap, the older one wins.
func ByAge(pools []*v1alpha1.AddressPool) []*v1alpha1.AddressPool {
	return slices.SortedFunc(slices.Values(pools), func(a, b *v1alpha1.AddressPool) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
}

// ParsePool reads an AddressPool. The error names all invalid fields.
func ParsePool(p *v1alpha1.AddressPool) (Pool, error) {
	s := &p.Spec
	made := Pool{
		Pool: addresspool.Pool{
			Name: p.Name, Manual: s.AutoAssign != nil && !*s.AutoAssign, Priority: s.Priority, AvoidBuggy: s.AvoidBuggyIPs,
		},
		namespaces: s.Namespaces,
	}
	var errs [4]error
	made.Addresses, errs[0] = parseRanges("spec.addresses", s.Addresses)
	made.Reserved, errs[1] = parseRanges("spec.reserved", s.Reserved)
	made.ofNamespace, errs[2] = selector("spec.namespaceSelector", s.NamespaceSelector)
	made.ofObject, errs[3] = selector("spec.serviceSelector", s.ServiceSelector)
	return made, errors.Join(errs[:]...)
}

func parseRanges(field string, texts []v1alpha1.AddressRange) (all []addresspool.Range, err error) {
	for i, text := range texts {
		r, wrong := addresspool.ParseRange(string(text))
		if wrong != nil {
			err = errors.Join(err, &FieldError{fmt.Sprintf("%s[%d]", field, i), wrong.Error()})
		}
		all = append(all, r)
	}
	return all, err
}

// Barred returns why a Service may not have addresses of a pool; "" if it may.
func (p Pool) Barred(namespace string, ofNamespace, ofService map[string]string) string {
	restricted := len(p.namespaces) > 0 || p.ofNamespace != nil
	inside := slices.Contains(p.namespaces, namespace) || p.ofNamespace != nil && matches(p.ofNamespace, ofNamespace)
	switch {
	case restricted && !inside:
		return "is not for namespace " + namespace
	case !matches(p.ofObject, ofService):
		return "is for Services with labels " + p.ofObject.String()
	}
	return ""
}

// ByNamespaceLabels reports whether Barred depends on the labels of the namespace.
func (p Pool) ByNamespaceLabels() bool { return p.ofNamespace != nil }
