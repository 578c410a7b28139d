package lvs

import (
	"math"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/sim/verdict"
)

// figures1000 returns the figures of topology 1 with a LAN of 1000 Mbit/s, and of
// topology 2.
func figures1000() []Figure {
	return []Figure{
		fig17(), fig18(), fig19(), fig20(), fig22(), fig34(), fig35(),
		tunneled("fig36", "Throughput, IP tunneling, topology 1, 1000M LAN", fast, "replies a second", throughput),
		tunneled("fig37", "Loss rate on the load balancer, IP tunneling, topology 1, 1000M LAN", fast, perSecond, balancerLoss),
		tunneled("fig38", "Loss rate on the real servers, IP tunneling, topology 1, 1000M LAN", fast, perSecond, serverLoss),
		routed("fig39", "Loss rate on the load balancer, direct routing, topology 1, 1000M LAN", fast, perSecond, balancerLoss),
		routed("fig40", "Loss rate on the real servers, direct routing, topology 1, 1000M LAN", fast, perSecond, serverLoss),
		fig41(),
	}
}

func fig17() Figure {
	slower := over("NAT, DR, 100M LAN", topology1(slow, service.DSRNAT, 1), []int{10e3, 20e3, 30e3, 40e3}, throughput)
	return Figure{
		Name: "fig17", Title: "Throughput, topology 1, 1000M LAN, 1 server", X: offeredRate, Y: "replies a second",
		Series: append(methods(fast, rates1000, throughput), slower), Remarks: []string{sameTiming},
		Claims: []Claim{
			verdict.AtLeast("far above that of a 100M LAN: at 30,000 a second it is so many times as high", 2, func(c Curves) float64 { return c.at(0, 30e3) / c.at(2, 30e3) }),
			verdict.Between("replies at 70,000 a second", 56e3, 58e3, func(c Curves) float64 { return c.at(0, 70e3) }),
			verdict.Between("replies a second from 90,000 on", 69e3, 75e3, func(c Curves) float64 { return mean(c.where(0, 90e3, 120e3)) }),
			verdict.AtMost("does not increase beyond 30,000 a second: replies at 90,000 by those at 30,000", 1.05, func(c Curves) float64 {
				return c.at(0, 90e3) / c.at(0, 30e3)
			}).Because("all of 30,000 a second are answered; the curve turns at 90,000, of which 30,000 may be a misprint"),
		},
	}
}

// severe returns the claims of Figs. 18 and 19.
func severe() []Claim {
	return []Claim{
		verdict.AtMost("packets lost a second up to 50,000 a second", 0, func(c Curves) float64 { return total(c.where(0, 0, 50e3)) }),
		verdict.AtLeast("still severe: packets lost at 90,000 a second", 2000, func(c Curves) float64 { return c.at(0, 90e3) }),
	}
}

func fig18() Figure {
	return Figure{
		Name: "fig18", Title: "Loss rate on the load balancer, topology 1, 1000M LAN, 1 server", X: offeredRate, Y: perSecond,
		Series: methods(fast, rates1000, balancerLoss), Claims: severe(), Remarks: []string{sameTiming},
	}
}

func fig19() Figure {
	return Figure{
		Name: "fig19", Title: "Loss rate on the real server, topology 1, 1000M LAN, 1 server", X: offeredRate, Y: perSecond,
		Series: methods(fast, rates1000, serverLoss), Claims: severe(), Remarks: []string{sameTiming},
	}
}

func fig20() Figure {
	f := Figure{
		Name: "fig20", Title: "Throughput, modified NAT, topology 1, 1000M LAN", X: offeredRate, Y: "replies a second",
		Series: farms(fast, service.DSRNAT, throughput),
		Claims: []Claim{verdict.So("more servers, fewer replies, at 90,000 a second", func(c Curves) bool {
			return c.at(one, 90e3) > c.at(four, 90e3) && c.at(four, 90e3) > c.at(eight, 90e3) && c.at(eight, 90e3) > c.at(twelve, 90e3)
		})},
	}
	for i, ns2 := range []float64{73.4e3, 57.1e3, 45.5e3, 39.6e3} {
		f.Claims = append(f.Claims, verdict.Between(f.Series[i].Name+": as in ns-2, within 3 %, at 90,000 a second", 0.97*ns2, 1.03*ns2,
			func(c Curves) float64 { return c.at(i, 90e3) }))
	}
	return f
}

