// Package service is the model of a load-balanced service: immutable values, and the
// rules for valid ones. All other packages use these types. Nothing here knows about
// Kubernetes, the kernel, BGP or a clock.
package service

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// ID identifies a Service as in its source.
type ID struct {
	Namespace, Name string
}

// String returns "namespace/name".
func (id ID) String() string { return id.Namespace + "/" + id.Name }

// MarshalText encodes an ID as a string in JSON.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText decodes what MarshalText encodes.
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

// Frontend protocols. AnyProtocol stands for a whole address.
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

// MarshalText encodes a Protocol as "TCP", "UDP", "SCTP" or "any" in JSON.
func (p Protocol) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText decodes what MarshalText encodes.
func (p *Protocol) UnmarshalText(text []byte) error {
	for _, known := range []Protocol{AnyProtocol, TCP, UDP, SCTP} {
		if string(text) == known.String() {
			*p = known
			return nil
		}
	}
	return fmt.Errorf("protocol: %q is none of TCP, UDP, SCTP and any", text)
}

// Method is how a packet gets from the load balancer to its backend. The names are those
// of LVS.
type Method string

// The forwarding methods.
const (
	NAT     Method = "nat"     // rewrites the destination; the load balancer is the backends' gateway
	FullNAT Method = "fullnat" // rewrites source and destination; replies pass through the load balancer
	DSRNAT  Method = "dsr-nat" // rewrites the destination; the backend's node restores the VIP
	DR      Method = "dr"      // rewrites the MAC address; backend on the same segment, VIP on its loopback
	Tunnel  Method = "tunnel"  // encapsulates; the backend's node decapsulates
)

// Encapsulation is the format of a tunnel.
type Encapsulation string

// Encapsulations.
const (
	IPIP Encapsulation = "ipip" // IP in IP, in any combination of families
	GUE  Encapsulation = "gue"  // in UDP (draft-ietf-intarea-gue), which routers and NICs distribute best
)

// DefaultGUEPort is the UDP destination port of GUE tunnels, as assigned by IANA.
const DefaultGUEPort = 6080

// Survival is how an established flow stays with its backend when backends or load
// balancers change.
type Survival string

// Connection consistency modes.
const (
	SecondChance Survival = "second-chance" // packets carry the backends that may know the flow; no state in the load balancer
	FlowTable    Survival = "flow-table"    // the load balancer tracks flows
	HashOnly     Survival = "hash-only"     // only the hash
)

// Scheduler is how a backend is chosen for a new flow.
type Scheduler string

// Schedulers.
const (
	Maglev             Scheduler = "maglev"
	RoundRobin         Scheduler = "rr"
	WeightedRoundRobin Scheduler = "wrr"
	LeastConn          Scheduler = "lc"
	WeightedLeastConn  Scheduler = "wlc"
	SourceHash         Scheduler = "sh"
	DestinationHash    Scheduler = "dh"
	PowerOfTwo         Scheduler = "p2c" // the less loaded of two random backends
)

// SYNProtection says when a load balancer protects a frontend against SYN floods with
// spoofed sources. Empty means SYNOff.
type SYNProtection string

// Modes of SYN protection.
const (
	SYNOff    SYNProtection = "off"
	SYNAuto   SYNProtection = "auto"   // while under attack, if the data plane supports it
	SYNAlways SYNProtection = "always" // always
)

// SYNProtections lists the valid values.
var SYNProtections = []SYNProtection{SYNOff, SYNAuto, SYNAlways}

// Methods and Schedulers list the valid values, in the order shown to users.
var (
	Methods        = []Method{NAT, FullNAT, DSRNAT, DR, Tunnel}
	Encapsulations = []Encapsulation{IPIP, GUE}
	Survivals      = []Survival{SecondChance, FlowTable, HashOnly}
	Schedulers     = []Scheduler{
		Maglev, RoundRobin, WeightedRoundRobin, LeastConn, WeightedLeastConn, SourceHash, DestinationHash, PowerOfTwo,
	}
)

// Key is the destination that a client addresses: a VIP with a port and a protocol, or
// with a range of ports, or the whole address.
type Key struct {
	VIP  netip.Addr
	Port uint16
	// Last is the last port of a range, inclusive, or 0 for a single port. Port 0 with
	// Last 65535 is the whole address.
	Last     uint16
	Protocol Protocol
}

// Range reports whether k covers several ports. Backends of such a frontend may have port
// 0, which stands for the port that the client addressed.
func (k Key) Range() bool { return k.Last != 0 }

