// Package vdn is the model of virtually dedicated networks: slices with addresses, rates
// and permissions, the hosts attached to them, and the plans that nodes enforce. It is
// pure: no sockets, no kernel, no clock. The controller is vdn/server, its storage
// vdn/store, its client vdn/client, and the daemon on nodes vdn/node.
//
// The concept is described in "Open-Cloud Computing Platform Design based on Virtually
// Dedicated Network and Container Interface" (Kim et al., 2019): slicing, vDHCP,
// federation, access control (vNAC).
package vdn

import "net/netip"

// Mode is how a pod is attached.
type Mode string

// Attachment modes.
const (
	// Macvlan gives the pod its own macvlan device on the node's device.
	Macvlan Mode = "macvlan"
	// HostDevice moves an entire NIC of the node into the pod, and returns it.
	HostDevice Mode = "host-device"
)

// Network is one slice: hosts that may communicate, their rates, and the other destinations
// that they may reach.
type Network struct {
	// Name is a DNS label, and never changes.
	Name string `json:"name"`
	// Mode defaults to Macvlan.
	Mode Mode `json:"mode,omitempty"`
	// Devices are the nodes' devices to use. Macvlan: the first that a node has.
	// HostDevice: each is given to one pod at a time.
	Devices []string `json:"devices"`
	// Subnets are at most one IPv4 and one IPv6 subnet.
	Subnets []Subnet `json:"subnets"`
	// MTU 0 means the devices' own.
	MTU int `json:"mtu,omitempty"`
	// Routes are its hosts' routes in addition to their subnets.
	Routes []Route `json:"routes,omitempty"`
	DNS    DNS     `json:"dns,omitzero"`
	// Guarantee is the rate that all its hosts together get at each uplink, however busy
	// others are, in bit/s. Others may use what it leaves.
	GuaranteedRate Rate `json:"guaranteedRate,omitempty"`
	// Max is the maximum rate of all its hosts together at each uplink; 0 for no limit.
	MaxRate Rate `json:"maxRate,omitempty"`
	// HostMax is the maximum rate that one attachment may send, and may receive.
	MaxRatePerHost Rate `json:"maxRatePerHost,omitempty"`
	// Reach lists other networks whose hosts it may communicate with, if they list it too:
	// NAME, or DOMAIN/NAME in a federated domain.
	PeerNetworks []string `json:"peerNetworks,omitempty"`
	// Outside lists permitted destinations that are in no network (vNAC). All others are
	// dropped.
	AllowedCIDRs []netip.Prefix `json:"allowedCIDRs,omitempty"`
	// Shared lists federated domains that this network is offered to.
	SharedWith []string `json:"sharedWith,omitempty"`
}

// Subnet is the address range of a network's hosts.
type Subnet struct {
	CIDR netip.Prefix `json:"cidr"`
	// Gateway is never leased. If invalid, there is no default route.
	Gateway netip.Addr `json:"gateway,omitzero"`
	// Ranges are the addresses to lease. The default is the entire prefix except its first
	// address and, for IPv4, its last.
	Ranges []Range `json:"ranges,omitempty"`
	// Reserved addresses are for one owner each.
	Reserved []Reservation `json:"reserved,omitempty"`
}

// Range is from First to Last, inclusive.
type Range struct {
	First netip.Addr `json:"first"`
	Last  netip.Addr `json:"last"`
}

// Reservation reserves an address for one owner ("namespace/pod").
type Reservation struct {
	Address netip.Addr `json:"address"`
	Owner   string     `json:"owner"`
}

// Route is a route of a network's hosts.
type Route struct {
	Dst netip.Prefix `json:"dst"`
	// Via defaults to the subnet's gateway.
	GW netip.Addr `json:"gw,omitzero"`
}

// DNS is the configuration for the container runtime.
type DNS struct {
	Nameservers []netip.Addr `json:"nameservers,omitempty"`
	Domain      string       `json:"domain,omitempty"`
	Search      []string     `json:"search,omitempty"`
	Options     []string     `json:"options,omitempty"`
}

// AttachmentPhase is the state of an attachment.
type AttachmentPhase string

