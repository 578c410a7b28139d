package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Labels of BGPSessions. A name that is not a valid label value is shortened, and ends with a
// hash.
const (
	// LabelNode is the name of the load balancer's node.
	LabelNode = "fairlead.io/node"
	// LabelPeer is the name of the peer.
	LabelPeer = "fairlead.io/peer"
)

// SessionUnknown is the state of a session whose load balancer does not report any more.
const SessionUnknown = "unknown"

// BGPSession is the state of the session between a load balancer and a BGP peer, in the
// namespace of the load balancer. Its agent writes it, within ten seconds of a change, and
// removes it when the peer is no longer configured or the agent stops. While a session is not
// established, the agent writes it at most once a minute. If an agent was killed, the controller
// sets the state to "unknown"; the session is deleted with its Node, and that of a dedicated load
// balancer with its Pod.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=fairlead,shortName=bgps
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.node`
// +kubebuilder:printcolumn:name="Peer",type=string,JSONPath=`.status.peer`
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.status.peerAddress`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Since",type=date,JSONPath=`.status.since`
// +kubebuilder:printcolumn:name="Prefixes",type=integer,JSONPath=`.status.advertisedPrefixes`
// +kubebuilder:printcolumn:name="BFD",type=string,JSONPath=`.status.bfd`
// +kubebuilder:printcolumn:name="Last Error",type=string,JSONPath=`.status.lastError`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,priority=1
type BGPSession struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Status is the state of the session.
	// +optional
	Status BGPSessionStatus `json:"status,omitzero"`
}

// BGPSessionStatus is the state of a session.
type BGPSessionStatus struct {
	// Node is the name of the node. For a dedicated load balancer, of which a node may have
	// several, it is "node/pod".
	// +kubebuilder:validation:MaxLength=507
	Node string `json:"node"`
	// Peer is the name of the BGPPeer. For a peer from the agent's option --peer, it is its
	// address.
	// +kubebuilder:validation:MaxLength=253
	Peer string `json:"peer"`
	// PeerAddress is the address of the peer, or "%interface" if the peer has not been
	// discovered on that interface yet.
	// +kubebuilder:validation:MaxLength=64
	PeerAddress string `json:"peerAddress"`
	// State is "established" or the state of the connection attempt: "idle", "connect",
	// "opensent" or "openconfirm". It is "unknown" if the load balancer does not report any more.
	// +kubebuilder:validation:MaxLength=32
	State string `json:"state"`
	// Since is when the session was established or, if it is down, when it went down. If the
	// state is unknown, it is the last sign of life of the load balancer.
	Since metav1.Time `json:"since"`
	// LastError is why a session that is not established failed.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	LastError string `json:"lastError,omitempty"`
	// AdvertisedPrefixes is the number of prefixes that are advertised to the peer.
	// +kubebuilder:validation:Minimum=0
	AdvertisedPrefixes int32 `json:"advertisedPrefixes"`
	// BFD is the BFD state ("up", "down", "init"), "off" if disabled, or why BFD cannot run.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	BFD string `json:"bfd,omitempty"`
}

// BGPSessionList is a list of BGPSessions.
//
// +kubebuilder:object:root=true
type BGPSessionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []BGPSession `json:"items"`
}
