package tail

import (
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/sim/experiments"
	"github.com/fairlead/fairlead/lab/sim/verdict"
)

// p99 returns the 99th percentile of a row.
func p99(r *experiments.Result, table string, keys ...string) float64 {
	return r.Cell(table, "p99", keys...)
}

// most returns a number of the row with the most load balancers.
func most(r *experiments.Result, column string, s service.Scheduler) float64 {
	for i := range r.Tables {
		if t := &r.Tables[i]; t.Name == byBalancer {
			return r.Cell(byBalancer, column, t.Rows[len(t.Rows)-1].Keys[0], string(s))
		}
	}
	panic("no table of balancers")
}

func claims() []experiments.Claim {
	const rr, lc, p2c, maglev, dh = "rr", "lc", "p2c", "maglev", "dh"
	return []experiments.Claim{
		verdict.AtLeast("one balancer, load 0.9, Pareto: rr's p99 over lc's", 3, func(r *experiments.Result) float64 {
			return p99(r, byLoad, "pareto", "0.9", rr) / p99(r, byLoad, "pareto", "0.9", lc)
		}),
		verdict.AtMost("there p2c has nearly lc's p99: p2c's over lc's", 1.25, func(r *experiments.Result) float64 {
			return p99(r, byLoad, "pareto", "0.9", p2c) / p99(r, byLoad, "pareto", "0.9", lc)
		}),
		verdict.AtLeast("what goes by a hash has a longer tail than turns: maglev's p99 over rr's, load 0.8, exponential", 1.1, func(r *experiments.Result) float64 {
			return p99(r, byLoad, "exponential", "0.8", maglev) / p99(r, byLoad, "exponential", "0.8", rr)
		}),
		verdict.AtLeast("dh gives a server more than it can do: load of the fullest, at 0.8", 1, func(r *experiments.Result) float64 {
			return r.Cell(byLoad, "fullest server", "exponential", "0.8", dh)
		}),
		verdict.AtLeast("the most balancers, each with its own counts: lc's median over p2c's", 2, func(r *experiments.Result) float64 {
			return most(r, "p50", lc) / most(r, "p50", p2c)
		}),
		verdict.AtMost("there p2c still has a shorter tail than turns: p2c's p99 over rr's", 0.8, func(r *experiments.Result) float64 {
			return most(r, "p99", p2c) / most(r, "p99", rr)
		}),
		verdict.AtLeast("old counts, every 10 mean works: lc's p99 over rr's", 1.5, func(r *experiments.Result) float64 {
			return p99(r, byAge, string(Reports), "10", lc) / most(r, "p99", rr)
		}),
		verdict.AtMost("with the same counts p2c is better than turns: p2c's p99 over rr's", 0.8, func(r *experiments.Result) float64 {
			return p99(r, byAge, string(Reports), "10", p2c) / most(r, "p99", rr)
		}),
		verdict.AtLeast("what a balancer opened since helps lc: p99 without it over with it", 2, func(r *experiments.Result) float64 {
			return p99(r, byAge, string(Reports), "10", lc) / p99(r, byAge, string(ReportsAndOwn), "10", lc)
		}),
		verdict.AtLeast("where ended connections count for 1000 mean works, lc is about as turns: its p99 over rr's", 0.7, func(r *experiments.Result) float64 {
			return p99(r, byLinger, "1000", lc) / p99(r, byBalancer, "1", rr)
		}),
	}
}
