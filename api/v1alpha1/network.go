package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Rate is bit/s, with a unit of ten's powers where that is shorter: 400M, 1.5G.
//
// +kubebuilder:validation:Pattern=`^[0-9]+(\.[0-9]+)?[kMGT]?$`
// +kubebuilder:validation:MaxLength=32
type Rate string

// NetworkPrefix is a prefix: 172.20.0.0/16, fd20::/64.
//
// +kubebuilder:validation:MaxLength=43
// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="is not a prefix: want one like 172.20.0.0/16"
type NetworkPrefix string

// NetworkAddress is an address: 172.20.0.7, fd20::7.
//
// +kubebuilder:validation:MaxLength=39
// +kubebuilder:validation:XValidation:rule="isIP(self)",message="is not an address: want one like 172.20.0.7"
type NetworkAddress string

// VirtualNetwork is a virtually dedicated network: hosts that may talk to each other,
// the rate that they are guaranteed together, and whom else they reach.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=fairlead,shortName=vnet
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Guarantee",type=string,JSONPath=`.spec.guarantee`
// +kubebuilder:printcolumn:name="Max",type=string,JSONPath=`.spec.max`
// +kubebuilder:printcolumn:name="Attachments",type=integer,JSONPath=`.status.attachments`
// +kubebuilder:printcolumn:name="Free",type=string,JSONPath=`.status.subnets[*].free`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Why",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63 && !self.metadata.name.contains('.')",message="its name is no DNS label: want up to 63 letters, digits and hyphens"
type VirtualNetwork struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says what the network is.
	Spec VirtualNetworkSpec `json:"spec"`
	// Status says whether it holds, and how much of it is used. The controller
	// (fairlead vdn) writes it.
	Status VirtualNetworkStatus `json:"status,omitempty"`
}

// VirtualNetworkSpec says what a network is.
type VirtualNetworkSpec struct {
	// Mode is how a pod is attached: by a macvlan device on the node's, or by a whole
	// device of the node (host-device).
	// +kubebuilder:validation:Enum=macvlan;host-device
	// +kubebuilder:default=macvlan
	// +optional
	Mode string `json:"mode,omitempty"`
	// Devices are those of the nodes that it is on. With macvlan the first that a node
	// has is used; with host-device each is given to one pod at a time.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	Devices []string `json:"devices"`
	// Subnets are where its hosts have their addresses: at most one of IPv4 and one
	// of IPv6.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +listType=atomic
	Subnets []NetworkSubnet `json:"subnets"`
	// MTU of the hosts' devices; that of the nodes' devices where 0.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	// +optional
	MTU int32 `json:"mtu,omitempty"`
	// Routes are those of its hosts, beside their own subnets.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	Routes []NetworkRoute `json:"routes,omitempty"`
	// DNS is what the container runtime is told.
	// +optional
	DNS *NetworkDNS `json:"dns,omitempty"`
	// Guarantee is what all its hosts together have of each uplink, however busy
	// others are. What it leaves others may use.
	// +optional
	Guarantee Rate `json:"guarantee,omitempty"`
	// Max is what all its hosts together get of each uplink; no limit without it.
	// +optional
	Max Rate `json:"max,omitempty"`
	// HostMax is what one attachment may send, and what it may receive.
	// +optional
	HostMax Rate `json:"hostMax,omitempty"`
	// Reach are other networks whose hosts it may talk to, where they name it, too:
	// NAME, or DOMAIN/NAME in a federated domain.
	// +kubebuilder:validation:MaxItems=64
	// +listType=set
	// +optional
	Reach []string `json:"reach,omitempty"`
	// Outside are destinations in no network that its hosts may talk to. Without any
	// they talk to none.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	Outside []NetworkPrefix `json:"outside,omitempty"`
	// Shared are federated domains that are told of this network.
	// +kubebuilder:validation:MaxItems=64
	// +listType=set
	// +optional
	Shared []string `json:"shared,omitempty"`
}

// NetworkSubnet is where a network's hosts have their addresses.
type NetworkSubnet struct {
	// Prefix is its prefix.
	Prefix NetworkPrefix `json:"prefix"`
	// Gateway is never handed out. Without it there is no default route.
	// +optional
	Gateway NetworkAddress `json:"gateway,omitempty"`
	// Ranges are what is handed out; the whole prefix without them.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	Ranges []NetworkRange `json:"ranges,omitempty"`
	// Reserved are addresses for one owner each.
	// +kubebuilder:validation:MaxItems=1024
	// +listType=atomic
	// +optional
	Reserved []NetworkReservation `json:"reserved,omitempty"`
}

