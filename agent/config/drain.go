package config

import (
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/route"
)

// defaultTaints are the keys of taints for which a balancer drains where nothing
// else is said: the one that people set, that of a node that is out of service
// (KEP-2268), and the cluster autoscaler's of one that it is about to delete.
var defaultTaints = []string{"fairlead.io/drain", "node.kubernetes.io/out-of-service", "ToBeDeletedByClusterAutoscaler"}

// Drain is how, and when, a balancer leaves.
type Drain struct {
	// DrainNotice is for how long its routes are announced with DrainCommunities
	// and at least DrainMED before they are withdrawn.
	DrainNotice      time.Duration
	DrainCommunities []string
	DrainMED         uint32
	// DrainTimeout is how long it then goes on for the flows that it remembers, and
	// for peers of which nothing shows that they have heard that the routes are gone.
	DrainTimeout time.Duration
	// DrainOnCordon drains where the Node is cordoned, DrainTaints where it has a
	// taint of these keys.
	DrainOnCordon bool
	DrainTaints   []string
}

// DefaultDrain gives the defaults.
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
		p.refuse("drain-taint", "a taint has a key: name it")
	}
}
