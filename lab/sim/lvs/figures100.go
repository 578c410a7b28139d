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
	return []Figure{
		textRoundTrip(), textFirstLoss(), text200Servers(), fig8(), fig8Queues(), fig9(), fig10(), fig11(), fig12(),
		fig13("fig13", modified, service.DSRNAT), fig14("fig14", modified, service.DSRNAT),
		fig15("fig15", tunneling, service.Tunnel), fig15("fig16", routing, service.DR),
		fig13("fig30", tunneling, service.Tunnel), fig14("fig31", tunneling, service.Tunnel),
		fig13("fig32", routing, service.DR), fig14("fig33", routing, service.DR),
	}
}

// beyond is the mean of a curve from 22,000 requests per second on.
func beyond(curve int) func(Curves) float64 {
	return func(c Curves) float64 { return mean(c.where(curve, above, most)) }
}

// below is the sum of a curve from 10,000 to 20,000 requests per second, where all
// methods lose packets.
func below(c Curves, curve int) float64 { return total(c.where(curve, 10e3, above-1)) }

func fig8() Figure {
	f := Figure{
		Name: "fig8", Title: "Throughput, topology 1, 100M LAN, 1 server", X: offeredRate, Y: "replies a second",
		Series: methods(oneServer(slow), rates100, throughput), Remarks: []string{queues50},
		Claims: []Claim{
			verdict.Between("replies a second at the peak (NAT)", 8200, 8900, func(c Curves) float64 { return peak(c[nat]).Y }),
			verdict.Between("beyond 22,000 a second there are about 5,000 replies (NAT)", 4300, 5200, beyond(nat)),
			verdict.Between("about 4,000 with TUN", 3600, 4400, beyond(tun)),
			verdict.Between("about 4,000 with DR", 3600, 4400, beyond(dr)),
		},
	}
	for i, name := range methodNames {
		f.Claims = append(f.Claims,
			verdict.Between("the peak is at 9,000 requests a second, within 10 % ("+name+")", 8100, 9900, func(c Curves) float64 { return peak(c[i]).X }),
			verdict.AtMost("beyond 22,000 the curve is steady: standard deviation by mean ("+name+")", 0.05, func(c Curves) float64 { return variation(c.where(i, above, most)) }))
	}
	return f
}

// fig8Queues is Fig. 8 with the queues of the paper's text for all methods.
func fig8Queues() Figure {
	equal := func(m service.Method) Setup {
		s := topology1(slow, m, 1)
		s.Queue = stated
		return s
	}
	by := func(curve int) func(Curves) float64 {
		return func(c Curves) float64 { return total(c.where(curve, 0, most)) / total(c.where(nat, 0, most)) }
	}
	return Figure{
		Name: "fig8-queues", Title: "Variant of Fig. 8: queues of 100 packets with every method", X: offeredRate, Y: "replies a second",
		Series:  methods(equal, rates100, throughput),
		Remarks: []string{"ours, not the paper's: queues of 100 packets, as in the paper's text, show that the methods themselves hardly differ"},
		Claims: []Claim{
			verdict.Between("DR is as fast as NAT: all replies, DR by NAT", 1, 1, by(dr)),
			verdict.Between("TUN is nearly as fast, but for its 20 bytes: all replies, TUN by NAT", 0.94, 1, by(tun)),
		},
	}
}

func fig9() Figure {
	return Figure{
		Name: "fig9", Title: "Loss rate on the load balancer, topology 1, 100M LAN, 1 server", X: offeredRate, Y: perSecond,
		Series: methods(oneServer(slow), rates100, balancerLoss), Remarks: []string{queues50},
		Claims: []Claim{
			verdict.AtMost("no loss up to 6,000 a second", 0, func(c Curves) float64 {
				return total(c.where(nat, 0, 6e3)) + total(c.where(tun, 0, 6e3)) + total(c.where(dr, 0, 6e3))
			}),
			verdict.Between("about 5,000 are lost at 22,000 a second (NAT)", 4600, 6200, func(c Curves) float64 { return c.at(nat, above) }),
			verdict.Between("beyond that every further packet is lost: slope from 24,000 on (NAT)", 0.95, 1.05, func(c Curves) float64 {
				return (c.at(nat, most) - c.at(nat, 24e3)) / (most - 24e3)
			}),
			verdict.AtLeast("TUN loses more than NAT below 22,000: TUN by NAT, from 10,000 on", 1.000001, func(c Curves) float64 { return below(c, tun) / below(c, nat) }),
			verdict.AtLeast("DR loses more than TUN there: DR by TUN", 1.000001, func(c Curves) float64 { return below(c, dr) / below(c, tun) }).Over(20),
		},
	}
}

