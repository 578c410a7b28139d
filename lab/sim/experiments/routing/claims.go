package routing

import (
	"math"

	"github.com/fairlead/fairlead/lab/sim/experiments"
	"github.com/fairlead/fairlead/lab/sim/verdict"
)

// over returns the maximum of a column among the rows of one kind of event.
func over(r *experiments.Result, what, column string) float64 {
	most := math.Inf(-1)
	for _, t := range r.Tables {
		if t.Name != byEvent {
			continue
		}
		for _, row := range t.Rows {
			if row.Keys[0] == what {
				most = max(most, r.Cell(byEvent, column, row.Keys...))
			}
		}
	}
	return most
}

// largest returns the maximum number of load balancers, as a key.
func largest(r *experiments.Result) string {
	for i := range r.Tables {
		if t := &r.Tables[i]; t.Name == byEvent {
			return t.Rows[len(t.Rows)-1].Keys[1]
		}
	}
	panic("no table of events")
}

func claims() []experiments.Claim {
	return []experiments.Claim{
		verdict.AtMost("a balancer that stops in order loses no packet: packets, worst", 0, func(r *experiments.Result) float64 { return over(r, Stop, lostWorst) }),
		verdict.AtMost("with BFD of 3 x 300 ms, a silent one is out of all routers' kernels within 1 s: worst, ms", 1000, func(r *experiments.Result) float64 { return over(r, Cut, worst) }),
		verdict.AtMost("one of two reflectors is killed: packets lost, worst", 0, func(r *experiments.Result) float64 { return over(r, ReflectorKill, lostWorst) }),
		verdict.AtMost("one of two reflectors is cut off: packets lost, worst", 0, func(r *experiments.Result) float64 { return over(r, ReflectorCut, lostWorst) }),
		verdict.AtMost("a level of reflectors more delays a stop by no more than: ms", 3, func(r *experiments.Result) float64 {
			return (r.Cell(byEvent, median, Stop, largest(r), "3") - r.Cell(byEvent, median, Stop, largest(r), "1")) / 2
		}),
		verdict.AtMost("a hierarchy spares routers work when a reflector is killed: time at depth 3 over that at depth 1", 0.8, func(r *experiments.Result) float64 {
			return r.Cell(byEvent, median, ReflectorKill, largest(r), "3") / r.Cell(byEvent, median, ReflectorKill, largest(r), "1")
		}).Because("every path comes to the routers by each reflector of the highest level, whatever is below"),
		verdict.AtMost("a balancer that stops in order loses no packet, though a reflector was cut off just before: packets, worst", 0,
			func(r *experiments.Result) float64 { return over(r, StopAfterCut, lostWorst) }).
			Because("routes from the silent reflector stay until its silence is noticed, which takes longer than the withdraw grace period of 0.5 s"),
		verdict.AtMost("nor though one was killed: packets, worst", 0, func(r *experiments.Result) float64 { return over(r, StopAfterKill, lostWorst) }).
			Because("its withdrawal waits in the routers behind those of all paths by that reflector"),
		verdict.AtMost("with an MRAI of 5 s a stop in order loses no packet, either, while others stop and start: packets, worst at depth 2", 0,
			func(r *experiments.Result) float64 { return r.Cell(byInterval, lostWorst, "5", "2") }).
			Because("withdrawals, too, wait for the interval (RFC 4271, section 9.2.1.1)"),
		verdict.AtMost("nor if reflectors advertise all routes to all balancers: packets, worst", 0,
			func(r *experiments.Result) float64 { return r.Cell(byAdvertising, lostWorst, "all", largest(r)) }).
			Because("a change is as much work as there are balancers"),
	}
}
