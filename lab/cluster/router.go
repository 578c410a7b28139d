package cluster

import (
	"github.com/fairlead/fairlead/lab/foreign"
	"github.com/fairlead/fairlead/lab/paper"
)

// The routers that can be upstream.
const (
	RouterFairlead = "fairlead"
	RouterFRR      = string(foreign.FRR)
	RouterBIRD     = string(foreign.BIRD)
)

// Routers lists them.
var Routers = []string{RouterFairlead, RouterFRR, RouterBIRD}

// startRouter starts what is upstream: our own router, or another's daemon
// that peers with the reflector as ours does.
func (c *Cluster) startRouter() error {
	if c.opts.Router == RouterFairlead {
		return c.Start(paper.Router, paper.Router, "router", "--router-id", paper.RouterAddr.String(), "--peer", paper.ReflectorAddr.String())
	}
	d, err := foreign.Start(c.Lab.Host(paper.Router).Namespace(), foreign.Kind(c.opts.Router), foreign.Config{
		AS: paper.AS, RouterID: paper.RouterAddr, LocalAddress: paper.RouterAddr, BFD: true,
		Peers: []foreign.Peer{{Address: paper.ReflectorAddr, AS: paper.AS}},
	})
	if err != nil {
		return err
	}
	c.foreign = d.Stop
	return nil
}
