package bgp

import (
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/advertise/bgp/internal/engine"
)

// Reflector receives the routes of all load balancers, which it knows only by prefix, and
// passes every path on to the routers.
type Reflector struct{ e *engine.Engine }

// NewReflector starts to listen.
func NewReflector(c ReflectorConfig) (*Reflector, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("BGP reflector: %w", err)
	}
	s, err := c.setup()
	if err != nil {
		return nil, fmt.Errorf("BGP reflector: %w", err)
	}
	e, err := engine.Start(s)
	if err != nil {
		return nil, fmt.Errorf("BGP reflector: %w", err)
	}
	return &Reflector{e: e}, nil
}

func (c ReflectorConfig) setup() (engine.Setup, error) {
	var local netip.Addr
	if len(c.Listen) > 0 {
		local = c.Listen[0]
	}
	id, err := validateIdentity(c.AS, c.RouterID, local)
	if err != nil {
		return engine.Setup{}, err
	}
	cluster := c.ClusterID
	if !cluster.IsValid() {
		cluster = id
	}
	if !cluster.Is4() {
		return engine.Setup{}, fmt.Errorf("clusterID: %s is not an IPv4 address", cluster)
	}
	groups, err := groups(c.Groups, c.AS)
	for _, g := range groups {
		g.Client, g.Silent = g.AS == c.AS, g.SendMax == 0
		if !g.Client && !g.Silent {
			return engine.Setup{}, fmt.Errorf("groups[%s].as: %d; a router that receives routes must be in the reflector's AS %d: to other ASes, BGP would set the reflector as next hop", g.Name, g.AS, c.AS)
		}
	}
	return engine.Setup{AS: c.AS, RouterID: id, ClusterID: cluster, Listen: listenAddrs(c.Listen, c.Port), Groups: groups, MaxTotal: c.MaxTotal, Log: c.Log, Events: c.Events}, err
}

// Peers returns the state of the sessions, including rejected neighbors.
func (r *Reflector) Peers() []advertise.Peer { return r.e.Peers() }

// Routes returns what the load balancers currently advertise.
func (r *Reflector) Routes() ([]advertise.RouteSet, error) { return r.e.Routes(), nil }

// Close ends the sessions and notifies the peers.
func (r *Reflector) Close() error {
	r.e.Close()
	return nil
}
