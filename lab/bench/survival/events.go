package survival

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/topology"
)

// The events. AddBalancer adds two load balancers, so that the number is unchanged after
// one is removed and one is killed.
const (
	AddBalancer    = "add-balancer"
	RemoveBalancer = "remove-balancer"
	KillBalancer   = "kill-balancer"
	AddServer      = "add-server"
	DrainServer    = "drain-server"
	Reorder        = "reorder"
	// AllAtOnce makes all changes above at the same moment. Storm does so repeatedly
	// within ten seconds.
	AllAtOnce = "all-at-once"
	Storm     = "storm"
	// KillServer is only part of the experiment on request. The connections that it
	// breaks are counted separately.
	KillServer = "kill-server"
)

// Events contains all events, DefaultEvents those of the experiment.
var (
	DefaultEvents = []string{AddBalancer, RemoveBalancer, KillBalancer, AddServer, DrainServer, Reorder, AllAtOnce, Storm}
	Events        = append(append([]string(nil), DefaultEvents...), KillServer)
)

// stormLength is the total duration of all rounds of the storm.
const stormLength = 10 * time.Second

// startLimit is the time limit for a change to take effect. It is long because many
// processes start at the same time, under load.
const startLimit = 3 * cluster.StartLimit

// removalLimit is the time limit for a graceful removal of a load balancer.
const removalLimit = 60 * time.Second

// do triggers one event and waits until it has taken effect. It returns the subject of
// the event.
func (s *system) do(ctx context.Context, name string, r *Result) (subject string, err error) {
	switch name {
	case AddBalancer:
		return s.addBalancers(ctx)
	case RemoveBalancer:
		return s.removeBalancer(ctx)
	case KillBalancer:
		return s.killBalancer(ctx)
	case AddServer:
		if subject, err = s.addServer(ctx); err != nil {
			return subject, err
		}
		return subject, s.inService(ctx)
	case DrainServer:
		if subject, err = s.drainServer(); err != nil {
			return subject, err
		}
		return subject, s.inService(ctx)
	case Reorder:
		return "every manifest", s.reorder()
	case AllAtOnce:
		return s.everything(ctx)
	case Storm:
		return s.storm(ctx)
	case KillServer:
		return s.killServer(r)
	}
	return "", fmt.Errorf("no event %q", name)
}

// everything makes all changes at the same time.
func (s *system) everything(ctx context.Context) (string, error) {
	changes := []func() (string, error){
		func() (string, error) { return s.addBalancers(ctx) },
		func() (string, error) { return s.removeBalancer(ctx) },
		func() (string, error) { return s.killBalancer(ctx) },
		func() (string, error) { return s.addServer(ctx) },
		s.drainServer,
		func() (string, error) { return "", s.reorder() },
	}
	var going sync.WaitGroup
	subjects, errs := make([]string, len(changes)), make([]error, len(changes))
	for i, change := range changes {
		going.Go(func() { subjects[i], errs[i] = change() })
	}
	going.Wait()
	return strings.TrimSpace(strings.Join(subjects, " ")), errors.Join(errs...)
}

// storm makes all changes repeatedly, without waiting until the previous ones have taken
// effect.
func (s *system) storm(ctx context.Context) (string, error) {
	var going sync.WaitGroup
	errs := make([]error, s.opts.Rounds)
	for i := range s.opts.Rounds {
		going.Go(func() { _, errs[i] = s.everything(ctx) })
		if i < s.opts.Rounds-1 {
			if err := bench.Pause(ctx, stormLength/time.Duration(s.opts.Rounds)); err != nil {
				return "", err
			}
		}
	}
	going.Wait()
	return fmt.Sprintf("everything %d times", s.opts.Rounds), errors.Join(errs...)
}

func (s *system) addBalancers(ctx context.Context) (string, error) {
	started, err := s.startBalancers(ctx, 2)
	return "+" + strings.Join(started, " +"), err
}

