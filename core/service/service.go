// Package service is the model: what a load-balanced service is, in plain
// immutable values, and which values are valid. Everything else speaks in
// these types; nothing here knows Kubernetes, a kernel, BGP or a clock.
package service

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// ID names a Service as its source does.
type ID struct {
	Namespace, Name string
}

// String gives "namespace/name".
func (id ID) String() string { return id.Namespace + "/" + id.Name }

// MarshalText makes an ID a string in JSON.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads what MarshalText has written.
func (id *ID) UnmarshalText(text []byte) error {
	namespace, name, ok := strings.Cut(string(text), "/")
	if !ok {
		return fmt.Errorf("%q is not namespace/name", text)
	}
	*id = ID{namespace, name}
	return nil
}

// Compare orders IDs by namespace, then name.
func (id ID) Compare(o ID) int {
	return cmp.Or(cmp.Compare(id.Namespace, o.Namespace), cmp.Compare(id.Name, o.Name))
}

// Protocol is an IP protocol number.
type Protocol uint8

// The protocols a frontend can have. AnyProtocol is for a whole address.
const (
	AnyProtocol Protocol = 0
	TCP         Protocol = 6
	UDP         Protocol = 17
	SCTP        Protocol = 132
)

func (p Protocol) String() string {
	switch p {
	case TCP:
		return "TCP"
	case UDP:
		return "UDP"
	case SCTP:
		return "SCTP"
	case AnyProtocol:
		return "any"
	}
	return fmt.Sprintf("protocol(%d)", uint8(p))
}

// MarshalText makes a Protocol "TCP", "UDP", "SCTP" or "any" in JSON.
func (p Protocol) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads what MarshalText has written.
func (p *Protocol) UnmarshalText(text []byte) error {
	for _, known := range []Protocol{AnyProtocol, TCP, UDP, SCTP} {
		if string(text) == known.String() {
			*p = known
			return nil
		}
	}
	return fmt.Errorf("protocol: %q is none of TCP, UDP, SCTP and any", text)
}

// Method is how a packet gets from the balancer to its server; the names are
// those of LVS.
type Method string

// The forwarding methods.
const (
	NAT     Method = "nat"     // rewrites the destination; the balancer is the servers' gateway
	FullNAT Method = "fullnat" // rewrites source and destination; the way back leads through the balancer
	DSRNAT  Method = "dsr-nat" // rewrites the destination; the server's node restores the VIP
	DR      Method = "dr"      // rewrites the MAC address; server on the same segment, VIP on its loopback
	Tunnel  Method = "tunnel"  // encapsulates; the server's node takes it off
)

// Encapsulation is how a tunnel wraps a packet.
type Encapsulation string

// The encapsulations.
const (
	IPIP Encapsulation = "ipip" // IP in IP, of whatever families meet
	GUE  Encapsulation = "gue"  // in UDP (draft-ietf-intarea-gue), as routers and NICs spread it best
)

// DefaultGUEPort is the UDP port that tunnels of GUE lead to: IANA's.
const DefaultGUEPort = 6080

// Survival is how an established flow stays with its server when servers or
// balancers change.
type Survival string

// The ways to survive.
const (
	SecondChance Survival = "second-chance" // packets name the servers that may know them; no state in the balancer
	FlowTable    Survival = "flow-table"    // the balancer remembers flows
	HashOnly     Survival = "hash-only"     // the hash alone
)

// Scheduler is how a server is chosen for a new flow.
type Scheduler string

// The schedulers.
const (
	Maglev             Scheduler = "maglev"
	RoundRobin         Scheduler = "rr"
	WeightedRoundRobin Scheduler = "wrr"
	LeastConn          Scheduler = "lc"
	WeightedLeastConn  Scheduler = "wlc"
	SourceHash         Scheduler = "sh"
	DestinationHash    Scheduler = "dh"
	PowerOfTwo         Scheduler = "p2c" // the less loaded of two taken at random
)

// SYNProtection is when a balancer protects a frontend from floods of SYNs with forged
// sources; empty is SYNOff.
type SYNProtection string

// When a frontend is protected.
const (
	SYNOff    SYNProtection = "off"
	SYNAuto   SYNProtection = "auto"   // while it is under pressure, where the data plane can
	SYNAlways SYNProtection = "always" // all the time
)

// SYNProtections lists the valid values.
var SYNProtections = []SYNProtection{SYNOff, SYNAuto, SYNAlways}

