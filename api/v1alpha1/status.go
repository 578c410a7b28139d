package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Conditions of BGPPeers and Advertisements.
const (
	// ConditionAccepted: the object is valid.
	ConditionAccepted = "Accepted"
	// ConditionEstablished: all load balancers that have the BGPPeer have a session with it.
	ConditionEstablished = "Established"
	// ConditionAdvertised: all load balancers with prefixes of the Advertisement advertise
	// them.
	ConditionAdvertised = "Advertised"
)

// RoutingStatus is the state of a BGPPeer or an Advertisement on the nodes that it selects.
type RoutingStatus struct {
	// Conditions contains Accepted, and Established (BGPPeer) or Advertised (Advertisement).
	// The controller writes them.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Summary is the number of ready nodes among all nodes that report: "2/3".
	// +optional
	Summary string `json:"summary,omitempty"`
	// Nodes has an entry for each load balancer that has the peer or has prefixes of the
	// Advertisement. Its agent writes it, within ten seconds of a change, and removes it when
	// it stops.
	// +listType=map
	// +listMapKey=node
	// +optional
	Nodes []NodeState `json:"nodes,omitempty"`
}

// NodeState is the state on one node.
type NodeState struct {
	// Node is the name of the node. For a dedicated load balancer, of which a node may have
	// several, it is "node/pod".
	// +kubebuilder:validation:MaxLength=507
	Node string `json:"node"`
	// Ready means that the session is established, or that all prefixes are advertised.
	Ready bool `json:"ready"`
	// Message is the state in words.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`
}
