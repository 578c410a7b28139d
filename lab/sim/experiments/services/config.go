// Package services simulates how soon nodes receive a change of one of very many
// Services. It models the controller that writes the change, the API servers that send it
// to every node, and the agent there, which batches changes as Fairlead's does. It
// compares the work of each part with its capacity.
package services

import (
	"fmt"
	"time"

	"github.com/fairlead/fairlead/core/proxy"
)

// Pacer determines when an agent writes what has changed. Fairlead uses proxy.Pace.
type Pacer interface {
	Due(first, last, written time.Time) time.Time
}

// Least writes at most once in this period, like kube-proxy with minSyncPeriod.
type Least time.Duration

// Due implements Pacer.
func (l Least) Due(first, _, written time.Time) time.Time {
	if next := written.Add(time.Duration(l)); next.After(first) {
		return next
	}
	return first
}

var _ Pacer = proxy.Pace{}

// Config is a cluster and its changes.
type Config struct {
	Services, Nodes int
	Load
	Controller
	Server
	Agent
	// Sample is the number of nodes that are simulated. They differ in when they are
	// notified.
	Sample int
	Seed   uint32
}

// Load contains the changes: Rate endpoints of random Services per second for a time, or,
// if Burst is not 0, Pods pods behind each of Burst Services, in random order.
type Load struct {
	Rate        float64
	For         time.Duration
	Burst, Pods int
}

// Controller writes a Service's slice when its endpoints change.
type Controller struct {
	// Gather is how long it waits for more changes after the first change of a Service.
	Gather time.Duration
	// QPS is the maximum number of requests per second, with a burst of Ahead; 0 means no
	// limit.
	QPS   float64
	Ahead int
	// Write is the duration of a request to the API server, Workers the maximum number of
	// concurrent requests.
	Write   time.Duration
	Workers int
}

// Server is one of the API servers, which share the nodes' watches.
type Server struct {
	Servers int
	// Cores send a change to the nodes, which takes Event once, and Watch per node.
	Cores        int
	Event, Watch time.Duration
	// Bytes is the size of an event, Bandwidth a server's bandwidth in bit/s.
	Bytes     int
	Bandwidth float64
}

// Agent is the agent of a node.
type Agent struct {
	Pacer Pacer
	// Decode is the work per event, Pass the fixed work of a pass, Entry the work per
	// changed Service, and All the work of a pass per existing Service.
	Decode, Pass, Entry, All time.Duration
	// Resync is the interval at which all Services are compared with the kernel, which
	// takes Compare per Service; 0 means never.
	Resync, Compare time.Duration
}

// busy returns how long a server is busy with an event.
func (c *Config) busy() time.Duration {
	nodes := float64(c.watches())
	work := time.Duration((float64(c.Event) + float64(nodes*float64(c.Watch))) / float64(c.Cores))
	wire := time.Duration(nodes * float64(c.Bytes) * 8 / c.Bandwidth * float64(time.Second))
	return max(work, wire)
}

// watches returns the number of nodes per API server.
func (c *Config) watches() int { return (c.Nodes + c.Servers - 1) / c.Servers }

// Validate reports which field is out of bounds.
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
