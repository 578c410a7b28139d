package scenario

import (
	"fmt"

	"github.com/fairlead/fairlead/lab/sim/experiments"
	"github.com/fairlead/fairlead/lab/sim/scenario/reading"
	"github.com/fairlead/fairlead/lab/sim/verdict"
)

// Experiment converts a scenario to an experiment. Its goals become claims.
func (s *Scenario) Experiment() experiments.Experiment {
	return experiments.Experiment{
		Name: s.Name, Title: s.Name, Question: s.About, Claims: s.claims(), Remarks: remarks,
		Run: func(r *experiments.Run) (*experiments.Result, error) {
			o, err := s.run(r.Context, r.Seed, r.Done)
			if o == nil {
				return nil, err
			}
			return o.result(), err
		},
	}
}

var remarks = []string{
	"Answers are counted where they come whole; of a connection's first one the time is counted from the SYN on.",
	"A connection is broken where a server resets it that does not know it, and given up where no answer came to its last retry. Those that are open at the end count as neither.",
	"Balancers do not hand over flows that they remember: what a balancer remembers is lost with it.",
}

// claims returns the scenario's goals as claims.
func (s *Scenario) claims() (all []experiments.Claim) {
	value := func(row, unit string) func(*experiments.Result) float64 {
		return func(r *experiments.Result) float64 { return r.Cell(tableSums, columnValue, row, unit) }
	}
	if g := s.Goals.Failed; g > 0 {
		all = append(all, verdict.AtMost(fmt.Sprintf("goal: at most %s of requests fail (in %%)", reading.Show(g, reading.Share)), 100*g, value(rowFailed, percent)))
	}
	if g := s.Goals.P99; g > 0 {
		all = append(all, verdict.AtMost(fmt.Sprintf("goal: 99 %% of responses within %s (in ms)", reading.Show(g, reading.Seconds)), 1e3*g, value(rowP99, milliseconds)))
	}
	return all
}
