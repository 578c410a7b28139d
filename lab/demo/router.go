package demo

import (
	"context"
	"fmt"

	"github.com/fairlead/fairlead/lab/paper"
)

// startRouter starts what is upstream.
func (c *cluster) startRouter(ctx context.Context) error {
	if c.opts.Router == RouterFairlead {
		return c.start(paper.Router, paper.Router, "router", "--router-id", paper.RouterAddr.String(), "--peer", paper.ReflectorAddr.String())
	}
	return fmt.Errorf("router %s: not yet", c.opts.Router)
}
