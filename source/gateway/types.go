// Package gateway says what objects of the Gateway API mean to Fairlead: which
// Gateways are its own, which TCPRoutes and UDPRoutes are theirs, and which
// Services' servers a listener leads to. It is pure. What it finds is for the
// controller (package kube), which gives addresses and writes conditions, and for
// the balancers (source/kube), which serve.
package gateway

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ControllerName is the spec.controllerName of the GatewayClasses that are ours.
const ControllerName = "fairlead.io/gateway"

// The kinds, and the group that they are of.
const (
	Group         = "gateway.networking.k8s.io"
	KindClass     = "GatewayClass"
	KindGateway   = "Gateway"
	KindTCPRoute  = "TCPRoute"
	KindUDPRoute  = "UDPRoute"
	KindGrant     = "ReferenceGrant"
	TypeIPAddress = "IPAddress"
)

// The versions in which they are read; routes in the older one where a cluster has
// no other.
var (
	V1       = schema.GroupVersion{Group: Group, Version: "v1"}
	V1Beta1  = schema.GroupVersion{Group: Group, Version: "v1beta1"}
	V1Alpha2 = schema.GroupVersion{Group: Group, Version: "v1alpha2"}
)

// Object is one object of the Gateway API, with the fields that are needed here. Once
// read it is never changed.
type Object[S, T any] struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   S `json:"spec"`
	Status T `json:"status,omitempty"`
}

// DeepCopyObject is for client-go; as nobody changes an object, nothing is deep.
func (o *Object[S, T]) DeepCopyObject() runtime.Object {
	c := *o
	return &c
}

// List is a list of objects.
type List[S, T any] struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Object[S, T] `json:"items"`
}

// DeepCopyObject is for client-go, as an Object's.
func (l *List[S, T]) DeepCopyObject() runtime.Object {
	c := *l
	return &c
}

// The kinds of objects and their lists.
type (
	Class       = Object[ClassSpec, ClassStatus]
	ClassList   = List[ClassSpec, ClassStatus]
	Gateway     = Object[Spec, Status]
	GatewayList = List[Spec, Status]
	Route       = Object[RouteSpec, RouteStatus] // TCPRoute and UDPRoute
	RouteList   = List[RouteSpec, RouteStatus]
	Grant       = Object[GrantSpec, struct{}]
	GrantList   = List[GrantSpec, struct{}]
)

// AddToScheme makes the types known to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	for kind, types := range map[string][2]runtime.Object{
		KindClass: {&Class{}, &ClassList{}}, KindGateway: {&Gateway{}, &GatewayList{}},
		KindTCPRoute: {&Route{}, &RouteList{}}, KindUDPRoute: {&Route{}, &RouteList{}},
	} {
		s.AddKnownTypeWithName(V1.WithKind(kind), types[0])
		s.AddKnownTypeWithName(V1.WithKind(kind+"List"), types[1])
	}
	for _, kind := range []string{KindTCPRoute, KindUDPRoute} {
		s.AddKnownTypeWithName(V1Alpha2.WithKind(kind), &Route{})
		s.AddKnownTypeWithName(V1Alpha2.WithKind(kind+"List"), &RouteList{})
	}
	s.AddKnownTypeWithName(V1Beta1.WithKind(KindGrant), &Grant{})
	s.AddKnownTypeWithName(V1Beta1.WithKind(KindGrant+"List"), &GrantList{})
	for _, v := range []schema.GroupVersion{V1, V1Beta1, V1Alpha2} {
		metav1.AddToGroupVersion(s, v)
	}
	return nil
}

// ClassSpec says whose a GatewayClass is.
type ClassSpec struct {
	ControllerName string `json:"controllerName"`
}

// ClassStatus is what its controller says of it.
type ClassStatus struct {
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Spec says what a Gateway listens on.
type Spec struct {
	GatewayClassName string     `json:"gatewayClassName"`
	Listeners        []Listener `json:"listeners"`
	Addresses        []Address  `json:"addresses,omitempty"`
}

// Listener is a port of a Gateway.
type Listener struct {
	Name          string         `json:"name"`
	Port          int32          `json:"port"`
	Protocol      string         `json:"protocol"`
	AllowedRoutes *AllowedRoutes `json:"allowedRoutes,omitempty"`
}

// AllowedRoutes are those that may attach to a listener.
type AllowedRoutes struct {
	Namespaces *RouteNamespaces `json:"namespaces,omitempty"`
	Kinds      []Kind           `json:"kinds,omitempty"`
}

// RouteNamespaces are those of which routes may attach: Same, All or by Selector.
type RouteNamespaces struct {
	From     *string               `json:"from,omitempty"`
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// Kind is one of routes.
type Kind struct {
	Group *string `json:"group,omitempty"`
	Kind  string  `json:"kind"`
}

// Address is one that a Gateway asks for or has.
type Address struct {
	Type  *string `json:"type,omitempty"`
	Value string  `json:"value,omitempty"`
}

// Status is what a Gateway's controller says of it.
type Status struct {
	Addresses  []Address          `json:"addresses,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	Listeners  []ListenerStatus   `json:"listeners,omitempty"`
}

// ListenerStatus is what it says of a listener.
type ListenerStatus struct {
	Name           string             `json:"name"`
	SupportedKinds []Kind             `json:"supportedKinds"`
	AttachedRoutes int32              `json:"attachedRoutes"`
	Conditions     []metav1.Condition `json:"conditions"`
}

// RouteSpec says where a route attaches, and where it leads to.
type RouteSpec struct {
	ParentRefs []ParentRef `json:"parentRefs,omitempty"`
	Rules      []Rule      `json:"rules"`
}

// Rule is where a route leads to.
type Rule struct {
	BackendRefs []BackendRef `json:"backendRefs,omitempty"`
}

// ParentRef names a Gateway, or one listener of it.
type ParentRef struct {
	Group       *string `json:"group,omitempty"`
	Kind        *string `json:"kind,omitempty"`
	Namespace   *string `json:"namespace,omitempty"`
	Name        string  `json:"name"`
	SectionName *string `json:"sectionName,omitempty"`
	Port        *int32  `json:"port,omitempty"`
}

// BackendRef names a port of a Service, and its share.
type BackendRef struct {
	Group     *string `json:"group,omitempty"`
	Kind      *string `json:"kind,omitempty"`
	Namespace *string `json:"namespace,omitempty"`
	Name      string  `json:"name"`
	Port      *int32  `json:"port,omitempty"`
	Weight    *int32  `json:"weight,omitempty"`
}

// RouteStatus is what the controllers of its parents say of a route.
type RouteStatus struct {
	Parents []ParentStatus `json:"parents"`
}

// ParentStatus is what one says of a route at one parent.
type ParentStatus struct {
	ParentRef      ParentRef          `json:"parentRef"`
	ControllerName string             `json:"controllerName"`
	Conditions     []metav1.Condition `json:"conditions"`
}

// GrantSpec lets routes of other namespaces lead to Services of the grant's own.
type GrantSpec struct {
	From []GrantFrom `json:"from"`
	To   []GrantTo   `json:"to"`
}

// GrantFrom is whom a grant is for.
type GrantFrom struct {
	Group     string `json:"group"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
}

// GrantTo is what a grant is about.
type GrantTo struct {
	Group string  `json:"group"`
	Kind  string  `json:"kind"`
	Name  *string `json:"name,omitempty"`
}
