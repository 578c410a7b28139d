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

// Defaults of a session.
const (
	// DefaultPort is BGP's TCP port (RFC 4271).
	DefaultPort = 179
	// DefaultHoldTime is how long a peer may be silent where BFD does not run.
	DefaultHoldTime = 9 * time.Second
	// DefaultConnectRetry is the longest pause between attempts to reach a peer.
	DefaultConnectRetry = 500 * time.Millisecond
	// DefaultSendMax is how many next hops of a prefix a reflector passes on.
	DefaultSendMax = 255
)

// PeerConfig is a neighbour that we dial.
type PeerConfig struct {
	// Name is how routes, log lines and errors call the peer, without spaces;
	// empty for its address.
	Name string
	// Address may be link-local, with the zone that is its link ("fe80::1%eth0").
	// Such a peer is told our own link-local address as the next hop of all
	// prefixes, also of IPv4 (RFC 8950). Where it is not valid, the peer of a
	// speaker is the router that is heard on SourceInterface.
	Address netip.Addr
	// AS the peer must be in; 0 means our own (iBGP).
	AS uint32
	// Password signs every segment (RFC 2385); empty for none.
	Password string
	// Port is the peer's TCP port; 0 means DefaultPort.
	Port uint16
	// SourceAddress is where the session starts from, and SourceInterface the
	// interface that it keeps to; without them the speaker's LocalAddress, or
	// what the kernel chooses.
	SourceAddress   netip.Addr
	SourceInterface string
	// HoldTime is whole seconds, 3 at least; 0 means DefaultHoldTime. The lower
	// of ours and the peer's counts.
	HoldTime time.Duration
	// Keepalive is how often we tell that we are there, in whole seconds; 0
	// means a third of the hold time.
	Keepalive time.Duration
	// ConnectRetry is the longest pause between attempts to reach the peer; 0
	// means DefaultConnectRetry.
	ConnectRetry time.Duration
	// TTL is that of our segments, with eBGP; 0 means 255. 1 keeps a session on
	// its link.
	TTL uint8
	// TTLSecurity refuses segments that have come over more than so many hops, and
	// lets ours begin with TTL 255 (RFC 5082); 0: off. The peer must do so too.
	TTLSecurity uint8
	// BFD watches the session where the peer does so too.
	BFD bool
	// Timing of BFD; the zero value is 3 times 300 ms.
	Timing bfd.Timing
}

// NeighborGroup is a set of neighbours that dial us: all addresses of some
// prefixes, none of them known beforehand.
type NeighborGroup struct {
	// Name is how log lines and errors call the group.
	Name     string
	Prefixes []netip.Prefix
	// AS, Password, HoldTime, BFD and Timing are as in PeerConfig.
	AS       uint32
	Password string
	HoldTime time.Duration
	BFD      bool
	Timing   bfd.Timing
	// SendMax is for routers: they are sent up to so many next hops for a
	// prefix (add-path, RFC 7911), and what they announce is not accepted.
	// Groups with SendMax 0 are sent nothing: balancers have no use for each
	// other's routes.
	SendMax uint8
	// MaxPrefixes is how many paths a neighbour may send, in each family: one
	// that sends more is cut. 0 means without limit.
	MaxPrefixes uint32
	// MaxPeers is how many neighbours of the group may have sessions; 0 means
	// without limit.
	MaxPeers int
}

// SpeakerConfig is a balancer's side.
type SpeakerConfig struct {
	AS uint32
	// RouterID must differ from every other speaker's; where it is not valid,
	// an IPv4 LocalAddress serves.
	RouterID netip.Addr
	// LocalAddress is where sessions start from; not valid: the kernel chooses.
	LocalAddress netip.Addr
	Peers        []PeerConfig
	Log          *slog.Logger
}

// ReflectorConfig is a route reflector's side (RFC 4456).
type ReflectorConfig struct {
	AS       uint32
	RouterID netip.Addr
	// Listen are the addresses to take sessions on; none means all.
	Listen []netip.Addr
	// Port is the TCP port to listen on; 0 means DefaultPort.
	Port uint16
	// ClusterID marks routes that passed here; where it is not valid the
	// RouterID serves. Two reflectors of the same clients may share one.
	ClusterID netip.Addr
	Groups    []NeighborGroup
	// MaxTotal is how many paths of both families all neighbours together may
	// send: where they send more, the one with most is cut. 0 means without limit.
	MaxTotal uint32
	Log      *slog.Logger
}

// RouterConfig is an upstream router's side.
type RouterConfig struct {
	AS           uint32
	RouterID     netip.Addr
	LocalAddress netip.Addr
	// Peers are the reflectors, dialled.
	Peers []PeerConfig
	// Groups are balancers that peer with the router directly. Listen and
	// Port matter only with them.
	Groups []NeighborGroup
	Listen []netip.Addr
	Port   uint16
	// Accept are the prefixes within which routes are taken in; none: all but
	// default routes.
	Accept []netip.Prefix
	// MaxPrefixes is how many paths each of Peers may send, in each family; 0
	// means without limit.
	MaxPrefixes uint32
	// MaxTotal is as in ReflectorConfig.
	MaxTotal uint32
	// Held says that the kernel has routes from before the start: they stay
	// until the peers have sent theirs.
	Held bool
	Log  *slog.Logger
}

