package lvs

import (
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/sim/verdict"
)

const (
	offeredRate = "requests a second, offered"
	perSecond   = "packets a second"
	above       = 22e3 // requests per second; the rate at which the paper's curves turn
	most        = 40e3
)

// figures100 returns the figures with a LAN of 100 Mbit/s.
func figures100() []Figure {
	return []Figure{fig8(), fig9(), fig10(), fig11(), fig12(), fig13(), fig14(),
		fig15(), fig16(), fig30(), fig31(), fig32(), fig33()}
}

func fig8() Figure {
	return Figure{
		Name: "fig8", Title: "Throughput, topology 1, 100M LAN, 1 server", X: offeredRate, Y: "replies a second",
		Series: methods(slow, rates100, throughput), Remarks: []string{sameTiming},
		Claims: []Claim{
			verdict.Between("the peak is at 9,000 requests a second, within 10 %", 8100, 9900, func(c Curves) float64 { return peak(c[0]).X }),
			verdict.Between("replies a second at the peak", 8200, 8900, func(c Curves) float64 { return peak(c[0]).Y }),
			verdict.Between("beyond 22,000 a second there are about 5,000 replies (NAT)", 4300, 5200, func(c Curves) float64 { return mean(c.where(0, above, most)) }),
			verdict.AtMost("the curve is steady there: standard deviation by mean (NAT)", 0.05, func(c Curves) float64 { return variation(c.where(0, above, most)) }),
			verdict.Between("TUN has about 4,000 replies there, NAT 5,000: TUN by NAT", 0.75, 0.85, func(c Curves) float64 {
				return mean(c.where(1, above, most)) / mean(c.where(0, above, most))
			}).Over(20).Because(byChance),
			verdict.Unknowable[Curves]("DR has about 4,000 replies there, NAT 5,000", byChance),
		},
	}
}

func fig9() Figure {
	return Figure{
		Name: "fig9", Title: "Loss rate on the load balancer, topology 1, 100M LAN, 1 server", X: offeredRate, Y: perSecond,
		Series: methods(slow, rates100, balancerLoss), Remarks: []string{sameTiming},
		Claims: []Claim{
			verdict.AtMost("no loss up to 6,000 a second", 0, func(c Curves) float64 { return total(c.where(0, 0, 6e3)) + total(c.where(1, 0, 6e3)) }),
			verdict.Between("about 5,000 are lost at 22,000 a second", 4600, 6200, func(c Curves) float64 { return c.at(0, above) }),
			verdict.Between("beyond that every further packet is lost: slope from 24,000 on", 0.95, 1.05, func(c Curves) float64 {
				return (c.at(0, most) - c.at(0, 24e3)) / (most - 24e3)
			}),
			verdict.Observed("DR loses more than TUN, and TUN more than NAT, below 22,000: TUN by NAT at 20,000", byChance,
				func(c Curves) float64 { return c.at(1, 20e3) / c.at(0, 20e3) }),
		},
	}
}

func fig10() Figure {
	return Figure{
		Name: "fig10", Title: "Receiving rate on the real server, topology 1, 100M LAN, 1 server", X: offeredRate, Y: perSecond,
		Series: methods(slow, rates100, receiving), Remarks: []string{sameTiming},
		Claims: []Claim{
			verdict.AtMost("flat beyond 22,000 a second: farthest point from the mean", 0.03, func(c Curves) float64 { return off(c.where(0, above, most)) }),
			verdict.Between("packets a second there", 16e3, 17.2e3, func(c Curves) float64 { return mean(c.where(0, above, most)) }),
		},
	}
}

func fig11() Figure {
	return Figure{
		Name: "fig11", Title: "Loss rate on the real server, topology 1, 100M LAN, 1 server", X: offeredRate, Y: perSecond,
		Series: methods(slow, rates100, serverLoss), Remarks: []string{sameTiming},
		Claims: []Claim{
			verdict.Between("rises steeply: packets lost a second beyond 22,000", 10.3e3, 12.6e3, func(c Curves) float64 { return mean(c.where(0, above, most)) }),
			verdict.AtMost("flat there: standard deviation by mean", 0.03, func(c Curves) float64 { return variation(c.where(0, above, most)) }),
		},
	}
}

// more claims that one curve is higher than another at a rate.
func more(says string, a, b int, x float64) Claim {
	return verdict.AtLeast(says, 1.000001, func(c Curves) float64 { return c.at(a, x) / c.at(b, x) })
}

