package service

import (
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Quarantine is an operator's order that a backend gets no new flows.
type Quarantine struct {
	// Name identifies the order.
	Name string `json:"name"`
	// Addr is the address of the backend.
	Addr netip.Addr `json:"address"`
	// Port is the port of the backend. If omitted, it is drained on all ports.
	Port uint16 `json:"port,omitempty"`
	// Service is the Service in which the backend is drained. If omitted, it is drained in
	// all.
	Service ID `json:"service,omitzero"`
	// Backend is the name that the backend must have, if set: a cluster uses the address of a
	// deleted pod again.
	Backend string `json:"backend,omitempty"`
	// Reason is why it is drained.
	Reason string `json:"reason,omitempty"`
	// By is who drained it.
	By string `json:"by,omitempty"`
	// Since is when the drain began, if known.
	Since time.Time `json:"since,omitzero"`
}

// Covers reports whether q applies to a backend of a Service.
func (q *Quarantine) Covers(id ID, b Backend) bool {
	return q.Addr == b.Addr.Addr() && (q.Port == 0 || q.Port == b.Addr.Port()) &&
		(q.Service == ID{} || q.Service == id) && (q.Backend == "" || q.Backend == b.Name)
}

// Why returns "drained by alice since 2026-11-28T23:00:00Z: disk errors".
func (q *Quarantine) Why() string {
	words := "drained"
	if q.By != "" {
		words += " by " + q.By
	}
	if !q.Since.IsZero() {
		words += " since " + q.Since.UTC().Format(time.RFC3339)
	}
	if q.Reason != "" {
		words += ": " + q.Reason
	}
	return words
}

// And returns Why and another reason; only that one without an order.
func (q *Quarantine) And(other string) string {
	switch {
	case q == nil:
		return other
	case other == "":
		return q.Why()
	}
	return q.Why() + "; " + other
}

// Endpoint returns the address of the backend, with the port if q has one.
func (q *Quarantine) Endpoint() string {
	if q.Port == 0 {
		return q.Addr.String()
	}
	return netip.AddrPortFrom(q.Addr, q.Port).String()
}

// Flags returns the flags of fairlead undrain for q: "172.16.1.10:8080 --service default/web".
func (q *Quarantine) Flags() string {
	words := q.Endpoint()
	if q.Service != (ID{}) {
		words += " --service " + q.Service.String()
	}
	return words
}

// Where returns "port 8080 of Service default/web", or as much of it as q is limited to.
func (q *Quarantine) Where() string {
	var words []string
	if q.Port != 0 {
		words = append(words, fmt.Sprintf("port %d", q.Port))
	}
	if q.Service != (ID{}) {
		words = append(words, "of Service "+q.Service.String())
	}
	return strings.Join(words, " ")
}
