package services

import (
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/lab/sim/experiments"
)

// Experiment returns the experiment "services".
func Experiment() experiments.Experiment {
	return experiments.Experiment{
		Name:     "services",
		Title:    "Changes among a million Services",
		Question: "How soon do all nodes have a change among 50,000 to 1,000,000 Services, what does gathering save, and what breaks first?",
		Params: []experiments.Param{
			{Name: "nodes", Description: "nodes", Full: 5000, Small: 500, Least: 1, Most: 1e6},
			{Name: "seconds", Description: "for how long things change", Full: 300, Small: 60, Least: 1, Most: 86_400},
			{Name: "sample", Description: "nodes that are simulated", Full: 20, Small: 4, Least: 1, Most: 1000},
			{Name: "servers", Description: "API servers", Full: 3, Small: 3, Least: 1, Most: 100},
			{Name: "cores", Description: "processors of one that notify nodes", Full: 16, Small: 16, Least: 1, Most: 1024},
			{Name: "gigabits", Description: "Gbit/s of one", Full: 10, Small: 10, Least: 0.001, Most: 1000},
			{Name: "event", Description: "µs of an API server's work for a change", Full: 3000, Small: 3000, Least: 0, Most: 1e7},
			{Name: "watch", Description: "µs of it to notify a node", Full: 45, Small: 45, Least: 0, Most: 1e6},
			{Name: "bytes", Description: "bytes of an event", Full: 436, Small: 436, Least: 1, Most: 1e7},
			{Name: "decode", Description: "µs of an agent's work for an event", Full: 170, Small: 170, Least: 0, Most: 1e6},
			{Name: "pass", Description: "µs of it to write, however little", Full: 180, Small: 180, Least: 0, Most: 1e6},
			{Name: "entry", Description: "µs of it to write a Service", Full: 30, Small: 30, Least: 0, Most: 1e6},
			{Name: "compare", Description: "µs of it to compare a Service with the kernel", Full: 4, Small: 4, Least: 0, Most: 1e6},
			{Name: "resync", Description: "seconds from one comparison of all to the next", Full: 30, Small: 30, Least: 0, Most: 86_400},
			{Name: "rules", Description: "µs to write a Service's rules, if all are rewritten", Full: 42, Small: 42, Least: 0, Most: 1e6},
		},
		Run:    run,
		Claims: claims(),
		Remarks: []string{
			"Nodes are notified one after the other, in one order: the last one waits longest, for every change.",
			"Losses of watches, lists of all objects, and memory are not simulated; the page reckons them.",
		},
	}
}

// Names of the tables, and of their columns.
const (
	byRate   = "rate"
	byWindow = "window"
	byBatch  = "controller"
	byWriter = "writer"
	limits   = "limits"

	p50  = "p50, ms"
	p99  = "p99, ms"
	last = "first to last, s"
)

// paces contains the agents' ways of batching, by name.
var paces = []struct {
	name  string
	pacer Pacer
}{
	{"not", proxy.Pace{}}, {"10 ms, 40 at most", proxy.Pace{Window: proxy.DefaultWindow, MaxDelay: proxy.DefaultMaxDelay}},
	{"100 ms, 400 at most", proxy.Pace{Window: 100 * time.Millisecond, MaxDelay: 400 * time.Millisecond}},
	{"500 ms", proxy.Pace{Window: 500 * time.Millisecond, MaxDelay: 500 * time.Millisecond}},
	{"1 s, as kube-proxy", Least(time.Second)},
}

var (
	sizes  = []int{50_000, 200_000, 1_000_000}
	rates  = []float64{10, 50, 200, 500}
	bursts = []int{100, 150, 200}
)

func base(r *experiments.Run) Config {
	us := func(name string) time.Duration { return time.Duration(r.Param(name) * float64(time.Microsecond)) }
	return Config{
		Services: 50_000, Nodes: r.Int("nodes"), Sample: r.Int("sample"), Seed: r.Seed,
		Load:       Load{Rate: 50, For: time.Duration(r.Param("seconds") * float64(time.Second))},
		Controller: Controller{Write: 10 * time.Millisecond, Workers: 5},
		Server:     Server{Servers: r.Int("servers"), Cores: r.Int("cores"), Event: us("event"), Watch: us("watch"), Bytes: r.Int("bytes"), Bandwidth: r.Param("gigabits") * 1e9},
		Agent: Agent{Pacer: paces[1].pacer, Decode: us("decode"), Pass: us("pass"), Entry: us("entry"),
			Resync: time.Duration(r.Param("resync") * float64(time.Second)), Compare: us("compare")},
	}
}

// study is a row to compute.
type study struct {
	table string
	keys  []string
	c     Config
}

