package ecmp

import (
	"context"
	"errors"

	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/topology"
)

// neighbors starts load balancers at random addresses. The reflector only has the range
// of these addresses in its configuration. Each round has other addresses.
func neighbors(ctx context.Context, o Options, r *bench.Report) error {
	var sessions, hops []float64
	for i := range o.Rounds {
		o.logf("neighbors: round %d of %d", i+1, o.Rounds)
		up, have, err := o.atRandom(ctx, o.Seed*1000+uint64(i))
		if err != nil {
			return err
		}
		sessions, hops = append(sessions, float64(up)), append(hops, float64(have))
	}
	r.Rows = append(r.Rows,
		bench.Plain("neighbors: sessions without a line for each neighbor", "", sessions...).AtLeast(float64(o.Most)),
		bench.Plain("neighbors: next hops in the router's kernel", "", hops...).AtLeast(float64(o.Most)))
	r.Note("neighbors: %d load balancers at random addresses of %s", o.Most, topology.Overlay)
	return nil
}

// atRandom returns the numbers of established sessions with load balancers, and of next
// hops.
func (o Options) atRandom(ctx context.Context, seed uint64) (sessions, hops int, err error) {
	s, err := o.newSystem(ctx, "neighbors", cluster.RouterFairlead, topology.Options{Seed: seed})
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.bringUp(ctx, o.Most); err != nil {
		return 0, 0, err
	}
	all, err := s.peers(ctx)
	if err != nil {
		return 0, 0, err
	}
	for _, p := range all[0] {
		o.logf("  %s is %s", p.Address, p.State)
		if p.State == "established" && p.Address != topology.RouterAddr.String() {
			sessions++
		}
	}
	have, err := s.RouterHops(mainService)
	return sessions, len(have), err
}
