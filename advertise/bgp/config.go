package bgp

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"time"
	"unicode"

	"github.com/fairlead/fairlead/advertise/bfd"
)

// Session defaults.
const (
	// DefaultPort is the TCP port of BGP (RFC 4271).
	DefaultPort = 179
	// DefaultHoldTime is how long a peer may be silent without BFD.
	DefaultHoldTime = 9 * time.Second
	// DefaultConnectRetry is the maximum pause between connection attempts.
	DefaultConnectRetry = 500 * time.Millisecond
	// DefaultSendMax is how many next hops of a prefix a reflector passes on.
	DefaultSendMax = 255
)

// PeerConfig is a neighbor to which we connect.
type PeerConfig struct {
	// Name identifies the peer in routes, log lines and errors, without spaces; empty:
	// its address.
	Name string
	// Address may be link-local, with the interface as zone ("fe80::1%eth0"). Such a peer
	// is sent our own link-local address as the next hop of all prefixes, including IPv4
	// (RFC 8950). If it is invalid, the peer of a speaker is the router discovered on
	// SourceInterface.
	Address netip.Addr
	// AS is the AS that the peer must be in; 0 means our own (iBGP).
	AS uint32
	// Password is the TCP MD5 password (RFC 2385); empty: none.
	Password string
	// Port is the peer's TCP port; 0 means DefaultPort.
	Port uint16
	// SourceAddress is the source address of the session, and SourceInterface the
	// interface to which it is bound. Without them, the speaker's LocalAddress, or what
	// the kernel chooses.
	SourceAddress   netip.Addr
	SourceInterface string
	// HoldTime is in whole seconds, at least 3; 0 means DefaultHoldTime. The lower of
	// ours and the peer's applies.
	HoldTime time.Duration
	// Keepalive is the interval of keepalives, in whole seconds; 0 means a third of the
	// hold time.
	Keepalive time.Duration
	// ConnectRetry is the maximum pause between connection attempts; 0 means
	// DefaultConnectRetry.
	ConnectRetry time.Duration
	// EBGPMultihop is the TTL of our segments for eBGP; 0 means 255. 1 keeps a session on its
	// link.
	EBGPMultihop uint8
	// TTLSecurity rejects segments that came over more than this many hops, and makes
	// ours start with TTL 255 (RFC 5082); 0: off. The peer must do the same.
	TTLSecurity uint8
	// BFD enables BFD if the peer uses it, too.
	BFD bool
	// Timing configures BFD; the zero value is 3 times 300 ms.
	Timing bfd.Timing
}

// NeighborGroup is a set of neighbors that connect to us: all addresses of some prefixes,
// none of which is known in advance.
type NeighborGroup struct {
	// Name identifies the group in log lines and errors.
	Name     string
	Prefixes []netip.Prefix
	// AS, Password, HoldTime, BFD and Timing are the same as in PeerConfig.
	AS       uint32
	Password string
	HoldTime time.Duration
	BFD      bool
	Timing   bfd.Timing
	// SendMax is for routers: they are sent up to this many next hops per prefix
	// (ADD-PATH, RFC 7911), and their routes are not accepted. Groups with SendMax 0 are
	// sent nothing: load balancers do not need each other's routes.
	SendMax uint8
	// MaxPrefixes limits the paths of each family that a neighbor may send: one that
	// sends more is disconnected. 0: no limit.
	MaxPrefixes uint32
	// MaxPeers limits the neighbors of the group with sessions; 0: no limit.
	MaxPeers int
}

// SpeakerConfig configures a Speaker.
type SpeakerConfig struct {
	AS uint32
	// RouterID must differ from every other speaker's; if invalid, an IPv4 LocalAddress
	// is used.
	RouterID netip.Addr
	// LocalAddress is the source address of sessions; if invalid, the kernel chooses.
	LocalAddress netip.Addr
	Peers        []PeerConfig
	Log          *slog.Logger
}

// ReflectorConfig configures a route reflector (RFC 4456).
type ReflectorConfig struct {
	AS       uint32
	RouterID netip.Addr
	// Listen lists the addresses on which sessions are accepted; empty: all.
	Listen []netip.Addr
	// Port is the TCP port to listen on; 0 means DefaultPort.
	Port uint16
	// ClusterID marks routes that passed through the reflector; if invalid, the RouterID
	// is used. Two reflectors with the same clients may share one.
	ClusterID netip.Addr
	Groups    []NeighborGroup
	// MaxTotal limits the paths of both families that all neighbors together may send: if
	// they send more, the one with the most is disconnected. 0: no limit.
	MaxTotal uint32
	Log      *slog.Logger
}

// RouterConfig configures an upstream router.
type RouterConfig struct {
	AS           uint32
	RouterID     netip.Addr
	LocalAddress netip.Addr
	// Peers are the reflectors to connect to.
	Peers []PeerConfig
	// Groups are load balancers that peer with the router directly. Listen and Port only
	// apply to them.
	Groups []NeighborGroup
	Listen []netip.Addr
	Port   uint16
	// Accept lists the prefixes within which routes are accepted; empty: all except
	// default routes.
	Accept []netip.Prefix
	// MaxPrefixes limits the paths of each family that each of Peers may send; 0: no
	// limit.
	MaxPrefixes uint32
	// MaxTotal is the same as in ReflectorConfig.
	MaxTotal uint32
	// Held means that the kernel has routes from before the start: they stay until the
	// peers have sent theirs.
	Held bool
	Log  *slog.Logger
}

// Validate returns an error that names the invalid field and how to fix it.
func (p PeerConfig) Validate() error { return validatePeer("peer", p, netip.Addr{}) }

