package cluster

import (
	"context"
	"fmt"

	"github.com/fairlead/fairlead/lab/paper"
)

// The routers that can be upstream.
const (
	RouterFairlead = "fairlead"
	RouterFRR      = "frr"
	RouterBIRD     = "bird"
)

// Routers lists them.
var Routers = []string{RouterFairlead, RouterFRR, RouterBIRD}

// startRouter starts what is upstream.
func (c *Cluster) startRouter(ctx context.Context) error {
	if c.opts.Router == RouterFairlead {
		return c.Start(paper.Router, paper.Router, "router", "--router-id", paper.RouterAddr.String(), "--peer", paper.ReflectorAddr.String())
	}
	return fmt.Errorf("router %s: not yet", c.opts.Router)
}
