// Package object says what Kubernetes' objects mean to the balancer: a Service
// and its EndpointSlices, and where Pods are on other networks, from a file or from an API server, become one
// service.Service. It is pure. An object's way is service.go with
// annotations.go and values.go, or slice.go, or pod.go, then join.go. How objects are had,
// and what of a refused one stays in force, is the business of the sources.
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

// The kinds that are read.
const (
	KindService = "Service"
	KindSlice   = "EndpointSlice"
	KindPod     = "Pod"
)

// Key names an object. In a key of a refused object any part may be empty,
// which is to say unknown.
type Key struct{ Kind, Namespace, Name string }

// String gives "Service default/web" or "BGPPeer rack-1", or as much of it as is
// known.
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

// Fault is something wrong in an object: the path of the field, and the mend.
type Fault struct{ Field, Message string }

// Origin is where an object comes from.
type Origin struct {
	// File is the file that it stands in, and Line gives the line of a field
	// ("" for the object itself); neither where it comes from an API.
	File string
	Line func(field string) int
	// Assigned says that addresses are given by who may write the status of
	// Services: only those of type LoadBalancer are ours then, and what they
	// ask for themselves, anybody's address perhaps, does not count.
	Assigned bool
	// Beyond, where it is set, says which addresses of a Service with these labels
	// count nevertheless, whatever its type: its externalIPs, its cluster addresses.
	Beyond func(labels map[string]string) (external, cluster bool)
	// RequireClass says that Services without spec.loadBalancerClass are others'.
	RequireClass bool
}

func (at Origin) line(field string) int {
	if at.Line == nil {
		return 0
	}
	return at.Line(field)
}

// Object is one object as it was read. It is never changed. Of one with faults
// no more than the key is to be relied on.
type Object struct {
	Key     Key
	File    string
	Line    int
	Created time.Time
	// Notes are what of it does nothing, though it is not refused.
	Notes []Fault
	// Value is the object itself, of a kind that is none of these three; of those
	// there is one of what follows.
	Value   any
	service *listener
	slice   *slice
	pod     *pod
}

// Other gives an object of another kind, of which no more is known here.
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

// Where gives "file:line", or nothing for an object of an API.
func (o *Object) Where() string { return o.where(o.Line) }

func (o *Object) where(line int) string {
	if o.File == "" {
		return ""
	}
	return o.File + ":" + strconv.Itoa(line)
}

// Problem makes one of this object, in a line of its file.
func (o *Object) Problem(line int, field, format string, args ...any) problem.Problem {
	return problem.Problem{Object: o.Key.String(), Where: o.where(line), Field: field, Message: fmt.Sprintf(format, args...)}
}

// Ours says that an object is a Service that Fairlead balances.
func (o *Object) Ours() bool { return o.service != nil && o.service.ours }

// Waiting says that a Service would be ours, but nobody has given it an
// address yet.
func (o *Object) Waiting() bool { return o.service != nil && o.service.waiting }

// SameAddresses says that two readings of a Service, either of which may have
// been refused, give it the same addresses.
func (o *Object) SameAddresses(was *Object) bool {
	return slices.Equal(o.service.vips, was.service.vips)
}

// Service is the Service that an EndpointSlice belongs to; zero for a Service.
func (o *Object) Service() service.ID {
	if o.slice == nil {
		return service.ID{}
	}
	return service.ID{Namespace: o.Key.Namespace, Name: o.slice.serviceName}
}

// Belongs gives the Service, "namespace/name", that an object is or belongs to; empty
// where it belongs to none.
func (o *Object) Belongs() string {
	switch {
	case o.service != nil:
		return service.ID{Namespace: o.Key.Namespace, Name: o.Key.Name}.String()
	case o.slice != nil:
		return o.Service().String()
	}
	return ""
}

// TypeChange gives the Problem of an EndpointSlice whose address type is not
// what it was, or nil.
func (o *Object) TypeChange(was *Object) *problem.Problem {
	if o.slice == nil || o.slice.ipv6 == was.slice.ipv6 {
		return nil
	}
	p := o.Problem(o.slice.typeLine, "addressType",
		"cannot change from %s to %s, as in Kubernetes; give the new EndpointSlice another name", family(was.slice.ipv6), family(o.slice.ipv6))
	return &p
}
