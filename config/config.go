// Package config is what an operator sets for an agent, a reflector or a
// router: the settings with their defaults, the file and the flags that carry
// them, and which values are valid. Each setting is one struct field, and its
// tags are its name in the file, its flag and its help. Services are not set
// here: those come by source.
package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"
)

// ErrInvalid is under every error that this package gives: what the operator
// wrote is at fault, and the error says what would be right.
var ErrInvalid = errors.New("configuration")

// Role is what an agent does.
type Role string

// The roles.
const (
	Balancer Role = "balancer" // takes packets in and sends them to the servers
	Server   Role = "server"   // on a server's node: the other half of direct return
)

// XDPMode is where the balancer's program is attached.
type XDPMode string

// The modes.
const (
	Auto    XDPMode = "auto"    // native where the driver has it, else generic
	Native  XDPMode = "native"  // in the driver, or not at all
	Generic XDPMode = "generic" // in the kernel's stack: slower, with every driver
)

// Common is what all have.
type Common struct {
	Node     string     `yaml:"node" flag:"node" help:"this machine's name to people (default: its host name)"`
	Socket   string     `yaml:"socket" flag:"socket" help:"the socket's file for fairlead status and the like"`
	LogLevel slog.Level `yaml:"logLevel" flag:"log-level" help:"debug, info, warn or error"`
}

// BGP is what everything that speaks BGP has.
type BGP struct {
	AS           uint32     `yaml:"as" flag:"as" help:"the AS number of this speaker and its peers"`
	RouterID     netip.Addr `yaml:"routerID" flag:"router-id" help:"the BGP identifier, an IPv4 address of no other speaker (default: the one from which the first peer is reached)"`
	PasswordFile string     `yaml:"passwordFile" flag:"password-file" help:"a file with the password of all sessions (TCP MD5)"`
	BFD          bool       `yaml:"bfd" flag:"bfd" help:"notice a silent peer within a second (BFD, UDP port 3784)"`
}

// Password reads the sessions' password; empty where there is none.
func (b BGP) Password() (string, error) {
	if b.PasswordFile == "" {
		return "", nil
	}
	text, err := os.ReadFile(b.PasswordFile)
	if err != nil {
		return "", invalid("passwordFile", "%v", err)
	}
	password := strings.TrimRight(string(text), "\r\n")
	if password == "" || len(password) > 80 {
		return "", invalid("passwordFile", "%s holds %d bytes: a TCP MD5 password has 1 to 80", b.PasswordFile, len(password))
	}
	return password, nil
}

func (b BGP) validate() error {
	var errs []error
	if b.AS == 0 {
		errs = append(errs, invalid("as", "0 is no AS number: use one of 64512 to 65534 for a network of your own"))
	}
	if b.RouterID.IsValid() && !b.RouterID.Is4() {
		errs = append(errs, invalid("routerID", "%s is no IPv4 address, which BGP identifiers are", b.RouterID))
	}
	_, err := b.Password()
	return errors.Join(append(errs, err)...)
}

// Agent is the configuration of fairlead agent.
type Agent struct {
	Common     `yaml:",inline"`
	Roles      []Role       `yaml:"roles" flag:"role" help:"what to do: balancer, server, or both"`
	Manifests  string       `yaml:"manifests" flag:"manifests" help:"the folder of Services and EndpointSlices, watched"`
	Interfaces []string     `yaml:"interfaces" flag:"interface" help:"a device that clients' packets (balancer) or servers' uplinks (server) use; may be repeated"`
	XDPMode    XDPMode      `yaml:"xdpMode" flag:"xdp-mode" help:"auto, native or generic"`
	Pins       string       `yaml:"pins" flag:"pins" help:"the folder on a BPF file system that keeps forwarding while the agent is away"`
	NextHops   []netip.Addr `yaml:"nextHops" flag:"next-hop" help:"the address that routers are to send packets to, one a family (default: the one from which the first peer is reached)"`
	BGP        `yaml:",inline"`
	Peers      []netip.Addr  `yaml:"peers" flag:"peer" help:"the address of a route reflector or router to announce to; may be repeated"`
	Linger     time.Duration `yaml:"linger" flag:"linger" help:"how long to go on forwarding after a route is withdrawn"`
	Resync     time.Duration `yaml:"resync" flag:"resync" help:"how often to compare everything with what the kernel holds"`
}

// DefaultAgent gives the settings that nobody need make.
func DefaultAgent() *Agent {
	return &Agent{
		Common: Common{Socket: "/run/fairlead/agent.sock"}, Roles: []Role{Balancer}, Manifests: "/etc/fairlead/services",
		XDPMode: Auto, Pins: "/sys/fs/bpf/fairlead", BGP: BGP{AS: 65021, BFD: true},
		Linger: 200 * time.Millisecond, Resync: time.Minute,
	}
}

// Is says whether the agent has a role.
func (a *Agent) Is(r Role) bool { return slices.Contains(a.Roles, r) }

// NextHop gives the next hop of a family: IPv4, or IPv6; the zero Addr where
// there is none.
func (a *Agent) NextHop(ipv6 bool) netip.Addr {
	i := slices.IndexFunc(a.NextHops, func(h netip.Addr) bool { return h.Is6() == ipv6 })
	if i < 0 {
		return netip.Addr{}
	}
	return a.NextHops[i]
}

