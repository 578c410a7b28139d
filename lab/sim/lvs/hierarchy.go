package lvs

import (
	"math"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/sim/verdict"
)

// figuresHierarchy returns the figures that compare two levels of load balancers with
// one.
func figuresHierarchy() []Figure { return []Figure{fig27(), fig28(), fig29()} }

// levels returns the curves of the hierarchy and of the flat virtual server.
func levels(of Measure) []Series {
	flat := topology1(fast, service.DSRNAT, 8)
	deep := flat
	deep.Topology = Hierarchy
	return []Series{over("hierarchy", deep, rates1000, of), over("flat", flat, rates1000, of)}
}

func fig27() Figure {
	return Figure{
		Name: "fig27", Title: "Throughput, NAT, 8 servers, hierarchical structure", X: offeredRate, Y: "replies a second", Series: levels(throughput),
		Claims: []Claim{
			verdict.AtLeast("higher: replies by those of the flat one, the least from 90,000 a second on", 1.1, func(c Curves) float64 {
				r := math.Inf(1)
				for _, p := range c[0] {
					if p.X >= 90e3 {
						r = min(r, p.Y/c.at(1, p.X))
					}
				}
				return r
			}),
			verdict.Between("ns-2: 54,200 replies at 90,000 a second, within 3 %", 52.6e3, 55.8e3, func(c Curves) float64 { return c.at(0, 90e3) }),
		},
	}
}

func fig28() Figure {
	return Figure{
		Name: "fig28", Title: "Loss rate on the load balancer, NAT, 8 servers, hierarchical structure", X: offeredRate, Y: perSecond, Series: levels(balancerLoss),
		Claims: []Claim{verdict.AtMost("much smaller: by that of the flat one, at 90,000 a second", 0.6, func(c Curves) float64 { return c.at(0, 90e3) / c.at(1, 90e3) })},
	}
}

func fig29() Figure {
	return Figure{
		Name: "fig29", Title: "Loss rate on the real servers, NAT, 8 servers, hierarchical structure", X: offeredRate, Y: perSecond, Series: levels(serverLoss),
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
			more("higher, at 90,000 a second", 0, 1, 90e3).Because("so it is in ns-2: below 120,000 a second the hierarchy's servers lose less"),
		},
	}
}
