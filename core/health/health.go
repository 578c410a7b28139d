// Package health defines when a backend is healthy: the probe target and the thresholds.
// It is pure. The probes themselves use the network and are in reconciler/probe; package
// plan decides what a state means for traffic.
package health

import (
	"net/netip"

	"github.com/fairlead/fairlead/core/service"
)

// Target is one backend probed in one way. Two Services that probe the same backend in
// the same way share a Target.
type Target struct {
	Addr  netip.AddrPort
	Check service.HealthCheck
}

// State is the health of a Target.
type State uint8

// Health states. A Target is Unknown until the first probe completes, and Removed when it
// has been Down for the drain timeout, after which its connections are given up.
const (
	Unknown State = iota
	Up
	Down
	Removed
)

func (s State) String() string { return [...]string{"unknown", "up", "down", "removed"}[s] }
