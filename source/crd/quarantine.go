package crd

import (
	"slices"
	"strings"

	"github.com/fairlead/fairlead/api/v1alpha1"
	"github.com/fairlead/fairlead/core/service"
)

// ParseQuarantine returns the backend that a Quarantine drains. The error names every
// invalid field.
func ParseQuarantine(q *v1alpha1.Quarantine) (service.Quarantine, error) {
	f := fields{}
	out := service.Quarantine{
		Name: q.Name, Addr: f.address("address", q.Spec.Address).Unmap(), Backend: q.Spec.Backend, Reason: q.Spec.Reason, By: q.Spec.By,
		Port: uint16(f.within("port", int64(q.Spec.Port), 0, 65535)), Since: q.CreationTimestamp.UTC(),
	}
	if out.Addr.IsUnspecified() {
		f.refuse("address", "%s is not the address of a backend", out.Addr)
	}
	if q.Spec.Service != "" {
		if err := out.Service.UnmarshalText([]byte(q.Spec.Service)); err != nil || out.Service.Namespace == "" || out.Service.Name == "" {
			f.refuse("service", "%q is not the name of a Service: want one like default/web", q.Spec.Service)
		}
	}
	return out, f.err
}

// QuarantinesOf returns what valid Quarantines drain, sorted by name, and the invalid ones.
func QuarantinesOf(all []*v1alpha1.Quarantine) (valid []service.Quarantine, wrong []Wrong) {
	for _, q := range all {
		one, err := ParseQuarantine(q)
		if err != nil {
			wrong = append(wrong, Wrong{"Quarantine " + q.Name, err})
			continue
		}
		valid = append(valid, one)
	}
	slices.SortFunc(valid, func(a, b service.Quarantine) int { return strings.Compare(a.Name, b.Name) })
	return valid, wrong
}
