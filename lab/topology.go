package lab

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// Topology is a network drawn as a value: hosts, switches, and the links between them.
// Addresses are text ("10.0.0.1/16", "fd00::1/64"); all are validated before anything is
// created.
type Topology struct {
	Title    string
	Hosts    []HostSpec
	Switches []SwitchSpec
	Links    []Link
}

// HostSpec is a host: a network namespace with that name.
type HostSpec struct {
	Name string
	// Is describes the host in pictures: "upstream router".
	Is string
	// Forward enables forwarding for both families.
	Forward bool
	// Loopback are addresses on lo.
	Loopback []string
	// Sysctls are set last: "net.ipv4.fib_multipath_hash_policy": "3".
	Sysctls map[string]string
	// SNAT are the masquerading rules.
	SNAT []SNAT
}

// SNAT rewrites the source of packets from a prefix to the address of the interface they
// leave by, unless they go to one of the spared prefixes.
type SNAT struct {
	From  string
	Spare []string
}

// SwitchSpec is an Ethernet segment with any number of ports.
type SwitchSpec struct {
	Name string
	// Is describes the segment in pictures: "node network".
	Is string
}

// Link connects two ends: two hosts, or a host and a switch.
type Link struct {
	A, B End
	// MTU of both ends in bytes; 0 means 1500.
	MTU int
	// Cuttable allows Lab.Cut for a link between two hosts, at the price of a bridge in
	// its middle. A link to a switch can always be cut.
	Cuttable bool
}

// End is one end of a link. See At and Port.
type End struct {
	// Host is the name of a host or switch.
	Host string
	// Dev is the interface's name; for a switch the lab selects a name.
	Dev    string
	Addrs  []string
	Routes []Route
	// TxChecksumOff makes the kernel complete checksums before a packet leaves here. It
	// is needed if the peer forwards packets by XDP, which loses the note that a checksum
	// is incomplete.
	TxChecksumOff bool
	// GRO turns on generic receive offload, and with it the NAPI that a veth needs to
	// accept packets that its peer sends by XDP_REDIRECT.
	GRO bool
	// Shape limits what this end sends.
	Shape Shape
}

// Route is a route out of an End's interface.
type Route struct {
	// To is a prefix or "default".
	To string
	// Via is the gateway; empty if To is on-link.
	Via string
}

// Shape limits or divides what leaves an interface. The zero Shape does neither.
type Shape struct {
	// Rate in bits per second. Without Classes it is a token bucket (TBF).
	Rate uint64
	// Burst in bytes; 0 means 10 ms worth of Rate, at least two packets.
	Burst uint32
	// Classes divide Rate by destination (HTB); other traffic gets what they leave.
	Classes []Class
}

// Class is a share of a Shape.
type Class struct {
	// To is the IPv4 destination prefix of this class.
	To string
	// Rate is guaranteed, Ceil is the maximum with borrowing (0 for all), both in bits
	// per second.
	Rate, Ceil uint64
}

// At is an end on a host: interface and addresses.
func At(host, dev string, addrs ...string) End { return End{Host: host, Dev: dev, Addrs: addrs} }

// Port is an end on a switch.
func Port(name string) End { return End{Host: name} }

// To adds an on-link route.
func (e End) To(prefix string) End { return e.Via("", prefix) }

// Via adds routes through a gateway, "default" or prefixes.
func (e End) Via(gateway string, prefixes ...string) End {
	e.Routes = slices.Clone(e.Routes)
	for _, p := range prefixes {
		e.Routes = append(e.Routes, Route{To: p, Via: gateway})
	}
	return e
}

// ForXDP makes this end a suitable peer for an interface whose XDP program redirects
// packets back or on. (XDP_TX would also need an XDP program here: see veth_xdp_flush in
// Linux' drivers/net/veth.c.)
func (e End) ForXDP() End {
	e.TxChecksumOff, e.GRO = true, true
	return e
}