func fig12() Figure {
	return Figure{
		Name: "fig12", Title: "Throughput, modified NAT, topology 1, 100M LAN", X: offeredRate, Y: "replies a second",
		Series: farms(slow, service.DSRNAT, throughput),
		Claims: []Claim{
			more("4 servers have more replies than 8, at 16,000 a second", four, eight, 16e3).Over(5),
			more("8 servers have more than 12", eight, twelve, 16e3).Over(5),
			more("12 servers have more than 1", twelve, one, 16e3).Over(5),
			verdict.Between("12 servers have about 8,500 replies at 30,000 a second", 8160, 8840, func(c Curves) float64 { return c.at(twelve, 30e3) }),
		},
	}
}

func fig13() Figure {
	return Figure{
		Name: "fig13", Title: "Loss rate on the load balancer, modified NAT, topology 1, 100M LAN", X: offeredRate, Y: perSecond,
		Series: farms(slow, service.DSRNAT, balancerLoss),
		Claims: []Claim{
			verdict.Between("12 servers: about 21,100 are lost at 30,000 a second", 20678, 21522, func(c Curves) float64 { return c.at(twelve, 30e3) }),
			verdict.So("more servers, more loss, from 4 to 12, at 30,000 a second", func(c Curves) bool {
				return c.at(four, 30e3) < c.at(eight, 30e3) && c.at(eight, 30e3) < c.at(twelve, 30e3)
			}),
		},
	}
}

func fig14() Figure {
	return Figure{
		Name: "fig14", Title: "Loss rate on the real servers, modified NAT, topology 1, 100M LAN", X: offeredRate, Y: perSecond,
		Series: farms(slow, service.DSRNAT, serverLoss),
		Claims: []Claim{
			verdict.Between("12 servers: about 160 are lost at 30,000 a second", 110, 210, func(c Curves) float64 { return c.at(twelve, 30e3) }),
			verdict.So("falls sharply with more servers, from 1 to 8, at 30,000 a second", func(c Curves) bool {
				return c.at(one, 30e3) > 2*c.at(four, 30e3) && c.at(four, 30e3) > 2*c.at(eight, 30e3)
			}),
		},
	}
}

// eightOver12 returns the claims of Figs. 15 and 16.
func eightOver12() []Claim {
	return []Claim{
		verdict.AtMost("12 servers have fewer replies than 8, by more than 3 %, at 30,000 a second", 0.97, func(c Curves) float64 {
			return c.at(twelve, 30e3) / c.at(eight, 30e3)
		}),
		verdict.Between("8 servers have about as many as 4: within 3 %, from 16,000 a second on", 0.97, 1.03, func(c Curves) float64 {
			return mean(c.where(eight, 16e3, 30e3)) / mean(c.where(four, 16e3, 30e3))
		}),
		more("8 servers have the most, more than 4 at 16,000 a second", eight, four, 16e3).Over(5).
			Because("4 servers have some 4 % more with every method, as Fig. 12 says of NAT: agents that take no time make no difference"),
	}
}

func fig15() Figure {
	return Figure{
		Name: "fig15", Title: "Throughput, IP tunneling, topology 1, 100M LAN", X: offeredRate, Y: "replies a second",
		Series: farms(slow, service.Tunnel, throughput), Claims: eightOver12(),
	}
}

func fig16() Figure {
	return Figure{
		Name: "fig16", Title: "Throughput, direct routing, topology 1, 100M LAN", X: offeredRate, Y: "replies a second",
		Series: farms(slow, service.DSRNAT, throughput), Claims: eightOver12(), Remarks: []string{sameTiming},
	}
}

// tunneled is a figure of the appendix: one of the NAT figures, with tunnels.
func tunneled(name, title string, mega int, y string, of Measure) Figure {
	curves, claim := asNAT(mega, of)
	return Figure{Name: name, Title: title, X: offeredRate, Y: y, Series: curves, Claims: []Claim{claim}}
}

// routed is a figure of the appendix: one of the NAT figures, with direct routing.
func routed(name, title string, mega int, y string, of Measure) Figure {
	return Figure{
		Name: name, Title: title, X: offeredRate, Y: y, Series: farms(mega, service.DSRNAT, of),
		Claims: []Claim{verdict.ByModel[Curves]("almost the same as with NAT", sameTiming)},
	}
}

func fig30() Figure {
	return tunneled("fig30", "Loss rate on the load balancer, IP tunneling, topology 1, 100M LAN", slow, perSecond, balancerLoss)
}

func fig31() Figure {
	return tunneled("fig31", "Loss rate on the real servers, IP tunneling, topology 1, 100M LAN", slow, perSecond, serverLoss)
}

func fig32() Figure {
	return routed("fig32", "Loss rate on the load balancer, direct routing, topology 1, 100M LAN", slow, perSecond, balancerLoss)
}

func fig33() Figure {
	return routed("fig33", "Loss rate on the real servers, direct routing, topology 1, 100M LAN", slow, perSecond, serverLoss)
}
