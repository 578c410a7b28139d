package config

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/core/service"
)

// Reflector is the configuration of fairlead reflector.
type Reflector struct {
	AS        uint32
	RouterID  string
	ClusterID string
	// Listen lists the addresses on which sessions are accepted; empty: all.
	Listen []string
	// Clients are the prefixes from which load balancers connect, Routers the addresses
	// or prefixes from which routers do.
	Clients, Routers []string
	PasswordFile     string
	BFD              bool
	Socket           string
	Monitoring
	// MaxClients limits the sessions with load balancers, MaxPrefixes the prefixes of
	// each family that one may advertise; 0: no limit.
	MaxClients  int
	MaxPrefixes uint32
	// MaxTotal limits the prefixes of both families that all load balancers together may
	// advertise; 0: no limit.
	MaxTotal uint32
}

// ResolvedReflector is a valid Reflector, parsed.
type ResolvedReflector struct {
	AS                  uint32
	RouterID, ClusterID netip.Addr
	Listen              []netip.Addr
	Clients, Routers    []netip.Prefix
	Password            string
	BFD                 bool
	MaxClients          int
	MaxPrefixes         uint32
	MaxTotal            uint32
}

// Resolve validates and parses the configuration. It reports all errors together.
func (c Reflector) Resolve() (*ResolvedReflector, error) {
	p := parser{}
	r := &ResolvedReflector{
		AS: p.as(c.AS), BFD: c.BFD, MaxClients: c.MaxClients, MaxPrefixes: c.MaxPrefixes, MaxTotal: c.MaxTotal,
		RouterID:  p.routerID(c.RouterID),
		ClusterID: p.addr("cluster-id", c.ClusterID),
		Clients:   p.prefixes("client-range", c.Clients),
		Routers:   p.prefixes("router-range", c.Routers),
		Password:  p.password(c.PasswordFile),
	}
	for _, text := range c.Listen {
		r.Listen = append(r.Listen, p.addr("listen", text))
	}
	if len(c.Clients) == 0 {
		p.refuse("client-range", "required: set the prefix from which load balancers connect, for example 172.16.0.0/16")
	}
	if len(c.Routers) == 0 {
		p.refuse("router-range", "required: set the address of the router that receives the routes")
	}
	if c.MaxClients < 0 {
		p.refuse("max-clients", "%d is negative; 0 means unlimited", c.MaxClients)
	}
	return r, p.err()
}

// Router is the configuration of fairlead router.
type Router struct {
	AS       uint32
	RouterID string
	// Peers are the reflectors to connect to, as in Agent.
	Peers []string
	// Balancers are the prefixes from which load balancers connect to the router
	// directly.
	Balancers    []string
	PasswordFile string
	BFD          bool
	Metric       int
	Table        int
	Socket       string
	Monitoring
	// Accept lists the prefixes within which routes are accepted; empty: all except
	// default routes.
	Accept []string
	// MaxPrefixes limits the paths of each family that a peer may send; 0: no limit.
	MaxPrefixes uint32
	// MaxTotal limits the paths of both families that all peers together may send, and
	// MaxClients the sessions with load balancers; 0: no limit.
	MaxTotal   uint32
	MaxClients int
	// HashSeed must be the same on several routers so that they hash alike; 0: the
	// kernel's own.
	HashSeed uint32
	// ShadowProtocols lists the protocols ("bgp", "bird", or a number) of another routing
	// daemon for whose routes to install resilient shadow routes.
	ShadowProtocols []string
}

// ResolvedRouter is a valid Router, parsed.
type ResolvedRouter struct {
	Router
	RouterID        netip.Addr
	Peers           []Peer
	Balancers       []netip.Prefix
	Accept          []netip.Prefix
	ShadowProtocols []uint8
	Password        string
}

// Resolve validates and parses the configuration. It reports all errors together.
func (c Router) Resolve() (*ResolvedRouter, error) {
	p := parser{}
	r := &ResolvedRouter{
		Router: c, Peers: p.peers(c.Peers, c.AS),
		Balancers: p.prefixes("listen-range", c.Balancers), Password: p.password(c.PasswordFile),
		Accept: p.prefixes("accept-prefixes", c.Accept), ShadowProtocols: p.protocols("shadow-protocol", c.ShadowProtocols),
	}
	switch peers := len(c.Peers) + len(c.Balancers); {
	case peers == 0 && len(c.ShadowProtocols) == 0:
		p.refuse("peer", "required: set a reflector (--peer), the prefix from which load balancers connect (--listen-range), or the protocol whose routes to make resilient (--shadow-protocol)")
	case peers > 0 && len(c.ShadowProtocols) > 0:
		p.refuse("shadow-protocol", "cannot be combined with --peer or --listen-range: the other daemon has the BGP sessions")
	}
	if c.MaxClients < 0 {
		p.refuse("max-clients", "%d is negative; 0 means unlimited", c.MaxClients)
	}
	if len(c.ShadowProtocols) == 0 {
		p.as(c.AS)
		r.RouterID = p.routerID(c.RouterID)
	}
	if c.Metric < 1 || int64(c.Metric) > math.MaxUint32 {
		p.refuse("metric", "%d is not a positive 32-bit number", c.Metric)
	}
	if c.Table < 0 || int64(c.Table) > math.MaxUint32 {
		p.refuse("table", "%d is not a routing table: want a 32-bit number, 0 for main", c.Table)
	}
	return r, p.err()
}

