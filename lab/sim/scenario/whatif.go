package scenario

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/lab/sim/experiments"
	"github.com/fairlead/fairlead/lab/sim/scenario/reading"
)

// leastGoal is the default maximum share of failures if a scenario has no goal.
const leastGoal = 0.001

// WhatIf converts a scenario to an experiment that, in addition to what Experiment does,
// answers an operator's questions: what load balancers program, how many of them are
// needed, and how many if one may die. refused contains the frontends that no load
// balancer would program.
func (s *Scenario) WhatIf(refused []Refused) experiments.Experiment {
	if s.Goals.Failed == 0 {
		s.Goals.Failed = leastGoal
	}
	e := s.Experiment()
	e.Remarks = append(slices.Clone(e.Remarks), "Numbers of balancers are tried without the scenario's events, each under the whole load; then one dies in the middle. That is enough where the goals are met: after a death 95 % of the answers must come again, and how long they take is looked at once what was lost was sent again.")
	sizes := s.sizes()
	e.Run = func(r *experiments.Run) (*experiments.Result, error) {
		var main *outcome
		steady, dying := make([]*outcome, len(sizes)), make([]*outcome, len(sizes))
		quiet := func(float64) {}
		err := r.Each(2*len(sizes)+1, func(i int) (err error) {
			switch {
			case i == 0:
				main, err = s.run(r.Context, r.Seed, quiet)
			case i <= len(sizes):
				steady[i-1], err = s.with(sizes[i-1], false).run(r.Context, r.Seed, quiet)
			default:
				at := i - 1 - len(sizes)
				dying[at], err = s.with(sizes[at], true).run(r.Context, r.Seed, quiet)
			}
			return err
		})
		if main == nil || err != nil && r.Context.Err() == nil {
			return nil, err
		}
		result := main.result()
		result.Tables = append([]experiments.Table{s.serviceTable(refused)}, result.Tables...)
		if err == nil {
			sweep := s.sweep(sizes, steady, dying)
			result.Tables = slices.Insert(result.Tables, 1, s.needed(sizes, &sweep), sweep)
		}
		return result, err
	}
	return e
}

// Times multiplies all rates of the load. It returns an error if a rate exceeds the
// limits of a scenario.
func (s *Scenario) Times(factor float64) error {
	for i := range s.Load {
		l := &s.Load[i]
		if l.Rate *= factor; l.Arrivals != Trace && !(l.Rate >= reading.LeastRate && l.Rate <= reading.MostRate) {
			return fmt.Errorf("load[%d].rate, line %d: %g is not between %g and %g", i, l.Line, l.Rate, reading.LeastRate, reading.MostRate)
		}
	}
	return nil
}

// size is a number of load balancers of a group.
type size struct{ group, number int }

// sizes returns the sizes to try: for each group up to its full size, for large groups
// only some.
func (s *Scenario) sizes() (all []size) {
	for i := range s.Topology.Groups {
		g := &s.Topology.Groups[i]
		for n := 1; g.Role == Balancer && n <= g.Count; n++ {
			if n <= 8 || n == g.Count || n&(n-1) == 0 {
				all = append(all, size{i, n})
			}
		}
	}
	return all
}

// with returns the scenario with n load balancers and without events. If dies is set, one
// of them dies in the middle, and the scenario continues for the same time after lost
// packets were retransmitted.
func (s *Scenario) with(n size, dies bool) *Scenario {
	c := *s
	c.Topology.Groups = slices.Clone(s.Topology.Groups)
	g := &c.Topology.Groups[n.group]
	g.Present, c.Events = n.number, nil
	if dies {
		e := Event{At: s.Duration / 2, Action: Dies, What: []Ref{{Name: g.Names()[0]}}, Noticed: defaultNoticed}
		over := e.At + e.Noticed + s.patience() + settles
		c.Events, c.recovered = []Event{e}, []float64{over}
		c.last(max(s.Duration, over+s.Duration/2))
	}
	return &c
}

// last extends a scenario, and its loads that continued to the end.
func (s *Scenario) last(duration float64) {
	s.Load = slices.Clone(s.Load)
	for i := range s.Load {
		if s.Load[i].End == s.Duration {
			s.Load[i].End = duration
		}
	}
	s.Duration = duration
}

// settles is how long queues have to empty after the retransmission of the packets that
// were lost at the dead load balancer, in seconds.
const settles = 0.5

// patience returns how long clients wait before they retransmit.
func (s *Scenario) patience() (longest float64) {
	for i := range s.Load {
		longest = max(longest, s.Load[i].Timeout)
	}
	return longest
}

// The columns of the table of sizes.
var sweepColumns = []string{"answers/s", "failed %", "p99 ms", "packets lost", "enough",
	"one dies: failed %", "broken", "packets lost", "answers/s afterwards", "p99 ms afterwards", "enough"}