// takeBalancer takes the oldest load balancer that receives packets and is not taken yet.
// It first waits until more than half of the configured number receive packets. Otherwise
// the next one leaves only after another has joined.
func (s *system) takeBalancer(ctx context.Context) (topology.Pod, error) {
	var taken *balancer
	_, ok := cluster.Await(ctx, 5*time.Millisecond, startLimit, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		var there []*balancer
		for _, b := range s.balancers {
			if b.routed && !b.leaving {
				there = append(there, b)
			}
		}
		if len(there) <= s.opts.Balancers/2 {
			return false
		}
		taken = there[0]
		taken.leaving = true
		return true
	})
	if !ok {
		return topology.Pod{}, errors.Join(ctx.Err(), errors.New("too few load balancers are left to remove one: start with more"))
	}
	return taken.pod, nil
}

// removeBalancer ends a load balancer as an orchestrator does: it marks the endpoint as
// terminating, signals the process, and removes the pod when the process has ended. It
// returns when the router has followed.
func (s *system) removeBalancer(ctx context.Context) (string, error) {
	pod, err := s.takeBalancer(ctx)
	if err != nil {
		return "", err
	}
	s.Forget(pod.Name)
	process := s.Process(pod.Name)
	if err := errors.Join(s.writeBalancers(), process.Signal(syscall.SIGTERM)); err != nil {
		return pod.Name, err
	}
	s.removals.add(func() error {
		select {
		case <-ctx.Done():
			return nil
		case <-process.Done():
		case <-time.After(removalLimit + startLimit):
			return fmt.Errorf("balancer %s did not end", pod.Name)
		}
		return s.removed(pod)
	})
	return "-" + pod.Name, s.routed(ctx, pod)
}

// killBalancer disconnects a load balancer and then kills it, so that no peer receives a
// sign of its end.
func (s *system) killBalancer(ctx context.Context) (string, error) {
	pod, err := s.takeBalancer(ctx)
	if err != nil {
		return "", err
	}
	s.Forget(pod.Name)
	if err := errors.Join(s.Lab.Cut(pod.Name, topology.Dev), s.Process(pod.Name).Kill()); err != nil {
		return pod.Name, err
	}
	<-s.Process(pod.Name).Done()
	if err := s.routed(ctx, pod); err != nil {
		return pod.Name, err
	}
	return "x" + pod.Name, s.removed(pod)
}

// routed waits until the router stops forwarding to a load balancer that is leaving.
func (s *system) routed(ctx context.Context, pod topology.Pod) error {
	_, ok := cluster.Await(ctx, 5*time.Millisecond, startLimit, func() bool { return !s.RouterLeadsTo(0, pod) })
	if !ok {
		return errors.Join(ctx.Err(), fmt.Errorf("the router still forwards to %s", pod.Name))
	}
	return nil
}

// removed removes the pod of a load balancer that has ended.
func (s *system) removed(pod topology.Pod) error {
	s.mu.Lock()
	for i, b := range s.balancers {
		if b.pod.Name == pod.Name {
			s.balancers = append(s.balancers[:i:i], s.balancers[i+1:]...)
			break
		}
	}
	s.mu.Unlock()
	return errors.Join(s.writeBalancers(), s.RemovePod(pod.Name))
}

func (s *system) addServer(ctx context.Context) (string, error) {
	if err := s.startServers(ctx, 1); err != nil {
		return "", err
	}
	s.mu.Lock()
	name := s.servers[len(s.servers)-1].pod.Name
	s.mu.Unlock()
	return "+" + name, s.writeSlices()
}

// takeServer takes the oldest active backend.
func (s *system) takeServer() (int, *server, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, one := range s.servers {
		if one.known && !one.draining && !one.gone {
			one.draining, one.drained = true, time.Now()
			return i, one, nil
		}
	}
	return 0, nil, errors.New("no backend is left: start with more")
}

func (s *system) drainServer() (string, error) {
	_, one, err := s.takeServer()
	if err != nil {
		return "", err
	}
	return "~" + one.pod.Name, s.writeSlices()
}

// killServer kills a backend with its pod, which breaks its connections.
func (s *system) killServer(r *Result) (string, error) {
	i, one, err := s.takeServer()
	if err != nil {
		return "", err
	}
	r.killed[uint64(i+1)] = one.pod.Name
	s.mu.Lock()
	one.gone = true
	s.mu.Unlock()
	return "x" + one.pod.Name, errors.Join(s.RemovePod(one.pod.Name), s.writeSlices())
}

func addrPort(pod topology.Pod) netip.AddrPort {
	return netip.AddrPortFrom(pod.Addr, topology.ServerPort)
}