func fig10() Figure {
	return Figure{
		Name: "fig10", Title: "Receiving rate on the real server, topology 1, 100M LAN, 1 server", X: offeredRate, Y: perSecond,
		Series: methods(oneServer(slow), rates100, receiving), Remarks: []string{queues50},
		Claims: []Claim{
			verdict.AtMost("flat beyond 22,000 a second: farthest point from the mean (NAT)", 0.03, func(c Curves) float64 { return off(c.where(nat, above, most)) }),
			verdict.Between("packets a second there (NAT)", 16e3, 17.2e3, beyond(nat)),
		},
	}
}

func fig11() Figure {
	return Figure{
		Name: "fig11", Title: "Loss rate on the real server, topology 1, 100M LAN, 1 server", X: offeredRate, Y: perSecond,
		Series: methods(oneServer(slow), rates100, serverLoss), Remarks: []string{queues50},
		Claims: []Claim{
			verdict.Between("rises steeply: packets lost a second beyond 22,000 (NAT)", 10.3e3, 12.6e3, beyond(nat)),
			verdict.AtMost("flat there: standard deviation by mean (NAT)", 0.03, func(c Curves) float64 { return variation(c.where(nat, above, most)) }),
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

// fig13 is Fig. 13, or the same with another method, for which the paper has no number.
func fig13(name, method string, m service.Method) Figure {
	f := Figure{
		Name: name, Title: "Loss rate on the load balancer, " + method + ", topology 1, 100M LAN", X: offeredRate, Y: perSecond,
		Series: farms(slow, m, balancerLoss), Remarks: remarks100(m),
		Claims: []Claim{verdict.So("more servers, more loss, from 4 to 12, at 30,000 a second", func(c Curves) bool {
			return c.at(four, 30e3) < c.at(eight, 30e3) && c.at(eight, 30e3) < c.at(twelve, 30e3)
		})},
	}
	if m == service.DSRNAT {
		f.Claims = append(f.Claims, verdict.Between("12 servers: about 21,100 are lost at 30,000 a second", 20678, 21522, func(c Curves) float64 { return c.at(twelve, 30e3) }))
	}
	return f
}

// fig14 is Fig. 14, or the same with another method.
func fig14(name, method string, m service.Method) Figure {
	f := Figure{
		Name: name, Title: "Loss rate on the real servers, " + method + ", topology 1, 100M LAN", X: offeredRate, Y: perSecond,
		Series: farms(slow, m, serverLoss), Remarks: remarks100(m),
		Claims: []Claim{verdict.So("falls sharply with more servers, from 1 to 8, at 30,000 a second", func(c Curves) bool {
			return c.at(one, 30e3) > 2*c.at(four, 30e3) && c.at(four, 30e3) > 2*c.at(eight, 30e3)
		})},
	}
	if m == service.DSRNAT {
		f.Claims = append(f.Claims, verdict.Between("12 servers: about 160 are lost at 30,000 a second", 110, 210, func(c Curves) float64 { return c.at(twelve, 30e3) }))
	}
	return f
}

// fig15 is Fig. 15, or Fig. 16 with another method.
func fig15(name, method string, m service.Method) Figure {
	return Figure{
		Name: name, Title: "Throughput, " + method + ", topology 1, 100M LAN", X: offeredRate, Y: "replies a second",
		Series: farms(slow, m, throughput), Remarks: []string{queues50},
		Claims: []Claim{
			verdict.AtMost("12 servers have fewer replies than 8, at 30,000 a second", 0.999999, func(c Curves) float64 {
				return c.at(twelve, 30e3) / c.at(eight, 30e3)
			}),
			more("8 servers have the most, more than 4 at 16,000 a second", eight, four, 16e3),
			more("8 servers have the most, more than 4 at 30,000 a second", eight, four, 30e3),
		},
	}
}
