package crd

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/api/v1alpha1"
	"github.com/fairlead/fairlead/core/service"
)

// Quarantines is the path of the Quarantines in the API.
const Quarantines = "/apis/fairlead.io/v1alpha1/quarantines"

// NewQuarantine returns the order to drain a backend, "ADDR" or "ADDR:PORT", in a Service,
// "namespace/name", or in all of them. The same arguments give the same name.
func NewQuarantine(backend, of string) (q service.Quarantine, err error) {
	if end, err := netip.ParseAddrPort(backend); err == nil {
		q.Addr, q.Port = end.Addr(), end.Port()
	} else if q.Addr, err = netip.ParseAddr(backend); err != nil {
		return q, fmt.Errorf("%q is not the address of a backend, as in 172.16.1.10, 172.16.1.10:8080 or [2001:db8::10]:8080", backend)
	}
	q.Addr = q.Addr.Unmap()
	q.Name = strings.ReplaceAll(q.Addr.StringExpanded(), ":", "-")
	if q.Port != 0 {
		q.Name += fmt.Sprintf("-%d", q.Port)
	}
	if of != "" {
		if err := q.Service.UnmarshalText([]byte(of)); err != nil {
			return q, fmt.Errorf("--service: %w", err)
		}
		q.Name += "." + q.Service.Namespace + "." + q.Service.Name
	}
	_, err = ParseQuarantine(quarantine(q))
	return q, err
}

func quarantine(q service.Quarantine) *v1alpha1.Quarantine {
	out := &v1alpha1.Quarantine{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Quarantine"},
		ObjectMeta: metav1.ObjectMeta{Name: q.Name, CreationTimestamp: metav1.NewTime(q.Since.UTC())},
		Spec:       v1alpha1.QuarantineSpec{Address: q.Addr.String(), Port: int32(q.Port), Backend: q.Backend, Reason: q.Reason, By: q.By},
	}
	if q.Service != (service.ID{}) {
		out.Spec.Service = q.Service.String()
	}
	return out
}

// QuarantineManifest returns a Quarantine as YAML.
func QuarantineManifest(q service.Quarantine) ([]byte, error) { return yaml.Marshal(quarantine(q)) }

// ReadQuarantines parses a list of the API, without the invalid ones.
func ReadQuarantines(text []byte) ([]service.Quarantine, error) {
	list := &v1alpha1.QuarantineList{}
	if err := yaml.Unmarshal(text, list); err != nil {
		return nil, err
	}
	all := make([]*v1alpha1.Quarantine, len(list.Items))
	for i := range list.Items {
		all[i] = &list.Items[i]
	}
	valid, _ := QuarantinesOf(all)
	return valid, nil
}

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
