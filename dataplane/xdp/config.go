package xdp

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/attach"
	"github.com/fairlead/fairlead/internal/nodekey"
)

// Mode is how a program is attached to an interface.
type Mode = attach.Mode

// The modes.
const (
	Auto    = attach.Auto
	Native  = attach.Native
	Generic = attach.Generic
)

// ErrOccupied is the error of Open, wrapped, if an interface has another XDP program.
var ErrOccupied = attach.ErrOccupied

// PortRange is a range of ports, bounds included.
type PortRange struct {
	First, Last uint16
}

// Defaults of Config.
const (
	DefaultPinDir       = "/sys/fs/bpf/fairlead"
	DefaultMaxFrontends = 16384
	DefaultMaxBackends  = 16384
	DefaultMaxMembers   = 4 << 20
	DefaultMaxChains    = 65536
	DefaultMaxFlows     = 131072
	DefaultWideRings    = 16 << 20
)

// maxBackends is the limit of a flow's entry (FLOW_SERVER_BITS).
const maxBackends = 1<<20 - 1

// DefaultPorts are below Linux's own ephemeral ports, which start at 32768.
var DefaultPorts = PortRange{1024, 32767}

// Config configures interfaces, addresses and capacity. A zero value means the default.
//
// Approximate kernel memory: 8 bytes per slot of each ring (131 KB for 16381), or about 1
// byte beyond WideRings, allocated 2 MB at a time; frontends with the same backends share a
// ring, and a list of 8 to 24 bytes per backend; 100 bytes per programmed frontend, per VIP, and
// per backend of a frontend if there are up to 65,536. Used or not: 32 bytes per server plus 64
// per CPU, 96 per chain and 96 per flow. The defaults need 33 MB plus 1.2 MB per CPU.
type Config struct {
	// Interfaces are where clients' packets and, for fullnat, backends' replies
	// arrive, and where packets may leave without passing the kernel.
	Interfaces []string
	// PinDir is a directory for the pins on a BPF file system, which is mounted
	// if necessary.
	PinDir string
	// SourceV4 and SourceV6 are this load balancer's own addresses, the sources of
	// tunnels and of fullnat. Without one, these forwarding modes are rejected for
	// backends of that family.
	SourceV4, SourceV6 netip.Addr
	// Ports are fullnat's source ports. They must not overlap the kernel's own
	// (net.ipv4.ip_local_port_range).
	Ports PortRange
	// MaxFrontends is the total number of ports, port ranges and whole addresses.
	MaxFrontends int
	// MaxBackends limits distinct backends: one shared by several frontends counts
	// once, or once per frontend with flow tracking. MaxMembers limits the sum of all
	// frontends' backends.
	MaxBackends, MaxMembers int
	// MaxChains limits the lists of older owners that packets carry. Equal lists
	// count once. Beyond the limit, packets carry fewer.
	MaxChains int
	// WideRings is how many bytes rings have before further ones are narrow: an eighth
	// as large, at the cost of one more word that packets read and of a copy per change.
	WideRings int
	// MaxFlows limits the flows tracked by the load balancer itself.
	MaxFlows int
	// GUEPort is the UDP destination port of tunnels with GUE encapsulation.
	GUEPort uint16
	// Auth adds an authentication tag to packets for backend nodes and other load
	// balancers, and checks the tags from other load balancers. Without keys, tags
	// are neither made nor checked.
	Auth nodekey.Auth
	Mode Mode
	// SYNThreshold is the rate of new TCP connections per second above which a
	// frontend may be under a SYN flood (service.SYNAuto).
	SYNThreshold float64
}

func (c Config) withDefaults() Config {
	if c.PinDir == "" {
		c.PinDir = DefaultPinDir
	}
	if c.Ports == (PortRange{}) {
		c.Ports = DefaultPorts
	}
	for _, d := range []struct {
		have *int
		want int
	}{
		{&c.MaxFrontends, DefaultMaxFrontends}, {&c.MaxBackends, DefaultMaxBackends},
		{&c.MaxMembers, DefaultMaxMembers}, {&c.MaxChains, DefaultMaxChains}, {&c.MaxFlows, DefaultMaxFlows}, {&c.WideRings, DefaultWideRings},
	} {
		if *d.have == 0 {
			*d.have = d.want
		}
	}
	c.GUEPort = cmp.Or(c.GUEPort, service.DefaultGUEPort)
	c.Mode = cmp.Or(c.Mode, Auto)
	c.SYNThreshold = cmp.Or(c.SYNThreshold, service.DefaultSYNThreshold)
	return c
}

func (c Config) validate() error {
	if len(c.Interfaces) == 0 {
		return errors.New("xdp: Interfaces: must not be empty")
	}
	for field, n := range map[string]int{
		"MaxFrontends": c.MaxFrontends, "MaxBackends": c.MaxBackends, "MaxMembers": c.MaxMembers,
		"MaxChains": c.MaxChains, "MaxFlows": c.MaxFlows, "WideRings": c.WideRings,
	} {
		if n < 1 || n > math.MaxInt32 {
			return fmt.Errorf("xdp: %s: %d is not between 1 and %d", field, n, math.MaxInt32)
		}
	}
	if c.MaxBackends > maxBackends {
		return fmt.Errorf("xdp: MaxBackends: %d exceeds %d, the limit of the flow table", c.MaxBackends, maxBackends)
	}
	switch c.Mode {
	case Auto, Native, Generic:
	default:
		return fmt.Errorf("xdp: Mode: %q: must be %s, %s or %s", c.Mode, Auto, Native, Generic)
	}
	if c.Ports.First == 0 || c.Ports.Last < c.Ports.First {
		return fmt.Errorf("xdp: Ports: %d-%d is not a port range: use a first port above 0 and a last port not below it", c.Ports.First, c.Ports.Last)
	}
	return validateSources(c.SourceV4, c.SourceV6)
}

func validateSources(v4, v6 netip.Addr) error {
	if v4.IsValid() && !v4.Unmap().Is4() {
		return fmt.Errorf("xdp: SourceV4: %s is not an IPv4 address", v4)
	}
	if v6.IsValid() && (!v6.Is6() || v6.Is4In6()) {
		return fmt.Errorf("xdp: SourceV6: %s is not an IPv6 address", v6)
	}
	return nil
}

const localPorts = "/proc/sys/net/ipv4/ip_local_port_range"

// checkPorts rejects ports that the kernel assigns to its own sockets.
func checkPorts(ports PortRange) error {
	text, err := os.ReadFile(localPorts)
	if err != nil {
		return fmt.Errorf("xdp: %w", err)
	}
	var ends [2]int
	for i, field := range strings.Fields(string(text)) {
		if ends[min(i, 1)], err = strconv.Atoi(field); err != nil {
			return fmt.Errorf("xdp: %s: %w", localPorts, err)
		}
	}
	if int(ports.Last) >= ends[0] && int(ports.First) <= ends[1] {
		return fmt.Errorf("xdp: Ports: %d-%d overlaps net.ipv4.ip_local_port_range (%d-%d): change one of them",
			ports.First, ports.Last, ends[0], ends[1])
	}
	return nil
}