// Methods and Schedulers list the valid values, in the order they are told to
// a user.
var (
	Methods        = []Method{NAT, FullNAT, DSRNAT, DR, Tunnel}
	Encapsulations = []Encapsulation{IPIP, GUE}
	Survivals      = []Survival{SecondChance, FlowTable, HashOnly}
	Schedulers     = []Scheduler{
		Maglev, RoundRobin, WeightedRoundRobin, LeastConn, WeightedLeastConn, SourceHash, DestinationHash, PowerOfTwo,
	}
)

// Key is what a client addresses: a VIP, a port and a protocol; or a range of
// ports; or the whole address.
type Key struct {
	VIP  netip.Addr
	Port uint16
	// Last ends a range of ports, itself included; 0 for one port alone.
	// Port 0 to Last 65535 is the whole address.
	Last     uint16
	Protocol Protocol
}

// Range says that k is for several ports: such a frontend's backends may have
// port 0, for the one that the client addressed.
func (k Key) Range() bool { return k.Last != 0 }

// Whole says that k is a whole address, whatever the protocol.
func (k Key) Whole() bool { return k == Key{VIP: k.VIP, Last: 65535} }

// Overlaps says that two ranges have a port in common. The whole address is no
// such range: what has a port of it is looked for first.
func (k Key) Overlaps(o Key) bool {
	return k.Range() && o.Range() && k.VIP == o.VIP && k.Protocol == o.Protocol && k.Port <= o.Last && o.Port <= k.Last
}

// String gives "TCP 10.1.1.1:80", "UDP 10.1.1.1:8000-8999" or "any 10.1.1.1:*".
func (k Key) String() string {
	switch {
	case k.Range() && k.Port == 0:
		return fmt.Sprintf("%s %s:*", k.Protocol, host(k.VIP))
	case k.Range():
		return fmt.Sprintf("%s %s-%d", k.Protocol, netip.AddrPortFrom(k.VIP, k.Port), k.Last)
	}
	return fmt.Sprintf("%s %s", k.Protocol, netip.AddrPortFrom(k.VIP, k.Port))
}

// host writes an address as it stands before a port.
func host(a netip.Addr) string {
	if a.Is4() {
		return a.String()
	}
	return "[" + a.String() + "]"
}

// Compare orders keys by address, ports and protocol.
func (k Key) Compare(o Key) int {
	return cmp.Or(k.VIP.Compare(o.VIP), cmp.Compare(k.Port, o.Port), cmp.Compare(k.Last, o.Last),
		cmp.Compare(k.Protocol, o.Protocol))
}

// Backend is one real server behind a frontend.
type Backend struct {
	Addr netip.AddrPort
	// Weight is the server's share of new flows relative to its siblings;
	// 0 drains it: established flows stay, no new ones come.
	Weight uint32
	// Name says who this is (a pod, a host) to people; it decides nothing.
	Name string
	// Node is where the server runs, where that is known.
	Node string
	// MaxConns is the number of connections from which on it gets no new
	// ones (keepalived's uthreshold); 0: no limit.
	MaxConns uint32
	// Since is when it began to take flows, where that is known: by it every
	// balancer, also one that has just started, knows who had a flow before.
	Since time.Time
	// Drained is since when it drains, where it does and that is known: of
	// several that drained one after the other it says who had a flow between.
	Drained time.Time
}

// Draining says that a backend takes no new flows.
func (b Backend) Draining() bool { return b.Weight == 0 }

// Compare orders backends by their address, their identity.
func (b Backend) Compare(o Backend) int { return b.Addr.Compare(o.Addr) }

// AddressKind is where a Service has an address from.
type AddressKind uint8

// The kinds, of which the lower counts where two Services have one address.
const (
	LoadBalancerAddress AddressKind = iota // given to it as a load balancer's
	ExternalAddress                        // of a cluster's spec.externalIPs, which who makes the Service takes for himself
	ClusterAddress                         // spec.clusterIPs
)

// String gives the name that a kind has in an Announcement.
func (k AddressKind) String() string {
	switch k {
	case ExternalAddress:
		return "External"
	case ClusterAddress:
		return "Cluster"
	}
	return "LoadBalancer"
}

// Frontend is one VIP:port of a Service with the servers behind it.
type Frontend struct {
	Key
	// Kind is the VIP's.
	Kind AddressKind
	// PortName is the Service port's name, often empty.
	PortName string
	// Backends are sorted by address, with no address twice, all of one
	// family.
	Backends []Backend
	// NoBackends says in words why there are none, where that is known.
	NoBackends string `json:",omitempty"`
}

// CheckKind is what a health probe does.
type CheckKind string

// The health checks.
const (
	CheckNone CheckKind = "none"
	CheckTCP  CheckKind = "tcp"
	CheckHTTP CheckKind = "http"
)

// Checks lists the valid kinds.
var Checks = []CheckKind{CheckTCP, CheckHTTP, CheckNone}

