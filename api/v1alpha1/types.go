// Package v1alpha1 contains the types of Fairlead's custom resources, in the API group
// fairlead.io/v1alpha1: AddressPool, BGPPeer, Advertisement, Quarantine, NodeReport,
// NodeHeartbeat, BGPSession, VirtualNetwork and NetworkLease. The manifests in deploy/crds are
// generated from them. The resources are interpreted in source/crd and vdn/kube.
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

// GroupVersion is the group and version of these resources.
var GroupVersion = schema.GroupVersion{Group: "fairlead.io", Version: "v1alpha1"}

// AddToScheme registers the types with a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &AddressPool{}, &AddressPoolList{}, &BGPPeer{}, &BGPPeerList{}, &Advertisement{}, &AdvertisementList{},
		&Quarantine{}, &QuarantineList{}, &NodeReport{}, &NodeReportList{}, &NodeHeartbeat{}, &NodeHeartbeatList{},
		&BGPSession{}, &BGPSessionList{},
		&VirtualNetwork{}, &VirtualNetworkList{}, &NetworkLease{}, &NetworkLeaseList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// AddressRange is an address ("10.1.1.7"), a prefix ("10.1.1.0/24") or a range
// of addresses ("10.1.1.5-10.1.1.9"), of IPv4 or IPv6.
//
// +kubebuilder:validation:MaxLength=83
// +kubebuilder:validation:XValidation:rule="self.contains('-') ? self.split('-').size() == 2 && self.split('-').all(a, isIP(a.trim())) : isIP(self) || isCIDR(self)",message="is not an address, a prefix or a range: want one like 10.1.1.7, 10.1.1.0/24 or 10.1.1.5-10.1.1.9"
// +kubebuilder:validation:XValidation:rule="!self.contains('-') || self.contains(':') != self.contains('.')",message="mixes IPv4 and IPv6: use two ranges"
// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self) == cidr(self).masked()",message="has host bits set: use the network address, for example 10.1.1.0/24"
type AddressRange string

// AddressPool is a pool of addresses for Services of type LoadBalancer.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=fairlead,shortName=flpool
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

	// Spec defines the addresses of the pool, and the Services that may use them.
	Spec AddressPoolSpec `json:"spec"`
	// Status is the usage of the pool. The controller updates it a few seconds after a
	// change.
	Status AddressPoolStatus `json:"status,omitempty"`
}

// AddressPoolSpec defines the addresses of a pool, and the Services that may use them.
type AddressPoolSpec struct {
	// Addresses of the pool: addresses ("10.1.1.7"), prefixes ("10.1.1.0/24") and ranges
	// ("10.1.1.5-10.1.1.9"). The lowest free address is assigned first. Pools must not
	// overlap: the newer one of two overlapping pools is rejected.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=128
	// +listType=atomic
	Addresses []AddressRange `json:"addresses"`
	// Reserved addresses are never assigned, not even to a Service that requests them; for
	// example the address of a gateway.
	// +kubebuilder:validation:MaxItems=128
	// +listType=atomic
	// +optional
	Reserved []AddressRange `json:"reserved,omitempty"`
	// AutoAssign assigns addresses to every Service that may use the pool. If false, a
	// Service must request the pool (annotation fairlead.io/address-pool) or one of its
	// addresses (annotation fairlead.io/addresses).
	// +kubebuilder:default=true
	// +optional
	AutoAssign *bool `json:"autoAssign,omitempty"`
	// Priority orders pools: the pool with the highest number is used first. Pools with
	// equal numbers are used in the order of their names.
	// +optional
	Priority int32 `json:"priority,omitempty"`
	// Namespaces whose Services may use the pool, in addition to those that
	// NamespaceSelector selects. If both are omitted, all namespaces may use it.
	// +kubebuilder:validation:MaxItems=1024
	// +listType=set
	// +optional
	Namespaces []string `json:"namespaces,omitempty"`
	// NamespaceSelector selects namespaces by label.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// ServiceSelector selects Services by label. If omitted, all Services may use the pool.
	// +optional
	ServiceSelector *metav1.LabelSelector `json:"serviceSelector,omitempty"`
	// AvoidBuggyIPs skips IPv4 addresses that end in .0 or .255, which some old routers and
	// firewalls treat as network and broadcast addresses.
	// +optional
	AvoidBuggyIPs bool `json:"avoidBuggyIPs,omitempty"`
}

