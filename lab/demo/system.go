package demo

import (
	"context"
	"errors"

	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/topology"
)

// system is the cluster with the demo's services.
type system struct {
	*cluster.Cluster
	opts     Options
	draining map[string]bool // servers
}

// newSystem builds the network with its backends, without load balancers.
func newSystem(ctx context.Context, o Options) (*system, error) {
	c, err := cluster.New(ctx, cluster.Options{
		Binary: o.Binary, Router: o.Router, Logs: o.Logs,
		Paper: topology.Options{Services: make([]topology.ServiceOptions, 2), Nodes: max(4, o.Balancers+2)},
	})
	if err != nil {
		return nil, err
	}
	s := &system{Cluster: c, opts: o, draining: map[string]bool{}}
	if err := s.serve(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return s, nil
}

// writeManifests writes the current state of a service.
func (c *system) writeManifests(service int) error {
	m := manifest(c.opts)
	m.Draining = c.draining
	return c.WriteManifest(service, m)
}

func manifest(o Options) cluster.Manifest {
	return cluster.Manifest{Namespace: "demo", Method: o.Method, Scheduler: o.Scheduler}
}

func (c *system) serve(ctx context.Context) error {
	for i, servers := range []int{c.opts.Servers, secondServers} {
		for range servers {
			if _, err := c.AddServer(ctx, i); err != nil {
				return err
			}
		}
		if err := c.writeManifests(i); err != nil {
			return err
		}
	}
	return nil
}
