package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Rate is a rate in bit/s, with an optional decimal unit: 400M, 1.5G.
//
// +kubebuilder:validation:Pattern=`^[0-9]+(\.[0-9]+)?[kMGT]?$`
// +kubebuilder:validation:MaxLength=32
type Rate string

// NetworkCIDR is a prefix in CIDR notation: 172.20.0.0/16, fd20::/64.
//
// +kubebuilder:validation:MaxLength=43
// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="is not in CIDR notation: want a prefix like 172.20.0.0/16"
type NetworkCIDR string

// NetworkAddress is an address: 172.20.0.7, fd20::7.
//
// +kubebuilder:validation:MaxLength=39
// +kubebuilder:validation:XValidation:rule="isIP(self)",message="is not an address: want one like 172.20.0.7"
type NetworkAddress string

// VirtualNetwork is a virtually dedicated network: hosts that may communicate, their
// guaranteed rate, and the other destinations that they may reach.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=fairlead,shortName=vnet
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Guaranteed Rate",type=string,JSONPath=`.spec.guaranteedRate`
// +kubebuilder:printcolumn:name="Max Rate",type=string,JSONPath=`.spec.maxRate`
// +kubebuilder:printcolumn:name="Attachments",type=integer,JSONPath=`.status.attachments`
// +kubebuilder:printcolumn:name="Free",type=string,JSONPath=`.status.subnets[*].free`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Why",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63 && !self.metadata.name.contains('.')",message="its name is no DNS label: want up to 63 letters, digits and hyphens"
type VirtualNetwork struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the definition of the network.
	Spec VirtualNetworkSpec `json:"spec"`
	// Status is the state and the use of the network, as written by the controller
	// (fairlead vdn controller).
	Status VirtualNetworkStatus `json:"status,omitempty"`
}

// VirtualNetworkSpec is the definition of a network.
type VirtualNetworkSpec struct {
	// Mode is how pods are attached: with a macvlan device on a device of the node
	// (macvlan), or with a whole device of the node (host-device).
	// +kubebuilder:validation:Enum=macvlan;host-device
	// +kubebuilder:default=macvlan
	// +optional
	Mode string `json:"mode,omitempty"`
	// Devices are the devices of the nodes that carry the network. With macvlan, the first
	// that a node has is used; with host-device, each is assigned to one pod at a time.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	Devices []string `json:"devices"`
	// Subnets are at most one IPv4 and one IPv6 subnet, from which hosts get addresses.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +listType=atomic
	Subnets []NetworkSubnet `json:"subnets"`
	// MTU is the MTU of the hosts' devices. If 0, it is that of the nodes' devices.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	// +optional
	MTU int32 `json:"mtu,omitempty"`
	// Routes are the routes of the hosts, in addition to their subnets.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	Routes []NetworkRoute `json:"routes,omitempty"`
	// DNS is the DNS configuration for the container runtime.
	// +optional
	DNS *NetworkDNS `json:"dns,omitempty"`
	// GuaranteedRate is the rate that all hosts of the network together get at each uplink,
	// however busy others are. Others may use what they do not.
	// +optional
	GuaranteedRate Rate `json:"guaranteedRate,omitempty"`
	// MaxRate is the maximum rate of all hosts of the network together at each uplink. If
	// omitted, there is no limit.
	// +optional
	MaxRate Rate `json:"maxRate,omitempty"`
	// MaxRatePerHost is the maximum rate that one host may send, and may receive. If
	// omitted, there is no limit.
	// +optional
	MaxRatePerHost Rate `json:"maxRatePerHost,omitempty"`
	// PeerNetworks are other networks with which the network may communicate, if they list
	// it as well: NAME, or DOMAIN/NAME for a network of a federated domain.
	// +kubebuilder:validation:MaxItems=64
	// +listType=set
	// +optional
	PeerNetworks []string `json:"peerNetworks,omitempty"`
	// AllowedCIDRs are allowed destinations that are in no network. If empty, none are.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	AllowedCIDRs []NetworkCIDR `json:"allowedCIDRs,omitempty"`
	// SharedWith are the federated domains to which the network is offered.
	// +kubebuilder:validation:MaxItems=64
	// +listType=set
	// +optional
	SharedWith []string `json:"sharedWith,omitempty"`
}

// NetworkSubnet is the address range of the hosts of a network.
type NetworkSubnet struct {
	// CIDR is the prefix of the subnet.
	CIDR NetworkCIDR `json:"cidr"`
	// Gateway is the default gateway, which is never leased. If omitted, hosts have no
	// default route.
	// +optional
	Gateway NetworkAddress `json:"gateway,omitempty"`
	// Ranges are the addresses to lease. If empty, the whole subnet is used.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	Ranges []NetworkRange `json:"ranges,omitempty"`
	// Reserved addresses are for one owner each.
	// +kubebuilder:validation:MaxItems=1024
	// +listType=atomic
	// +optional
	Reserved []NetworkReservation `json:"reserved,omitempty"`
}

