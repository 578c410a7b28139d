package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/fairlead/fairlead/lab/sim/experiments"
	"github.com/fairlead/fairlead/lab/sim/experiments/ecmp"
	"github.com/fairlead/fairlead/lab/sim/experiments/hierarchy"
	"github.com/fairlead/fairlead/lab/sim/experiments/rollout"
	routingsim "github.com/fairlead/fairlead/lab/sim/experiments/routing"
	"github.com/fairlead/fairlead/lab/sim/experiments/services"
	"github.com/fairlead/fairlead/lab/sim/experiments/tail"
	"github.com/fairlead/fairlead/lab/sim/lvs"
	"github.com/fairlead/fairlead/lab/sim/report"
	"github.com/fairlead/fairlead/lab/sim/scenario"
)

// allExperiments returns those beyond the paper, in the order of their pages.
func allExperiments() []experiments.Experiment {
	return []experiments.Experiment{
		hierarchy.Experiment(),
		ecmp.Experiment(),
		tail.Experiment(),
		rollout.Experiment(),
		routingsim.Experiment(),
		services.Experiment(),
	}
}

// simulated is a selection of figures and experiments to run.
type simulated struct {
	figures     []lvs.Figure
	experiments []experiments.Experiment
	scenarios   []*scenario.Scenario // read from files, not yet among experiments
}

// everything returns all figures and experiments.
func everything() simulated { return simulated{figures: lvs.Figures(), experiments: allExperiments()} }

func (s simulated) names() (names []string) {
	for _, f := range s.figures {
		names = append(names, f.Name)
	}
	for _, e := range s.experiments {
		names = append(names, e.Name)
	}
	return names
}

// named selects figures and experiments by name.
func (s simulated) named(names []string) (some simulated, err error) {
	for _, name := range names {
		f := slices.IndexFunc(s.figures, func(f lvs.Figure) bool { return f.Name == name })
		e := slices.IndexFunc(s.experiments, func(e experiments.Experiment) bool { return e.Name == name })
		switch {
		case isScenario(name):
			c, err := scenarioIn(name)
			if err == nil {
				err = some.take(c)
			}
			if err != nil {
				return some, err
			}
		case f >= 0:
			some.figures = append(some.figures, s.figures[f])
		case e >= 0:
			some.experiments = append(some.experiments, s.experiments[e])
		default:
			return some, fmt.Errorf("%q is not a figure, an experiment or a scenario (FILE.yaml): see fairlead-lab sim list", name)
		}
	}
	return some, nil
}

// run runs the figures first.
func (s simulated) run(ctx context.Context, o *simOptions, progress func(what string, part float64)) (*report.Report, error) {
	r := &report.Report{Report: lvs.Report{Clock: o.Clock, Seeds: o.Seeds, Figures: []lvs.Outcome{}}}
	if len(s.figures) > 0 {
		if progress != nil {
			o.Progress = func(done, total int) { progress("figures", float64(done)/float64(total)) }
		}
		figures, err := lvs.Run(ctx, s.figures, o.Options)
		if err != nil {
			return nil, err
		}
		r.Report = *figures
	}
	if len(s.experiments) == 0 {
		return r, nil
	}
	b := experiments.Options{Seeds: o.Seeds, Workers: o.Workers, Small: o.small, Set: o.params}
	if progress != nil {
		b.Progress = func(part float64) { progress("experiments", part) }
	}
	outcomes, interrupted, err := experiments.RunAll(ctx, s.experiments, b)
	r.Experiments, r.Interrupted = outcomes, r.Interrupted || interrupted
	return r, err
}

// numbersOf parses the values of parameters.
func numbersOf(set map[string]string) (map[string]float64, error) {
	numbers := map[string]float64{}
	for name, text := range set {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("--set %s=%s: not a number", name, text)
		}
		numbers[name] = v
	}
	return numbers, nil
}