// NetworkRange is addresses from the first to the last, both included.
type NetworkRange struct {
	// First is the lowest.
	First NetworkAddress `json:"first"`
	// Last is the highest.
	Last NetworkAddress `json:"last"`
}

// NetworkReservation keeps an address for one owner.
type NetworkReservation struct {
	// Address is what is kept.
	Address NetworkAddress `json:"address"`
	// Owner is a pod: namespace/name.
	// +kubebuilder:validation:MaxLength=317
	Owner string `json:"owner"`
}

// NetworkRoute is a route of a network's hosts.
type NetworkRoute struct {
	// To is where it leads.
	To NetworkPrefix `json:"to"`
	// Via is the next hop; the subnet's gateway without it.
	// +optional
	Via NetworkAddress `json:"via,omitempty"`
}

// NetworkDNS is what the container runtime is told of DNS.
type NetworkDNS struct {
	// Nameservers are asked in this order.
	// +kubebuilder:validation:MaxItems=8
	// +listType=atomic
	// +optional
	Nameservers []NetworkAddress `json:"nameservers,omitempty"`
	// Domain is the local one.
	// +optional
	Domain string `json:"domain,omitempty"`
	// Search are domains in which short names are looked up.
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	// +optional
	Search []string `json:"search,omitempty"`
	// Options are the resolver's.
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	// +optional
	Options []string `json:"options,omitempty"`
}

// VirtualNetworkStatus is what the controller says of a network.
type VirtualNetworkStatus struct {
	// Attachments is how many hosts it has.
	Attachments int64 `json:"attachments"`
	// Subnets say how many addresses are free in each.
	// +kubebuilder:validation:MaxItems=2
	// +listType=atomic
	// +optional
	Subnets []SubnetUsage `json:"subnets,omitempty"`
	// Conditions has Ready: whether the network is as its spec says, and why not.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// SubnetUsage is how much of a subnet is left.
type SubnetUsage struct {
	// Prefix is the subnet's.
	Prefix NetworkPrefix `json:"prefix"`
	// Free is how many addresses are left to be handed out; 9223372036854775807 also
	// stands for more.
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

// NetworkAttachment is the place of one device of a pod in a VirtualNetwork, in the
// namespace of the pod. The controller (fairlead vdn) writes it and takes it away;
// to change it changes nothing.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=fairlead,shortName=vnatt
// +kubebuilder:printcolumn:name="Network",type=string,JSONPath=`.status.network`
// +kubebuilder:printcolumn:name="Pod",type=string,JSONPath=`.status.pod`
// +kubebuilder:printcolumn:name="Interface",type=string,JSONPath=`.status.interface`
// +kubebuilder:printcolumn:name="Addresses",type=string,JSONPath=`.status.addresses[*]`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.node`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Device",type=string,JSONPath=`.status.device`,priority=1
// +kubebuilder:printcolumn:name="MAC",type=string,JSONPath=`.status.mac`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NetworkAttachment struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Status is the attachment.
	Status NetworkAttachmentStatus `json:"status,omitempty"`
}

// NetworkAttachmentStatus is an attachment.
type NetworkAttachmentStatus struct {
	// ID is the controller's own name for it: CONTAINER.INTERFACE.
	ID string `json:"id"`
	// Network is the VirtualNetwork.
	Network string `json:"network"`
	// Pod is whose it is, in this namespace.
	Pod string `json:"pod"`
	// Interface is the device's name in the pod.
	Interface string `json:"interface"`
	// Node is where it is.
	Node string `json:"node"`
	// Addresses are the device's, with the lengths of their subnets.
	// +listType=atomic
	// +optional
	Addresses []string `json:"addresses,omitempty"`
	// Device is the node's: the one below it (macvlan), or the one given
	// (host-device).
	// +optional
	Device string `json:"device,omitempty"`
	// MAC is the device's address on the wire.
	// +optional
	MAC string `json:"mac,omitempty"`
	// Phase is leased, while the device is being made, and up.
	Phase string `json:"phase"`
	// Since is when its addresses were leased.
	Since metav1.Time `json:"since"`
}

// NetworkAttachmentList is a list of NetworkAttachments.
//
// +kubebuilder:object:root=true
type NetworkAttachmentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NetworkAttachment `json:"items"`
}
