// Package vdn is the model of virtually dedicated networks: slices with addresses,
// rates and rights, the hosts attached to them, and what each node must do for
// that. It is pure: no socket, no kernel, no clock. The controller around it is
// vdn/server, what keeps its state vdn/store, who asks it vdn/client, and what
// does it on a node vdn/node.
//
// What a virtually dedicated network is, is told by "Open-Cloud Computing
// Platform Design based on Virtually Dedicated Network and Container Interface"
// (Kim et al., 2019): slicing, vDHCP, federation, access control (vNAC).
package vdn

import "net/netip"

// Mode is how a pod is attached.
type Mode string

// The modes.
const (
	// Macvlan gives the pod a device of its own on the node's.
	Macvlan Mode = "macvlan"
	// HostDevice gives the pod a whole device of the node, and takes it back.
	HostDevice Mode = "host-device"
)

// Network is one slice: hosts that may talk to each other, what they are
// guaranteed and allowed, and whom else they reach.
type Network struct {
	// Name is a DNS label, and never changes.
	Name string `json:"name"`
	// Mode is Macvlan where empty.
	Mode Mode `json:"mode,omitempty"`
	// Devices are those of the nodes that it is on. Macvlan: the first that a node
	// has. HostDevice: each is given to one pod at a time.
	Devices []string `json:"devices"`
	// Subnets are at most one of IPv4 and one of IPv6.
	Subnets []Subnet `json:"subnets"`
	// MTU is the devices' own where 0.
	MTU int `json:"mtu,omitempty"`
	// Routes are those of its hosts beside their own subnets.
	Routes []Route `json:"routes,omitempty"`
	DNS    DNS     `json:"dns,omitzero"`
	// Guarantee is what all its hosts together have of each uplink, however busy
	// others are: bit/s. What it leaves others may use.
	Guarantee Rate `json:"guarantee,omitempty"`
	// Max is what all its hosts together get of each uplink; no limit where 0.
	Max Rate `json:"max,omitempty"`
	// HostMax is what one attachment may send, and what it may receive.
	HostMax Rate `json:"hostMax,omitempty"`
	// Reach are other networks whose hosts it may talk to, where they name it, too:
	// NAME here, DOMAIN/NAME in a federated domain.
	Reach []string `json:"reach,omitempty"`
	// Outside are destinations that are in no network, but allowed (vNAC). None
	// where empty: what is not allowed is dropped.
	Outside []netip.Prefix `json:"outside,omitempty"`
	// Shared are federated domains that are told of this network.
	Shared []string `json:"shared,omitempty"`
}

// Subnet is where a network's hosts have their addresses.
type Subnet struct {
	Prefix netip.Prefix `json:"prefix"`
	// Gateway is never handed out. No default route where not valid.
	Gateway netip.Addr `json:"gateway,omitzero"`
	// Ranges are what is handed out: the whole prefix where empty, but for its
	// first address, and for its last where it is of IPv4.
	Ranges []Range `json:"ranges,omitempty"`
	// Reserved are for one owner each.
	Reserved []Reservation `json:"reserved,omitempty"`
}

// Range is from First to Last, both included.
type Range struct {
	First netip.Addr `json:"first"`
	Last  netip.Addr `json:"last"`
}

// Reservation keeps an address for one owner ("namespace/pod").
type Reservation struct {
	Address netip.Addr `json:"address"`
	Owner   string     `json:"owner"`
}

// Route is one of a network's hosts.
type Route struct {
	To netip.Prefix `json:"to"`
	// Via is the subnet's gateway where not valid.
	Via netip.Addr `json:"via,omitzero"`
}

// DNS is what the container runtime is told.
type DNS struct {
	Nameservers []netip.Addr `json:"nameservers,omitempty"`
	Domain      string       `json:"domain,omitempty"`
	Search      []string     `json:"search,omitempty"`
	Options     []string     `json:"options,omitempty"`
}

// AttachmentPhase is how far an attachment is.
type AttachmentPhase string

