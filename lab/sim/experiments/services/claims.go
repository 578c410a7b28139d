package services

import (
	"fmt"
	"math"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/lab/sim/experiments"
	"github.com/fairlead/fairlead/lab/sim/verdict"
)

// usual is the name in the tables of the agent's default batching.
var usual = fmt.Sprintf("%d ms, %d at most", proxy.DefaultWindow.Milliseconds(), proxy.DefaultMaxDelay.Milliseconds())

// saved returns the minimum relative saving by batching, from 0 to 1.
func saved(r *experiments.Result, table, column string, without, with func(n int) []string) float64 {
	least := math.Inf(1)
	for _, n := range bursts {
		least = min(least, 1-r.Cell(table, column, with(n)...)/r.Cell(table, column, without(n)...))
	}
	return least
}

// window and batch return the keys of rows of these tables.
func window(gathered string) func(int) []string {
	return func(n int) []string { return []string{fmt.Sprint(n), gathered} }
}

func batch(gathered string) func(int) []string {
	return func(n int) []string { return []string{fmt.Sprint(n), gathered, "none"} }
}

func claims() []experiments.Claim {
	return []experiments.Claim{
		verdict.AtMost("among 50,000 Services, 50 changes a second: p99, ms", 100, func(r *experiments.Result) float64 {
			return r.Cell(byRate, p99, "50000", "50")
		}),
		verdict.AtMost("a change among 1,000,000 Services takes as long as among 50,000: ratio of p50, 50 a second", 1.2, func(r *experiments.Result) float64 {
			return r.Cell(byRate, p50, "1000000", "50") / r.Cell(byRate, p50, "50000", "50")
		}),
		verdict.AtMost("and so does one of the slowest: ratio of p99", 1.2, func(r *experiments.Result) float64 {
			return r.Cell(byRate, p99, "1000000", "50") / r.Cell(byRate, p99, "50000", "50")
		}),
		verdict.AtLeast("gathering as the agent does saves writes: part of them, 500 changes a second", 0.9, func(r *experiments.Result) float64 {
			return saved(r, byWindow, "times written", window("not"), window(usual))
		}),
		verdict.AtLeast("gathering for 0.5 s saves 98 % of them, as the slides say of requests", 0.98, func(r *experiments.Result) float64 {
			return saved(r, byWindow, "times written", window("not"), window("500 ms"))
		}),
		verdict.AtLeast("a controller that gathers for 0.5 s saves 98 % of its requests (slides)", 0.98, func(r *experiments.Result) float64 {
			return saved(r, byBatch, "requests", batch("0"), batch("0.5"))
		}).Because("a request here names one Service; the slides' 10 requests for 100 Services can only be one for each half second"),
		verdict.AtLeast("and all nodes have all of it 59 % sooner (slides)", 0.59, func(r *experiments.Result) float64 {
			return saved(r, byBatch, last, batch("0"), batch("0.5"))
		}).Because("API servers are less busy, but not by so much: they still send an event for each Service, a few times"),
		verdict.AtLeast("agents that rewrite all rules among 50,000 Services take this many times as long: p50", 50, func(r *experiments.Result) float64 {
			return r.Cell(byWriter, p50, "all rules", "50000") / r.Cell(byWriter, p50, "what changed", "50000")
		}),
		verdict.So("the first thing to break is the controller's limit of requests (20 a second)", func(r *experiments.Result) bool {
			return first(r, "1000000", "5000", "") == "controller's requests"
		}),
		verdict.So("then, with 5,000 nodes, the API servers' processors, not the agent", func(r *experiments.Result) bool {
			return first(r, "1000000", "5000", "controller's requests") == "API servers' processors"
		}),
	}
}

// first returns the name of the part with the lowest limit, except for one.
func first(r *experiments.Result, services, nodes, but string) (name string) {
	least := math.Inf(1)
	for _, t := range r.Tables {
		if t.Name != limits {
			continue
		}
		for _, row := range t.Rows {
			if row.Keys[0] == services && row.Keys[1] == nodes && row.Keys[2] != but && row.Values[0] < least {
				name, least = row.Keys[2], row.Values[0]
			}
		}
	}
	return name
}
