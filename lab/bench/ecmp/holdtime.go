package ecmp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fairlead/fairlead/advertise/bgp"
	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/topology"
)

// holdGoal is how late, in milliseconds, the end of the hold time may take effect.
const holdGoal = 500

// holdTime cuts the link of one of two load balancers silently, without BFD: only the hold
// time of BGP detects it.
func holdTime(ctx context.Context, o Options, r *bench.Report) error {
	o.noBFD = true
	for _, router := range o.Routers {
		delays, err := o.silent(ctx, router)
		if err != nil {
			return fmt.Errorf("%s: %w", router, err)
		}
		r.Rows = append(r.Rows, bench.Plain("holdtime: "+router+": a balancer's link is cut silently", "ms", delays...).WorstAtMost(ms(bgp.DefaultHoldTime)+holdGoal))
	}
	r.Note("holdtime: no BFD; the hold time of %s begins with the last message before the cut, which is at most a third of it earlier", bgp.DefaultHoldTime)
	return nil
}

// silent returns how long the router's kernel has a next hop that does not answer.
func (o Options) silent(ctx context.Context, router string) (delays []float64, err error) {
	s, err := o.newSystem(ctx, "holdtime", router, topology.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.bringUp(ctx, 2); err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(o.Seed, 0))
	for i := range o.Rounds {
		o.logf("holdtime: %s, round %d of %d", router, i+1, o.Rounds)
		pod := s.Balancers(mainService)[0]
		// At any time between two keepalives.
		if err := bench.Pause(ctx, time.Duration(random.Int64N(int64(bgp.DefaultHoldTime/3)))); err != nil {
			return delays, err
		}
		s.Forget(pod.Name)
		began := time.Now()
		if err := s.Lab.Cut(pod.Name, topology.Dev); err != nil {
			return delays, err
		}
		took, err := s.converge(ctx, "link of "+pod.Name+" cut", began)
		if err != nil {
			return delays, err
		}
		delays = append(delays, ms(took))
		s.Remember(pod.Name)
		if err := s.Lab.Restore(pod.Name, topology.Dev); err != nil {
			return delays, err
		}
		if _, err := s.converge(ctx, "link of "+pod.Name+" is back", time.Now()); err != nil {
			return delays, err
		}
	}
	return delays, nil
}
