package survival

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/topology"
)

// system is the cluster with the experiment's state.
type system struct {
	*cluster.Cluster
	opts    Options
	variant variant

	mu        sync.Mutex
	servers   []*server // in order of creation; a backend's number is its index plus one
	balancers []*balancer

	writing         sync.Mutex // for the manifests
	naming, shuffle int        // state of the manifests' names and order
	removals        removals
}

type server struct {
	pod            topology.Pod
	since, drained time.Time
	// known is set when the manifests contain the backend.
	known, draining, gone bool
}

type balancer struct {
	pod   topology.Pod
	since time.Time
	// routed is set when it receives packets, leaving when it is being removed.
	routed, leaving bool
}

func newSystem(c *cluster.Cluster, o Options, v variant) *system {
	return &system{Cluster: c, opts: o, variant: v}
}

// bringUp starts backends and load balancers and waits until all are in service.
func (s *system) bringUp(ctx context.Context) error {
	if err := s.startServers(ctx, s.opts.Servers); err != nil {
		return err
	}
	if err := s.writeAll(); err != nil {
		return err
	}
	if _, err := s.startBalancers(ctx, s.opts.Balancers); err != nil {
		return err
	}
	return s.inService(ctx)
}

// startServers adds backends with the same timestamp. The manifests contain them from the
// next write on.
func (s *system) startServers(ctx context.Context, n int) error {
	var added []*server
	for range n {
		pod, err := s.AddServerPod(ctx, 0)
		if err != nil {
			return err
		}
		one := &server{pod: pod}
		added = append(added, one)
		s.mu.Lock()
		s.servers = append(s.servers, one)
		number := len(s.servers)
		s.mu.Unlock()
		err = s.Run(pod.Name, pod.Name, lab.Self("bench", "server", "--listen", fmt.Sprintf(":%d", topology.ServerPort), "--number", strconv.Itoa(number)))
		if err != nil {
			return err
		}
	}
	for _, one := range added {
		// As in a cluster, a backend becomes an endpoint only when it answers.
		if err := s.answers(ctx, one.pod); err != nil {
			return err
		}
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range added {
		one.known, one.since = true, now
	}
	return nil
}

// answers waits until a backend listens.
func (s *system) answers(ctx context.Context, pod topology.Pod) error {
	host := s.Lab.Host(pod.Name)
	_, ok := cluster.Await(ctx, 5*time.Millisecond, startLimit, func() bool {
		conn, err := host.Dial(ctx, pod.Addr, addrPort(pod))
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	if !ok {
		return fmt.Errorf("backend %s did not answer: %s", pod.Name, cluster.LastLines(s.LogFile(pod.Name)))
	}
	return nil
}

// startBalancers adds load balancers concurrently, waits until the router forwards
// packets to them, and returns their names.
func (s *system) startBalancers(ctx context.Context, n int) (names []string, err error) {
	var starting sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		pod, err := s.AddBalancer(ctx, 0)
		if err != nil {
			return names, err
		}
		names = append(names, pod.Name)
		one := &balancer{pod: pod, since: time.Now()}
		s.mu.Lock()
		s.balancers = append(s.balancers, one)
		s.mu.Unlock()
		starting.Go(func() {
			errs[i] = s.startBalancer(ctx, pod)
			s.mu.Lock()
			defer s.mu.Unlock()
			one.routed = errs[i] == nil
		})
	}
	err = s.writeBalancers()
	starting.Wait()
	return names, errors.Join(append(errs, err)...)
}

func (s *system) startBalancer(ctx context.Context, pod topology.Pod) error {
	err := s.StartBalancer(pod, "--balancers", "bench/"+balancersService, "--drain-timeout", s.variant.drain.String())
	if err != nil {
		return err
	}
	_, ok := cluster.Await(ctx, 5*time.Millisecond, startLimit, func() bool { return s.RouterLeadsTo(0, pod) })
	if !ok {
		return errors.Join(ctx.Err(), fmt.Errorf("the router did not learn of load balancer %s: %s", pod.Name, cluster.LastLines(s.LogFile(pod.Name))))
	}
	return nil
}

// inService waits until every load balancer that is not leaving has every backend in the
// right state.
func (s *system) inService(ctx context.Context) error {
	s.mu.Lock()
	want := map[string]bool{} // by address: draining
	for _, one := range s.servers {
		if one.known && !one.gone {
			want[one.pod.Addr.String()] = one.draining
		}
	}
	s.mu.Unlock()
	right := func(st status.Status) bool {
		seen := 0
		for _, svc := range st.Services {
			for _, f := range svc.Frontends {
				for _, b := range f.Backends {
					draining, known := want[b.Address.Addr().String()]
					if known && b.InService && b.Draining == draining {
						seen++
					}
				}
			}
		}
		return seen == len(want)
	}
	_, ok := cluster.Await(ctx, 10*time.Millisecond, startLimit, func() bool { return s.EveryBalancer(ctx, 0, right) })
	if !ok {
		return errors.Join(ctx.Err(), errors.New("not every load balancer has every backend in service"))
	}
	return nil
}

// removals are the graceful removals that are in progress.
type removals struct {
	going sync.WaitGroup
	mu    sync.Mutex
	errs  []error
}

// add completes a removal in the background.
func (r *removals) add(f func() error) {
	r.going.Go(func() {
		if err := f(); err != nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.errs = append(r.errs, err)
		}
	})
}

// wait waits for all removals.
func (r *removals) wait(ctx context.Context) error {
	done := make(chan struct{})
	go func() { r.going.Wait(); close(done) }()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-done:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.errs...)
}