// Attachment phases.
const (
	// Leased: its addresses are assigned.
	Leased AttachmentPhase = "leased"
	// Up: its device exists, and its node enforces.
	Up AttachmentPhase = "up"
)

// AttachmentRequest requests an attachment for one interface of one container.
type AttachmentRequest struct {
	Network string `json:"network"`
	Node    string `json:"node"`
	// Container and Interface identify it: a repeated request gets the same response.
	Container string `json:"container"`
	Interface string `json:"interface"`
	// Owner is "namespace/pod", for reservations and for display; optional.
	Owner string `json:"owner,omitempty"`
	// OwnerUID distinguishes it from earlier and later pods of the same name; optional.
	OwnerUID string `json:"ownerUID,omitempty"`
	// Addresses requests specific addresses; others are chosen if empty.
	Addresses []netip.Addr `json:"addresses,omitempty"`
	// Devices are the network's devices that the node has and that are free, for
	// HostDevice.
	Devices []string `json:"devices,omitempty"`
	// Replaces has the IDs of attachments of the same pod, network and node. This one takes
	// over the addresses and device of the first that exists. It is set if the node
	// restarted the pod while no controller was reachable.
	Replaces []string `json:"replaces,omitempty"`
}

// Attachment is one host's attachment to a network.
type Attachment struct {
	// ID is CONTAINER.INTERFACE.
	ID        string `json:"id"`
	Network   string `json:"network"`
	Node      string `json:"node"`
	Container string `json:"container"`
	Interface string `json:"interface"`
	Owner     string `json:"owner,omitempty"`
	OwnerUID  string `json:"ownerUID,omitempty"`
	// Addresses with the prefix lengths of their subnets.
	Addresses []netip.Prefix `json:"addresses"`
	// Device is the node's device: the parent (Macvlan) or the NIC in the pod (HostDevice).
	Device string          `json:"device,omitempty"`
	MAC    string          `json:"mac,omitempty"`
	Phase  AttachmentPhase `json:"phase"`
	// NetNS is the path of its network namespace on its node.
	NetNS string `json:"netns,omitempty"`
	// Since is when it was leased, in seconds since 1970.
	Since int64 `json:"since"`
}

// UpReport is a node's report that an attachment's device exists.
type UpReport struct {
	Device string `json:"device"`
	MAC    string `json:"mac"`
	NetNS  string `json:"netns"`
}

// Lease is the response to an attachment request.
type Lease struct {
	Attachment Attachment `json:"attachment"`
	Network    Network    `json:"network"`
}

// Node is a machine that enforces: one with pods, or a gateway between networks and
// elsewhere.
type Node struct {
	Name string `json:"name"`
	// Gateway means that it forwards between networks and elsewhere.
	Gateway bool     `json:"gateway,omitempty"`
	Uplinks []Uplink `json:"uplinks"`
	// Means is its enforcer: kernel or openvswitch.
	Means string `json:"means"`
}

// Uplink is a device whose rate slices share.
type Uplink struct {
	Device string `json:"device"`
	// Rate is its capacity, in bit/s.
	Rate Rate `json:"rate"`
}

// NodeReport is what a node reports about every second.
type NodeReport struct {
	Node
	// Applied is the revision of the plan in force.
	Applied uint64 `json:"applied"`
	// Error is why the newest plan is not fully applied.
	Error string `json:"error,omitempty"`
	// Degraded lists missing optional features that its kernel rejects.
	Degraded []string  `json:"degraded,omitempty"`
	Counters []Counter `json:"counters,omitempty"`
}

// Counter has the counts of one slice at one device of a node since its creation.
type Counter struct {
	Network string `json:"network"`
	// Attachment is the attachment; empty for the entire slice at the uplink.
	Attachment string `json:"attachment,omitempty"`
	Device     string `json:"device"`
	SentBytes  uint64 `json:"sentBytes"`
	// ReceivedBytes are counted only for attachments.
	ReceivedBytes uint64 `json:"receivedBytes,omitempty"`
	// Drops by reason: over-rate, isolated, outside, spoofed, bypassed.
	Drops map[string]uint64 `json:"drops,omitempty"`
}

