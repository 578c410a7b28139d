package lvs

import (
	"math"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/sim/verdict"
)

// figuresHierarchy returns the figures that compare two levels of load balancers with
// one.
func figuresHierarchy() []Figure {
	return []Figure{fig27(), fig27Direct(), fig28(), fig29("fig29", stated), fig29("fig29-queues", unset)}
}

// levels returns the curves of the hierarchy and of the flat virtual server.
func levels(queue int, of Measure) []Series {
	flat := topology1(fast, service.DSRNAT, 8)
	flat.Queue = queue
	deep := flat
	deep.Topology = Hierarchy
	return []Series{over("hierarchy", deep, rates1000, of), over("flat", flat, rates1000, of)}
}

// fig21 explains the topology of Figs. 27 to 29.
const fig21 = "the paper refers to Fig. 21 for the parameters, but its text has replies go up through the tree, and only without lines of their own does the hierarchy gain anything: see fig27-direct"

// atLeastBy returns the smallest ratio of the first curve to the second, from 90,000
// requests per second on.
func atLeastBy(c Curves) float64 {
	r := math.Inf(1)
	for _, p := range c[0] {
		if p.X >= 90e3 {
			r = min(r, p.Y/c.at(1, p.X))
		}
	}
	return r
}

// fig27Direct is Fig. 27 with the lines of Fig. 21 from servers to clients.
func fig27Direct() Figure {
	flat := topology2(service.DSRNAT)
	flat.Servers = 8
	deep := flat
	deep.Topology = HierarchyDirect
	return Figure{
		Name: "fig27-direct", Title: "Fig. 27 with the topology of Fig. 21", X: offeredRate, Y: "replies a second",
		Series: []Series{over("hierarchy", deep, rates1000, throughput), over("flat", flat, rates1000, throughput)},
		Claims: []Claim{verdict.AtLeast("higher: replies by those of the flat one, the least from 90,000 a second on", 1.1, atLeastBy).
			Because("with replies on lines of their own only the first load balancer sends on its LAN: nothing collides there, and no LAN is a bottleneck that a second one could relieve")},
	}
}

func fig27() Figure {
	return Figure{
		Name: "fig27", Title: "Throughput, NAT, 8 servers, hierarchical structure", X: offeredRate, Y: "replies a second", Series: levels(stated, throughput), Remarks: []string{fig21, halfMillisecond},
		Claims: []Claim{
			verdict.AtLeast("higher: replies by those of the flat one, the least from 90,000 a second on", 1.1, atLeastBy),
			verdict.Between("ns-2: 54,200 replies at 90,000 a second, within 3 %", 52.6e3, 55.8e3, func(c Curves) float64 { return c.at(0, 90e3) }),
		},
	}
}

func fig28() Figure {
	return Figure{
		Name: "fig28", Title: "Loss rate on the load balancer, NAT, 8 servers, hierarchical structure", X: offeredRate, Y: perSecond, Series: levels(stated, balancerLoss), Remarks: []string{fig21, halfMillisecond},
		Claims: []Claim{verdict.AtMost("much smaller: by that of the flat one, at 90,000 a second", 0.6, func(c Curves) float64 { return c.at(0, 90e3) / c.at(1, 90e3) })},
	}
}

// fig29 is Fig. 29, or the same with other queues.
func fig29(name string, queue int) Figure {
	f := Figure{
		Name: name, Title: "Loss rate on the real servers, NAT, 8 servers, hierarchical structure", X: offeredRate, Y: perSecond,
		Series: levels(queue, serverLoss), Remarks: []string{fig21, halfMillisecond},
		Claims: []Claim{
			verdict.AtMost("the difference is small: the largest from 90,000 a second on, by the rate", 0.01, func(c Curves) float64 {
				most := 0.0
				for _, p := range c[0] {
					if p.X >= 90e3 {
						most = max(most, math.Abs(p.Y-c.at(1, p.X))/p.X)
					}
				}
				return most
			}),
			more("higher, at 120,000 a second", 0, 1, 120e3),
			more("higher, at 90,000 a second", 0, 1, 90e3).Because("so it is in ns-2: below 120,000 a second the hierarchy's servers lose less; not so with queues of 50, see fig29-queues"),
		},
	}
	if queue != stated {
		f.Title = "Variant of Fig. 29: queues of 50 packets"
		f.Remarks = []string{"the paper says that queues hold 100 packets; with those of its TUN and DR runs (text-first-loss) the hierarchy's servers lose more, as it says. No number of the text shows which the figure has"}
	}
	return f
}