// Validate returns an error that names the invalid field and how to fix it.
func (c SpeakerConfig) Validate() error {
	_, err := speakerEngine(c)
	return err
}

// Validate returns an error that names the invalid field and how to fix it.
func (c ReflectorConfig) Validate() error {
	if len(c.Groups) == 0 {
		return errors.New("groups: must not be empty; configure the load balancers' prefix and the router's address")
	}
	_, err := reflectorEngine(c)
	return err
}

// Validate returns an error that names the invalid field and how to fix it.
func (c RouterConfig) Validate() error {
	if len(c.Peers)+len(c.Groups) == 0 {
		return errors.New("peers: must not be empty; configure a reflector, or a group of load balancers")
	}
	_, err := routerEngine(c)
	return err
}

func validateIdentity(as uint32, id, local netip.Addr) (netip.Addr, error) {
	if as == 0 || as == 23456 || as == 65535 || as == 1<<32-1 {
		return id, fmt.Errorf("as: %d is reserved; private ones are 64512 to 65534 (RFC 6996)", as)
	}
	if !id.IsValid() && local.Is4() {
		id = local
	}
	if !id.Is4() || id.IsUnspecified() {
		return id, errors.New("routerID: not set, and the local address is not IPv4; use an IPv4 address of this machine")
	}
	return id, nil
}

func validateSession(field string, password string, hold time.Duration, t bfd.Timing) error {
	if len(password) > 80 {
		return fmt.Errorf("%s.password: %d bytes, TCP MD5 accepts at most 80", field, len(password))
	}
	if hold != 0 && (hold < 3*time.Second || hold > 65535*time.Second || hold%time.Second != 0) {
		return fmt.Errorf("%s.holdTime: %s: use whole seconds, at least 3 (RFC 4271)", field, hold)
	}
	if err := t.Validate(); err != nil {
		return fmt.Errorf("%s.timing: %w", field, err)
	}
	return nil
}

func validatePeer(field string, p PeerConfig, local netip.Addr) error {
	if p.unnumbered() {
		p.Address, local = netip.MustParseAddr("fe80::1").WithZone(p.SourceInterface), netip.Addr{} // any address will do
	}
	if p.SourceAddress.IsValid() {
		local = p.SourceAddress
	}
	a := p.Address
	switch {
	case strings.ContainsFunc(p.Name, unicode.IsSpace):
		return fmt.Errorf("%s.name: %q has a space", field, p.Name)
	case !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a.Is4In6():
		return fmt.Errorf("%s.address: %v is not a valid neighbor address", field, a)
	case a == local:
		return fmt.Errorf("%s.address: %s is the speaker's own address", field, local)
	case a.Is6() && a.IsLinkLocalUnicast() && a.Zone() == "":
		return fmt.Errorf("%s.address: %s is link-local; add the interface, as in %s%%eth0", field, a, a)
	case a.Zone() != "" && !a.IsLinkLocalUnicast():
		return fmt.Errorf("%s.address: %s has a zone but is not a link-local address; omit %%%s", field, a, a.Zone())
	case local.IsValid() && local.Is4() != a.Is4():
		return fmt.Errorf("%s.address: %s and the local address %s are of different families", field, a, local)
	}
	return cmp.Or(validateTimers(field, p), validateHops(field, p), validateSession(field, p.Password, p.HoldTime, p.Timing))
}

func validateTimers(field string, p PeerConfig) error {
	hold := cmp.Or(p.HoldTime, DefaultHoldTime)
	switch {
	case p.Keepalive != 0 && (p.Keepalive < time.Second || p.Keepalive%time.Second != 0):
		return fmt.Errorf("%s.keepalive: %s: use whole seconds", field, p.Keepalive)
	case p.Keepalive >= hold:
		return fmt.Errorf("%s.keepalive: %s is not less than the hold time of %s; a third of it is usual (RFC 4271)", field, p.Keepalive, hold)
	case p.ConnectRetry < 0 || p.ConnectRetry != 0 && p.ConnectRetry < 100*time.Millisecond || p.ConnectRetry > time.Hour:
		return fmt.Errorf("%s.connectRetry: %s: use 100ms to 1h", field, p.ConnectRetry)
	}
	return nil
}

func validateHops(field string, p PeerConfig) error {
	switch {
	case p.EBGPMultihop != 0 && p.AS == 0:
		return fmt.Errorf("%s.ebgpMultihop: %d applies only to peers in another AS; omit it", field, p.EBGPMultihop)
	case p.EBGPMultihop != 0 && p.TTLSecurity != 0:
		return fmt.Errorf("%s.ebgpMultihop: %d and ttlSecurity are mutually exclusive; omit one of them", field, p.EBGPMultihop)
	case p.TTLSecurity == 255:
		return fmt.Errorf("%s.ttlSecurity: must be 0 to 254", field)
	}
	return nil
}

func validateGroup(i int, g NeighborGroup) error {
	field := fmt.Sprintf("groups[%d]", i)
	if g.Name != "" {
		field = fmt.Sprintf("groups[%s]", g.Name)
	}
	if len(g.Prefixes) == 0 {
		return fmt.Errorf("%s.prefixes: must not be empty; configure the prefix of the neighbors' addresses", field)
	}
	for _, p := range g.Prefixes {
		if !p.IsValid() {
			return fmt.Errorf("%s.prefixes: invalid prefix", field)
		}
		if p != p.Masked() {
			return fmt.Errorf("%s.prefixes: %s has host bits set; use %s", field, p, p.Masked())
		}
	}
	return validateSession(field, g.Password, g.HoldTime, g.Timing)
}
