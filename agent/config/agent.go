// Package config is the configuration of the agent: its settings, their defaults, and
// their validation. Errors name the flag and the fix. It reads no files other than those
// that settings name, and opens no sockets except to look up interface addresses.
package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/agent/otlp"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/limit"
	"github.com/fairlead/fairlead/internal/nodekey"
	"github.com/fairlead/fairlead/source"
)

// Role is a function of an agent on its node.
type Role string

// Roles.
const (
	Balancer Role = "balancer" // receives packets for VIPs and forwards them
	DSR      Role = "dsr"      // DSR agent, on the nodes of the backends
	Proxy    Role = "proxy"    // serves a cluster's Services to this node's clients, replacing kube-proxy
)

// Roles lists the valid roles.
var Roles = []Role{Balancer, DSR, Proxy}

// Modes are the ways to attach an XDP program: auto uses native mode if the driver
// supports it, otherwise generic.
var Modes = []string{"auto", "native", "generic"}

// DataPlanes lists the valid data planes: auto uses xdp if the kernel supports it,
// otherwise ipvs.
var DataPlanes = []string{"auto", "xdp", "ipvs"}

// Agent is the configuration of fairlead agent.
type Agent struct {
	Services string // manifest directory; empty if Services come from Kubernetes
	// Kubernetes reads Services from an API server: that of Kubeconfig or, if it is
	// empty, of the cluster in which the agent is a pod.
	Kubernetes bool
	Kubeconfig string
	// GatewayAPI enables support for Gateways.
	GatewayAPI bool
	// Only is the single Service, "namespace/name", of a dedicated load balancer. Empty:
	// all Services that are not dedicated.
	Only string
	// RequireClass ignores Services without spec.loadBalancerClass.
	RequireClass bool
	Roles        []string
	Node         string
	// NodeLabels are the node's labels for node selectors in the manifest directory. In a
	// cluster, the labels of the Node are used.
	NodeLabels map[string]string
	Interfaces []string
	DataPlane  string
	Mode       string
	// NextHops are the advertised next hops; empty: the addresses of the first interface.
	NextHops []string
	AS       uint32
	RouterID string
	// Peers have the form "address" or "address:port", optionally followed by "@AS".
	Peers        []string
	PasswordFile string
	BFD          bool
	// Weight is the node's weight in an Advertisement that weights nodes; 0 means 1.
	Weight uint32
	BPFFS  string
	Socket string
	// StateDir is the directory for state that survives restarts, when Services come from
	// manifests. Empty: next to Socket.
	StateDir string
	Monitoring
	// BackendMetrics exports metrics of each backend.
	BackendMetrics bool
	// OTLPEndpoint is the URL of an OpenTelemetry collector that receives traces; empty: none.
	OTLPEndpoint string
	Linger       time.Duration
	// Balancers is the Service, "namespace/name", whose endpoints are the load balancers;
	// empty: none.
	Balancers string
	// AcceptFrom selects the Services, as "namespace/name" or "namespace/label=value", of
	// the load balancers from which backends of this node accept tunneled packets.
	// AnySender or an empty list accepts packets from anyone.
	AcceptFrom []string
	// NodeKeyFile contains the keys for packets between load balancers and nodes; empty:
	// no keys. RequireNodeKey rejects packets without a tag by one of them.
	NodeKeyFile    string
	RequireNodeKey bool
	Drain
	// Keep is the maximum age of the cached state to start from while the API server is
	// unreachable; 0: no cache.
	Keep   time.Duration
	Resync time.Duration
	// MaxFrontends, MaxBackends and MaxFlows limit the data plane; 0: its defaults.
	MaxFrontends, MaxBackends, MaxFlows int
	// SYNThreshold is the number of new TCP connections per second above which a frontend
	// may be under a SYN flood; 0: the default.
	SYNThreshold int
	ServiceProxy
	Cloud  Cloud
	Layer2 Layer2
	// GUEPort is the UDP port of gue tunnels, the same on load balancers and backends; 0
	// means 6080.
	GUEPort uint16
}

