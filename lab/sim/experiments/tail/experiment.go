package tail

import (
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/sim/experiments"
	"github.com/fairlead/fairlead/lab/sim/experiments/draw"
)

// Experiment returns the experiment "tail".
func Experiment() experiments.Experiment {
	return experiments.Experiment{
		Name:     "tail",
		Title:    "Schedulers under work with heavy tails",
		Question: "Which scheduler keeps the slowest requests short when work has a heavy tail, balancers are several, and counts are old?",
		Params: []experiments.Param{
			{Name: "requests", Description: "requests counted in each case", Full: 500_000, Small: 3000, Least: 1000, Most: 1e8},
			{Name: "servers", Description: "servers", Full: 32, Small: 16, Least: 2, Most: 10_000},
			{Name: "cores", Description: "cores of a server", Full: 4, Small: 4, Least: 1, Most: 256},
			{Name: "balancers", Description: "maximum number of balancers that only see their own connections, and with delayed reports", Full: 64, Small: 16, Least: 1, Most: 10_000},
			{Name: "alpha", Description: "exponent of the Pareto distribution, not 1 or 2", Full: 1.5, Small: 1.5, Least: 1.05, Most: 10},
			{Name: "ratio", Description: "its greatest work over its least", Full: 1000, Small: 1000, Least: 2, Most: 1e9},
			{Name: "sigma", Description: "sigma of the lognormal distribution", Full: 1.5, Small: 1.5, Least: 0.1, Most: 4},
			{Name: "load", Description: "part of all cores that is busy, where it does not vary", Full: 0.8, Small: 0.8, Least: 0.05, Most: 0.99},
		},
		Run:    run,
		Claims: claims(),
		Remarks: []string{
			"Times are in units of a request's mean work: with 10 ms of work, 30 is 0.3 s.",
			"Where the fullest server is given more than it can do, its queue grows with the length of the run, and so do the tails.",
		},
	}
}

// quantiles contains the columns of the tables.
var quantiles = []string{"p50", "p99", "p99.9", "fullest server"}

// Names of the tables, and of their keys.
const (
	byLoad     = "load"
	byBalancer = "balancers"
	byAge      = "age"
	byLinger   = "linger"
	byMix      = "mixed"
)

// study is a row to compute.
type study struct {
	table string
	keys  []string
	c     Case
}

var (
	loads   = []float64{0.5, 0.7, 0.8, 0.9, 0.95}
	ages    = []float64{0.01, 0.1, 1, 10, 100}
	lingers = []float64{0, 1, 10, 100, 1000}
)

// counting contains the schedulers that consider connection counts.
var counting = []service.Scheduler{service.LeastConn, service.PowerOfTwo}

// studies returns all cases of a run.
func studies(r *experiments.Run) (all []study) {
	pareto := draw.Pareto(r.Param("alpha"), r.Param("ratio"))
	base := Case{Servers: equal(r.Int("servers"), r.Int("cores")), Balancers: 1, View: Own, Load: r.Param("load"),
		Work: pareto, Requests: r.Int("requests"), Seed: r.Seed}
	add := func(table string, s service.Scheduler, change func(*Case), keys ...string) {
		c := base
		c.Scheduler = s
		change(&c)
		all = append(all, study{table, append(keys, string(s)), c})
	}
	works := []draw.Work{draw.Exponential(), draw.Lognormal(r.Param("sigma")), pareto}
	for i, name := range []string{"exponential", "lognormal", "pareto"} {
		for _, load := range loads {
			for _, s := range service.Schedulers {
				add(byLoad, s, func(c *Case) { c.Work, c.Load = works[i], load }, name, fmt.Sprint(load))
			}
		}
	}
	for _, n := range balancersUpTo(r.Int("balancers")) {
		for _, s := range service.Schedulers {
			add(byBalancer, s, func(c *Case) { c.Balancers = n }, fmt.Sprint(n))
		}
	}
	for _, view := range []View{Reports, ReportsAndOwn} {
		for _, age := range ages {
			for _, s := range counting {
				add(byAge, s, func(c *Case) { c.View, c.Age, c.Balancers = view, age, r.Int("balancers") }, string(view), fmt.Sprint(age))
			}
		}
	}
	for _, linger := range lingers {
		for _, s := range counting {
			add(byLinger, s, func(c *Case) { c.Linger = linger }, fmt.Sprint(linger))
		}
	}
	for _, s := range service.Schedulers {
		add(byMix, s, func(c *Case) { c.Servers = mixed(r.Int("servers"), r.Int("cores")) })
	}
	return all
}