// Validate names the field that is wrong and the mend.
func (p PeerConfig) Validate() error { return validatePeer("peer", p, netip.Addr{}) }

// Validate names the field that is wrong and the mend.
func (c SpeakerConfig) Validate() error {
	_, err := speakerEngine(c)
	return err
}

// Validate names the field that is wrong and the mend.
func (c ReflectorConfig) Validate() error {
	if len(c.Groups) == 0 {
		return errors.New("groups: none given; name the balancers' prefix and the router's address")
	}
	_, err := reflectorEngine(c)
	return err
}

// Validate names the field that is wrong and the mend.
func (c RouterConfig) Validate() error {
	if len(c.Peers)+len(c.Groups) == 0 {
		return errors.New("peers: none given; name a reflector, or a group of balancers")
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
		return id, errors.New("routerID: none given and no IPv4 local address to take it from; give an IPv4 address of this machine")
	}
	return id, nil
}

func validateSession(field string, password string, hold time.Duration, t bfd.Timing) error {
	if len(password) > 80 {
		return fmt.Errorf("%s.password: %d bytes, TCP MD5 takes at most 80", field, len(password))
	}
	if hold != 0 && (hold < 3*time.Second || hold > 65535*time.Second || hold%time.Second != 0) {
		return fmt.Errorf("%s.holdTime: %s; want whole seconds, 3 at least (RFC 4271)", field, hold)
	}
	if err := t.Validate(); err != nil {
		return fmt.Errorf("%s.timing: %w", field, err)
	}
	return nil
}

func validatePeer(field string, p PeerConfig, local netip.Addr) error {
	if p.unnumbered() {
		p.Address, local = netip.MustParseAddr("fe80::1").WithZone(p.SourceInterface), netip.Addr{} // any will do
	}
	if p.SourceAddress.IsValid() {
		local = p.SourceAddress
	}
	a := p.Address
	switch {
	case strings.ContainsFunc(p.Name, unicode.IsSpace):
		return fmt.Errorf("%s.name: %q has a space", field, p.Name)
	case !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a.Is4In6():
		return fmt.Errorf("%s.address: %v is no neighbour's address", field, a)
	case a == local:
		return fmt.Errorf("%s.address: %s is our own address", field, local)
	case a.Is6() && a.IsLinkLocalUnicast() && a.Zone() == "":
		return fmt.Errorf("%s.address: %s is on every link; say on which, as in %s%%eth0", field, a, a)
	case a.Zone() != "" && !a.IsLinkLocalUnicast():
		return fmt.Errorf("%s.address: %s has a zone and is no link-local address; leave %%%s out", field, a, a.Zone())
	case local.IsValid() && local.Is4() != a.Is4():
		return fmt.Errorf("%s.address: %s and the local address %s are of different families", field, a, local)
	}
	return cmp.Or(validateTimers(field, p), validateHops(field, p), validateSession(field, p.Password, p.HoldTime, p.Timing))
}

func validateTimers(field string, p PeerConfig) error {
	hold := cmp.Or(p.HoldTime, DefaultHoldTime)
	switch {
	case p.Keepalive != 0 && (p.Keepalive < time.Second || p.Keepalive%time.Second != 0):
		return fmt.Errorf("%s.keepalive: %s; want whole seconds", field, p.Keepalive)
	case p.Keepalive >= hold:
		return fmt.Errorf("%s.keepalive: %s is not less than the hold time of %s; a third of it is usual (RFC 4271)", field, p.Keepalive, hold)
	case p.ConnectRetry < 0 || p.ConnectRetry != 0 && p.ConnectRetry < 100*time.Millisecond || p.ConnectRetry > time.Hour:
		return fmt.Errorf("%s.connectRetry: %s; want 100ms to 1h", field, p.ConnectRetry)
	}
	return nil
}

func validateHops(field string, p PeerConfig) error {
	switch {
	case p.TTL != 0 && p.AS == 0:
		return fmt.Errorf("%s.ttl: %d has a meaning only with a peer of another AS; leave it out", field, p.TTL)
	case p.TTL != 0 && p.TTLSecurity != 0:
		return fmt.Errorf("%s.ttl: ttlSecurity needs 255, not %d; leave it out", field, p.TTL)
	case p.TTLSecurity == 255:
		return fmt.Errorf("%s.ttlSecurity: 255 hops are all that there are; want 1 to 254, or none", field)
	}
	return nil
}

func validateGroup(i int, g NeighborGroup) error {
	field := fmt.Sprintf("groups[%d]", i)
	if g.Name != "" {
		field = fmt.Sprintf("groups[%s]", g.Name)
	}
	if len(g.Prefixes) == 0 {
		return fmt.Errorf("%s.prefixes: none given; name the prefix that the neighbours' addresses are in", field)
	}
	for _, p := range g.Prefixes {
		if !p.IsValid() {
			return fmt.Errorf("%s.prefixes: invalid prefix", field)
		}
		if p != p.Masked() {
			return fmt.Errorf("%s.prefixes: %s has bits set behind its length; did you mean %s?", field, p, p.Masked())
		}
	}
	return validateSession(field, g.Password, g.HoldTime, g.Timing)
}