// Whole reports whether k is a whole address, with all protocols.
func (k Key) Whole() bool { return k == Key{VIP: k.VIP, Last: 65535} }

// Overlaps reports whether two ranges have a port in common. The whole address does not
// count as a range: more specific keys take precedence over it.
func (k Key) Overlaps(o Key) bool {
	return k.Range() && o.Range() && k.VIP == o.VIP && k.Protocol == o.Protocol && k.Port <= o.Last && o.Port <= k.Last
}

// String returns "TCP 10.1.1.1:80", "UDP 10.1.1.1:8000-8999" or "any 10.1.1.1:*".
func (k Key) String() string {
	switch {
	case k.Range() && k.Port == 0:
		return fmt.Sprintf("%s %s:*", k.Protocol, host(k.VIP))
	case k.Range():
		return fmt.Sprintf("%s %s-%d", k.Protocol, netip.AddrPortFrom(k.VIP, k.Port), k.Last)
	}
	return fmt.Sprintf("%s %s", k.Protocol, netip.AddrPortFrom(k.VIP, k.Port))
}

// host formats an address for use before a port.
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

// Backend is one backend of a frontend.
type Backend struct {
	Addr netip.AddrPort
	// Weight is the backend's share of new flows relative to the others. 0 drains it:
	// established flows stay, new flows go elsewhere.
	Weight uint32
	// Name is a readable name (a pod, a host). It has no effect.
	Name string
	// Node is the node on which the backend runs, if known.
	Node string
	// MaxConns is the number of connections at which the backend gets no new ones
	// (keepalived's uthreshold). 0: no limit.
	MaxConns uint32
	// Since is when it began to take flows, if known. From it, every load balancer, even
	// one that has just started, derives which backend had a flow before.
	Since time.Time
	// Drained is when it began to drain, if it does and that is known. If several
	// backends drained one after the other, it determines which of them had a flow in the
	// meantime.
	Drained time.Time
}

// Draining reports whether a backend takes no new flows.
func (b Backend) Draining() bool { return b.Weight == 0 }

// Compare orders backends by address, which identifies them.
func (b Backend) Compare(o Backend) int { return b.Addr.Compare(o.Addr) }

// AddressKind says where a Service has an address from.
type AddressKind uint8

// Address kinds. If two Services have the same address, the lower kind wins.
const (
	LoadBalancerAddress AddressKind = iota // assigned to it as a load balancer IP
	ExternalAddress                        // from spec.externalIPs, which the author of the Service chooses freely
	ClusterAddress                         // spec.clusterIPs
)

// String returns the name that a kind has in an Advertisement.
func (k AddressKind) String() string {
	switch k {
	case ExternalAddress:
		return "ExternalIP"
	case ClusterAddress:
		return "ClusterIP"
	}
	return "LoadBalancerIP"
}

// Frontend is one VIP:port of a Service with its backends.
type Frontend struct {
	Key
	// Kind is the kind of the VIP.
	Kind AddressKind
	// PortName is the name of the Service port, often empty.
	PortName string
	// Backends are sorted by address, without duplicates, all of one family.
	Backends []Backend
	// NoBackends explains why no backend exists, if known.
	NoBackends string `json:",omitempty"`
}

// CheckKind is the type of a health check.
type CheckKind string

// Health check types.
const (
	CheckNone CheckKind = "none"
	CheckTCP  CheckKind = "tcp"
	CheckHTTP CheckKind = "http"
)

// Checks lists the valid types.
var Checks = []CheckKind{CheckTCP, CheckHTTP, CheckNone}

// HealthCheck says how to probe the backends of a Service. The fields have the same
// meaning as in keepalived (delay_loop, connect_timeout, rise, fall).
type HealthCheck struct {
	Kind CheckKind
	// Path is the path of an HTTP GET. Responses 2xx and 3xx are successes.
	Path string
	// Host is the Host header of the HTTP request. Empty: the backend's address.
	Host string
	// Port is the port to probe. 0: the backend's own.
	Port     uint16
	Interval time.Duration
	Timeout  time.Duration
	// Rise consecutive successes mark a backend up, Fall consecutive failures mark it
	// down. The very first probe decides immediately.
	Rise, Fall int
	// Drain is how long a backend that is down keeps its existing connections, except for
	// UDP. It gets no new ones. 0: not at all.
	Drain time.Duration
}

