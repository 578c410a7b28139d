package papers

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/version"
	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/bench/cni"
	"github.com/fairlead/fairlead/lab/bench/ecmp"
	"github.com/fairlead/fairlead/lab/bench/endpoints"
	"github.com/fairlead/fairlead/lab/bench/ipvsbench"
	"github.com/fairlead/fairlead/lab/bench/rules"
	"github.com/fairlead/fairlead/lab/bench/scale"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/demo"
	"github.com/fairlead/fairlead/lab/sim/lvs"
	"github.com/fairlead/fairlead/lab/uml"
)

// Length is how long experiments run.
type Length string

// The lengths: an hour or two for everything, or as long as the papers' own experiments.
const (
	Short Length = "short"
	Full  Length = "paper"
)

// Lengths contains both.
var Lengths = []Length{Short, Full}

// Experiment is a measurement that one or more rows use.
type Experiment struct {
	Name string
	// Takes is about how long a repetition takes, if it is short.
	Takes time.Duration
	// Root is true if the experiment needs root and the sandbox.
	Root bool
	// Kubernetes contains the programs of Kubernetes that it needs.
	Kubernetes []string
	run        func(context.Context, Options, *Measured) error
}

// The experiments' names.
const (
	demonstration   = "demo"
	ecmpChanges     = "ecmp-convergence"
	ecmpFailures    = "ecmp-failures"
	ecmpThroughput  = "ecmp-throughput"
	podThroughput   = "cni-throughput"
	podBalancer     = "cni-balancer"
	podNetworks     = "cni-vdn"
	webBalancers    = "web-balancers"
	webGuest        = "web-guest"
	webScaling      = "web-scale"
	ruleLists       = "rules"
	ipvsRules       = "ipvs"
	bandwidthRules  = "bandwidth"
	batchPeriods    = "batch-periods"
	partitions      = "partition"
	centralBalancer = "central"
	simulator       = "sim"
)

// experiments contains all of them in the order in which they run: the cheap ones first.
var experiments = []Experiment{
	{simulator, 4 * time.Minute, false, nil, simulate},
	{demonstration, time.Minute, true, nil, demonstrate},
	{ecmpFailures, time.Minute, true, nil, routes("failures")},
	{ecmpSilence, time.Minute, true, nil, routes("holdtime")},
	{ecmpNeighbors, time.Minute, true, nil, routes("neighbors")},
	{ecmpZebra, time.Minute, true, nil, routes("zebra")},
	{ecmpChanges, 2 * time.Minute, true, nil, routes("convergence")},
	{kubeChanges, 3 * time.Minute, true, scale.Programs, scaleOnKubernetes},
	{ecmpThroughput, 5 * time.Minute, true, nil, routes("throughput")},
	{moves, 2 * time.Minute, true, nil, move},
	{activeStandby, 2 * time.Minute, true, nil, compareStandby},
	{podThroughput, 3 * time.Minute, true, nil, pods("throughput")},
	{podsFarAway, 3 * time.Minute, true, nil, pods("wan")},
	{podBulk, time.Minute, true, nil, pods("bulk")},
	{podBalancer, 2 * time.Minute, true, nil, pods("balancer")},
	{podNetworks, 2 * time.Minute, true, nil, pods("slices", "attachments", "federation")},
	{webScaling, 90 * time.Second, true, nil, web("scale")},
	{webGuest, 3 * time.Minute, true, nil, web("guest")},
	{webBalancers, 7 * time.Minute, true, nil, web("balancers")},
	{ruleLists, 4 * time.Minute, true, nil, lists},
	{centralBalancer, time.Minute, true, endpoints.Programs, ofEndpoints(endpoints.Central, 3)},
	{partitions, time.Minute, true, endpoints.Programs, ofEndpoints(endpoints.Partition, 3)},
	{batchPeriods, 4 * time.Minute, true, endpoints.Programs, ofEndpoints(endpoints.Batching, 1)},
	{bandwidthRules, 4 * time.Minute, true, nil, throughRules},
	{ipvsRules, 8 * time.Minute, true, nil, inIPVS},
}

// seeds is the number of seeds of a repetition: some claims need as many.
const seeds = 20

// simulate runs the figures of the simulator. Each repetition has its own seeds.
func simulate(ctx context.Context, o Options, m *Measured) error {
	r, err := lvs.Run(ctx, m.lacking(o.Only), lvs.Options{Clock: lvs.Compat, Skip: (m.Repetition - 1) * seeds, Seeds: seeds, Workers: runtime.NumCPU()})
	if err != nil {
		return err
	}
	m.Figures = append(m.Figures, r.Figures...)
	return ctx.Err()
}

// never stands for a change that the demo has waited for in vain, in milliseconds.
const never = 1e9

// demonstrate runs the demo: three load balancers of one service and two of another.
func demonstrate(ctx context.Context, o Options, m *Measured) error {
	r, err := demo.Run(ctx, demo.Options{
		Binary: o.Binary, Version: version.String(), Balancers: 3, Servers: 4, Method: string(service.DefaultMethod),
		Scheduler: string(service.DefaultScheduler), Duration: 30 * time.Second, Router: cluster.RouterFairlead, Out: io.Discard,
	})
	if err != nil {
		return err
	}
	m.Samples = map[string][]float64{"requests failed": {float64(r.Load.Failed)}}
	for _, e := range r.Events {
		took := e.ConvergedMs
		if took < 0 {
			took = never
		}
		m.Samples[e.Name] = []float64{took}
		m.Samples[e.Name+": failed"] = []float64{float64(e.Failed)}
	}
	for i, table := range r.Tables {
		m.Samples[fmt.Sprintf("next hops, table %c", 'a'+i)] = []float64{float64(strings.Count(table, "via "))}
	}
	m.Notes = r.Reasons
	return nil
}