// HealthCheck says how the servers of a Service are probed; the meaning of the
// fields is keepalived's (delay_loop, connect_timeout, rise, fall).
type HealthCheck struct {
	Kind CheckKind
	// Path is what an HTTP probe GETs; 2xx and 3xx answers are good.
	Path string
	// Host is the HTTP probe's Host header; empty for the server's address.
	Host string
	// Port is probed in place of the server's own; 0 for the server's own.
	Port     uint16
	Interval time.Duration
	Timeout  time.Duration
	// Rise good probes in a row bring a server up, Fall bad ones take it
	// down. The very first probe decides alone.
	Rise, Fall int
	// Drain is how long a server that is down is waited for: it gets no new
	// connection and keeps those that it has, but for UDP. 0: not at all.
	Drain time.Duration
}

// Defaults of what a Service leaves open.
const (
	DefaultMethod        = Tunnel
	DefaultEncapsulation = IPIP
	DefaultScheduler     = Maglev
	DefaultSYNProtection = SYNAuto
	// DefaultSYNThreshold and LeastSYNThreshold are of new TCP connections a second on
	// one frontend of one balancer, from which on SYNAuto looks for a flood. What is
	// slower than the least is not noticed.
	DefaultSYNThreshold = 10000
	LeastSYNThreshold   = 100
	// DefaultAffinity is Kubernetes', for a Service that wants affinity and
	// does not say for how long.
	DefaultAffinity = 3 * time.Hour
	// DefaultRingSize gives 160 equal servers shares within 1 %.
	DefaultRingSize = 16381
	MaxRingSize     = 131071
)

// DefaultHealthCheck is used where a Service asks for nothing else.
var DefaultHealthCheck = HealthCheck{
	Kind: CheckTCP, Path: "/", Interval: time.Second, Timeout: 500 * time.Millisecond, Rise: 2, Fall: 2, Drain: 30 * time.Second,
}

// Limits bound what one client, or all together, may send to a frontend; what
// is more is dropped. 0: no limit.
type Limits struct {
	// ClientPackets and ClientOpens are of one client address, a second.
	// Opens are packets that begin a flow: SYN, INIT, and with UDP every one.
	ClientPackets, ClientOpens uint32
	// Packets and Opens are of all clients together, on this balancer.
	Packets, Opens uint32
}

// Service is one load-balanced service. A Service is never changed once it is
// published: a source that learns of a change publishes a new one.
type Service struct {
	ID ID
	// Created is the object's creationTimestamp, zero where it has none. It is one of
	// the rules that decide between two Services that claim the same Key (plan).
	Created time.Time
	Method  Method
	// Encapsulation is the tunnel's; empty for other methods.
	Encapsulation Encapsulation
	Scheduler     Scheduler
	// RingSize is the number of slots of the Maglev ring, a prime; all
	// balancers must use the same.
	RingSize int
	Survival Survival
	// Affinity sends a client's new flows to the server that it had last, for
	// so long after its last new flow (ClientIP); 0: none.
	Affinity time.Duration
	// Allow, where there are any, are the only clients that are served; Deny
	// are not, also where Allow has them.
	Allow, Deny   []netip.Prefix
	Limits        Limits
	SYNProtection SYNProtection
	Health        HealthCheck
	// Dedicated leaves the Service to balancers of its own.
	Dedicated bool
	// Panic keeps all servers in service when every one fails its checks.
	Panic bool
	// LocalPolicy says that the Service asks for traffic only at nodes with servers
	// of its own (externalTrafficPolicy Local), LocalPolicyCluster the same of its
	// cluster addresses (internalTrafficPolicy). They decide nothing by themselves.
	LocalPolicy, LocalPolicyCluster bool
	// Prefixes are announced in place of each VIP's own /32 or /128 that they
	// contain.
	Prefixes []netip.Prefix
	// Labels say which Announcements of a cluster are for the Service; nil where
	// it is of none.
	Labels map[string]string
	// Frontends are sorted by Key, with no Key twice.
	Frontends []Frontend
	// Origin says where this Service was read: "web.yaml:12".
	Origin string
}

// KindOf gives the kind of one of the Service's addresses.
func (s *Service) KindOf(vip netip.Addr) AddressKind {
	i := slices.IndexFunc(s.Frontends, func(f Frontend) bool { return f.VIP == vip })
	if i < 0 {
		return LoadBalancerAddress
	}
	return s.Frontends[i].Kind
}

// SortBackends orders backends by address and drops later doubles.
func SortBackends(bs []Backend) []Backend {
	slices.SortStableFunc(bs, Backend.Compare)
	return slices.CompactFunc(bs, func(a, b Backend) bool { return a.Addr == b.Addr })
}