// Plan is everything that one node must do. It is complete: what is not in it is removed.
type Plan struct {
	// Revision grows with each change.
	Revision uint64  `json:"revision"`
	Slices   []Slice `json:"slices"`
	// Local are the attachments of this node.
	Local []Attachment `json:"local"`
	// Routes are the routes to federated networks, at gateways.
	Routes []Route `json:"routes,omitempty"`
}

// Slice is what a node enforces for one network of its own or another domain.
type Slice struct {
	// ID is its number, 1 to 65,534, the same on all nodes of a domain. It is not reused
	// before all numbers have been used.
	ID   uint16 `json:"id"`
	Name string `json:"name"`
	// Mode is HostDevice, or empty for all others.
	Mode Mode `json:"mode,omitempty"`
	// Prefixes determine a packet's slice from its addresses.
	Prefixes       []netip.Prefix `json:"prefixes"`
	GuaranteedRate Rate           `json:"guaranteedRate,omitempty"`
	MaxRate        Rate           `json:"maxRate,omitempty"`
	MaxRatePerHost Rate           `json:"maxRatePerHost,omitempty"`
	// Reach are the IDs of other slices that it may communicate with.
	PeerNetworks []uint16       `json:"peerNetworks,omitempty"`
	AllowedCIDRs []netip.Prefix `json:"allowedCIDRs,omitempty"`
}

// View is the complete state for display, at one moment.
type View struct {
	Domain      string       `json:"domain"`
	Revision    uint64       `json:"revision"`
	Networks    []Network    `json:"networks"`
	Attachments []Attachment `json:"attachments"`
	Nodes       []NodeView   `json:"nodes"`
	Peers       []PeerView   `json:"peers,omitempty"`
	// Notes describe what was configured but is not in effect.
	Notes []string `json:"notes,omitempty"`
}

// NodeView is a node with its last report.
type NodeView struct {
	NodeReport
	// ReportAge is the time since its last report, in seconds.
	ReportAge float64 `json:"heard"`
	// Alive means that its last report is recent.
	Alive bool `json:"alive"`
	// Rates are the rates of its counters between its last two reports.
	Rates []CounterRate `json:"rates,omitempty"`
}

// CounterRate is how fast a Counter grows.
type CounterRate struct {
	Network    string `json:"network"`
	Attachment string `json:"attachment,omitempty"`
	Device     string `json:"device"`
	Sent       Rate   `json:"sent"`
	Received   Rate   `json:"received,omitempty"`
	// Drops per second.
	Drops float64 `json:"drops,omitempty"`
}

// Peer is another domain that networks are exchanged with.
type Peer struct {
	// Domain is its name, which its certificate has as a DNS name.
	Domain string `json:"domain"`
	// URL is the URL of its controller's offers.
	URL string `json:"url"`
	// NextHops are its gateways' addresses, one per family.
	NextHops []netip.Addr `json:"nextHops"`
}

// PeerView is a peer with its last offer.
type PeerView struct {
	Peer
	// Connected means that its last response was valid.
	Connected bool `json:"connected"`
	// Error is why it is not connected.
	Error    string          `json:"error,omitempty"`
	Networks []SharedNetwork `json:"networks,omitempty"`
}

// Offer is what one domain shares with another.
type Offer struct {
	Domain   string          `json:"domain"`
	Networks []SharedNetwork `json:"networks"`
}

// SharedNetwork is a network of another domain, as that domain offers it.
type SharedNetwork struct {
	Name     string         `json:"name"`
	Prefixes []netip.Prefix `json:"prefixes"`
	// Reach lists networks of the receiving domain that it may communicate with.
	PeerNetworks []string `json:"peerNetworks,omitempty"`
	// Hosts are the hosts that are up.
	Hosts []SharedHost `json:"hosts,omitempty"`
	// Refused is why it is not accepted; written by the receiver.
	Refused string `json:"refused,omitempty"`
}

// SharedHost is a host of another domain.
type SharedHost struct {
	Owner     string       `json:"owner,omitempty"`
	Addresses []netip.Addr `json:"addresses"`
}
