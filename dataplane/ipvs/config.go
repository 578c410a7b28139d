package ipvs

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/fairlead/fairlead/core/service"
)

// ErrNoIPVS is the error of Open, wrapped, on a kernel without IPVS.
var ErrNoIPVS = errors.New("ipvs: the kernel has no IPVS (modprobe ip_vs, or a kernel with CONFIG_IP_VS)")

// Role is a load balancer's role in connection synchronization.
type Role string

// The roles: Master sends, Backup receives, Both does both.
const (
	Master Role = "master"
	Backup Role = "backup"
	Both   Role = "both"
)

// Sync configures the kernel's connection synchronization between an active and a standby
// load balancer (LVS's sync daemon).
type Sync struct {
	// Interface is the one for multicast packets; empty to disable.
	Interface string
	// ID is the group's, from 0 to 255. Load balancers of other groups are ignored.
	ID   int
	Role Role
}

// Timeouts are how long a flow is tracked after its last packet, in whole seconds. 0
// keeps the namespace's setting: initially 15 min, 2 min and 5 min.
type Timeouts struct {
	TCP, TCPFin, UDP time.Duration
}

// Config configures the load balancer.
type Config struct {
	// NetNS is the path of a network namespace; empty for that of the thread that
	// calls Open. In a separate namespace, its services are invisible to others.
	NetNS    string
	GUEPort  uint16 // destination port of tunnels with GUE encapsulation; 0: service.DefaultGUEPort
	Timeouts Timeouts
	Sync     Sync
	// Instead is the reason, for Describe, why IPVS is used and not XDP.
	Instead string
}

func (c Config) withDefaults() Config {
	if c.GUEPort == 0 {
		c.GUEPort = service.DefaultGUEPort
	}
	return c
}

func (c Config) validate() error {
	for field, t := range map[string]time.Duration{"TCP": c.Timeouts.TCP, "TCPFin": c.Timeouts.TCPFin, "UDP": c.Timeouts.UDP} {
		if t < 0 || t%time.Second != 0 || t/time.Second > math.MaxInt32/1000 {
			return fmt.Errorf("ipvs: Timeouts.%s: %s: use whole seconds, or 0 to keep the kernel's value", field, t)
		}
	}
	if c.Sync == (Sync{}) {
		return nil
	}
	switch {
	case c.Sync.Interface == "" || len(c.Sync.Interface) > 15:
		return fmt.Errorf("ipvs: Sync.Interface: %q: must be an interface name", c.Sync.Interface)
	case c.Sync.ID < 0 || c.Sync.ID > 255:
		return fmt.Errorf("ipvs: Sync.ID: %d: want 0 to 255", c.Sync.ID)
	case c.Sync.Role != Master && c.Sync.Role != Backup && c.Sync.Role != Both:
		return fmt.Errorf("ipvs: Sync.Role: %q: want %s, %s or %s", c.Sync.Role, Master, Backup, Both)
	}
	return nil
}
