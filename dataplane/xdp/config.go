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
	"github.com/fairlead/fairlead/internal/nodekey"
)

// Mode is how a program is attached to an interface.
type Mode string

// The modes.
const (
	Auto    Mode = "auto"    // native where it works, else generic
	Native  Mode = "native"  // in the driver
	Generic Mode = "generic" // in the kernel's receive path: works everywhere, slower
)

// PortRange is a range of ports, both ends included.
type PortRange struct {
	First, Last uint16
}

// Defaults of Config.
const (
	DefaultPinDir       = "/sys/fs/bpf/fairlead"
	DefaultMaxFrontends = 16384
	DefaultMaxBackends  = 16384
	DefaultMaxMembers   = 262144 // or more, where there are many frontends
	DefaultMaxChains    = 65536
	DefaultMaxFlows     = 131072
)

// membersEach is for how many backends of each of very many frontends there is
// room where nothing else is said.
const membersEach = 16

// maxBackends is what a flow's entry has room for (FLOW_SERVER_BITS).
const maxBackends = 1<<20 - 1

// DefaultPorts lies below Linux's own ephemeral ports, which begin at 32768.
var DefaultPorts = PortRange{1024, 32767}

// Config says where the balancer works and how much it can hold. A zero value
// stands for the default.
//
// Kernel memory, about: 8 bytes a slot of each ring (131 KB for 16381), taken 2
// MB at a time; 100 bytes a frontend held, as much a VIP, and as much a backend of
// a frontend; whether used or not, 32 bytes a server and 64 more a CPU, 96 a
// chain and 96 a flow. The defaults come to 33 MB and 1.2 MB a CPU.
type Config struct {
	// Interfaces are where clients' packets and, for fullnat, servers'
	// answers come in, and where they may leave without passing the kernel.
	Interfaces []string
	// PinDir is a folder for the pins on a BPF file system, which is mounted
	// where there is none.
	PinDir string
	// SourceV4 and SourceV6 are this balancer's own addresses, the sources
	// of tunnels and of fullnat; without one, these methods are refused to
	// servers of that family.
	SourceV4, SourceV6 netip.Addr
	// Ports are fullnat's source ports; they must not overlap the kernel's
	// own (net.ipv4.ip_local_port_range).
	Ports PortRange
	// MaxFrontends is of ports, port ranges and whole addresses alike.
	MaxFrontends int
	// MaxBackends is of servers, one that several frontends share counting
	// once, or once for each frontend that remembers flows. MaxMembers is of
	// backends, counted for every frontend that has them.
	MaxBackends, MaxMembers int
	// MaxChains bounds the lists of older servers that packets carry; equal
	// ones count once. Beyond it packets name fewer.
	MaxChains int
	// MaxFlows is of what the balancer itself remembers.
	MaxFlows int
	// GUEPort is the UDP port to which tunnels of the encapsulation gue lead.
	GUEPort uint16
	// Auth has packets to backend nodes and other load balancers carry an
	// authentication tag, and those of other load balancers be checked for one.
	// Without keys none is made or looked at.
	Auth nodekey.Auth
	Mode Mode
	// SYNThreshold is how many TCP connections a second are opened to a frontend
	// that may be under a SYN flood (service.SYNAuto).
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
		{&c.MaxMembers, max(DefaultMaxMembers, min(membersEach*c.MaxFrontends, math.MaxInt32))}, {&c.MaxChains, DefaultMaxChains}, {&c.MaxFlows, DefaultMaxFlows},
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
		return errors.New("xdp: Interfaces: none given: name at least one")
	}
	for field, n := range map[string]int{
		"MaxFrontends": c.MaxFrontends, "MaxBackends": c.MaxBackends, "MaxMembers": c.MaxMembers,
		"MaxChains": c.MaxChains, "MaxFlows": c.MaxFlows,
	} {
		if n < 1 || n > math.MaxInt32 {
			return fmt.Errorf("xdp: %s: %d is not between 1 and %d", field, n, math.MaxInt32)
		}
	}
	if c.MaxBackends > maxBackends {
		return fmt.Errorf("xdp: MaxBackends: %d is more than %d, all that a flow can name", c.MaxBackends, maxBackends)
	}
	switch c.Mode {
	case Auto, Native, Generic:
	default:
		return fmt.Errorf("xdp: Mode: %q is none of %s, %s, %s", c.Mode, Auto, Native, Generic)
	}
	if c.Ports.First == 0 || c.Ports.Last < c.Ports.First {
		return fmt.Errorf("xdp: Ports: %d-%d is no range: give a first port above 0 and a last one not below it", c.Ports.First, c.Ports.Last)
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

// checkPorts refuses ports that the kernel gives to sockets of its own.
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
