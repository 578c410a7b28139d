// Package ecmp simulates what breaks when load balancers and servers change at Internet
// scale: many load balancers behind routers, many services and many connections, of which
// a sample is followed one by one.
package ecmp

import (
	"fmt"
	"math"

	"github.com/fairlead/fairlead/core/ring"
	"github.com/fairlead/fairlead/lab/sim/experiments"
	"github.com/fairlead/fairlead/lab/sim/experiments/follow"
)

// Experiment returns the experiment.
func Experiment() experiments.Experiment {
	return experiments.Experiment{
		Name:     "ecmp",
		Title:    "ECMP, balancers and servers at the scale of the Internet",
		Question: "How many connections break when a balancer or a server comes, goes or drains, for each way to keep them?",
		Params: []experiments.Param{
			{Name: "balancers", Description: "balancers", Full: 10000, Small: 60, Least: 3, Most: 1e6},
			{Name: "servers", Description: "servers of all services", Full: 100000, Small: 600, Least: 3, Most: 1e6},
			{Name: "services", Description: "services, which share the servers", Full: 1000, Small: 6, Least: 1, Most: 1e5},
			{Name: "rate", Description: "connections a second, of all services", Full: 10e6, Small: 60e3, Least: 1, Most: 1e9},
			{Name: "life", Description: "mean life of a connection, in seconds", Full: 30, Small: 30, Least: 0.01, Most: 1e5},
			{Name: "spread", Description: "standard deviation of the logarithm of lives", Full: 1.5, Small: 1.5, Least: 0, Most: 4},
			{Name: "group", Description: "balancers that one group of next hops spreads over", Full: 100, Small: 20, Least: 3, Most: 65536},
			{Name: "buckets", Description: "buckets of a resilient group", Full: 512, Small: 512, Least: 3, Most: 65536},
			{Name: "slots", Description: "slots of a ring, a prime", Full: 16381, Small: 2039, Least: 251, Most: 131071},
			{Name: "followed", Description: "connections that are followed, of all that are open", Full: 4e6, Small: 60e3, Least: 1000, Most: 1e8},
		},
		Run:    run,
		Claims: claims(),
		Remarks: []string{
			"Each connection that is followed stands for as many as it says; ± holds the number with 95 % confidence, by the sample alone.",
			"All balancers receive a change at the same time, and every open connection sends a packet between two changes.",
		},
	}
}

func run(r *experiments.Run) (*experiments.Result, error) {
	w, err := newWorld(r)
	if err != nil {
		return nil, err
	}
	fleets := map[[2]int]*fleet{}
	for i := range scenarios {
		for k := range scopes {
			fleets[[2]int{i, k}] = w.balancers(&scenarios[i], scopes[k].touched(len(w.groups)))
		}
	}
	sums, fullest := make([][][]tally, w.services), make([]float64, w.services)
	err = r.Each(w.services, func(service int) (err error) {
		builder := ring.NewBuilder(8 * w.slots)
		sums[service], err = w.all(service, fleets, builder)
		if err != nil {
			return fmt.Errorf("service %d: %w", service, err)
		}
		farm, err := follow.NewFarm(w.slots, builder, follow.Members(service, w.servers))
		if err == nil {
			fullest[service] = farm.Fullest()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	survival, err := survivalTable(uint64(r.Seed))
	if err != nil {
		return nil, err
	}
	broken, sampling := w.tables(sums)
	return &experiments.Result{Tables: []experiments.Table{broken, sampling, w.evenness(fullest), survival}, Pictures: []experiments.Picture{ofWays(&broken)}}, nil
}

// all runs a service through all scenarios in all scopes.
func (w *world) all(service int, fleets map[[2]int]*fleet, builder *ring.Builder) ([][]tally, error) {
	all := make([][]tally, len(scenarios))
	for i := range scenarios {
		for k := range scopes {
			t, err := w.follow(service, &scenarios[i], fleets[[2]int{i, k}], &scopes[k], builder)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", scenarios[i].name, err)
			}
			all[i] = append(all[i], *t)
		}
	}
	return all, nil
}

const brokenTable, samplingTable, evennessTable = "broken", "sampling", "evenness"

// tables sums up the services: the connections that broke, and the sampling error.
func (w *world) tables(sums [][][]tally) (broken, sampling experiments.Table) {
	keys := []string{"change", "touched", "routers"}
	var ways []string
	for way := range follow.Ways {
		ways = append(ways, way.String())
	}
	broken = experiments.Table{Name: brokenTable, Title: "Connections broken", Keys: keys, Columns: append(append([]string{}, ways...), "lost with their server", "open before")}
	sampling = experiments.Table{Name: samplingTable, Title: "± of the connections broken, by the sample", Keys: keys, Columns: ways}
	for i, s := range scenarios {
		for k, sc := range scopes {
			for kind := range follow.Kinds {
				values, off := make([]float64, int(follow.Ways)+2), make([]float64, follow.Ways)
				for service := range sums {
					t := &sums[service][i][k]
					for way := range follow.Ways {
						n := float64(t.broken[kind][way])
						values[way] += t.weight * n
						off[way] += t.weight * t.weight * n
					}
					values[follow.Ways] += t.weight * float64(t.lost)
					values[follow.Ways+1] += t.weight * float64(t.before)
				}
				for way := range off {
					off[way] = 1.96 * math.Sqrt(off[way])
				}
				names := []string{s.name, sc.name, kind.String()}
				broken.Add(names, values...)
				sampling.Add(names, off...)
			}
		}
	}
	return broken, sampling
}

// evenness returns the ratio of the maximum to the mean share, for load balancers and
// servers.
func (w *world) evenness(fullest []float64) experiments.Table {
	t := experiments.Table{Name: evennessTable, Title: "The fullest, by the mean", Keys: []string{"of"}, Columns: []string{"fullest"}}
	t.Add([]string{"balancers of a plain group"}, w.groups[0].Fullest(follow.Plain))
	t.Add([]string{"balancers of a resilient group"}, w.groups[0].Fullest(follow.Resilient))
	sum := 0.0
	for _, f := range fullest {
		sum += f
	}
	t.Add([]string{"servers of a service"}, sum/float64(len(fullest)))
	return t
}

// ofWays draws the changes of one load balancer, one server and both, with resilient
// groups.
func ofWays(broken *experiments.Table) experiments.Picture {
	p := experiments.Picture{Name: "changes", Title: "Connections broken by a change of one in each, resilient groups", LogY: true,
		X: "change, in the order of the table", Y: "connections broken"}
	for way := range follow.Ways {
		s := experiments.Series{Name: way.String()}
		for _, row := range broken.Rows {
			if row.Keys[1] == scopes[1].name && row.Keys[2] == follow.Resilient.String() {
				s.Points = append(s.Points, experiments.XY{X: float64(len(s.Points) + 1), Y: row.Values[way]})
			}
		}
		p.Series = append(p.Series, s)
	}
	return p
}
