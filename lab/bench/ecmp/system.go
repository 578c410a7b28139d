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
	"github.com/fairlead/fairlead/lab/paper"
	"github.com/fairlead/fairlead/lab/sandbox"
)

// The one service of a system, and how many servers it has.
const (
	mainService = 0
	servers     = 2
)

// system is the papers' network with one service, real agents in it, and an ear at
// the router's kernel.
type system struct {
	*cluster.Cluster
	o     Options
	watch *watch
}

// newSystem builds the network behind a router; no balancer is there yet.
func (o Options) newSystem(ctx context.Context, name, router string, p paper.Options) (s *system, err error) {
	logs := o.Logs
	if logs == "" {
		logs = sandbox.WorkDir
	}
	logs = filepath.Join(logs, name+"-"+router)
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return nil, err
	}
	p.Services = make([]paper.ServiceOptions, 1)
	// One balancer a node; those that go have theirs for a while.
	p.Nodes = 2 * o.Most
	c, err := cluster.New(ctx, cluster.Options{Binary: o.Binary, Router: router, Logs: logs, Paper: p})
	if err != nil {
		return nil, err
	}
	s = &system{Cluster: c, o: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.watch, err = newWatch(c.Lab.Host(paper.Router).Namespace(), func() ([]string, error) { return c.RouterHops(mainService) }); err != nil {
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

// routed says whether the router's kernel has just the balancers that there are.
func (s *system) routed() bool { return s.RouterHas(mainService, s.NextHops(mainService)) }

// bringUp starts so many balancers and waits until the router has them.
func (s *system) bringUp(ctx context.Context, balancers int) error {
	for range balancers {
		if _, err := s.Route(ctx, mainService); err != nil {
			return err
		}
	}
	return nil
}

// converge waits until the router's kernel is right, and gives how long that took
// from began on.
func (s *system) converge(ctx context.Context, what string, began time.Time) (time.Duration, error) {
	at, ok := s.watch.until(ctx, cluster.StartLimit, s.routed)
	if !ok {
		have, err := s.RouterHops(mainService)
		return 0, errors.Join(ctx.Err(), err, s.FailedProcess(),
			fmt.Errorf("%s: the router's kernel has %v after %s, want %v", what, have, cluster.StartLimit, s.NextHops(mainService)))
	}
	return at.Sub(began), nil
}

// remove takes a balancer's pod and what it wrote away, once its process has ended.
func (s *system) remove(ctx context.Context, pod paper.Pod) error {
	select {
	case <-s.Process(pod.Name).Done():
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(2 * cluster.StartLimit):
		return fmt.Errorf("%s does not end: %s", pod.Name, cluster.LastLines(s.LogFile(pod.Name)))
	}
	return errors.Join(s.RemovePod(pod.Name), os.Remove(s.LogFile(pod.Name)))
}