// FamilyUsage counts the addresses of one IP family. 9223372036854775807 also stands for
// larger numbers.
type FamilyUsage struct {
	// Total is the number of addresses that can be assigned.
	Total int64 `json:"total"`
	// Used is the number of assigned addresses.
	Used int64 `json:"used"`
	// Free is the number of unassigned addresses.
	Free int64 `json:"free"`
}

// AddressPoolStatus is the state of a pool, as written by the controller.
type AddressPoolStatus struct {
	// IPv4 counts the IPv4 addresses.
	// +optional
	IPv4 *FamilyUsage `json:"ipv4,omitempty"`
	// IPv6 counts the IPv6 addresses.
	// +optional
	IPv6 *FamilyUsage `json:"ipv6,omitempty"`
	// Conditions contains Ready: whether addresses are assigned from the pool, and the
	// reason if not.
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

// BGPPeer is a router or route reflector to which load balancers advertise routes.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=fairlead,shortName=flpeer
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Peer Address",type=string,JSONPath=`.spec.peerAddress`
// +kubebuilder:printcolumn:name="Port",type=integer,JSONPath=`.spec.port`,priority=1
// +kubebuilder:printcolumn:name="Interface",type=string,JSONPath=`.spec.interface`,priority=1
// +kubebuilder:printcolumn:name="Peer ASN",type=integer,JSONPath=`.spec.peerASN`
// +kubebuilder:printcolumn:name="BFD",type=boolean,JSONPath=`.spec.bfd.enabled`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Established",type=string,JSONPath=`.status.summary`
// +kubebuilder:printcolumn:name="Why",type=string,JSONPath=`.status.conditions[?(@.type=="Established")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type BGPPeer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec configures the peer, and selects the nodes that have it.
	Spec BGPPeerSpec `json:"spec"`
	// Status is the state of the sessions with the peer.
	// +optional
	Status RoutingStatus `json:"status,omitzero"`
}

