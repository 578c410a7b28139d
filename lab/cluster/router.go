package cluster

import (
	"github.com/fairlead/fairlead/lab/interop"
	"github.com/fairlead/fairlead/lab/topology"
)

// The available upstream routers.
const (
	RouterFairlead = "fairlead"
	RouterFRR      = string(interop.FRR)
	RouterBIRD     = string(interop.BIRD)
)

// Routers lists them.
var Routers = []string{RouterFairlead, RouterFRR, RouterBIRD}

// StartRouter starts the upstream router: our own, or FRR or BIRD with the same peers.
func (c *Cluster) StartRouter() error {
	if c.opts.Router == RouterFairlead {
		return c.Start(topology.Router, topology.Router, "router", "--router-id", topology.RouterAddr.String(), "--peer", c.reflectors(), c.opts.bfd())
	}
	var peers []interop.Peer
	for _, name := range c.Reflectors() {
		peers = append(peers, interop.Peer{Address: reflectorAddrs[name], AS: topology.AS})
	}
	d, err := interop.Start(c.Lab.Host(topology.Router).Namespace(), interop.Kind(c.opts.Router), interop.Config{
		AS: topology.AS, RouterID: topology.RouterAddr, LocalAddress: topology.RouterAddr, BFD: !c.opts.NoBFD, Peers: peers,
	})
	if err != nil {
		return err
	}
	c.foreign = d.Stop
	return nil
}