// Validate names everything that is wrong.
func (a *Agent) Validate() error {
	errs := []error{required("socket", a.Socket), required("manifests", a.Manifests), required("pins", a.Pins)}
	if len(a.Roles) == 0 {
		errs = append(errs, invalid("roles", "none: use balancer, server or both"))
	}
	for _, r := range a.Roles {
		errs = append(errs, oneOf("roles", r, Balancer, Server))
	}
	if a.Is(Balancer) && len(a.Interfaces) == 0 {
		errs = append(errs, invalid("interfaces", "none: a balancer needs the devices that clients' packets come in on: pass --interface"))
	}
	for _, name := range a.Interfaces {
		errs = append(errs, device("interfaces", name))
	}
	errs = append(errs, oneOf("xdpMode", a.XDPMode, Auto, Native, Generic))
	errs = append(errs, a.validateHops(), positive("resync", a.Resync), addresses("peers", a.Peers))
	if a.Linger < 0 {
		errs = append(errs, invalid("linger", "%v is negative: use 0s or more", a.Linger))
	}
	if len(a.Peers) > 0 {
		errs = append(errs, a.BGP.validate())
	}
	return errors.Join(errs...)
}

func (a *Agent) validateHops() error {
	if err := addresses("nextHops", a.NextHops); err != nil {
		return err
	}
	four := 0
	for _, h := range a.NextHops {
		if h.Is4() {
			four++
		}
	}
	if four > 1 || len(a.NextHops)-four > 1 {
		return invalid("nextHops", "two of one family: use one IPv4 and one IPv6 address at most")
	}
	return nil
}

// Reflector is the configuration of fairlead reflector.
type Reflector struct {
	Common     `yaml:",inline"`
	BGP        `yaml:",inline"`
	Neighbours []netip.Prefix `yaml:"neighbours" flag:"neighbours" help:"a prefix from which balancers may peer; may be repeated"`
	Routers    []netip.Addr   `yaml:"routers" flag:"router" help:"the address of a router, which is told every path (add-path); may be repeated"`
}

// DefaultReflector gives the settings that nobody need make.
func DefaultReflector() *Reflector {
	return &Reflector{Common: Common{Socket: "/run/fairlead/reflector.sock"}, BGP: BGP{AS: 65021, BFD: true}}
}

// Validate names everything that is wrong.
func (r *Reflector) Validate() error {
	errs := []error{required("socket", r.Socket), r.BGP.validate(), addresses("routers", r.Routers)}
	if len(r.Neighbours) == 0 {
		errs = append(errs, invalid("neighbours", "none: name the prefixes that balancers peer from: pass --neighbours"))
	}
	for _, p := range r.Neighbours {
		if p != p.Masked() {
			errs = append(errs, invalid("neighbours", "%s has bits beyond its length: did you mean %s?", p, p.Masked()))
		}
	}
	return errors.Join(errs...)
}

// Router is the configuration of fairlead router.
type Router struct {
	Common `yaml:",inline"`
	BGP    `yaml:",inline"`
	Peers  []netip.Addr   `yaml:"peers" flag:"peer" help:"the address of a route reflector to learn from; may be repeated"`
	Accept []netip.Prefix `yaml:"accept" flag:"accept" help:"a prefix within which routes are taken (default: all are); may be repeated"`
	Table  uint32         `yaml:"table" flag:"table" help:"the kernel's routing table to write to (254 is main)"`
}

// DefaultRouter gives the settings that nobody need make.
func DefaultRouter() *Router {
	return &Router{Common: Common{Socket: "/run/fairlead/router.sock"}, BGP: BGP{AS: 65021, BFD: true}, Table: 254}
}

// Validate names everything that is wrong.
func (r *Router) Validate() error {
	errs := []error{required("socket", r.Socket), r.BGP.validate(), addresses("peers", r.Peers)}
	if len(r.Peers) == 0 {
		errs = append(errs, invalid("peers", "none: name the route reflectors to learn from: pass --peer"))
	}
	if r.Table == 0 || r.Table == 255 {
		errs = append(errs, invalid("table", "%d is not a table to write to: use 254 for main, or one of your own", r.Table))
	}
	return errors.Join(errs...)
}

func invalid(field, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrInvalid, field, fmt.Sprintf(format, args...))
}

func required(field, value string) error {
	if value == "" {
		return invalid(field, "empty: leave it out for its default")
	}
	return nil
}

func positive(field string, d time.Duration) error {
	if d <= 0 {
		return invalid(field, "%v is not positive: use 1s, for example", d)
	}
	return nil
}

func oneOf[T ~string](field string, value T, valid ...T) error {
	if slices.Contains(valid, value) {
		return nil
	}
	words := make([]string, len(valid))
	for i, v := range valid {
		words[i] = string(v)
	}
	return invalid(field, "%q is none of %s", value, strings.Join(words, ", "))
}

// addresses refuses what can be no peer or next hop.
func addresses(field string, list []netip.Addr) error {
	for i, a := range list {
		switch {
		case !a.IsValid() || a.IsUnspecified() || a.IsMulticast():
			return invalid(field, "%s is nobody's address: use the one of a machine", a)
		case slices.Contains(list[:i], a):
			return invalid(field, "%s is there twice: leave one out", a)
		}
	}
	return nil
}

// device refuses what the kernel takes for no name (dev_valid_name in
// net/core/dev.c).
func device(field, name string) error {
	if name == "" || len(name) > 15 || name == "." || name == ".." || strings.ContainsAny(name, "/: \t\n") {
		return invalid(field, "%q is no device's name: ip link shows those there are", name)
	}
	return nil
}