// BGPPeerSpec configures a peer, and selects the nodes that have it.
//
// +kubebuilder:validation:XValidation:rule="has(self.peerAddress) || has(self.interface)",message="peerAddress or interface is required"
// +kubebuilder:validation:XValidation:rule="!has(self.peerAddress) || !isIP(self.peerAddress) || !ip(self.peerAddress).isLinkLocalUnicast() || has(self.interface)",message="peerAddress is link-local: interface is required, too"
// +kubebuilder:validation:XValidation:rule="!has(self.ebgpMultihop) || has(self.peerASN)",message="ebgpMultihop applies only to peers in another AS: set peerASN, or omit ebgpMultihop"
// +kubebuilder:validation:XValidation:rule="!has(self.ebgpMultihop) || !has(self.ttlSecurity)",message="ebgpMultihop and ttlSecurity are mutually exclusive: omit one of them"
// +kubebuilder:validation:XValidation:rule="!has(self.keepaliveSeconds) || self.keepaliveSeconds < (has(self.holdTimeSeconds) ? self.holdTimeSeconds : 9)",message="keepaliveSeconds must be less than holdTimeSeconds: use a third of it"
type BGPPeerSpec struct {
	// PeerAddress is the IPv4 or IPv6 address of the peer. A peer with a link-local address
	// gets the load balancer's own link-local address as the next hop of all prefixes, IPv4
	// included (RFC 8950). If omitted, the peer is the router that sends router
	// advertisements on Interface.
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self) && !ip(self).isUnspecified()",message="is not the address of a peer: want one like 10.0.0.109 or 2001:db8::1"
	// +optional
	PeerAddress string `json:"peerAddress,omitempty"`
	// Interface is the node's network interface to which the session is bound. It is
	// required for a link-local peer address. If omitted, the routing table decides.
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:Pattern=`^[^\s/%]+$`
	// +optional
	Interface string `json:"interface,omitempty"`
	// SourceAddress is the local address of the session. Use it together with a node
	// selector that selects one node. If omitted, the kernel selects the address.
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self) && !ip(self).isUnspecified()",message="is not an address of a node: want one like 10.0.0.105 or 2001:db8::5"
	// +optional
	SourceAddress string `json:"sourceAddress,omitempty"`
	// Port is the peer's TCP port.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +kubebuilder:default=179
	// +optional
	Port int32 `json:"port,omitempty"`
	// PeerASN is the AS number of the peer. If omitted, the peer is in the load balancers'
	// own AS.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967294
	// +optional
	PeerASN int64 `json:"peerASN,omitempty"`
	// PasswordSecretRef is the name of a Secret in the agents' namespace whose key
	// "password" contains the TCP MD5 password of the session (RFC 2385). If omitted, no
	// password is used.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	PasswordSecretRef string `json:"passwordSecretRef,omitempty"`
	// HoldTimeSeconds is the hold time of the session.
	// +kubebuilder:validation:Minimum=3
	// +kubebuilder:validation:Maximum=65535
	// +kubebuilder:default=9
	// +optional
	HoldTimeSeconds int32 `json:"holdTimeSeconds,omitempty"`
	// KeepaliveSeconds is the interval of keepalive messages. If omitted, it is a third of
	// the hold time.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=21845
	// +optional
	KeepaliveSeconds int32 `json:"keepaliveSeconds,omitempty"`
	// ConnectRetrySeconds is the maximum pause between connection attempts. If omitted, it
	// is half a second, so that a restarted router gets its routes soon.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	// +optional
	ConnectRetrySeconds int32 `json:"connectRetrySeconds,omitempty"`
	// EBGPMultihop is the TTL of packets to a peer in another AS: the maximum number of hops
	// to it. 1 keeps the session on the link. If omitted, it is 255.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=255
	// +optional
	EBGPMultihop int32 `json:"ebgpMultihop,omitempty"`
	// TTLSecurity is the maximum number of hops of received packets (RFC 5082): 1 for a peer
	// on the same link. Packets that have passed more hops are dropped. Configure the peer
	// in the same way.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=254
	// +optional
	TTLSecurity int32 `json:"ttlSecurity,omitempty"`
	// BFD configures failure detection (RFC 5880). It requires BFD at the peer.
	// +kubebuilder:default={}
	// +optional
	BFD *BFD `json:"bfd,omitempty"`
	// NodeSelector selects the nodes whose load balancers have this peer, by label. If
	// omitted, all have it.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
}

// BFD configures bidirectional forwarding detection.
type BFD struct {
	// Enabled turns BFD on.
	// +kubebuilder:default=true
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// IntervalMilliseconds is the interval of BFD packets in both directions. If omitted, it
	// is 300, which also a busy node can keep.
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=60000
	// +optional
	IntervalMilliseconds int32 `json:"intervalMilliseconds,omitempty"`
	// DetectMultiplier is the number of missed packets after which the session is down. If
	// omitted, it is 3.
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=255
	// +optional
	DetectMultiplier int32 `json:"detectMultiplier,omitempty"`
}

// BGPPeerList is a list of BGPPeers.
//
// +kubebuilder:object:root=true
type BGPPeerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []BGPPeer `json:"items"`
}

// Advertisement selects the addresses of Services that load balancers advertise, the nodes
// that advertise them, and the prefixes and attributes of the routes. Without any
// Advertisement, every load balancer advertises each address that it serves.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=fairlead,shortName=fladv
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Pools",type=string,JSONPath=`.spec.pools`
// +kubebuilder:printcolumn:name="Length4",type=integer,JSONPath=`.spec.aggregationLength`
// +kubebuilder:printcolumn:name="Length6",type=integer,JSONPath=`.spec.aggregationLengthV6`
// +kubebuilder:printcolumn:name="Peers",type=string,JSONPath=`.spec.peers`
// +kubebuilder:printcolumn:name="Traffic Policy",type=string,JSONPath=`.spec.trafficPolicy`,priority=1
// +kubebuilder:printcolumn:name="Weight By",type=string,JSONPath=`.spec.weightBy`,priority=1
// +kubebuilder:printcolumn:name="Communities",type=string,JSONPath=`.spec.communities`,priority=1
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Advertised",type=string,JSONPath=`.status.summary`
// +kubebuilder:printcolumn:name="Why",type=string,JSONPath=`.status.conditions[?(@.type=="Advertised")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Advertisement struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec selects what is advertised, by which nodes and how.
	Spec AdvertisementSpec `json:"spec"`
	// Status is what the nodes advertise.
	// +optional
	Status RoutingStatus `json:"status,omitzero"`
}

