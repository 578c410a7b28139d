// Package v1alpha1 has Fairlead's own resources of Kubernetes, of the group
// fairlead.io/v1alpha1: AddressPool, BGPPeer and Announcement; and, purely, what
// they say. Their manifests in deploy/crds are made from these types.
//
// +kubebuilder:object:generate=true
// +groupName=fairlead.io
package v1alpha1

//go:generate go tool -modfile=../../tools/go.mod controller-gen object crd paths=. output:crd:dir=../../deploy/crds

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is that of these resources.
var GroupVersion = schema.GroupVersion{Group: "fairlead.io", Version: "v1alpha1"}

// AddToScheme makes the types known to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &AddressPool{}, &AddressPoolList{}, &BGPPeer{}, &BGPPeerList{}, &Announcement{}, &AnnouncementList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// AddressRange is an address ("10.1.1.7"), a prefix ("10.1.1.0/24") or a range
// of addresses ("10.1.1.5-10.1.1.9"), of IPv4 or IPv6.
//
// +kubebuilder:validation:MaxLength=83
// +kubebuilder:validation:XValidation:rule="self.contains('-') ? self.split('-').size() == 2 && self.split('-').all(a, isIP(a.trim())) : isIP(self) || isCIDR(self)",message="is not an address, a prefix or a range: want one like 10.1.1.7, 10.1.1.0/24 or 10.1.1.5-10.1.1.9"
// +kubebuilder:validation:XValidation:rule="!self.contains('-') || self.contains(':') != self.contains('.')",message="goes from one family to the other: want two ranges"
// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self) == cidr(self).masked()",message="has bits set behind its length: want the prefix itself, one like 10.1.1.0/24"
type AddressRange string

// AddressPool is addresses that Services of type LoadBalancer are given.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=fairlead
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Addresses",type=string,JSONPath=`.spec.addresses`
// +kubebuilder:printcolumn:name="Auto",type=boolean,JSONPath=`.spec.autoAssign`
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`,priority=1
// +kubebuilder:printcolumn:name="Used4",type=integer,JSONPath=`.status.ipv4.used`
// +kubebuilder:printcolumn:name="Free4",type=integer,JSONPath=`.status.ipv4.free`
// +kubebuilder:printcolumn:name="Used6",type=integer,JSONPath=`.status.ipv6.used`
// +kubebuilder:printcolumn:name="Free6",type=integer,JSONPath=`.status.ipv6.free`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Why",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type AddressPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says which addresses there are, and whose they may be.
	Spec AddressPoolSpec `json:"spec"`
	// Status says how much is in use. The controller writes it, a few seconds
	// after a change.
	Status AddressPoolStatus `json:"status,omitempty"`
}

// AddressPoolSpec says which addresses there are, and whose they may be.
type AddressPoolSpec struct {
	// Addresses are handed out, the lowest that is free first: addresses
	// ("10.1.1.7"), prefixes ("10.1.1.0/24") and ranges ("10.1.1.5-10.1.1.9").
	// None may be of another pool, too: of two pools that overlap the younger is
	// refused.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=128
	// +listType=atomic
	Addresses []AddressRange `json:"addresses"`
	// Reserved are those of Addresses that are never handed out, also not to a
	// Service that asks for them: a gateway's, say.
	// +kubebuilder:validation:MaxItems=128
	// +listType=atomic
	// +optional
	Reserved []AddressRange `json:"reserved,omitempty"`
	// AutoAssign gives addresses to every Service that may have them. Without it
	// only those get one that name the pool, by annotation
	// fairlead.io/address-pool, or an address of it, by annotation
	// fairlead.io/addresses.
	// +kubebuilder:default=true
	// +optional
	AutoAssign *bool `json:"autoAssign,omitempty"`
	// Priority orders pools: that of the highest number is asked first, and of
	// equal ones the first by name.
	// +optional
	Priority int32 `json:"priority,omitempty"`
	// Namespaces, with those that NamespaceSelector selects, are those whose
	// Services may have addresses of the pool. Without both all may.
	// +kubebuilder:validation:MaxItems=1024
	// +listType=set
	// +optional
	Namespaces []string `json:"namespaces,omitempty"`
	// NamespaceSelector selects namespaces by their labels.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// ServiceSelector selects Services by their labels. Without it all may have
	// addresses of the pool.
	// +optional
	ServiceSelector *metav1.LabelSelector `json:"serviceSelector,omitempty"`
	// AvoidBuggyIPs leaves out IPv4 addresses that end in .0 or .255, which some
	// old routers and firewalls take for networks and broadcasts.
	// +optional
	AvoidBuggyIPs bool `json:"avoidBuggyIPs,omitempty"`
}

// FamilyUsage is how many addresses of a family are in use. Numbers end at
// 9223372036854775807, which also stands for more.
type FamilyUsage struct {
	// Total is how many addresses the pool may hand out.
	Total int64 `json:"total"`
	// Used is how many of them Services have.
	Used int64 `json:"used"`
	// Free is how many are left.
	Free int64 `json:"free"`
}

// AddressPoolStatus is what the controller says of a pool.
type AddressPoolStatus struct {
	// IPv4 is how many IPv4 addresses are in use.
	// +optional
	IPv4 *FamilyUsage `json:"ipv4,omitempty"`
	// IPv6 is how many IPv6 addresses are in use.
	// +optional
	IPv6 *FamilyUsage `json:"ipv6,omitempty"`
	// Conditions has Ready: whether addresses are handed out of the pool, and
	// why not.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// AddressPoolList is a list of AddressPools.
//
// +kubebuilder:object:root=true
type AddressPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []AddressPool `json:"items"`
}

// BGPPeer is a router or a route reflector to which balancers announce.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=fairlead
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.spec.address`
// +kubebuilder:printcolumn:name="Port",type=integer,JSONPath=`.spec.port`,priority=1
// +kubebuilder:printcolumn:name="AS",type=integer,JSONPath=`.spec.as`
// +kubebuilder:printcolumn:name="BFD",type=boolean,JSONPath=`.spec.bfd`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type BGPPeer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says who the peer is, and which nodes' it is.
	Spec BGPPeerSpec `json:"spec"`
}

