package cluster

import (
	"github.com/fairlead/fairlead/lab/foreign"
	"github.com/fairlead/fairlead/lab/paper"
)

// The available upstream routers.
const (
	RouterFairlead = "fairlead"
	RouterFRR      = string(foreign.FRR)
	RouterBIRD     = string(foreign.BIRD)
)

// Routers lists them.
var Routers = []string{RouterFairlead, RouterFRR, RouterBIRD}

// StartRouter starts the upstream router: our own, or FRR or BIRD with the same peers.
func (c *Cluster) StartRouter() error {
	if c.opts.Router == RouterFairlead {
		return c.Start(paper.Router, paper.Router, "router", "--router-id", paper.RouterAddr.String(), "--peer", c.reflectors(), c.opts.bfd())
	}
	var peers []foreign.Peer
	for _, name := range c.Reflectors() {
		peers = append(peers, foreign.Peer{Address: reflectorAddrs[name], AS: paper.AS})
	}
	d, err := foreign.Start(c.Lab.Host(paper.Router).Namespace(), foreign.Kind(c.opts.Router), foreign.Config{
		AS: paper.AS, RouterID: paper.RouterAddr, LocalAddress: paper.RouterAddr, BFD: !c.opts.NoBFD, Peers: peers,
	})
	if err != nil {
		return err
	}
	c.foreign = d.Stop
	return nil
}
