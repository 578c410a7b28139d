package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NodeReport says what a load balancer has done with the Services that it serves. It has the
// name of the node, and for a dedicated load balancer those of node and pod. Its agent writes it,
// within ten seconds of a change, and removes it when it stops. From all of them, the controller
// sets the conditions of Services and Gateways.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=fairlead,shortName=flreport
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.node`
// +kubebuilder:printcolumn:name="Services",type=integer,JSONPath=`.status.services`
// +kubebuilder:printcolumn:name="Programmed",type=integer,JSONPath=`.status.programmed`
// +kubebuilder:printcolumn:name="Advertised",type=integer,JSONPath=`.status.advertised`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NodeReport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Status is what the load balancer has done.
	// +optional
	Status NodeReportStatus `json:"status,omitzero"`
}

// NodeReportStatus is what a load balancer has done.
type NodeReportStatus struct {
	// Node is the name of the node; for a dedicated load balancer, it is "node/pod".
	// +kubebuilder:validation:MaxLength=507
	// +optional
	Node string `json:"node,omitempty"`
	// Services is the number of Services and Gateways that the load balancer serves.
	// +optional
	Services int32 `json:"services"`
	// Programmed is the number of those that are completely programmed.
	// +optional
	Programmed int32 `json:"programmed"`
	// Advertised is the number of those whose addresses are all advertised.
	// +optional
	Advertised int32 `json:"advertised"`
	// Outcomes has an entry for each outcome, with the Services that have it.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +optional
	Outcomes []Outcome `json:"outcomes,omitempty"`
}

// Outcome is an outcome and the Services that have it.
type Outcome struct {
	// NotProgrammed is why they are not programmed. If omitted, they are.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	NotProgrammed string `json:"notProgrammed,omitempty"`
	// NotAdvertised is why they are not advertised. If omitted, they are.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	NotAdvertised string `json:"notAdvertised,omitempty"`
	// Services contains six bytes of a hash for each Service, sorted.
	// +kubebuilder:validation:MaxLength=1048576
	// +optional
	Services []byte `json:"services,omitempty"`
}

// NodeReportList is a list of NodeReports.
//
// +kubebuilder:object:root=true
type NodeReportList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeReport `json:"items"`
}

// NodeHeartbeat says that a load balancer still reports: its NodeReport, and its entries in
// BGPPeers and Advertisements. It has the name of the NodeReport, and is in the namespace of the
// load balancer. Its agent renews it once a minute, and removes it when it stops. That of an
// agent that was killed is deleted with its Node, and that of a dedicated load balancer with its
// Pod.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=fairlead,shortName=flheartbeat
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.node`
// +kubebuilder:printcolumn:name="Renewed",type=date,JSONPath=`.status.renewTime`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NodeHeartbeat struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Status is the last renewal.
	// +optional
	Status NodeHeartbeatStatus `json:"status,omitzero"`
}

// NodeHeartbeatStatus is the last renewal.
type NodeHeartbeatStatus struct {
	// Node is the name of the node; for a dedicated load balancer, it is "node/pod".
	// +kubebuilder:validation:MaxLength=507
	Node string `json:"node"`
	// RenewTime is the time of the last renewal, by the clock of the node.
	RenewTime metav1.Time `json:"renewTime"`
	// DurationSeconds is how long the load balancer counts as reporting after a renewal.
	// +kubebuilder:validation:Minimum=1
	DurationSeconds int32 `json:"durationSeconds"`
}

// NodeHeartbeatList is a list of NodeHeartbeats.
//
// +kubebuilder:object:root=true
type NodeHeartbeatList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeHeartbeat `json:"items"`
}
