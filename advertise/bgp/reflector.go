package bgp

import (
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/advertise"
)

// Reflector receives the routes of all load balancers, which it knows only by prefix, and
// passes every path on to the routers.
type Reflector struct{ e *engine }

// NewReflector starts to listen.
func NewReflector(c ReflectorConfig) (*Reflector, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("BGP reflector: %w", err)
	}
	s, err := reflectorEngine(c)
	if err != nil {
		return nil, fmt.Errorf("BGP reflector: %w", err)
	}
	e, err := startEngine(s)
	if err != nil {
		return nil, fmt.Errorf("BGP reflector: %w", err)
	}
	return &Reflector{e: e}, nil
}

func reflectorEngine(c ReflectorConfig) (setup, error) {
	var local netip.Addr
	if len(c.Listen) > 0 {
		local = c.Listen[0]
	}
	id, err := validateIdentity(c.AS, c.RouterID, local)
	if err != nil {
		return setup{}, err
	}
	cluster := c.ClusterID
	if !cluster.IsValid() {
		cluster = id
	}
	if !cluster.Is4() {
		return setup{}, fmt.Errorf("clusterID: %s is not an IPv4 address", cluster)
	}
	s := setup{maxTotal: c.MaxTotal, as: c.AS, routerID: id, clusterID: cluster, log: c.Log, listen: listenAddrs(c.Listen, c.Port)}
	return s, s.addGroups(c.Groups, func(g *group) error {
		g.client = g.as == c.AS
		g.silent = g.sendMax == 0
		if !g.client && !g.silent {
			return fmt.Errorf("groups[%s].as: %d; a router that receives routes must be in the reflector's AS %d: to other ASes, BGP would set the reflector as next hop", g.name, g.as, c.AS)
		}
		return nil
	})
}

func (s *setup) addGroups(groups []NeighborGroup, more func(*group) error) error {
	owner := map[netip.Prefix]string{}
	for i, n := range groups {
		if err := validateGroup(i, n); err != nil {
			return err
		}
		g := &group{name: n.Name, prefixes: n.Prefixes, as: n.AS, password: n.Password, hold: n.HoldTime,
			bfd: n.BFD, timing: n.Timing, sendMax: n.SendMax, maxPaths: n.MaxPrefixes, maxPeers: n.MaxPeers}
		if g.name == "" {
			g.name = n.Prefixes[0].String()
		}
		for _, p := range n.Prefixes {
			if o, taken := owner[p]; taken {
				return fmt.Errorf("groups[%s].prefixes: %s already belongs to group %s", g.name, p, o)
			}
			owner[p] = g.name
		}
		s.defaults(g)
		if err := more(g); err != nil {
			return err
		}
		s.groups = append(s.groups, g)
	}
	return nil
}

func listenAddrs(addrs []netip.Addr, port uint16) []netip.AddrPort {
	if port == 0 {
		port = DefaultPort
	}
	if len(addrs) == 0 {
		addrs = []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}
	}
	out := make([]netip.AddrPort, len(addrs))
	for i, a := range addrs {
		out[i] = netip.AddrPortFrom(a, port)
	}
	return out
}

// Peers returns the state of the sessions, including rejected neighbors.
func (r *Reflector) Peers() []advertise.Peer { return r.e.list() }

// Routes returns what the load balancers currently advertise.
func (r *Reflector) Routes() ([]advertise.RouteSet, error) { return r.e.routes() }

// Close ends the sessions and notifies the peers.
func (r *Reflector) Close() error {
	r.e.close()
	return nil
}
