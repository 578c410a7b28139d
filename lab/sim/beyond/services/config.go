// Package services asks how soon nodes have a change of a Service among very many:
// the controller that writes it, the API servers that tell it to every node, and
// the agent there, which gathers changes as Fairlead's does. What each has to do is
// compared with what it can.
package services

import (
	"fmt"
	"time"

	"github.com/fairlead/fairlead/core/proxy"
)

// Pacer says when an agent writes what has changed: proxy.Pace is Fairlead's.
type Pacer interface {
	Due(first, last, written time.Time) time.Time
}

// Least writes at most once in so long, as kube-proxy by its minSyncPeriod.
type Least time.Duration

// Due implements Pacer.
func (l Least) Due(first, _, written time.Time) time.Time {
	if next := written.Add(time.Duration(l)); next.After(first) {
		return next
	}
	return first
}

var _ Pacer = proxy.Pace{}

// Config is a cluster, and what changes in it.
type Config struct {
	Services, Nodes int
	Load
	Controller
	Server
	Agent
	// Sample is how many of the nodes are simulated: they differ in when they are
	// told.
	Sample int
	Seed   uint32
}

// Load is what changes: endpoints of Services taken at random, Rate a second for a
// time; or, where Burst is not 0, Pods behind each of so many Services, in no
// order.
type Load struct {
	Rate        float64
	For         time.Duration
	Burst, Pods int
}

// Controller writes a Service's slice when its endpoints change.
type Controller struct {
	// Gather is how long it waits for more after the first change of a Service.
	Gather time.Duration
	// QPS is how many requests a second it may make, with Ahead saved up at most;
	// 0: any number.
	QPS   float64
	Ahead int
	// Write is until the API server has answered one, Workers how many may wait for
	// theirs.
	Write   time.Duration
	Workers int
}

// Server is one of the API servers, which share the nodes' watches.
type Server struct {
	Servers int
	// Cores tell nodes of a change, which takes Event once and Watch for each node.
	Cores        int
	Event, Watch time.Duration
	// Bytes are those of an event, Bandwidth the bits a second of a server.
	Bytes     int
	Bandwidth float64
}

// Agent is what a node does.
type Agent struct {
	Pacer Pacer
	// Decode is the work for an event; Pass that of writing, however little; Entry
	// that for each Service that changed; All that for each one there is.
	Decode, Pass, Entry, All time.Duration
	// Resync is how often all Services are compared with the kernel, which takes
	// Compare for each; 0: never.
	Resync, Compare time.Duration
}

// tell is how long a server is busy with an event.
func (c *Config) tell() time.Duration {
	nodes := float64(c.watches())
	work := time.Duration((float64(c.Event) + float64(nodes*float64(c.Watch))) / float64(c.Cores))
	wire := time.Duration(nodes * float64(c.Bytes) * 8 / c.Bandwidth * float64(time.Second))
	return max(work, wire)
}

// watches is how many nodes an API server tells.
func (c *Config) watches() int { return (c.Nodes + c.Servers - 1) / c.Servers }

// Validate says which field is out of bounds.
func (c *Config) Validate() error {
	for _, f := range []struct {
		name string
		is   float64
	}{
		{"services", float64(c.Services)}, {"nodes", float64(c.Nodes)}, {"servers", float64(c.Servers)}, {"cores", float64(c.Cores)},
		{"bandwidth", c.Bandwidth}, {"workers", float64(c.Workers)}, {"sample", float64(c.Sample)},
	} {
		if !(f.is > 0) {
			return fmt.Errorf("services: %s: %g; want more than 0", f.name, f.is)
		}
	}
	switch {
	case c.Burst > c.Services:
		return fmt.Errorf("services: burst: %d of %d Services", c.Burst, c.Services)
	case !(c.Rate > 0):
		return fmt.Errorf("services: rate: %g; want more than 0", c.Rate)
	case c.Burst == 0 && c.For <= 0 || c.Burst > 0 && c.Pods < 1:
		return fmt.Errorf("services: load: nothing changes: want a time, or a burst of pods")
	case c.QPS < 0 || c.QPS > 0 && c.Ahead < 1:
		return fmt.Errorf("services: qps %g, ahead %d; want 0, or one request ahead at least", c.QPS, c.Ahead)
	case c.Pacer == nil:
		return fmt.Errorf("services: pacer: none")
	}
	return nil
}
