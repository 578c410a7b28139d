package papers

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/lab/bench/migration"
	"github.com/fairlead/fairlead/lab/bench/scale"
	"github.com/fairlead/fairlead/lab/bench/standby"
)

// The names of experiments in which load balancers come, go and fail, and of those over a
// distance.
const (
	kubeChanges   = "kube-scale"
	ecmpSilence   = "ecmp-holdtime"
	ecmpNeighbors = "ecmp-neighbors"
	ecmpZebra     = "ecmp-zebra"
	moves         = "migration"
	activeStandby = "standby"
	podsFarAway   = "cni-wan"
	podBulk       = "cni-bulk"
)

// move moves a service between two clusters.
func move(ctx context.Context, o Options, m *Measured) error {
	g := migration.DefaultOptions()
	g.Binary, g.Progress = o.Binary, o.Progress
	if o.Length == Full {
		g.Rounds = 20
	}
	r, err := migration.Run(ctx, g)
	if err == nil {
		m.add(r)
	}
	return err
}

// scaleOnKubernetes changes the number of load balancers on a cluster.
func scaleOnKubernetes(ctx context.Context, o Options, m *Measured) error {
	s := scale.DefaultOptions()
	s.Binary, s.Progress, s.Seed = o.Binary, o.Progress, uint64(m.Repetition)
	if o.Length == Full { // the paper's 20 hours
		s.Every, s.Changes = time.Minute, 20*60
	}
	r, err := scale.Run(ctx, s)
	if err == nil {
		m.add(r)
	}
	return err
}

// compareStandby compares active/standby at layer 2 with ECMP.
func compareStandby(ctx context.Context, o Options, m *Measured) error {
	s := standby.DefaultOptions()
	s.Binary, s.Progress = o.Binary, o.Progress
	if o.Length == Full {
		s.Rounds, s.Window = 10, 30*time.Second
	}
	r, err := standby.Run(ctx, s)
	if err == nil {
		m.add(r)
	}
	return err
}
