package v1alpha1

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fairlead/fairlead/core/addresspool"
)

// Pool is an AddressPool, parsed.
//
// +kubebuilder:object:generate=false
type Pool struct {
	addresspool.Pool
	namespaces            []string
	ofNamespace, ofObject labels.Selector // nil: not given
}

// ByAge sorts AddressPools, the oldest first: of two that overlap it counts.
func ByAge(pools []*AddressPool) []*AddressPool {
	return slices.SortedFunc(slices.Values(pools), func(a, b *AddressPool) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
}

// Parse reads an AddressPool. The error names all fields that are wrong.
func (p *AddressPool) Parse() (Pool, error) {
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

func parseRanges(field string, texts []AddressRange) (all []addresspool.Range, err error) {
	for i, text := range texts {
		r, wrong := addresspool.ParseRange(string(text))
		if wrong != nil {
			err = errors.Join(err, &FieldError{fmt.Sprintf("%s[%d]", field, i), wrong.Error()})
		}
		all = append(all, r)
	}
	return all, err
}

// selector reads a selector; nil where there is none.
func selector(field string, s *metav1.LabelSelector) (labels.Selector, error) {
	if s == nil {
		return nil, nil
	}
	made, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return nil, &FieldError{field, err.Error()}
	}
	return made, nil
}

func matches(s labels.Selector, of map[string]string) bool {
	return s == nil || s.Matches(labels.Set(of))
}

// Barred says why a Service may not have addresses of a pool; nothing where it
// may.
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

// Wrong is an object that is left out, and why.
//
// +kubebuilder:object:generate=false
type Wrong struct {
	Object string // as "BGPPeer rack-1"
	Err    error
}

// FieldError is a field that is wrong, and the mend.
//
// +kubebuilder:object:generate=false
type FieldError struct{ Field, Message string }

func (e *FieldError) Error() string { return e.Field + ": " + e.Message }

// FieldErrors gives the fields that an error of this package names.
func FieldErrors(err error) (all []FieldError) {
	var one *FieldError
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			all = append(all, FieldErrors(e)...)
		}
	} else if errors.As(err, &one) {
		all = append(all, *one)
	}
	return all
}
