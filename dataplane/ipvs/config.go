package ipvs

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/fairlead/fairlead/core/service"
)

// ErrNoIPVS is what Open answers, wrapped, on a kernel without IPVS.
var ErrNoIPVS = errors.New("ipvs: the kernel has no IPVS (modprobe ip_vs, or a kernel with CONFIG_IP_VS)")

// Role is a balancer's part in the synchronisation of connections.
type Role string

// The roles: Master sends, Backup receives, Both do both.
const (
	Master Role = "master"
	Backup Role = "backup"
	Both   Role = "both"
)

// Sync sets up the kernel's connection synchronisation between an active
// balancer and one that stands by (LVS's sync daemon).
type Sync struct {
	// Interface is where the multicast packets go; empty: there is none.
	Interface string
	// ID is the group's, from 0 to 255; balancers of another one are not heard.
	ID   int
	Role Role
}

// Timeouts are how long a flow is remembered after its last packet, in whole
// seconds. 0 leaves what the namespace has: 15 min, 2 min and 5 min at first.
type Timeouts struct {
	TCP, TCPFin, UDP time.Duration
}

// Config says where the balancer works.
type Config struct {
	// NetNS is the path of a network namespace; empty: that of the thread that
	// calls Open. Where it is the balancer's own, nobody else sees its services.
	NetNS    string
	GUEPort  uint16 // to which tunnels of the encapsulation gue lead; 0: service.DefaultGUEPort
	Timeouts Timeouts
	Sync     Sync
	// Instead says, for Describe, why IPVS is used and nothing better.
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
			return fmt.Errorf("ipvs: Timeouts.%s: %s: want whole seconds, or 0 to leave it", field, t)
		}
	}
	if c.Sync == (Sync{}) {
		return nil
	}
	switch {
	case c.Sync.Interface == "" || len(c.Sync.Interface) > 15:
		return fmt.Errorf("ipvs: Sync.Interface: %q: want the name of an interface", c.Sync.Interface)
	case c.Sync.ID < 0 || c.Sync.ID > 255:
		return fmt.Errorf("ipvs: Sync.ID: %d: want 0 to 255", c.Sync.ID)
	case c.Sync.Role != Master && c.Sync.Role != Backup && c.Sync.Role != Both:
		return fmt.Errorf("ipvs: Sync.Role: %q: want %s, %s or %s", c.Sync.Role, Master, Backup, Both)
	}
	return nil
}
