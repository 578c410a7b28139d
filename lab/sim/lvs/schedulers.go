package lvs

import (
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/sim/verdict"
)

// figuresSchedulers returns the figures that compare schedulers over time.
func figuresSchedulers() []Figure {
	return []Figure{
		fig23(), fig24(), fig25(), fig25Finite(), fig42(), fig43(),
		fig44("fig44", slow), fig44("fig44-1000m", fast), fig45("fig45", slow), fig45("fig45-1000m", fast),
	}
}

const second = "seconds"

// weighted is the setup of Figs. 23, 42 and 43.
func weighted(s service.Scheduler) Setup {
	return Setup{Topology: Shared, LAN: Mega1000, Method: service.DSRNAT, Scheduler: s, Servers: 2, Clients: 100, Every: 0.001,
		Uneven: true, PerPacket: true, Seconds: 5}
}

// least is the setup of Figs. 25, 44 and 45. A connection ends a nanosecond before the
// millisecond, so that a request exactly at the millisecond belongs to a new one and
// rounding does not matter.
func least(s service.Scheduler) Setup {
	return Setup{Topology: Shared, LAN: Mega100, Method: service.DSRNAT, Scheduler: s, Servers: 2, Clients: 1, Queue: stated, Every: 0.001,
		Load: Odd, PerPacket: true, Timeout: 0.001 - 1e-9, Seconds: 10}
}

// onFast is the same with a LAN of 1000 Mbit/s, as the captions say.
func onFast(s service.Scheduler) Setup {
	setup := least(s)
	setup.LAN = Mega1000
	return setup
}

var schedulerNames = map[service.Scheduler]string{
	service.RoundRobin: "RR", service.WeightedRoundRobin: "WRR", service.LeastConn: "LC", service.WeightedLeastConn: "WLC",
}

// compare returns the curves of two schedulers, and of each server if there are several
// measures.
func compare(of func(service.Scheduler) Setup, schedulers []service.Scheduler, measures ...Measure) (all []Series) {
	for _, s := range schedulers {
		name := schedulerNames[s]
		for i, m := range measures {
			label := name
			if len(measures) > 1 {
				label += []string{", server 1", ", server 2"}[i]
			}
			all = append(all, overTime(label, of(s), m))
		}
	}
	return all
}

var (
	rrAndWRR = []service.Scheduler{service.RoundRobin, service.WeightedRoundRobin}
	rrAndLC  = []service.Scheduler{service.RoundRobin, service.LeastConn}
)

// leastRatio is the minimum ratio of one curve to another, over all points.
func leastRatio(c Curves, a, b int) float64 {
	r := c[a][0].Y / c[b][0].Y
	for i := range c[a] {
		r = min(r, c[a][i].Y/c[b][i].Y)
	}
	return r
}

// share is a curve's share of the sum of it and the next one, over the whole time.
func share(c Curves, i int) float64 {
	a, b := total(c.where(i, 0, 1e9)), total(c.where(i+1, 0, 1e9))
	return a / (a + b)
}

func fig23() Figure {
	return Figure{
		Name: "fig23", Title: "Throughput, RR and WRR, 1000M LAN", X: second, Y: "replies a second",
		Series: compare(weighted, rrAndWRR, throughput),
		Claims: []Claim{
			verdict.AtLeast("WRR is much better at all times: least WRR by RR of all seconds", 1.05, func(c Curves) float64 { return leastRatio(c, 1, 0) }),
			verdict.Between("ns-2: WRR has 75,000 to 77,000 replies a second", 75e3, 77e3, func(c Curves) float64 { return mean(c.where(1, 0, 1e9)) }),
			verdict.Between("ns-2: RR has 70,000 to 72,000", 70e3, 72e3, func(c Curves) float64 { return mean(c.where(0, 0, 1e9)) }),
		},
	}
}

// fig24 has what the text says of Fig. 24, on the LAN of its caption.
func fig24() Figure {
	return Figure{
		Name: "fig24", Title: "Throughput, RR and LC, 1000M LAN", X: second, Y: "replies a second", Series: compare(onFast, rrAndLC, throughput),
		Remarks: []string{"the caption repeats that of Fig. 23, RR and WRR, 1000M; the text introduces the figure with LC's advantage over RR, and then describes the load of Fig. 25"},
		Claims: []Claim{verdict.AtLeast("LC is superior to RR: least LC by RR of all seconds", 1.005, func(c Curves) float64 { return leastRatio(c, 1, 0) }).
			Because(lineFull)},
	}
}

// lineFull explains why LC gains nothing in Figs. 24 and 25.
const lineFull = "the client's line carries 2,500 packets a second and is full with both: none can be better. A server that one of them overloads would be needed: see fig25-finite"

