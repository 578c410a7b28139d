// Package gateway interprets objects of the Gateway API: which Gateways are Fairlead's,
// which TCPRoutes and UDPRoutes attach to them, and which Services' backends a listener
// routes to. It is pure. The controller uses the results to assign addresses and write
// conditions, and the balancers (source/kube) to serve.
package gateway

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ControllerName is the spec.controllerName of our GatewayClasses.
const ControllerName = "fairlead.io/gateway"

// Kinds, and their group.
const (
	Group         = "gateway.networking.k8s.io"
	KindClass     = "GatewayClass"
	KindGateway   = "Gateway"
	KindTCPRoute  = "TCPRoute"
	KindUDPRoute  = "UDPRoute"
	KindGrant     = "ReferenceGrant"
	TypeIPAddress = "IPAddress"
)

// Versions to read; routes also in the older version, for clusters without the newer one.
var (
	V1       = schema.GroupVersion{Group: Group, Version: "v1"}
	V1Beta1  = schema.GroupVersion{Group: Group, Version: "v1beta1"}
	V1Alpha2 = schema.GroupVersion{Group: Group, Version: "v1alpha2"}
)

// Object is an object of the Gateway API with the required fields. It is immutable once
// read.
type Object[S, T any] struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   S `json:"spec"`
	Status T `json:"status,omitempty"`
}

// DeepCopyObject is for client-go. Objects are immutable, so the copy is shallow.
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

// DeepCopyObject is for client-go, like Object's.
func (l *List[S, T]) DeepCopyObject() runtime.Object {
	c := *l
	return &c
}

// Kinds of objects and their lists.
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

// AddToScheme registers the types with a scheme.
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

// ClassSpec names the controller of a GatewayClass.
type ClassSpec struct {
	ControllerName string `json:"controllerName"`
}

// ClassStatus is the status of a GatewayClass.
type ClassStatus struct {
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Spec defines the listeners of a Gateway.
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

// AllowedRoutes selects the routes that may attach to a listener.
type AllowedRoutes struct {
	Namespaces *RouteNamespaces `json:"namespaces,omitempty"`
	Kinds      []Kind           `json:"kinds,omitempty"`
}

// RouteNamespaces selects the namespaces whose routes may attach: Same, All or by Selector.
type RouteNamespaces struct {
	From     *string               `json:"from,omitempty"`
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// Kind is a kind of route.
type Kind struct {
	Group *string `json:"group,omitempty"`
	Kind  string  `json:"kind"`
}

// Address is an address that a Gateway requests or has.
type Address struct {
	Type  *string `json:"type,omitempty"`
	Value string  `json:"value,omitempty"`
}

// Status is the status of a Gateway.
type Status struct {
	Addresses  []Address          `json:"addresses,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	Listeners  []ListenerStatus   `json:"listeners,omitempty"`
}

// ListenerStatus is the status of a listener.
type ListenerStatus struct {
	Name           string             `json:"name"`
	SupportedKinds []Kind             `json:"supportedKinds"`
	AttachedRoutes int32              `json:"attachedRoutes"`
	Conditions     []metav1.Condition `json:"conditions"`
}

// RouteSpec defines the parents and the backends of a route.
type RouteSpec struct {
	ParentRefs []ParentRef `json:"parentRefs,omitempty"`
	Rules      []Rule      `json:"rules"`
}

// Rule has the backends of a route.
type Rule struct {
	BackendRefs []BackendRef `json:"backendRefs,omitempty"`
}

// ParentRef refers to a Gateway, or to one of its listeners.
type ParentRef struct {
	Group       *string `json:"group,omitempty"`
	Kind        *string `json:"kind,omitempty"`
	Namespace   *string `json:"namespace,omitempty"`
	Name        string  `json:"name"`
	SectionName *string `json:"sectionName,omitempty"`
	Port        *int32  `json:"port,omitempty"`
}

// BackendRef refers to a port of a Service, with its weight.
type BackendRef struct {
	Group     *string `json:"group,omitempty"`
	Kind      *string `json:"kind,omitempty"`
	Namespace *string `json:"namespace,omitempty"`
	Name      string  `json:"name"`
	Port      *int32  `json:"port,omitempty"`
	Weight    *int32  `json:"weight,omitempty"`
}

// RouteStatus is the status of a route, by its parents' controllers.
type RouteStatus struct {
	Parents []ParentStatus `json:"parents"`
}

// ParentStatus is the status of a route at one parent.
type ParentStatus struct {
	ParentRef      ParentRef          `json:"parentRef"`
	ControllerName string             `json:"controllerName"`
	Conditions     []metav1.Condition `json:"conditions"`
}

// GrantSpec lets routes of other namespaces refer to Services of the grant's namespace.
type GrantSpec struct {
	From []GrantFrom `json:"from"`
	To   []GrantTo   `json:"to"`
}

// GrantFrom selects who may refer to them.
type GrantFrom struct {
	Group     string `json:"group"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
}

// GrantTo selects what may be referred to.
type GrantTo struct {
	Group string  `json:"group"`
	Kind  string  `json:"kind"`
	Name  *string `json:"name,omitempty"`
}