// DefaultAgent returns the defaults.
func DefaultAgent() Agent {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return Agent{
		Roles: []string{string(Balancer)}, Node: host, Interfaces: []string{"eth0"}, DataPlane: "auto", Mode: "auto",
		AS: DefaultAS, BFD: true, BPFFS: "/sys/fs/bpf", Socket: "/run/fairlead/agent.sock",
		Linger: 500 * time.Millisecond, Drain: DefaultDrain(), Keep: 24 * time.Hour, Resync: 30 * time.Second,
		ServiceProxy: ServiceProxy{Health: "0.0.0.0:10256", Window: 10 * time.Millisecond, MaxDelay: 40 * time.Millisecond},
		Cloud:        DefaultCloud(),
	}
}

// Peer is a BGP neighbor.
type Peer struct {
	Address netip.AddrPort
	AS      uint32
}

// DefaultAS is in the private range (RFC 6996), as in the papers.
const DefaultAS = 65021

// BGPPort is the TCP port of BGP (RFC 4271).
const BGPPort = 179

// Resolved is a valid configuration with all lookups done.
type Resolved struct {
	Agent
	Balancer, DSR      bool
	Proxy              bool
	NextHop4, NextHop6 netip.Addr
	Source4, Source6   netip.Addr // the addresses of the first interface
	RouterID           netip.Addr
	Peers              []Peer
	Password           string
	// AvoidCommunities are the parsed DrainCommunities.
	AvoidCommunities route.Communities
	BalancersID      service.ID // of Balancers
	OnlyID           service.ID // of Only
	AcceptFrom       []source.Selector
	NodeAuth         nodekey.Auth
	Layer2           ResolvedLayer2
	// NodePortPrefixes are the parsed NodePortAddresses; empty: the Node's own addresses.
	NodePortPrefixes []netip.Prefix
}

// ErrInvalid matches every error of Resolve: the operator can fix it.
var ErrInvalid = errors.New("invalid configuration")

// invalid makes an error match ErrInvalid without changing its text.
type invalid struct{ error }

func (invalid) Is(target error) bool { return target == ErrInvalid }

// Invalid marks an error as one that the operator can fix; nil stays nil.
func Invalid(err error) error {
	if err == nil {
		return nil
	}
	return invalid{err}
}

// Resolve validates a configuration and looks up what it omits. It reports all errors
// together.
func (a Agent) Resolve() (*Resolved, error) { return a.resolve(&parser{}) }

// Validate returns all errors of a configuration except those that depend on its machine.
func (a Agent) Validate() error {
	_, err := a.resolve(&parser{offline: true})
	return err
}

func (a Agent) resolve(p *parser) (*Resolved, error) {
	r := &Resolved{Agent: a}
	r.resolveSource(p)
	for _, role := range a.Roles {
		switch Role(role) {
		case Balancer:
			r.Balancer = true
		case DSR:
			r.DSR = true
		case Proxy:
			r.Proxy = true
		default:
			p.refuse("role", "%q is not one of %s", role, list(Roles))
		}
	}
	if !slices.Contains(Modes, a.Mode) {
		p.refuse("xdp-mode", "%q is not one of %s", a.Mode, strings.Join(Modes, ", "))
	}
	if a.Linger < 0 || a.Linger > time.Minute {
		p.refuse("withdraw-grace-period", "%s is not between 0 and 1m", a.Linger)
	}
	if a.Keep < 0 {
		p.refuse("state-cache-max-age", "%s is less than 0", a.Keep)
	}
	if _, err := otlp.New(a.OTLPEndpoint, nil, nil); a.OTLPEndpoint != "" && err != nil {
		p.refuse("otlp-endpoint", "%v", err)
	}
	r.resolveDrain(p)
	r.BalancersID = p.service("balancers", a.Balancers)
	r.OnlyID = p.service("dedicated-service", a.Only)
	r.resolveSenders(p)
	r.resolveNodeKey(p)
	if a.Resync < time.Second {
		p.refuse("resync", "%s is less than 1s", a.Resync)
	}
	for flag, n := range map[string]int{"max-frontends": a.MaxFrontends, "max-backends": a.MaxBackends, "max-flows": a.MaxFlows} {
		if n < 0 {
			p.refuse(flag, "%d is negative: omit it to use the default", n)
		}
	}
	if a.SYNThreshold != 0 && a.SYNThreshold < service.LeastSYNThreshold {
		p.refuse("syn-threshold", "%d is below %d: omit it to use the default", a.SYNThreshold, service.LeastSYNThreshold)
	}
	if r.Balancer && !slices.Contains(DataPlanes, a.DataPlane) {
		p.refuse("dataplane", "%q is not one of %s", a.DataPlane, strings.Join(DataPlanes, ", "))
	}
	if r.Balancer {
		r.resolveAddresses(p)
		r.resolveBGP(p)
		r.resolveCloud(p)
		r.resolveLayer2(p)
	}
	if r.Proxy {
		r.resolveProxy(p)
	}
	return r, p.err()
}

