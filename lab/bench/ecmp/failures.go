package ecmp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/topology"
)

// Goals of the case failures, in milliseconds.
const (
	killGoal    = 100
	cutGoal     = 1000
	restoreGoal = 3000
)

// failures kills one of two load balancers, and cuts the other's link silently and
// restores it.
func failures(ctx context.Context, o Options, r *bench.Report) error {
	for _, router := range o.Routers {
		kill, cut, restore, err := o.fail(ctx, router)
		if err != nil {
			return fmt.Errorf("%s: %w", router, err)
		}
		row := func(what string, figures []float64, goal float64) bench.Row {
			return bench.Plain("failures: "+router+": "+what, "ms", figures...).WorstAtMost(goal)
		}
		r.Rows = append(r.Rows, row("a balancer's process is killed", kill, killGoal),
			row("a balancer's link is cut silently, BFD 3 x 300 ms", cut, cutGoal), row("its link is back", restore, restoreGoal))
	}
	r.Note("failures: until the router's kernel has just the next hops that it should; goals are for the worst of %d rounds", o.Rounds)
	return nil
}

// outage is how long a link stays cut: long enough for peers to give up.
const outage = 2 * time.Second

func (o Options) fail(ctx context.Context, router string) (kill, cut, restore []float64, err error) {
	s, err := o.newSystem(ctx, "failures", router, topology.Options{})
	if err != nil {
		return nil, nil, nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.bringUp(ctx, 2); err != nil {
		return nil, nil, nil, err
	}
	timed := func(into *[]float64, what string, do func() error) error {
		began := time.Now()
		if err := do(); err != nil {
			return err
		}
		took, err := s.converge(ctx, what, began)
		*into = append(*into, ms(took))
		return err
	}
	for i := range o.Rounds {
		o.logf("failures: %s, round %d of %d", router, i+1, o.Rounds)
		pod := s.Balancers(mainService)[0]
		s.Forget(pod.Name)
		if err := timed(&kill, pod.Name+" killed", s.Process(pod.Name).Kill); err != nil {
			return kill, cut, restore, err
		}
		if err := s.remove(ctx, pod); err != nil {
			return kill, cut, restore, err
		}
		if err := s.bringUp(ctx, 1); err != nil {
			return kill, cut, restore, err
		}
		if err := s.cutAndRestore(ctx, timed, &cut, &restore); err != nil {
			return kill, cut, restore, err
		}
	}
	return kill, cut, restore, nil
}

func (s *system) cutAndRestore(ctx context.Context, timed func(*[]float64, string, func() error) error, cut, restore *[]float64) error {
	// BFD comes up a moment after the BGP session.
	if err := bench.Pause(ctx, outage); err != nil {
		return err
	}
	pod := s.Balancers(mainService)[0]
	s.Forget(pod.Name)
	if err := timed(cut, "link of "+pod.Name+" cut", func() error { return s.Lab.Cut(pod.Name, topology.Dev) }); err != nil {
		return err
	}
	if err := bench.Pause(ctx, outage); err != nil {
		return err
	}
	s.Remember(pod.Name)
	return timed(restore, "link of "+pod.Name+" is back", func() error { return s.Lab.Restore(pod.Name, topology.Dev) })
}