// balancersUpTo returns 1, 4, 16, … and most.
func balancersUpTo(most int) (all []int) {
	for n := 1; n < most; n *= 4 {
		all = append(all, n)
	}
	return append(all, most)
}

func equal(n, cores int) (servers []Server) {
	for range n {
		servers = append(servers, Server{cores, 1})
	}
	return servers
}

// mixed returns servers with the same total number of cores, where every second server
// has three times the cores and the weight of the others.
func mixed(n, cores int) (servers []Server) {
	small := max(1, cores/2)
	for i := range n {
		weight := 1 + 2*(i%2)
		servers = append(servers, Server{small * weight, uint32(weight)})
	}
	return servers
}

func run(r *experiments.Run) (*experiments.Result, error) {
	if a := r.Param("alpha"); a == 2 {
		return nil, fmt.Errorf("parameter alpha: 2 has no formula here; 2.001 has")
	}
	all := studies(r)
	rows := make([][]float64, len(all))
	err := r.Each(len(all), func(i int) error {
		times, err := all[i].c.Run()
		if err != nil {
			return err
		}
		slices.Sort(times.Took)
		rows[i] = []float64{quantile(times.Took, 0.5), quantile(times.Took, 0.99), quantile(times.Took, 0.999), times.Fullest}
		return nil
	})
	if err != nil {
		return nil, err
	}
	result := &experiments.Result{Tables: tables()}
	for i, s := range all {
		t := &result.Tables[slices.IndexFunc(result.Tables, func(t experiments.Table) bool { return t.Name == s.table })]
		t.Add(s.keys, rows[i]...)
	}
	result.Pictures = pictures(result, r.Int("balancers"))
	return result, nil
}

func tables() []experiments.Table {
	return []experiments.Table{
		{Name: byLoad, Title: "One balancer, equal servers: time in mean works", Keys: []string{"work", "load", "scheduler"}, Columns: quantiles},
		{Name: byBalancer, Title: "Several balancers that see their own connections alone, Pareto", Keys: []string{"balancers", "scheduler"}, Columns: quantiles},
		{Name: byAge, Title: "Counts of all connections, reported every so many mean works, Pareto", Keys: []string{"what is known", "age", "scheduler"}, Columns: quantiles},
		{Name: byLinger, Title: "Ended connections that still count for so many mean works, one balancer, Pareto", Keys: []string{"linger", "scheduler"}, Columns: quantiles},
		{Name: byMix, Title: "Servers of which every second one has three times the cores and weight, one balancer, Pareto", Keys: []string{"scheduler"}, Columns: quantiles},
	}
}

func pictures(r *experiments.Result, balancers int) []experiments.Picture {
	const y = "p99, mean works"
	load := experiments.Picture{Name: byLoad, Title: "p99 by load, Pareto, one balancer", X: "load", Y: y, LogY: true}
	many := experiments.Picture{Name: byBalancer, Title: "p99 by balancers that see their own connections alone, Pareto", X: "balancers", Y: y, LogX: true, LogY: true}
	for _, s := range service.Schedulers {
		curve, other := experiments.Series{Name: string(s)}, experiments.Series{Name: string(s)}
		for _, x := range loads {
			curve.Points = append(curve.Points, experiments.XY{X: x, Y: r.Cell(byLoad, "p99", "pareto", fmt.Sprint(x), string(s))})
		}
		for _, n := range balancersUpTo(balancers) {
			other.Points = append(other.Points, experiments.XY{X: float64(n), Y: r.Cell(byBalancer, "p99", fmt.Sprint(n), string(s))})
		}
		load.Series, many.Series = append(load.Series, curve), append(many.Series, other)
	}
	old := experiments.Picture{Name: byAge, Title: "p99 by the age of reports, Pareto", X: "age, mean works", Y: y, LogX: true, LogY: true}
	for _, view := range []View{Reports, ReportsAndOwn} {
		for _, s := range counting {
			curve := experiments.Series{Name: string(s) + ", " + string(view)}
			for _, x := range ages {
				curve.Points = append(curve.Points, experiments.XY{X: x, Y: r.Cell(byAge, "p99", string(view), fmt.Sprint(x), string(s))})
			}
			old.Series = append(old.Series, curve)
		}
	}
	return []experiments.Picture{load, many, old}
}