func fig25() Figure {
	all := compare(least, rrAndLC, throughput)
	for _, c := range compare(least, rrAndLC, sentBy(0), sentBy(1)) {
		c.Name += ", sent"
		all = append(all, c.aside())
	}
	return Figure{
		Name: "fig25", Title: "Throughput, RR and LC, 100M LAN", X: second, Y: "replies a second", Series: all,
		Claims: []Claim{
			verdict.AtLeast("LC is better at all times: least LC by RR of all seconds", 1.005, func(c Curves) float64 { return leastRatio(c, 1, 0) }).Because(lineFull),
			verdict.Between("ns-2: RR fills the client's line, 2,500 replies a second within 1 %", 2475, 2525, func(c Curves) float64 { return mean(c.where(0, 0, 1e9)) }),
			verdict.Between("ns-2: LC does, too", 2475, 2525, func(c Curves) float64 { return mean(c.where(1, 0, 1e9)) }),
			verdict.Between("RR gives all requests for three replies to one server, which sends 3 of 4 replies", 0.745, 0.755,
				func(c Curves) float64 { return max(share(c, 2), 1-share(c, 2)) }),
			verdict.AtMost("LC does not: larger part of the replies that one server sends", 0.74, func(c Curves) float64 { return max(share(c, 4), 1-share(c, 4)) }),
		},
	}
}

// serving is the capacity of a server in the variant of Fig. 25: less than the 2,000
// replies per second that RR assigns to one of them, but more than half of the total.
const serving = 1500

// fig25Finite is Fig. 25 with servers that take time for each reply, and a line to the
// client that is fast enough for all of them.
func fig25Finite() Figure {
	finite := func(s service.Scheduler) Setup {
		setup := least(s)
		setup.Serving = serving
		return setup
	}
	all := compare(finite, rrAndLC, throughput)
	for _, c := range compare(finite, rrAndLC, sentBy(0), sentBy(1)) {
		c.Name += ", sent"
		all = append(all, c.aside())
	}
	return Figure{
		Name: "fig25-finite", Title: "Variant of Fig. 25: servers of 1,500 replies a second, RR and LC", X: second, Y: "replies a second", Series: all,
		Remarks: []string{"ours, not the paper's: servers that take time, and a line of 100 Mb/s to the client, show whether LC can be better at all"},
		Claims: []Claim{
			verdict.AtLeast("LC is better at all times: least LC by RR of all seconds", 1.005, func(c Curves) float64 { return leastRatio(c, 1, 0) }),
			verdict.Between("RR overloads a server, which sends 1,500 replies a second, within 1 %", 0.99*serving, 1.01*serving,
				func(c Curves) float64 { return max(mean(c.where(2, 2, 1e9)), mean(c.where(3, 2, 1e9))) }),
		},
	}
}

func fig42() Figure {
	return Figure{
		Name: "fig42", Title: "Receiving rate on the real servers, RR and WRR, 1000M LAN", X: second, Y: perSecond,
		Series: compare(weighted, rrAndWRR, receivedBy(0), receivedBy(1)),
		Claims: []Claim{
			verdict.Between("RR splits equally: server 1's part", 0.49, 0.51, func(c Curves) float64 { return share(c, 0) }),
			verdict.Between("WRR splits by weight: server 1's part", 0.24, 0.26, func(c Curves) float64 { return share(c, 2) }),
		},
	}
}

func fig43() Figure {
	return Figure{
		Name: "fig43", Title: "Loss rate on the real servers, RR and WRR, 1000M LAN", X: second, Y: perSecond,
		Series: compare(weighted, rrAndWRR, lostBy(0), lostBy(1)),
		Claims: []Claim{verdict.AtLeast("under RR server 1 loses much more than server 2: so many times as much", 5, func(c Curves) float64 {
			return total(c.where(0, 0, 1e9)) / total(c.where(1, 0, 1e9))
		})},
	}
}

const captions = "the paper's captions of Figs. 44 and 45 say 1000M, its text 100M: both are run"

// megabits returns the setups on a LAN of this rate, and its name.
func megabits(mega int) (of func(service.Scheduler) Setup, name string) {
	if mega == fast {
		return onFast, "1000M"
	}
	return least, "100M"
}

func fig44(name string, mega int) Figure {
	of, lan := megabits(mega)
	return Figure{
		Name: name, Title: "Receiving rate on the real servers, RR and LC, " + lan + " LAN", X: second, Y: perSecond,
		Series:  compare(of, rrAndLC, receivedBy(0), receivedBy(1)),
		Remarks: []string{captions},
		Claims: []Claim{
			verdict.Between("RR splits the requests equally", 0.49, 0.51, func(c Curves) float64 { return share(c, 0) }),
			verdict.Between("ns-2: LC splits them 68 to 32", 0.66, 0.70, func(c Curves) float64 { return max(share(c, 2), 1-share(c, 2)) }),
		},
	}
}

func fig45(name string, mega int) Figure {
	of, lan := megabits(mega)
	return Figure{
		Name: name, Title: "Loss rate on the real servers, RR and LC, " + lan + " LAN", X: second, Y: perSecond,
		Series:  compare(of, rrAndLC, lostBy(0), lostBy(1)),
		Remarks: []string{captions},
		Claims: []Claim{verdict.AtMost("ns-2: no server loses a packet", 0, func(c Curves) float64 {
			all := 0.0
			for i := range c {
				all += total(c.where(i, 0, 1e9))
			}
			return all
		})},
	}
}