// Shaped limits what this end sends.
func (e End) Shaped(s Shape) End {
	e.Shape = s
	return e
}

// maxName is the maximum length of an interface name (IFNAMSIZ without its terminator).
const maxName = 15

// check finds all mistakes in t, given the existing names.
func (t Topology) check(standing map[string]bool) error {
	names := maps.Clone(standing)
	switches := map[string]bool{}
	var errs []error
	add := func(kind, name string) {
		_, taken := names[name]
		if name == "" || taken {
			errs = append(errs, fmt.Errorf("%s %q: the name is empty or taken", kind, name))
		}
		names[name] = kind == "switch"
	}
	for _, h := range t.Hosts {
		add("host", h.Name)
		errs = append(errs, h.check()...)
	}
	for _, s := range t.Switches {
		add("switch", s.Name)
	}
	maps.Copy(switches, names)
	devs := map[string]bool{}
	for _, l := range t.Links {
		if switches[l.A.Host] && switches[l.B.Host] {
			errs = append(errs, fmt.Errorf("link %s - %s: two switches cannot be linked", l.A.Host, l.B.Host))
		}
		for _, e := range []End{l.A, l.B} {
			isSwitch, known := switches[e.Host]
			if !known {
				errs = append(errs, fmt.Errorf("link %s - %s: no host or switch is named %q", l.A.Host, l.B.Host, e.Host))
			}
			errs = append(errs, e.check(isSwitch, devs)...)
		}
	}
	return errors.Join(errs...)
}

func (h HostSpec) check() []error {
	var errs []error
	prefixes := slices.Clone(h.Loopback)
	for _, s := range h.SNAT {
		prefixes = append(append(prefixes, s.From), s.Spare...)
	}
	for _, p := range prefixes {
		if _, err := netip.ParsePrefix(p); err != nil {
			errs = append(errs, fmt.Errorf("host %s: %w", h.Name, err))
		}
	}
	return errs
}

func (e End) check(isSwitch bool, devs map[string]bool) []error {
	var errs []error
	complain := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("end %s %s: "+format, append([]any{e.Host, e.Dev}, args...)...))
	}
	if isSwitch {
		if e.Dev != "" || len(e.Addrs) > 0 || len(e.Routes) > 0 {
			complain("a switch port has no interface name, address or route")
		}
		return errs
	}
	if e.Dev == "" || len(e.Dev) > maxName || devs[e.Host+" "+e.Dev] {
		complain("an interface needs a name of its own of 1 to %d characters", maxName)
	}
	devs[e.Host+" "+e.Dev] = true
	for _, a := range e.Addrs {
		if _, err := netip.ParsePrefix(a); err != nil {
			complain("%w", err)
		}
	}
	for _, r := range e.Routes {
		if _, err := r.parse(); err != nil {
			complain("%w", err)
		}
	}
	for _, c := range e.Shape.Classes {
		if p, err := netip.ParsePrefix(c.To); err != nil || !p.Addr().Is4() {
			complain("class to %q: want an IPv4 prefix", c.To)
		}
	}
	return errs
}

// parsedRoute is a Route in the kernel's terms; via is invalid for on-link routes.
type parsedRoute struct {
	to  netip.Prefix
	via netip.Addr
}

func (r Route) parse() (p parsedRoute, err error) {
	if r.Via != "" {
		if p.via, err = netip.ParseAddr(r.Via); err != nil {
			return p, fmt.Errorf("route to %s: %w", r.To, err)
		}
	}
	if r.To == "default" {
		if !p.via.IsValid() {
			return p, errors.New("route to default: a gateway must be given")
		}
		p.to = netip.PrefixFrom(p.via, 0).Masked()
		return p, nil
	}
	if p.to, err = netip.ParsePrefix(r.To); err != nil {
		return p, fmt.Errorf("route: %w", err)
	}
	if p.to != p.to.Masked() {
		return p, fmt.Errorf("route to %s: bits are set right of the prefix, want %s", r.To, p.to.Masked())
	}
	return p, nil
}