// The phases.
const (
	// Leased: it has its addresses.
	Leased AttachmentPhase = "leased"
	// Up: it has its device; its node enforces.
	Up AttachmentPhase = "up"
)

// AttachmentRequest is what a node asks for one device of one container.
type AttachmentRequest struct {
	Network string `json:"network"`
	Node    string `json:"node"`
	// Container and Interface make it one of a kind: the same again is answered the
	// same.
	Container string `json:"container"`
	Interface string `json:"interface"`
	// Owner is "namespace/pod", for reservations and for people; may be empty.
	Owner string `json:"owner,omitempty"`
	// OwnerUID tells it from others of its name, before and after it; may be empty.
	OwnerUID string `json:"ownerUID,omitempty"`
	// Addresses are asked for by name; others are given where empty.
	Addresses []netip.Addr `json:"addresses,omitempty"`
	// Devices are those of the network's that the node has and that are free, for
	// HostDevice.
	Devices []string `json:"devices,omitempty"`
	// Replaces are IDs of attachments whose addresses and device this one continues, of
	// the same pod, network and node: the first that there is. The node restarted the pod
	// while no controller answered.
	Replaces []string `json:"replaces,omitempty"`
}

// Attachment is one host's place in a network.
type Attachment struct {
	// ID is CONTAINER.INTERFACE.
	ID        string `json:"id"`
	Network   string `json:"network"`
	Node      string `json:"node"`
	Container string `json:"container"`
	Interface string `json:"interface"`
	Owner     string `json:"owner,omitempty"`
	OwnerUID  string `json:"ownerUID,omitempty"`
	// Addresses with the lengths of their subnets.
	Addresses []netip.Prefix `json:"addresses"`
	// Device is the node's: the one below it (Macvlan) or the one given (HostDevice).
	Device string          `json:"device,omitempty"`
	MAC    string          `json:"mac,omitempty"`
	Phase  AttachmentPhase `json:"phase"`
	// NetNS is the path of its network namespace on its node.
	NetNS string `json:"netns,omitempty"`
	// Since is when it was leased, in seconds since 1970.
	Since int64 `json:"since"`
}

// UpReport is what a node tells once an attachment's device is there.
type UpReport struct {
	Device string `json:"device"`
	MAC    string `json:"mac"`
	NetNS  string `json:"netns"`
}

// Lease is what an attachment's request is answered.
type Lease struct {
	Attachment Attachment `json:"attachment"`
	Network    Network    `json:"network"`
}

// Node is a machine that enforces: one with pods, or a gateway between networks
// and elsewhere.
type Node struct {
	Name string `json:"name"`
	// Gateway says that it forwards between networks and elsewhere.
	Gateway bool     `json:"gateway,omitempty"`
	Uplinks []Uplink `json:"uplinks"`
	// Means is what it enforces by: kernel or openvswitch.
	Means string `json:"means"`
}

// Uplink is a device whose rate slices share.
type Uplink struct {
	Device string `json:"device"`
	// Rate is what it carries: bit/s.
	Rate Rate `json:"rate"`
}

// NodeReport is what a node tells every second or so.
type NodeReport struct {
	Node
	// Applied is the revision of the plan that holds on it.
	Applied uint64 `json:"applied"`
	// Error is why the newest plan does not hold, in words.
	Error string `json:"error,omitempty"`
	// Degraded lists what it does without, as its kernel refuses it, in words.
	Degraded []string  `json:"degraded,omitempty"`
	Counters []Counter `json:"counters,omitempty"`
}

// Counter is what one slice did at one device of a node since it began.
type Counter struct {
	Network string `json:"network"`
	// Attachment is whose it is; of the whole slice at the uplink where empty.
	Attachment string `json:"attachment,omitempty"`
	Device     string `json:"device"`
	SentBytes  uint64 `json:"sentBytes"`
	// ReceivedBytes are counted for attachments alone.
	ReceivedBytes uint64 `json:"receivedBytes,omitempty"`
	// Drops by reason: over-rate, isolated, outside, spoofed, bypassed.
	Drops map[string]uint64 `json:"drops,omitempty"`
}

