// Package health says when a server counts as up: what is probed and the
// thresholds, pure. The probes themselves use the network and live in
// reconciler/probe; what a server's state means for traffic is for plan to say.
package health

import (
	"net/netip"

	"github.com/fairlead/fairlead/core/service"
)

// Target is one server probed in one way. Two Services that probe the same
// server alike share one Target.
type Target struct {
	Addr  netip.AddrPort
	Check service.HealthCheck
}

// State is what is known about a Target.
type State uint8

// The states: Unknown until the first probe has ended, Gone when a server has
// been Down for so long that nobody waits for its connections any more.
const (
	Unknown State = iota
	Up
	Down
	Gone
)

func (s State) String() string { return [...]string{"unknown", "up", "down", "gone"}[s] }