// routeProtocols maps the names that ip route uses for routing daemons (iproute2's
// etc/iproute2/rt_protos).
var routeProtocols = map[string]uint8{"zebra": 11, "bird": 12, "bgp": 186}

func (p *parser) protocols(flag string, texts []string) []uint8 {
	var all []uint8
	for _, text := range texts {
		number, known := routeProtocols[text]
		if n, err := strconv.ParseUint(text, 10, 8); err == nil && n > 4 {
			number, known = uint8(n), true // 1 to 4 are reserved for the kernel and the administrator
		}
		if !known {
			p.refuse(flag, "%q is not the protocol of a routing daemon: use bgp (FRR), bird, or the number that ip route shows", text)
		}
		all = append(all, number)
	}
	return all
}

// parser parses texts and collects errors. offline leaves out what depends on the machine: its interfaces,
// and the files that settings name.
type parser struct {
	errs    []error
	offline bool
}

// FlagError is what is wrong with a flag.
type FlagError struct{ Flag, Message string }

func (e *FlagError) Error() string { return "--" + e.Flag + ": " + e.Message }

// FlagErrors returns the flags that an error of this package names.
func FlagErrors(err error) (all []*FlagError) {
	var one *FlagError
	if wrapped, ok := err.(invalid); ok {
		err = wrapped.error
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			all = append(all, FlagErrors(e)...)
		}
	} else if errors.As(err, &one) {
		all = append(all, one)
	}
	return all
}

func (p *parser) refuse(flag, format string, args ...any) {
	p.errs = append(p.errs, &FlagError{flag, fmt.Sprintf(format, args...)})
}

func (p *parser) err() error {
	if len(p.errs) == 0 {
		return nil
	}
	return invalid{errors.Join(p.errs...)}
}

// as validates our own AS number.
func (p *parser) as(number uint32) uint32 {
	switch number {
	case 0:
		p.refuse("local-asn", "0 is not an AS number (RFC 7607)")
	case 23456, math.MaxUint16, math.MaxUint32:
		p.refuse("local-asn", "%d is reserved; private ones are 64512 to 65534 (RFC 6996)", number)
	}
	return number
}

// routerID parses a router ID, which is required.
func (p *parser) routerID(text string) netip.Addr {
	if text == "" {
		p.refuse("router-id", "required: set an IPv4 address of this machine, unique among the BGP speakers")
		return netip.Addr{}
	}
	id, err := netip.ParseAddr(text)
	if err != nil || !id.Is4() || id.IsUnspecified() {
		p.refuse("router-id", "%q is not a valid IPv4 address of a router", text)
	}
	return id
}

// addr parses an address; an empty text yields the zero Addr.
func (p *parser) addr(flag, text string) netip.Addr {
	if text == "" {
		return netip.Addr{}
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		p.refuse(flag, "%q is not an IP address", text)
	}
	return a
}

// prefixes parses prefixes; an address yields a prefix of its full length.
func (p *parser) prefixes(flag string, texts []string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		if a, err := netip.ParseAddr(text); err == nil {
			all = append(all, netip.PrefixFrom(a, a.BitLen()))
		} else if prefix, err := netip.ParsePrefix(text); err != nil {
			p.refuse(flag, "%q is neither an address nor a prefix", text)
		} else if prefix != prefix.Masked() {
			p.refuse(flag, "%s has host bits set: did you mean %s?", prefix, prefix.Masked())
		} else {
			all = append(all, prefix)
		}
	}
	return all
}

// service parses the name of a Service; empty text yields the zero ID.
func (p *parser) service(flag, text string) service.ID {
	if text == "" {
		return service.ID{}
	}
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		p.refuse(flag, "%q is not a Service: write it as namespace/name", text)
	}
	return service.ID{Namespace: namespace, Name: name}
}

// peers parses neighbors; as is the AS of those without one.
func (p *parser) peers(texts []string, as uint32) []Peer {
	var all []Peer
	for _, text := range texts {
		peer, err := ParsePeer(text, as)
		if err != nil {
			p.refuse("peer", "%v", err)
			continue
		}
		all = append(all, peer)
	}
	return all
}

// password reads a password file; no file means no password.
func (p *parser) password(file string) string {
	if file == "" || p.offline {
		return ""
	}
	password, err := ReadPassword(file)
	if err != nil {
		p.refuse("password-file", "%v", err)
	}
	return password
}