// sweep returns the table of all sizes, with the results of the clients of the group's
// services.
func (s *Scenario) sweep(sizes []size, steady, dying []*outcome) experiments.Table {
	t := experiments.Table{Name: "sizes", Title: "Number of balancers (replies of the services that they have; enough: 1 if the goals are met)",
		Keys: []string{"balancers", "number"}, Columns: sweepColumns}
	for i, n := range sizes {
		g := &s.Topology.Groups[n.group]
		a, b := steady[i], dying[i]
		last := len(b.spans) - 1
		rate, p99 := a.loads(g, 0)
		rateThen, p99Then := b.loads(g, last)
		after := b.total.minus(b.spans[0])
		survives := s.enough(after.failed(), p99Then)
		if !(rateThen >= enoughAnswers*rate) {
			survives = 0
		}
		t.Add([]string{g.Name, fmt.Sprint(n.number)},
			rate, 100*a.total.failed(), 1e3*p99, a.total.losses(), s.enough(a.total.failed(), p99),
			100*after.failed(), after.broken, after.losses(), rateThen, 1e3*p99Then, survives)
	}
	return t
}

// loads returns the rate of replies of a group's clients in a span, and the maximum of
// the loads' 99th percentiles.
func (o *outcome) loads(g *Group, span int) (rate, p99 float64) {
	from := 0.0
	if span > 0 {
		from = o.watch.bounds[span-1]
	}
	for i := range o.s.Load {
		v := o.s.Services[slices.IndexFunc(o.s.Services, func(v Service) bool { return v.Name == o.s.Load[i].To.Name })]
		if !slices.ContainsFunc(v.Balancers, func(r Ref) bool { return r.Name == g.Name }) {
			continue
		}
		rate += o.spans[span].loads[i] / (o.watch.bounds[span] - from)
		if its := o.watch.loads[i][span].Quantile(0.99); !(its <= p99) {
			p99 = its
		}
	}
	return rate, p99
}

// enoughAnswers is the share of the reply rate that must be reached again after a death.
const enoughAnswers = 0.95

// enough returns 1 if the goals are met, and 0 otherwise.
func (s *Scenario) enough(failed, p99 float64) float64 {
	if failed > s.Goals.Failed || s.Goals.P99 > 0 && !(p99 <= s.Goals.P99) {
		return 0
	}
	return 1
}

// needed returns the smallest sufficient sizes, or none if no size that was tried is
// sufficient.
func (s *Scenario) needed(sizes []size, sweep *experiments.Table) experiments.Table {
	t := experiments.Table{Name: "needed", Title: "Number of balancers needed: " + s.wanted(), Keys: []string{"balancers", "to meet the goals"}, Columns: []string{"number"}}
	for _, ask := range []struct {
		question string
		column   int
	}{{"without failures", slices.Index(sweepColumns, "enough")}, {"if one of them fails", len(sweepColumns) - 1}} {
		for i := range s.Topology.Groups {
			least := math.NaN()
			for k := len(sizes) - 1; k >= 0; k-- {
				if sizes[k].group != i {
					continue
				}
				if sweep.Rows[k].Values[ask.column] == 0 {
					break // larger sizes may be sufficient, but smaller ones would not be
				}
				least = float64(sizes[k].number)
			}
			if s.Topology.Groups[i].Role == Balancer && s.Topology.Groups[i].Count > 0 {
				t.Add([]string{s.Topology.Groups[i].Name, ask.question}, least)
			}
		}
	}
	return t
}

// wanted describes the goals.
func (s *Scenario) wanted() string {
	words := fmt.Sprintf("at most %s of requests fail", reading.Show(s.Goals.Failed, reading.Share))
	if s.Goals.P99 > 0 {
		words += fmt.Sprintf(", 99 %% of responses within %s", reading.Show(s.Goals.P99, reading.Seconds))
	}
	return words
}

// serviceTable lists what load balancers program from the manifests.
func (s *Scenario) serviceTable(refused []Refused) experiments.Table {
	t := experiments.Table{Name: "services", Title: "Services of the balancers", Keys: []string{"service", "forwarding mode", "scheduler", "consistency", "balancers", "remark"}, Columns: []string{"servers"}}
	for i := range s.Services {
		v := &s.Services[i]
		var balancers []string
		for _, ref := range v.Balancers {
			balancers = append(balancers, ref.Name)
		}
		servers := 0
		for _, ref := range v.Servers {
			servers += len(s.find(ref))
		}
		t.Add([]string{v.Name, string(v.Method), string(v.Scheduler), string(v.Survival), strings.Join(balancers, " "), ""}, float64(servers))
	}
	for _, f := range refused {
		t.Add([]string{f.Frontend, "", "", "", "", "not held: " + f.State + ": " + f.Reason}, math.NaN())
	}
	return t
}