// AnySender in AcceptFrom accepts packets from any sender.
const AnySender = "any"

func (r *Resolved) resolveSenders(p *parser) {
	if slices.Equal(r.Agent.AcceptFrom, []string{AnySender}) || len(r.Agent.AcceptFrom) == 0 {
		return
	}
	if !r.DSR {
		p.refuse("accept-from", "requires --role dsr: backend nodes check the senders")
	}
	for _, text := range r.Agent.AcceptFrom {
		s, err := source.ParseSelector(text)
		if err != nil {
			p.refuse("accept-from", "%v; or use only %q", err, AnySender)
			continue
		}
		r.AcceptFrom = append(r.AcceptFrom, s)
	}
}

// resolveNodeKey reads the keys for packets between nodes.
func (r *Resolved) resolveNodeKey(p *parser) {
	switch {
	case r.NodeKeyFile == "" && r.RequireNodeKey:
		p.refuse("require-node-key", "requires --node-key-file")
	case r.NodeKeyFile == "":
	case !r.Balancer && !r.DSR:
		p.refuse("node-key-file", "requires --role balancer or dsr")
	case r.Balancer && r.DataPlane == "ipvs":
		p.refuse("node-key-file", "IPVS cannot add authentication tags to packets: omit it, or use --dataplane xdp")
	case p.offline:
	default:
		keys, err := nodekey.Read(r.NodeKeyFile)
		if err != nil {
			p.refuse("node-key-file", "%v", err)
		}
		r.NodeAuth = nodekey.Auth{Keys: keys, Require: r.RequireNodeKey}
	}
}

// resolveSource validates where the Services come from.
func (r *Resolved) resolveSource(p *parser) {
	var info os.FileInfo
	err := os.ErrNotExist
	if !p.offline {
		info, err = os.Stat(r.Services)
	}
	switch {
	case r.Kubeconfig != "" && !r.Agent.Kubernetes:
		p.refuse("kubeconfig", "requires --kubernetes")
	case r.Agent.Kubernetes && len(r.NodeLabels) > 0:
		p.refuse("node-labels", "cannot be combined with --kubernetes, which uses the labels of the Node: kubectl label node %s", r.Node)
	case r.GatewayAPI && !r.Agent.Kubernetes:
		p.refuse("gateway-api", "requires --kubernetes")
	case r.RequireClass && !r.Agent.Kubernetes:
		p.refuse("require-class", "requires --kubernetes")
	case r.Agent.Kubernetes && r.StateDir != "":
		p.refuse("state-dir", "cannot be combined with --kubernetes: Services come from the API server")
	case r.Agent.Kubernetes && r.Services != "":
		p.refuse("manifest-dir", "cannot be combined with --kubernetes: Services come from one source")
	case r.Agent.Kubernetes:
	case r.Services == "":
		p.refuse("manifest-dir", "required: set the folder of manifests, or --kubernetes to read Services from a cluster")
	case err == nil && !info.IsDir():
		p.refuse("manifest-dir", "%s is a file, not a folder", r.Services)
	}
	if r.StateDir == "" {
		r.StateDir = r.Socket + ".state"
	}
}