func studies(r *experiments.Run) (all []study) {
	add := func(table string, change func(*Config), keys ...string) {
		c := base(r)
		change(&c)
		all = append(all, study{table, keys, c})
	}
	for _, n := range sizes {
		for _, rate := range rates {
			add(byRate, func(c *Config) { c.Services, c.Rate, c.Workers = n, rate, 100 }, fmt.Sprint(n), fmt.Sprint(rate))
		}
	}
	for _, n := range bursts {
		for _, p := range paces {
			// As measured: the loop receives each change separately and immediately.
			add(byWindow, func(c *Config) {
				c.Nodes, c.Sample, c.Servers, c.Event, c.Watch, c.Resync = 1, 1, 1, 0, 0, 0
				c.Load, c.Controller, c.Pacer = Load{Rate: 500, Burst: n, Pods: 10}, Controller{Workers: 1 << 30}, p.pacer
			}, fmt.Sprint(n), p.name)
		}
	}
	for _, n := range bursts {
		for _, gather := range []time.Duration{0, 500 * time.Millisecond} {
			for _, qps := range []float64{20, 65, 0} {
				add(byBatch, func(c *Config) {
					c.Load, c.Gather, c.QPS, c.Ahead = Load{Rate: 500, Burst: n, Pods: 10}, gather, qps, 30
				}, fmt.Sprint(n), fmt.Sprint(gather.Seconds()), limitName(qps))
			}
		}
	}
	for _, n := range []int{1000, 5000, 20_000, 50_000} {
		add(byWriter, func(c *Config) { c.Services, c.Workers = n, 100 }, "what changed", fmt.Sprint(n))
		add(byWriter, func(c *Config) {
			c.Services, c.Workers, c.Pacer = n, 100, Least(time.Second)
			c.All, c.Entry, c.Resync = time.Duration(r.Param("rules")*float64(time.Microsecond)), 0, 0
		}, "all rules", fmt.Sprint(n))
	}
	return all
}

func limitName(qps float64) string {
	if qps == 0 {
		return "none"
	}
	return fmt.Sprint(qps)
}

// row returns the numbers of a study for its table.
func (s *study) row() ([]float64, error) {
	o, err := s.c.Run()
	if err != nil {
		return nil, err
	}
	ms := func(p float64) float64 { return o.Quantile(p).Seconds() * 1000 }
	span := o.Last.Seconds()
	switch s.table {
	case byWindow:
		return []float64{o.Passes, o.Entries, ms(0.5), ms(0.99), o.Processor.Seconds() * 1000}, nil
	case byBatch:
		return []float64{float64(o.Requests), ms(0.5), ms(0.99), span}, nil
	}
	return []float64{ms(0.5), ms(0.99), ms(1), float64(o.Requests) / span, o.Passes / span, 100 * o.Processor.Seconds() / span,
		100 * s.c.Rate * s.c.busy().Seconds()}, nil
}

func run(r *experiments.Run) (*experiments.Result, error) {
	all := studies(r)
	rows := make([][]float64, len(all))
	err := r.Each(len(all), func(i int) (err error) {
		rows[i], err = all[i].row()
		return err
	})
	if err != nil {
		return nil, err
	}
	result := &experiments.Result{Tables: tables()}
	for i, s := range all {
		t := &result.Tables[slices.IndexFunc(result.Tables, func(t experiments.Table) bool { return t.Name == s.table })]
		t.Add(s.keys, rows[i]...)
	}
	result.Tables = append(result.Tables, limitsTable(r))
	result.Pictures = pictures(result)
	return result, nil
}

func tables() []experiments.Table {
	cost := []string{p50, p99, "slowest, ms", "requests a second", "writes a second, a node", "a node's processor, %", "API servers in use, %"}
	return []experiments.Table{
		{Name: byRate, Title: "From a change until nodes' kernels have it", Keys: []string{"Services", "changes a second"}, Columns: cost},
		{Name: byWindow, Title: "10 pods come up behind each Service, 500 a second: one agent, notified of each immediately", Keys: []string{"Services", "gathered for"},
			Columns: []string{"times written", "entries written", p50, p99, "processor, ms"}},
		{Name: byBatch, Title: "The same with a controller and all nodes: requests, and until all nodes have all", Keys: []string{"Services", "gathered for, s", "requests a second at most"},
			Columns: []string{"requests", p50, p99, last}},
		{Name: byWriter, Title: "50 changes a second, by what an agent writes", Keys: []string{"it writes", "Services"}, Columns: cost},
	}
}

// limitsTable contains the maximum rate of changes of each part.
func limitsTable(r *experiments.Run) experiments.Table {
	t := experiments.Table{Name: limits, Title: "Changes a second that each part can do at most", Keys: []string{"Services", "nodes", "part"}, Columns: []string{"changes a second"}}
	for _, n := range sizes {
		for _, nodes := range []int{100, 1000, 5000, 15_000} {
			c := base(r)
			c.Services, c.Nodes, c.QPS = n, nodes, 20
			for _, p := range c.Parts() {
				t.Add([]string{fmt.Sprint(n), fmt.Sprint(nodes), p.Name}, p.Most)
			}
		}
	}
	return t
}

func pictures(r *experiments.Result) []experiments.Picture {
	delay := experiments.Picture{Name: byRate, Title: "p99 from a change until nodes' kernels have it", X: "changes a second", Y: "ms", LogX: true, LogY: true}
	for _, n := range sizes {
		curve := experiments.Series{Name: fmt.Sprintf("%d Services", n)}
		for _, rate := range rates {
			curve.Points = append(curve.Points, experiments.XY{X: rate, Y: r.Cell(byRate, p99, fmt.Sprint(n), fmt.Sprint(rate))})
		}
		delay.Series = append(delay.Series, curve)
	}
	writer := experiments.Picture{Name: byWriter, Title: "50 changes a second: p50 by what an agent writes", X: "Services", Y: "ms", LogX: true, LogY: true}
	for _, how := range []string{"what changed", "all rules"} {
		curve := experiments.Series{Name: how}
		for _, n := range []int{1000, 5000, 20_000, 50_000} {
			curve.Points = append(curve.Points, experiments.XY{X: float64(n), Y: r.Cell(byWriter, p50, how, fmt.Sprint(n))})
		}
		writer.Series = append(writer.Series, curve)
	}
	return []experiments.Picture{delay, writer}
}