// Plan is all that one node must do. It is whole: what is not in it goes.
type Plan struct {
	// Revision grows with each change.
	Revision uint64  `json:"revision"`
	Slices   []Slice `json:"slices"`
	// Local are the attachments of this node.
	Local []Attachment `json:"local"`
	// Routes lead to federated networks, at gateways.
	Routes []Route `json:"routes,omitempty"`
}

// Slice is what a node enforces for one network, of its own domain or of another.
type Slice struct {
	// ID is its number, 1 to 65,534, the same on all nodes of a domain for ever.
	ID   uint16 `json:"id"`
	Name string `json:"name"`
	// Mode is HostDevice, or empty for all others.
	Mode Mode `json:"mode,omitempty"`
	// Prefixes tell whose a packet is, by its addresses.
	Prefixes  []netip.Prefix `json:"prefixes"`
	Guarantee Rate           `json:"guarantee,omitempty"`
	Max       Rate           `json:"max,omitempty"`
	HostMax   Rate           `json:"hostMax,omitempty"`
	// Reach are the IDs of others that it may talk to; itself goes without saying.
	Reach   []uint16       `json:"reach,omitempty"`
	Outside []netip.Prefix `json:"outside,omitempty"`
}

// View is what people see: everything, at one moment.
type View struct {
	Domain      string       `json:"domain"`
	Revision    uint64       `json:"revision"`
	Networks    []Network    `json:"networks"`
	Attachments []Attachment `json:"attachments"`
	Nodes       []NodeView   `json:"nodes"`
	Peers       []PeerView   `json:"peers,omitempty"`
	// Notes are what does not hold although it was asked for, in words.
	Notes []string `json:"notes,omitempty"`
}

// NodeView is a node as last heard of.
type NodeView struct {
	NodeReport
	// Heard is how long ago it told, in seconds.
	Heard float64 `json:"heard"`
	// Alive says that it told lately.
	Alive bool `json:"alive"`
	// Rates are those of its counters between its last two reports.
	Rates []CounterRate `json:"rates,omitempty"`
}

// CounterRate is how fast a Counter grows.
type CounterRate struct {
	Network    string `json:"network"`
	Attachment string `json:"attachment,omitempty"`
	Device     string `json:"device"`
	Sent       Rate   `json:"sent"`
	Received   Rate   `json:"received,omitempty"`
	// Drops a second.
	Drops float64 `json:"drops,omitempty"`
}

// Peer is another domain that networks are exchanged with.
type Peer struct {
	// Domain is its name, which its certificate bears as a DNS name.
	Domain string `json:"domain"`
	// URL is where its controller is asked for what it shares.
	URL string `json:"url"`
	// NextHops are its gateways' addresses, one of each family.
	NextHops []netip.Addr `json:"nextHops"`
}

// PeerView is a peer as last heard of.
type PeerView struct {
	Peer
	// Connected says that its last answer is good.
	Connected bool `json:"connected"`
	// Error is why not, in words.
	Error    string          `json:"error,omitempty"`
	Networks []SharedNetwork `json:"networks,omitempty"`
}

// Offer is what one domain tells another.
type Offer struct {
	Domain   string          `json:"domain"`
	Networks []SharedNetwork `json:"networks"`
}

// SharedNetwork is a network of another domain, as that tells it.
type SharedNetwork struct {
	Name     string         `json:"name"`
	Prefixes []netip.Prefix `json:"prefixes"`
	// Reach are networks of the asking domain that it may talk to.
	Reach []string `json:"reach,omitempty"`
	// Hosts are those that are up.
	Hosts []SharedHost `json:"hosts,omitempty"`
	// Refused is why it does not count here, in words; written by the receiver.
	Refused string `json:"refused,omitempty"`
}

// SharedHost is one of another domain's.
type SharedHost struct {
	Owner     string       `json:"owner,omitempty"`
	Addresses []netip.Addr `json:"addresses"`
}