// NetworkRange is a range of addresses, both ends included.
type NetworkRange struct {
	// First is the lowest address.
	First NetworkAddress `json:"first"`
	// Last is the highest address.
	Last NetworkAddress `json:"last"`
}

// NetworkReservation reserves an address for one owner.
type NetworkReservation struct {
	// Address is the reserved address.
	Address NetworkAddress `json:"address"`
	// Owner is a pod: namespace/name.
	// +kubebuilder:validation:MaxLength=317
	Owner string `json:"owner"`
}

// NetworkRoute is a route of the hosts of a network.
type NetworkRoute struct {
	// Dst is the destination.
	Dst NetworkCIDR `json:"dst"`
	// GW is the next hop. If omitted, it is the gateway of the subnet.
	// +optional
	GW NetworkAddress `json:"gw,omitempty"`
}

// NetworkDNS is the DNS configuration for the container runtime.
type NetworkDNS struct {
	// Nameservers are queried in this order.
	// +kubebuilder:validation:MaxItems=8
	// +listType=atomic
	// +optional
	Nameservers []NetworkAddress `json:"nameservers,omitempty"`
	// Domain is the local domain.
	// +optional
	Domain string `json:"domain,omitempty"`
	// Search are domains in which short names are looked up.
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	// +optional
	Search []string `json:"search,omitempty"`
	// Options are resolver options.
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	// +optional
	Options []string `json:"options,omitempty"`
}

// VirtualNetworkStatus is the state of a network.
type VirtualNetworkStatus struct {
	// Attachments is the number of attached hosts.
	Attachments int64 `json:"attachments"`
	// Subnets are the numbers of free addresses, by subnet.
	// +kubebuilder:validation:MaxItems=2
	// +listType=atomic
	// +optional
	Subnets []SubnetUsage `json:"subnets,omitempty"`
	// Conditions has Ready: whether the network is as its spec says, and the reason if not.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// SubnetUsage is the number of free addresses of a subnet.
type SubnetUsage struct {
	// CIDR is the prefix of the subnet.
	CIDR NetworkCIDR `json:"cidr"`
	// Free is the number of addresses that can be leased. 9223372036854775807 also stands
	// for more.
	Free int64 `json:"free"`
}

// VirtualNetworkList is a list of VirtualNetworks.
//
// +kubebuilder:object:root=true
type VirtualNetworkList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VirtualNetwork `json:"items"`
}

// NetworkLease is the attachment of one interface of a pod to a VirtualNetwork, with its
// addresses. The controller (fairlead vdn controller) creates and deletes it in the
// namespace of the pod; changes to it have no effect.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=fairlead,shortName=vnlease
// +kubebuilder:printcolumn:name="Network",type=string,JSONPath=`.status.network`
// +kubebuilder:printcolumn:name="Pod",type=string,JSONPath=`.status.pod`
// +kubebuilder:printcolumn:name="Interface",type=string,JSONPath=`.status.interface`
// +kubebuilder:printcolumn:name="Addresses",type=string,JSONPath=`.status.addresses[*]`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.node`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Device",type=string,JSONPath=`.status.device`,priority=1
// +kubebuilder:printcolumn:name="MAC",type=string,JSONPath=`.status.mac`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NetworkLease struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Status is the lease.
	Status NetworkLeaseStatus `json:"status,omitempty"`
}

// NetworkLeaseStatus is a lease.
type NetworkLeaseStatus struct {
	// ID is its ID at the controller: CONTAINER.INTERFACE.
	ID string `json:"id"`
	// Network is the VirtualNetwork.
	Network string `json:"network"`
	// Pod is the name of the pod, in this namespace.
	Pod string `json:"pod"`
	// Interface is the name of the interface in the pod.
	Interface string `json:"interface"`
	// Node is the node of the pod.
	Node string `json:"node"`
	// Addresses are the leased addresses, with the prefix lengths of their subnets.
	// +listType=atomic
	// +optional
	Addresses []string `json:"addresses,omitempty"`
	// Device is the device of the node: the parent (macvlan), or the one in the pod
	// (host-device).
	// +optional
	Device string `json:"device,omitempty"`
	// MAC is the MAC address.
	// +optional
	MAC string `json:"mac,omitempty"`
	// Phase is leased (the device does not exist yet) or up.
	Phase string `json:"phase"`
	// Since is the time at which the addresses were leased.
	Since metav1.Time `json:"since"`
}

// NetworkLeaseList is a list of NetworkLeases.
//
// +kubebuilder:object:root=true
type NetworkLeaseList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NetworkLease `json:"items"`
}