// burst is the throughput of topology 2 with 1,000 bursts per second, each from all
// clients: a full queue and the frame being sent.
const burst = 100e3

// topology2 is the paper's second topology.
func topology2(m service.Method) Setup {
	return Setup{Topology: Direct, LAN: Mega1000, Method: m, Scheduler: service.RoundRobin, Servers: 1, Every: 0.001, Seconds: 2}
}

func fig22() Figure {
	nat, shared := topology2(service.DSRNAT), topology1(fast, service.DSRNAT, 1)
	return Figure{
		Name: "fig22", Title: "Throughput, topology 2, 1000M LAN, 1 server", X: offeredRate, Y: "replies a second",
		Series: []Series{
			over(natAndDR, nat, rates1000, throughput), over(tunnel, topology2(service.Tunnel), rates1000, throughput),
			over("topology 1, NAT, DR", shared, rates1000, throughput),
			over("lost on the server", nat, rates1000, serverLoss).aside(),
			over("undetected", nat, rates1000, undetected).aside(),
		},
		Remarks: []string{sameTiming},
		Claims: []Claim{
			verdict.AtLeast("an upper bound: least of replies less those of topology 1, of all rates", 0, func(c Curves) float64 {
				least := math.Inf(1)
				for _, p := range c[0] {
					least = min(least, p.Y-c.at(2, p.X))
				}
				return least
			}),
			verdict.AtMost("packets lost on the server", 0, func(c Curves) float64 { return total(c.where(3, 0, 1e9)) }),
			verdict.AtMost("packets lost by collision", 0, func(c Curves) float64 { return total(c.where(4, 0, 1e9)) }),
			verdict.Between("ns-2: 100 of a burst pass, 100,000 a second (within 1 %)", 0.99*burst, 1.01*burst, func(c Curves) float64 { return c.at(0, 120e3) }),
			verdict.Observed("NAT has a higher throughput than TUN and DR: TUN by NAT, at 120,000 a second", byChance,
				func(c Curves) float64 { return c.at(1, 120e3) / c.at(0, 120e3) }),
		},
	}
}

func fig41() Figure {
	return Figure{
		Name: "fig41", Title: "Loss rate on the load balancer, topology 2, 1000M LAN, 1 server", X: offeredRate, Y: perSecond,
		Series: []Series{
			over(natAndDR, topology2(service.DSRNAT), rates1000, balancerLoss),
			over(tunnel, topology2(service.Tunnel), rates1000, balancerLoss),
		},
		Remarks: []string{sameTiming},
		Claims: []Claim{
			verdict.AtMost("no loss up to 100,000 a second", 0, func(c Curves) float64 { return total(c.where(0, 0, burst)) }),
			verdict.Between("all beyond is lost: 20,000 at 120,000 a second, within 1 %", 19.8e3, 20.2e3, func(c Curves) float64 { return c.at(0, 120e3) }),
		},
	}
}

func fig34() Figure {
	return Figure{
		Name: "fig34", Title: "Loss rate on the load balancer, modified NAT, topology 1, 1000M LAN", X: offeredRate, Y: perSecond,
		Series: farms(fast, service.DSRNAT, balancerLoss),
		Claims: []Claim{verdict.So("more servers, more loss, at 90,000 a second", func(c Curves) bool {
			return c.at(one, 90e3) < c.at(four, 90e3) && c.at(four, 90e3) < c.at(eight, 90e3) && c.at(eight, 90e3) < c.at(twelve, 90e3)
		})},
	}
}

func fig35() Figure {
	return Figure{
		Name: "fig35", Title: "Loss rate on the real servers, modified NAT, topology 1, 1000M LAN", X: offeredRate, Y: perSecond,
		Series: farms(fast, service.DSRNAT, serverLoss),
		Claims: []Claim{more("12 servers lose more than 4, at 90,000 a second", twelve, four, 90e3)},
	}
}
