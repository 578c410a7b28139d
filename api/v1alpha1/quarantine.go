package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Quarantine drains a backend on all load balancers: it gets no new flows, and keeps those
// that it has. fairlead drain --backend creates one, fairlead undrain --backend deletes it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=fairlead
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.spec.address`
// +kubebuilder:printcolumn:name="Port",type=integer,JSONPath=`.spec.port`
// +kubebuilder:printcolumn:name="Service",type=string,JSONPath=`.spec.service`
// +kubebuilder:printcolumn:name="By",type=string,JSONPath=`.spec.by`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.spec.reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Quarantine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec selects the backend.
	Spec QuarantineSpec `json:"spec"`
}

// QuarantineSpec selects the backend that is drained.
type QuarantineSpec struct {
	// Address is the IPv4 or IPv6 address of the backend.
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self) && !ip(self).isUnspecified()",message="is not the address of a backend: want one like 172.16.1.10 or 2001:db8::10"
	Address string `json:"address"`
	// Port is the port of the backend. If omitted, the backend is drained on all ports.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +optional
	Port int32 `json:"port,omitempty"`
	// Service is the Service in which the backend is drained, as "namespace/name". If
	// omitted, it is drained in all Services.
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^[^/\s]+/[^/\s]+$`
	// +optional
	Service string `json:"service,omitempty"`
	// Backend is the name of the pod or machine. A backend with the same address but another
	// name is not drained, because a cluster uses the address of a deleted pod again. If
	// omitted, the name does not matter.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Backend string `json:"backend,omitempty"`
	// Reason is why the backend is drained.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Reason string `json:"reason,omitempty"`
	// By is who drained it.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	By string `json:"by,omitempty"`
}

// QuarantineList is a list of Quarantines.
//
// +kubebuilder:object:root=true
type QuarantineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Quarantine `json:"items"`
}