// CommunityText is a community ("65000:1"), a large community ("65000:1:2") or the name
// of a well-known community.
//
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:XValidation:rule="self in ['graceful-shutdown', 'blackhole', 'no-export', 'no-advertise', 'no-export-subconfed', 'no-peer'] || self.matches('^[0-9]{1,5}:[0-9]{1,5}$') && self.split(':').all(n, int(n) <= 65535) || self.matches('^[0-9]{1,10}:[0-9]{1,10}:[0-9]{1,10}$') && self.split(':').all(n, int(n) <= 4294967295)",message="is not a community: want one like 65000:1 or 65000:1:2, or one of graceful-shutdown, blackhole, no-export, no-advertise, no-export-subconfed, no-peer"
type CommunityText string

// TrafficPolicy selects the nodes that advertise an address of a Service, depending on
// where its backends are.
//
// +kubebuilder:validation:Enum=Cluster;Local;FromService
type TrafficPolicy string

// Traffic policies.
const (
	// TrafficPolicyCluster advertises on all nodes if the Service has backends.
	TrafficPolicyCluster TrafficPolicy = "Cluster"
	// TrafficPolicyLocal advertises only on nodes with a healthy local backend.
	TrafficPolicyLocal TrafficPolicy = "Local"
	// TrafficPolicyFromService is the traffic policy of the Service.
	TrafficPolicyFromService TrafficPolicy = "FromService"
)

// WeightBy is what determines the weight of a node.
//
// +kubebuilder:validation:Enum=None;Endpoints;Node
type WeightBy string

// Sources of weights.
const (
	// WeightByNone gives all nodes equal weight.
	WeightByNone WeightBy = "None"
	// WeightByEndpoints weights a node by its healthy local endpoints.
	WeightByEndpoints WeightBy = "Endpoints"
	// WeightByNode weights a node by its label fairlead.io/weight.
	WeightByNode WeightBy = "Node"
)

// Mode is how addresses are advertised.
//
// +kubebuilder:validation:Enum=Any;BGP;Layer2;Cloud
type Mode string

// Advertisement modes.
const (
	// ModeAny advertises in every mode the agent supports.
	ModeAny Mode = "Any"
	// ModeBGP advertises to BGP peers.
	ModeBGP Mode = "BGP"
	// ModeLayer2 answers ARP and neighbor discovery, from one node at a time.
	ModeLayer2 Mode = "Layer2"
	// ModeCloud advertises through a cloud provider's API.
	ModeCloud Mode = "Cloud"
)

// AddressKind is the field of a Service that contains an address.
//
// +kubebuilder:validation:Enum=LoadBalancerIP;ExternalIP;ClusterIP
type AddressKind string

// Address kinds.
const (
	// AddressLoadBalancerIP is a load balancer address of a Service.
	AddressLoadBalancerIP AddressKind = "LoadBalancerIP"
	// AddressExternalIP is one of spec.externalIPs, which are not allocated by a controller.
	AddressExternalIP AddressKind = "ExternalIP"
	// AddressClusterIP is one of spec.clusterIPs.
	AddressClusterIP AddressKind = "ClusterIP"
)

// LabelWeight is the Node label that holds its weight among balancers.
const LabelWeight = "fairlead.io/weight"

