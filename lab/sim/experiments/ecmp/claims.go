package ecmp

import (
	"math"

	"github.com/fairlead/fairlead/lab/sim/experiments"
	"github.com/fairlead/fairlead/lab/sim/experiments/follow"
	"github.com/fairlead/fairlead/lab/sim/verdict"
)

// most returns the largest number of connections broken by the selected scenarios.
func most(r *experiments.Result, way follow.Way, of func(*scenario) bool) float64 {
	worst := 0.0
	for i := range scenarios {
		if !of(&scenarios[i]) {
			continue
		}
		for _, sc := range scopes {
			for k := range follow.Kinds {
				worst = max(worst, r.Cell(brokenTable, way.String(), scenarios[i].name, sc.name, k.String()))
			}
		}
	}
	return worst
}

func anything(*scenario) bool { return true }

// only selects scenarios that change only load balancers, or only servers.
func only(servers bool) func(*scenario) bool {
	return func(s *scenario) bool {
		for i := range s.changes {
			if servers && s.changes[i].ofBalancers() || !servers && s.changes[i].ofServers() {
				return false
			}
		}
		return true
	}
}

func cell(r *experiments.Result, way follow.Way, k follow.Kind, change string, sc scope) float64 {
	return r.Cell(brokenTable, way.String(), change, sc.name, k.String())
}

func claims() []experiments.Claim {
	return []experiments.Claim{
		verdict.AtMost("second chance: connections broken by any change", 0, func(r *experiments.Result) float64 { return most(r, follow.SecondChance, anything) }),
		verdict.AtMost("a ring alone: broken where only balancers change", 0, func(r *experiments.Result) float64 { return most(r, follow.Maglev, only(false)) }),
		verdict.AtMost("flow table over a ring: broken where only servers, or only balancers change", 0, func(r *experiments.Result) float64 {
			return max(most(r, follow.FlowTable, only(false)), most(r, follow.FlowTable, only(true)))
		}),
		verdict.AtLeast("flow table over a ring: broken where both change, one in each", 1, func(r *experiments.Result) float64 {
			return cell(r, follow.FlowTable, follow.Resilient, "server added, then a balancer removed", scopes[1])
		}),
		verdict.AtLeast("own choice: broken by a balancer that goes, plain groups by resilient ones", 5, func(r *experiments.Result) float64 {
			return cell(r, follow.OwnChoice, follow.Plain, "balancer removed", scopes[1]) / cell(r, follow.OwnChoice, follow.Resilient, "balancer removed", scopes[1])
		}),
		verdict.Between("a ring alone: broken by a server more in each service, by the newcomers' share", 1, 5, func(r *experiments.Result) float64 {
			share := r.Cell(brokenTable, "lost with their server", "server removed", scopes[1].name, follow.Resilient.String())
			return cell(r, follow.Maglev, follow.Resilient, "server added", scopes[1]) / share
		}),
		verdict.AtMost("a resilient group: flows of the fullest balancer, by its share", 1.2, func(r *experiments.Result) float64 {
			return r.Cell(evennessTable, "fullest", "balancers of a resilient group")
		}),
		verdict.AtMost("survival, measured: the model is off by at most, second chance", 0, func(r *experiments.Result) float64 {
			worst := 0.0
			for _, e := range survivalEvents {
				worst = max(worst, r.Cell(survivalName, follow.SecondChance.String(), e.name))
			}
			return worst
		}),
		asMeasured(follow.Maglev, 0.15, "add-server", "drain-server", "all-at-once", "storm"),
		asMeasured(follow.FlowTable, 0.35, "all-at-once", "storm").Because("how far apart the lab's changes took effect is not known"),
	}
}

// asMeasured claims that the model is close to the measurement.
func asMeasured(way follow.Way, off float64, events ...string) experiments.Claim {
	return verdict.AtMost("survival, measured: the model is off by at most, "+way.String(), off, func(r *experiments.Result) float64 {
		worst := 0.0
		for _, e := range events {
			worst = max(worst, math.Abs(r.Cell(survivalName, way.String(), e)/r.Cell(survivalName, way.String()+", measured", e)-1))
		}
		return worst
	})
}
