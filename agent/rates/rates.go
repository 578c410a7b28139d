// Package rates answers what a node does right now: packets, bits and new flows per second
// of Services, frontends and backends, and drops by reason. Two readings of the counters
// are compared; a Sampler takes them only when somebody asks, and shares them.
//
// The comparison and the order of rows are pure. States come from agent/status, counters
// from a data plane. Tests need neither.
package rates

import (
	"time"

	"github.com/fairlead/fairlead/dataplane"
)

// Report is the answer to a Query. Its JSON field names are an interface: fields may be
// added, never changed.
type Report struct {
	// Node is the name of the node.
	Node string `json:"node"`
	// Time is that of the later reading.
	Time time.Time `json:"time"`
	// Seconds are those between the two readings. 0 means that there is only one so far:
	// all rates are 0, and the next answer has some.
	Seconds float64 `json:"seconds"`
	// Next is how many seconds to wait for new rates: the interval, or longer if reading
	// the counters that often would take too much CPU time.
	Next float64 `json:"next"`
	// Total is the sum of all frontends.
	Total Rate `json:"total"`
	// Drops are the reasons for which packets were dropped, highest rate first.
	Drops []Drop `json:"drops"`
	// View and Sort are those of the Query.
	View View   `json:"view"`
	Sort Column `json:"sort"`
	// Rows are the first rows in the order of Sort.
	Rows []Row `json:"rows"`
	// Matching is the number of rows that the Query selects without its Limit, All the
	// number of those in the View.
	Matching int `json:"matching"`
	All      int `json:"all"`
	// Error is why counters could not be read.
	Error string `json:"error,omitempty"`
}

// Rate is what happens per second.
type Rate struct {
	// Packets are those to backends.
	Packets float64 `json:"packetsPerSecond"`
	// Bits are those of these packets, as received from clients, from the IP header on.
	Bits float64 `json:"bitsPerSecond"`
	// Flows are new flows, where they are counted (dataplane.Counts).
	Flows float64 `json:"flowsPerSecond"`
}

func (r *Rate) add(o Rate) {
	r.Packets += o.Packets
	r.Bits += o.Bits
	r.Flows += o.Flows
}

// Drop is the packets dropped for a reason.
type Drop struct {
	// At is what dropped them: "balancer", "dsr" or "proxy".
	At string `json:"at"`
	// Reason is the drop reason (docs/troubleshooting.md).
	Reason string `json:"reason"`
	// PerSecond is the rate, Total the count since the data plane was set up.
	PerSecond float64 `json:"perSecond"`
	Total     uint64  `json:"total"`
}

// Row is one Service, frontend or backend.
type Row struct {
	// Service is "namespace/name". It is empty for a backend of several Services.
	Service string `json:"service,omitempty"`
	// Frontend is "TCP 10.1.1.1:80". It is empty for a Service, and for a backend of
	// several frontends.
	Frontend string `json:"frontend,omitempty"`
	// Backend is the address and port of a backend, Name that of its pod or machine, Node
	// the node that it runs on.
	Backend string `json:"backend,omitempty"`
	Name    string `json:"name,omitempty"`
	Node    string `json:"node,omitempty"`
	// State is that of a frontend, as in the status. A Service has the worst of its
	// frontends; a backend is "in-service", "draining", "drained" or "excluded".
	State string `json:"state"`
	// Reason explains a State other than active.
	Reason string `json:"reason,omitempty"`
	// Health is that of a backend, as in the status, Since the time of its last change, LastError why
	// the latest failed probe failed.
	Health    string    `json:"health,omitempty"`
	Since     time.Time `json:"since,omitzero"`
	LastError string    `json:"lastError,omitempty"`
	// Weight is the desired weight of a backend.
	Weight *uint32 `json:"weight,omitempty"`
	// Frontends is the number of frontends of a Service or of a backend.
	Frontends int `json:"frontends,omitempty"`
	// Backends is the number of backends of a Service or frontend, Up the number of those
	// that are not down. A Service counts each backend of each of its frontends.
	Backends int `json:"backends"`
	Up       int `json:"up"`
	Rate
	// Counts are the totals since the object was programmed. A backend of several
	// frontends may be counted once for all of them.
	Counts dataplane.Counts `json:"counts"`
}

// ID identifies a row within its view.
func (r Row) ID() string { return r.Service + " " + r.Frontend + " " + r.Backend }