// AdvertisementSpec selects what is advertised, by which nodes and how.
type AdvertisementSpec struct {
	// Pools selects addresses by the AddressPools that contain them. If empty, all
	// addresses are selected, also those outside every pool.
	// +kubebuilder:validation:MaxItems=1024
	// +listType=set
	// +optional
	Pools []string `json:"pools,omitempty"`
	// Addresses selects addresses by kind: load balancer addresses (LoadBalancerIP),
	// spec.externalIPs (ExternalIP) and spec.clusterIPs (ClusterIP). Load balancers serve
	// external and cluster IPs only where they are advertised. Anyone who may create
	// Services chooses their external IPs: restrict them by pools.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:default={LoadBalancerIP}
	// +listType=set
	// +optional
	Addresses []AddressKind `json:"addresses,omitempty"`
	// ServiceSelector selects Services by label. If omitted, all are selected.
	// +optional
	ServiceSelector *metav1.LabelSelector `json:"serviceSelector,omitempty"`
	// NodeSelector selects the nodes that advertise, by label. If omitted, all do.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	// Mode is how the addresses are advertised: to BGP peers (BGP), by ARP and neighbor
	// discovery on the interfaces of --l2-interfaces (Layer2), through the API of a cloud
	// provider (Cloud), or in every mode that the agent supports (Any).
	// +kubebuilder:default=Any
	// +optional
	Mode Mode `json:"mode,omitempty"`
	// AggregationLength is the length of the prefixes that are advertised for IPv4
	// addresses.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=32
	// +kubebuilder:default=32
	// +optional
	AggregationLength int32 `json:"aggregationLength,omitempty"`
	// AggregationLengthV6 is the length of the prefixes that are advertised for IPv6
	// addresses.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=128
	// +kubebuilder:default=128
	// +optional
	AggregationLengthV6 int32 `json:"aggregationLengthV6,omitempty"`
	// Peers selects the peers to which the routes are advertised, by the names of their
	// BGPPeers, or by address for peers of the agents' flag --peer. If empty, all peers are
	// selected.
	// +kubebuilder:validation:MaxItems=1024
	// +listType=set
	// +optional
	Peers []string `json:"peers,omitempty"`
	// Communities are added to the routes: communities ("65000:1"), large communities
	// ("65000:1:2") and well-known communities ("no-export").
	// +kubebuilder:validation:MaxItems=64
	// +listType=set
	// +optional
	Communities []CommunityText `json:"communities,omitempty"`
	// LocalPreference is the LOCAL_PREF attribute, which is sent only to peers in the same
	// AS. They prefer the highest value, and assume 100 if it is omitted.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967295
	// +optional
	LocalPreference int64 `json:"localPreference,omitempty"`
	// MED is the MULTI_EXIT_DISC attribute, which is sent to all peers. Among routes from
	// one AS, they prefer the lowest value, and assume 0 if it is omitted.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967295
	// +optional
	MED int64 `json:"med,omitempty"`
	// ASPathPrepend is how many more times the load balancers' AS is prepended to the AS
	// path, for peers in other ASes. They prefer the shortest path.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	// +optional
	ASPathPrepend int32 `json:"asPathPrepend,omitempty"`
	// MinHealthyBackends is the number of healthy backends below which an address is not
	// advertised. With 0, it is advertised even while all backends fail and are kept in use.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	// +optional
	MinHealthyBackends int32 `json:"minHealthyBackends,omitempty"`
	// TrafficPolicy selects the nodes that advertise an address: all nodes (Cluster), nodes
	// with a healthy local backend (Local), or the traffic policy of the Service
	// (FromService): spec.internalTrafficPolicy for cluster IPs, spec.externalTrafficPolicy
	// for all other addresses.
	// +kubebuilder:default=Cluster
	// +optional
	TrafficPolicy TrafficPolicy `json:"trafficPolicy,omitempty"`
	// WeightBy determines a node's share of the flows: equal shares (None), by its number
	// of healthy local backends (Endpoints), or by its label fairlead.io/weight (Node; 1 if
	// it has none). It requires routers that support the link bandwidth extended community
	// (RFC 10005); all other routers give equal shares.
	// +kubebuilder:default=None
	// +optional
	WeightBy WeightBy `json:"weightBy,omitempty"`
}

// AdvertisementList is a list of Advertisements.
//
// +kubebuilder:object:root=true
type AdvertisementList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Advertisement `json:"items"`
}