// routes returns an experiment of bench ecmp.
func routes(name string) func(context.Context, Options, *Measured) error {
	return func(ctx context.Context, o Options, m *Measured) error {
		e := ecmp.DefaultOptions()
		e.Binary, e.Progress, e.Cases, e.Routers, e.Rounds = o.Binary, o.Progress, []string{name}, []string{cluster.RouterFairlead}, 3
		e.Duration, e.Seed = time.Minute, uint64(m.Repetition)
		if o.Length == Full {
			e.Rounds = 10
			if name == "convergence" { // the paper's 20 hours
				e.Duration, e.Every = 20*time.Hour, time.Minute
			}
		}
		r, err := ecmp.Run(ctx, e)
		if err == nil {
			m.add(r)
		}
		return err
	}
}

// pods returns an experiment of bench cni.
func pods(names ...string) func(context.Context, Options, *Measured) error {
	return func(ctx context.Context, o Options, m *Measured) error {
		c := cni.DefaultOptions()
		c.Binary, c.Plugin, c.Progress, c.Cases = o.Binary, o.Plugin, o.Progress, names
		c.Rates, c.Plain, c.Pods = []string{"1G", "10G"}, []string{"1G"}, []int{1, 4, 8}
		switch names[0] {
		case "balancer":
			c.Rounds = 9
		case "wan":
			c.Rounds, c.Seconds = 7, 2
		}
		if o.Length == Full && (names[0] == "throughput" || names[0] == "wan") { // the paper's 1,000 s, one after the other
			c.Seconds, c.Rounds = 1000, 2
		}
		r, err := cni.Run(ctx, c)
		if err == nil {
			m.add(r)
		}
		return err
	}
}

// lists compares lists of rules with trees and maps, with the slides' numbers of Services.
func lists(ctx context.Context, o Options, m *Measured) error {
	l := rules.DefaultOptions()
	l.Services, l.Ways, l.Adds, l.Limit, l.Progress = []int{1, 1000, 10_000, 50_000}, []string{rules.Linear, rules.Tree, rules.EBPF}, 2, 3*time.Minute, o.Progress
	if o.Length == Full {
		l.Adds, l.Limit = 5, time.Hour
	}
	maps, virtual := l, l
	maps.Ways, maps.Endpoints, maps.Adds, maps.Batches = []string{rules.NFTables}, 1, 0, []int{0} // with several endpoints, 50,000 take nftables minutes
	virtual.Ways, virtual.Adds, virtual.Batches = []string{rules.IPVS}, 1, []int{0}
	for _, each := range []rules.Options{l, maps, virtual} {
		if err := m.rules(ctx, each); err != nil {
			return err
		}
	}
	return nil
}

// throughRules measures bandwidth through iptables and IPVS in the same kernel.
func throughRules(ctx context.Context, o Options, m *Measured) error {
	l := rules.DefaultOptions()
	l.Services, l.Ways, l.Endpoints, l.Adds, l.Connects, l.Batches = []int{1, 1000, 5000, 10_000, 25_000, 50_000}, []string{rules.Linear, rules.IPVS}, 1, 0, 50, []int{0}
	l.Transfers, l.Limit, l.Progress = 50, 10*time.Minute, o.Progress
	if o.Length == Full {
		l.Transfers, l.Limit = 500, time.Hour
	}
	return m.rules(ctx, l)
}

// rules adds a comparison of rules, in a guest if it needs IPVS and this kernel has none.
func (m *Measured) rules(ctx context.Context, o rules.Options) error {
	run := rules.Run
	if slices.Contains(o.Ways, rules.IPVS) && !uml.HasIPVS() {
		run = rules.InGuest
	}
	r, err := run(ctx, o)
	if err == nil {
		m.add(r)
	}
	return err
}

// ofEndpoints returns an experiment of bench endpoints.
func ofEndpoints(run func(context.Context, endpoints.Options) (*bench.Report, error), rounds int) func(context.Context, Options, *Measured) error {
	return func(ctx context.Context, o Options, m *Measured) error {
		e := endpoints.DefaultOptions()
		e.Binary, e.Progress, e.Rounds = o.Binary, o.Progress, rounds
		if o.Length == Full {
			e.Rounds, e.Changes = 10*rounds, 100
		}
		r, err := run(ctx, e)
		if err == nil {
			m.add(r)
		}
		return err
	}
}

// inIPVS adds Services to IPVS and to iptables in the same kernel.
func inIPVS(ctx context.Context, o Options, m *Measured) error {
	i := ipvsbench.DefaultOptions()
	i.Sizes, i.Runs, i.Progress = []int{1, 5000, 20_000}, 21, o.Progress
	if o.Length == Full {
		i.Runs, i.IPTables = 101, 10*time.Minute
	}
	r, err := ipvsbench.Run(ctx, i)
	if err == nil {
		m.add(r)
		m.Machine = cmp.Or(r.Machine, m.Machine)
	}
	return err
}