// BGPPeerSpec says who a peer is, and which nodes' it is.
type BGPPeerSpec struct {
	// Address is the peer's, IPv4 or IPv6.
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self) && !ip(self).isUnspecified()",message="is not the address of a peer: want one like 10.0.0.109 or 2001:db8::1"
	Address string `json:"address"`
	// Port is the peer's TCP port.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +kubebuilder:default=179
	// +optional
	Port int32 `json:"port,omitempty"`
	// AS is the peer's autonomous system. Without it the peer is of the balancers'
	// own.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967294
	// +optional
	AS int64 `json:"as,omitempty"`
	// PasswordSecret names a Secret of the agents' namespace whose key "password"
	// signs every segment of the session (RFC 2385). Without it there is no
	// password.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	PasswordSecret string `json:"passwordSecret,omitempty"`
	// HoldTimeSeconds is how long a peer may be silent where BFD does not run.
	// +kubebuilder:validation:Minimum=3
	// +kubebuilder:validation:Maximum=65535
	// +kubebuilder:default=9
	// +optional
	HoldTimeSeconds int32 `json:"holdTimeSeconds,omitempty"`
	// BFD watches the session, where the peer does so too (RFC 5880).
	// +kubebuilder:default=true
	// +optional
	BFD *bool `json:"bfd,omitempty"`
	// NodeSelector selects the nodes whose balancers have this peer, by their
	// labels. Without it all have.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
}

// BGPPeerList is a list of BGPPeers.
//
// +kubebuilder:object:root=true
type BGPPeerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []BGPPeer `json:"items"`
}

// Announcement says which addresses of Services are announced, by which nodes
// and as which prefixes. Where there is no Announcement at all, all balancers
// announce all addresses that they serve, each by itself.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=fairlead
// +kubebuilder:printcolumn:name="Pools",type=string,JSONPath=`.spec.pools`
// +kubebuilder:printcolumn:name="Length4",type=integer,JSONPath=`.spec.aggregationLength`
// +kubebuilder:printcolumn:name="Length6",type=integer,JSONPath=`.spec.aggregationLengthV6`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Announcement struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says what is announced, by whom and how.
	Spec AnnouncementSpec `json:"spec"`
}

// AnnouncementSpec says what is announced, by whom and how.
type AnnouncementSpec struct {
	// Pools are the AddressPools whose addresses are meant. Without any all are,
	// also those of no pool.
	// +kubebuilder:validation:MaxItems=1024
	// +listType=set
	// +optional
	Pools []string `json:"pools,omitempty"`
	// ServiceSelector selects Services by their labels. Without it all are meant.
	// +optional
	ServiceSelector *metav1.LabelSelector `json:"serviceSelector,omitempty"`
	// NodeSelector selects the nodes whose balancers announce, by their labels.
	// Without it all do.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	// AggregationLength is how long the prefixes are that stand for IPv4
	// addresses.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=32
	// +kubebuilder:default=32
	// +optional
	AggregationLength int32 `json:"aggregationLength,omitempty"`
	// AggregationLengthV6 is how long the prefixes are that stand for IPv6
	// addresses.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=128
	// +kubebuilder:default=128
	// +optional
	AggregationLengthV6 int32 `json:"aggregationLengthV6,omitempty"`
}

// AnnouncementList is a list of Announcements.
//
// +kubebuilder:object:root=true
type AnnouncementList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Announcement `json:"items"`
}
