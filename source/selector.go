package source

import (
	"fmt"
	"strings"
)

// LabelServiceName is the label of an EndpointSlice that names its Service
// (discovery.k8s.io/v1).
const LabelServiceName = "kubernetes.io/service-name"

// Selector selects EndpointSlices of one namespace by a label. Kubernetes copies the labels
// of a Service to its EndpointSlices, so it selects Services too.
type Selector struct{ Namespace, Label, Value string }

// ParseSelector parses "namespace/service" or "namespace/label=value".
func ParseSelector(text string) (Selector, error) {
	namespace, rest, _ := strings.Cut(text, "/")
	label, value, labelled := strings.Cut(rest, "=")
	if !labelled {
		label, value = LabelServiceName, rest
	}
	if namespace == "" || label == "" || value == "" || strings.ContainsAny(namespace+value, "/=, ") || strings.ContainsAny(label, "=, ") {
		return Selector{}, fmt.Errorf("%q selects no Services: write namespace/name, or namespace/label=value", text)
	}
	return Selector{namespace, label, value}, nil
}

// Selects reports whether an object with these labels is selected.
func (s Selector) Selects(namespace string, labels map[string]string) bool {
	value, ok := labels[s.Label]
	return ok && namespace == s.Namespace && value == s.Value
}

// String returns the text for ParseSelector.
func (s Selector) String() string {
	if s.Label == LabelServiceName {
		return s.Namespace + "/" + s.Value
	}
	return s.Namespace + "/" + s.Label + "=" + s.Value
}
