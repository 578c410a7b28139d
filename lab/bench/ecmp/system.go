package ecmp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/sandbox"
	"github.com/fairlead/fairlead/lab/topology"
)

// The only service of a system, and its number of backends.
const (
	mainService = 0
	servers     = 2
)

// system is the network of the papers with one service, real agents, and a watch on the
// router's kernel.
type system struct {
	*cluster.Cluster
	o     Options
	watch *watch
}

// newSystem builds the network behind a router, without load balancers.
func (o Options) newSystem(ctx context.Context, name, router string, p topology.Options) (s *system, err error) {
	logs := o.Logs
	if logs == "" {
		logs = sandbox.WorkDir
	}
	logs = filepath.Join(logs, name+"-"+router)
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return nil, err
	}
	p.Services = make([]topology.ServiceOptions, 1)
	// One load balancer per node. Those that are leaving keep their node for a while.
	p.Nodes = 2 * o.Most
	c, err := cluster.New(ctx, cluster.Options{Binary: o.Binary, Router: router, Logs: logs, Paper: p, NoBFD: o.noBFD})
	if err != nil {
		return nil, err
	}
	s = &system{Cluster: c, o: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.watch, err = newWatch(c.Lab.Host(topology.Router).Namespace(), func() ([]string, error) { return c.RouterHops(mainService) }); err != nil {
		return s, err
	}
	for range servers {
		if _, err := c.AddServer(ctx, mainService); err != nil {
			return s, err
		}
	}
	return s, c.WriteManifest(mainService, cluster.Manifest{
		Namespace: "bench", Method: string(service.Tunnel), Scheduler: string(service.Maglev), Echo: true,
	})
}

func (s *system) close() error {
	if s.watch != nil {
		s.watch.close()
	}
	return s.Cluster.Close()
}

// routed reports whether the router's kernel has exactly the current load balancers as
// next hops.
func (s *system) routed() bool { return s.RouterHas(mainService, s.NextHops(mainService)) }

// bringUp starts the given number of load balancers and waits until the router has routes
// to them.
func (s *system) bringUp(ctx context.Context, balancers int) error {
	for range balancers {
		if _, err := s.Route(ctx, mainService); err != nil {
			return err
		}
	}
	return nil
}

// converge waits until the router's kernel has the right next hops, and returns how long
// that took since began.
func (s *system) converge(ctx context.Context, what string, began time.Time) (time.Duration, error) {
	at, ok := s.watch.until(ctx, cluster.StartLimit, s.routed)
	if !ok {
		have, err := s.RouterHops(mainService)
		return 0, errors.Join(ctx.Err(), err, s.FailedProcess(),
			fmt.Errorf("%s: the router's kernel has %v after %s, want %v", what, have, cluster.StartLimit, s.NextHops(mainService)))
	}
	return at.Sub(began), nil
}

// remove removes a load balancer's pod and log, after its process has ended.
func (s *system) remove(ctx context.Context, pod topology.Pod) error {
	select {
	case <-s.Process(pod.Name).Done():
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(2 * cluster.StartLimit):
		return fmt.Errorf("%s does not end: %s", pod.Name, cluster.LastLines(s.LogFile(pod.Name)))
	}
	return errors.Join(s.RemovePod(pod.Name), os.Remove(s.LogFile(pod.Name)))
}
