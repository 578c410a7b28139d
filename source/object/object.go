// Package object converts Kubernetes objects for the balancer: a Service and its
// EndpointSlices, and Pods on secondary networks, from a file or an API server, become one
// service.Service. It is pure. An object passes through service.go with annotations.go and
// values.go, or slice.go, or pod.go, and then join.go. Sources read the objects, and decide
// what stays in force when one is rejected.
package object

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/core/service"
)

// Supported kinds.
const (
	KindService = "Service"
	KindSlice   = "EndpointSlice"
	KindPod     = "Pod"
)

// Key identifies an object. In the key of a rejected object, any part may be empty, which
// means unknown.
type Key struct{ Kind, Namespace, Name string }

// String returns "Service default/web" or "BGPPeer rack-1", or as much of it as is known.
func (k Key) String() string {
	switch {
	case k.Name == "":
		return k.Kind
	case k.Namespace == "":
		return strings.TrimSpace(k.Kind + " " + k.Name)
	}
	return strings.TrimSpace(k.Kind + " " + k.Namespace + "/" + k.Name)
}

// Compare orders keys by kind, namespace and name.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Kind, o.Kind), cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Name, o.Name))
}

// Fault is an invalid field of an object, and how to fix it.
type Fault struct{ Field, Message string }

// Origin is where an object comes from.
type Origin struct {
	// File is the file with the object, and Line returns the line of a field ("" for the
	// object itself); both are unset for an object from an API.
	File string
	Line func(field string) int
	// Assigned means that addresses are assigned in the status of Services: only Services
	// of type LoadBalancer are ours then, and the addresses in their spec, which anybody
	// could claim, do not count.
	Assigned bool
	// Beyond, if set, selects which addresses of a Service with these labels count
	// nevertheless, whatever its type: its externalIPs, its cluster addresses.
	Beyond func(labels map[string]string) (external, cluster bool)
	// RequireClass ignores Services without spec.loadBalancerClass.
	RequireClass bool
}

func (at Origin) line(field string) int {
	if at.Line == nil {
		return 0
	}
	return at.Line(field)
}

// Object is one object as read. It is immutable. If it has faults, only its key is
// reliable.
type Object struct {
	Key     Key
	File    string
	Line    int
	Created time.Time
	// Notes are parts without an effect that are not rejected.
	Notes []Fault
	// Value is the object itself for other kinds; for the three kinds above, one of the
	// following is set.
	Value   any
	service *listener
	slice   *slice
	pod     *pod
}

// Other returns an object of another kind, which is opaque here.
func Other(k Key, m *metav1.ObjectMeta, at Origin, value any) *Object {
	o := newObject(k.Kind, m, at)
	o.Key, o.Value = k, value
	return o
}

func newObject(kind string, m *metav1.ObjectMeta, at Origin) *Object {
	return &Object{
		Key:  Key{kind, cmp.Or(m.Namespace, metav1.NamespaceDefault), m.Name},
		File: at.File, Line: at.line(""), Created: m.CreationTimestamp.UTC(),
	}
}

// Where returns "file:line", or "" for an object of an API.
func (o *Object) Where() string { return o.where(o.Line) }

func (o *Object) where(line int) string {
	if o.File == "" {
		return ""
	}
	return o.File + ":" + strconv.Itoa(line)
}

// Problem returns a Problem of this object, in a line of its file.
func (o *Object) Problem(line int, field, format string, args ...any) problem.Problem {
	return problem.Problem{Object: o.Key.String(), Where: o.where(line), Field: field, Message: fmt.Sprintf(format, args...)}
}

// Ours reports whether an object is a Service that Fairlead balances.
func (o *Object) Ours() bool { return o.service != nil && o.service.ours }

// Waiting reports whether a Service would be ours but has no address assigned yet.
func (o *Object) Waiting() bool { return o.service != nil && o.service.waiting }

// SameAddresses reports whether two versions of a Service, either of which may have been
// rejected, have the same addresses.
func (o *Object) SameAddresses(was *Object) bool {
	return slices.Equal(o.service.vips, was.service.vips)
}

// Service returns the Service that an EndpointSlice belongs to; zero for a Service.
func (o *Object) Service() service.ID {
	if o.slice == nil {
		return service.ID{}
	}
	return service.ID{Namespace: o.Key.Namespace, Name: o.slice.serviceName}
}

// Belongs returns the Service, "namespace/name", that an object is or belongs to, or "".
func (o *Object) Belongs() string {
	switch {
	case o.service != nil:
		return service.ID{Namespace: o.Key.Namespace, Name: o.Key.Name}.String()
	case o.slice != nil:
		return o.Service().String()
	}
	return ""
}

// TypeChange returns the Problem of an EndpointSlice whose address type has changed, or
// nil.
func (o *Object) TypeChange(was *Object) *problem.Problem {
	if o.slice == nil || o.slice.ipv6 == was.slice.ipv6 {
		return nil
	}
	p := o.Problem(o.slice.typeLine, "addressType",
		"cannot change from %s to %s, as in Kubernetes; give the new EndpointSlice another name", family(was.slice.ipv6), family(o.slice.ipv6))
	return &p
}
