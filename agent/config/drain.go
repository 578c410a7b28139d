package config

import (
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/route"
)

// defaultTaints lists the default taint keys for which a load balancer drains: the one
// that users set, that of an out-of-service node (KEP-2268), and the cluster autoscaler's
// for a node that it is about to delete.
var defaultTaints = []string{"fairlead.io/drain", "node.kubernetes.io/out-of-service", "ToBeDeletedByClusterAutoscaler"}

// Drain configures when and how a load balancer drains.
type Drain struct {
	// DrainNotice is how long its routes are advertised with DrainCommunities and at
	// least DrainMED before they are withdrawn.
	DrainNotice      time.Duration
	DrainCommunities []string
	DrainMED         uint32
	// DrainTimeout is how long it then keeps running for tracked flows, and for peers
	// that have not confirmed the withdrawal.
	DrainTimeout time.Duration
	// DrainOnCordon drains while the Node is cordoned, DrainTaints while it has a taint
	// with one of these keys.
	DrainOnCordon bool
	DrainTaints   []string
}

// DefaultDrain returns the defaults.
func DefaultDrain() Drain {
	return Drain{
		DrainNotice: 2 * time.Second, DrainCommunities: []string{route.GracefulShutdown.String()}, DrainTimeout: 25 * time.Second,
		DrainOnCordon: true, DrainTaints: slices.Clone(defaultTaints),
	}
}

func (r *Resolved) resolveDrain(p *parser) {
	for flag, d := range map[string]time.Duration{"drain-timeout": r.DrainTimeout, "graceful-shutdown-period": r.DrainNotice} {
		if d < 0 || d > 24*time.Hour {
			p.refuse(flag, "%s is not between 0 and 24h", d)
		}
	}
	var all []route.Community
	for _, text := range r.DrainCommunities {
		c, err := route.ParseCommunity(text)
		if err != nil {
			p.refuse("drain-community", "%v", err)
		}
		all = append(all, c)
	}
	r.AvoidCommunities = route.CommunitiesOf(all...)
	if slices.Contains(r.DrainTaints, "") {
		p.refuse("drain-taint", "the key of the taint is missing")
	}
}