// resolveAddresses finds the source addresses of packets and the next hops to advertise.
func (r *Resolved) resolveAddresses(p *parser) {
	if len(r.Interfaces) == 0 {
		p.refuse("interface", "required: set the interface that receives packets for the VIPs")
		return
	}
	for i, name := range r.Interfaces {
		if p.offline {
			break
		}
		iface, err := net.InterfaceByName(name)
		if err != nil {
			p.refuse("interface", "interface %s does not exist (%s)", name, interfaceNames())
			continue
		}
		if i == 0 {
			r.Source4, r.Source6 = addresses(iface)
			r.NextHop4, r.NextHop6 = r.Source4, r.Source6
		}
	}
	if len(r.Agent.NextHops) > 0 {
		r.NextHop4, r.NextHop6 = netip.Addr{}, netip.Addr{}
	}
	for _, text := range r.Agent.NextHops {
		addr, err := netip.ParseAddr(text)
		switch {
		case err != nil:
			p.refuse("next-hop", "%q is not an IP address", text)
		case addr.Is4():
			r.NextHop4 = addr
		default:
			r.NextHop6 = addr
		}
	}
}

func (r *Resolved) resolveBGP(p *parser) {
	r.RouterID = r.Source4
	if text := r.Agent.RouterID; text != "" {
		r.RouterID = p.routerID(text)
	}
	if len(r.Agent.Peers) > 0 && !r.RouterID.IsValid() && !p.offline {
		p.refuse("router-id", "required, because the interface has no IPv4 address: set one that is unique among the BGP speakers")
	}
	r.Peers = p.peers(r.Agent.Peers, p.as(r.AS))
	r.Password = p.password(r.PasswordFile)
}

// ParsePeer parses "10.0.0.109", "10.0.0.109:1179", "[2001:db8::1]:179" or any of these
// followed by "@65000". Without an AS, the peer is in our own AS.
func ParsePeer(text string, as uint32) (Peer, error) {
	host, number, found := strings.Cut(text, "@")
	if found {
		n, err := strconv.ParseUint(number, 10, 32)
		if err != nil || n == 0 {
			return Peer{}, fmt.Errorf("%q: %q is not an AS number", text, number)
		}
		as = uint32(n)
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return Peer{netip.AddrPortFrom(addr, BGPPort), as}, nil
	}
	addr, err := netip.ParseAddrPort(host)
	if err != nil || addr.Port() == 0 {
		return Peer{}, fmt.Errorf("%q is not an address, as in 10.0.0.109, 10.0.0.109:179 or 10.0.0.109@65021", text)
	}
	return Peer{addr, as}, nil
}

// ReadPassword reads a password from the first line of a file.
func ReadPassword(file string) (string, error) {
	text, err := limit.ReadFile(file, limit.Secret)
	if err != nil {
		return "", err
	}
	password := advertise.Password(string(text))
	if password == "" {
		return "", fmt.Errorf("%s: the first line is empty", file)
	}
	return password, nil
}

// addresses returns the first global IPv4 and IPv6 addresses of an interface.
func addresses(iface *net.Interface) (v4, v6 netip.Addr) {
	all, _ := iface.Addrs()
	for _, a := range all {
		prefix, err := netip.ParsePrefix(a.String())
		if err != nil || !prefix.Addr().IsGlobalUnicast() {
			continue
		}
		switch addr := prefix.Addr().Unmap(); {
		case addr.Is4() && !v4.IsValid():
			v4 = addr
		case addr.Is6() && !v6.IsValid():
			v6 = addr
		}
	}
	return v4, v6
}

func interfaceNames() string {
	all, _ := net.Interfaces()
	var names []string
	for _, i := range all {
		names = append(names, i.Name)
	}
	return "there are: " + strings.Join(names, ", ")
}

func list[S ~string](values []S) string {
	var texts []string
	for _, v := range values {
		texts = append(texts, string(v))
	}
	return strings.Join(texts, ", ")
}