// Defaults for settings that a Service omits.
const (
	DefaultMethod        = Tunnel
	DefaultEncapsulation = IPIP
	DefaultScheduler     = Maglev
	DefaultSYNProtection = SYNAuto
	// DefaultSYNThreshold and LeastSYNThreshold are new TCP connections per second on one
	// frontend of one load balancer, above which SYNAuto looks for a flood. Slower floods
	// than the minimum are not detected.
	DefaultSYNThreshold = 10000
	LeastSYNThreshold   = 100
	// DefaultAffinity is the Kubernetes default for a Service with affinity but without a
	// timeout.
	DefaultAffinity = 3 * time.Hour
	// DefaultRingSize gives 160 equal backends shares within 1 %.
	DefaultRingSize = 16381
	MaxRingSize     = 131071
)

// DefaultHealthCheck is used if a Service does not configure health checks.
var DefaultHealthCheck = HealthCheck{
	Kind: CheckTCP, Path: "/", Interval: time.Second, Timeout: 500 * time.Millisecond, Rise: 2, Fall: 2, Drain: 30 * time.Second,
}

// Limits are the rate limits of a frontend, per client or in total. Packets above a limit
// are dropped. 0: no limit.
type Limits struct {
	// ClientPackets and ClientOpens apply per client address and second. Opens are
	// packets that open a flow: SYN, INIT, and for UDP every packet.
	ClientPackets, ClientOpens uint32
	// Packets and Opens apply to all clients together, on this load balancer.
	Packets, Opens uint32
}

// LimitNames are the names of limits in their annotation.
var LimitNames = []string{"client-pps", "client-cps", "pps", "cps"}

// Named returns the limit with a name, or nil.
func (l *Limits) Named(name string) *uint32 {
	i := slices.Index(LimitNames, name)
	if i < 0 {
		return nil
	}
	return []*uint32{&l.ClientPackets, &l.ClientOpens, &l.Packets, &l.Opens}[i]
}

// Annotation returns the limits as in their annotation: "client-cps=50,pps=100000".
func (l Limits) Annotation() string {
	var words []string
	for _, name := range LimitNames {
		if n := *l.Named(name); n > 0 {
			words = append(words, fmt.Sprintf("%s=%d", name, n))
		}
	}
	return strings.Join(words, ",")
}

// Service is one load-balanced service. It is immutable once published: a source
// publishes a new Service for every change.
type Service struct {
	ID ID
	// Created is the object's creationTimestamp, or zero. It is one of the rules that
	// decide between two Services that claim the same Key (plan).
	Created time.Time
	Method  Method
	// Encapsulation is that of the tunnel; empty for other methods.
	Encapsulation Encapsulation
	Scheduler     Scheduler
	// RingSize is the number of slots of the Maglev ring, a prime. All load balancers
	// must use the same.
	RingSize int
	Survival Survival
	// Affinity is how long after its last new flow a client's flows go to the same
	// backend (ClientIP). 0: none.
	Affinity time.Duration
	// Allow, if not empty, lists the only clients that are served. Deny lists clients
	// that are not served, even if Allow contains them.
	Allow, Deny   []netip.Prefix
	Limits        Limits
	SYNProtection SYNProtection
	Health        HealthCheck
	// Dedicated leaves the Service to load balancers dedicated to it.
	Dedicated bool
	// Panic keeps all backends in service when every one fails its checks.
	Panic bool
	// LocalPolicy means that the Service requests traffic only at nodes with local
	// backends (externalTrafficPolicy Local), LocalPolicyCluster the same for its cluster
	// IPs (internalTrafficPolicy). They have no effect by themselves.
	LocalPolicy, LocalPolicyCluster bool
	// Prefixes are advertised instead of the /32 or /128 of the VIPs that they contain.
	Prefixes []netip.Prefix
	// Labels select the Advertisements of a cluster that apply to the Service. Nil
	// outside a cluster.
	Labels map[string]string
	// Frontends are sorted by Key, without duplicates.
	Frontends []Frontend
	// Origin is where the Service was read: "web.yaml:12".
	Origin string
}

// KindOf returns the kind of one of the Service's addresses.
func (s *Service) KindOf(vip netip.Addr) AddressKind {
	i := slices.IndexFunc(s.Frontends, func(f Frontend) bool { return f.VIP == vip })
	if i < 0 {
		return LoadBalancerAddress
	}
	return s.Frontends[i].Kind
}

// SortBackends orders backends by address and drops later duplicates.
func SortBackends(bs []Backend) []Backend {
	slices.SortStableFunc(bs, Backend.Compare)
	return slices.CompactFunc(bs, func(a, b Backend) bool { return a.Addr == b.Addr })
}
