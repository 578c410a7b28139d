// Package crd interprets Fairlead's Kubernetes resources, without I/O: the peers of a node,
// what it advertises, and the addresses of pools. The resources are in api/v1alpha1;
// source/kube, source/manifest and controller read them. vdn/kube reads virtual networks.
package crd

import (
	"errors"
	"fmt"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Wrong is an object that is left out, with the reason.
type Wrong struct {
	Object string // like "BGPPeer rack-1"
	Err    error
}

// FieldError is an invalid field, and how to fix it.
type FieldError struct{ Field, Message string }

func (e *FieldError) Error() string { return e.Field + ": " + e.Message }

// FieldErrors returns the fields that an error of this package names.
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

// fields collects the invalid fields of a spec.
type fields struct{ err error }

func (f *fields) refuse(name, format string, args ...any) {
	f.err = errors.Join(f.err, &FieldError{"spec." + name, fmt.Sprintf(format, args...)})
}

func (f *fields) within(name string, n, least, most int64) int64 {
	if n < least || n > most {
		f.refuse(name, "%d is not between %d and %d", n, least, most)
		return 0
	}
	return n
}

func (f *fields) address(name, text string) netip.Addr {
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" {
		f.refuse(name, "%q is not an IP address", text)
	}
	return a.WithZone("")
}

// selector parses a selector; nil if it is not set.
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

// Selects reports whether a selector selects an object with these labels. An invalid one
// selects none.
func Selects(s *metav1.LabelSelector, labels map[string]string) bool {
	made, err := selector("", s)
	return err == nil && matches(made, labels)
}
