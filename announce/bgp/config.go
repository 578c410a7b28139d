package bgp

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/announce/bfd"
)

// Defaults of a session.
const (
	// DefaultPort is BGP's TCP port (RFC 4271).
	DefaultPort = 179
	// DefaultHoldTime is how long a peer may be silent where BFD does not run.
	DefaultHoldTime = 9 * time.Second
	// DefaultSendMax is how many next hops of a prefix a reflector passes on.
	DefaultSendMax = 255
)

// PeerConfig is a neighbour that we dial.
type PeerConfig struct {
	Address netip.Addr
	// AS the peer must be in; 0 means our own (iBGP).
	AS uint32
	// Password signs every segment (RFC 2385); empty for none.
	Password string
	// Port is the peer's TCP port; 0 means DefaultPort.
	Port uint16
	// HoldTime is whole seconds, 3 at least; 0 means DefaultHoldTime.
	HoldTime time.Duration
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
	// prefix (add-path, RFC 7911). Groups with SendMax 0 are sent nothing:
	// balancers have no use for each other's routes.
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
	Log       *slog.Logger
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
	if !p.Address.IsValid() || p.Address.IsUnspecified() || p.Address.IsMulticast() {
		return fmt.Errorf("%s.address: %v is no neighbour's address", field, p.Address)
	}
	if p.Address == local {
		return fmt.Errorf("%s.address: %s is our own address", field, local)
	}
	if local.IsValid() && local.Is4() != p.Address.Is4() {
		return fmt.Errorf("%s.address: %s and localAddress %s are of different families", field, p.Address, local)
	}
	return validateSession(field, p.Password, p.HoldTime, p.Timing)
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
