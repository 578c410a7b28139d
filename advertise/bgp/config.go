package bgp

import (
	"errors"
	"log/slog"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/advertise/bfd"
	"github.com/fairlead/fairlead/core/event"
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

// Default limits.
const (
	// DefaultMaxPrefixes and DefaultMaxRouterPrefixes limit the paths of each family that
	// a load balancer, or a reflector, may send. A single load balancer must not use up
	// the 100,000 next hops that a router programs (package router).
	DefaultMaxPrefixes       = 1 << 15
	DefaultMaxRouterPrefixes = 1 << 20
	// DefaultMaxTotal limits the paths that all neighbors together may send to a
	// reflector; DefaultMaxRouterTotal those to a router, which may receive the same ones
	// from two reflectors.
	DefaultMaxTotal       = 1 << 19
	DefaultMaxRouterTotal = 1 << 20
	// DefaultMaxPeers limits the neighbors of a group with sessions.
	DefaultMaxPeers = 1024
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
	// Events records changes of sessions and of BFD; nil for none.
	Events event.Recorder `json:"-"`
	Log    *slog.Logger
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
	// Events is the same as in SpeakerConfig.
	Events event.Recorder `json:"-"`
	Log    *slog.Logger
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
	// Events is the same as in SpeakerConfig.
	Events event.Recorder `json:"-"`
	Log    *slog.Logger
}

// Validate returns an error that names the invalid field and how to fix it.
func (p PeerConfig) Validate() error { return validatePeer("peer", p, netip.Addr{}) }

// Validate returns an error that names the invalid field and how to fix it.
func (c SpeakerConfig) Validate() error {
	_, err := c.setup()
	return err
}

// Validate returns an error that names the invalid field and how to fix it.
func (c ReflectorConfig) Validate() error {
	if len(c.Groups) == 0 {
		return errors.New("groups: must not be empty; configure the load balancers' prefix and the router's address")
	}
	_, err := c.setup()
	return err
}

// Validate returns an error that names the invalid field and how to fix it.
func (c RouterConfig) Validate() error {
	if len(c.Peers)+len(c.Groups) == 0 {
		return errors.New("peers: must not be empty; configure a reflector, or a group of load balancers")
	}
	_, err := c.setup()
	return err
}
