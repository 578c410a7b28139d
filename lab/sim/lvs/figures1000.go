package lvs

import (
	"math"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/sim/verdict"
)

// halfMillisecond explains the interval of clients on the fast LAN.
const halfMillisecond = "the paper says 1 ms for the slow LAN, and nothing here: only with a request every 0.5 ms is the first loss at 70,000 a second that of the paper, to the digit (text-first-loss)"

// figures1000 returns the figures of topology 1 with a LAN of 1000 Mbit/s, and of
// topology 2.
func figures1000() []Figure {
	return []Figure{
		fig17(), fig18(), fig19(), fig20("fig20", modified, service.DSRNAT), fig22(),
		fig34("fig34", modified, service.DSRNAT), fig35("fig35", modified, service.DSRNAT),
		fig20("fig36", tunneling, service.Tunnel), fig34("fig37", tunneling, service.Tunnel), fig35("fig38", tunneling, service.Tunnel),
		fig34("fig39", routing, service.DR), fig35("fig40", routing, service.DR),
		fig41(),
	}
}

func fig17() Figure {
	slower := over("NAT, 100M LAN", topology1(slow, service.DSRNAT, 1), []int{10e3, 20e3, 30e3, 40e3}, throughput)
	return Figure{
		Name: "fig17", Title: "Throughput, topology 1, 1000M LAN, 1 server", X: offeredRate, Y: "replies a second",
		Series: append(methods(oneServer(fast), rates1000, throughput), slower), Remarks: []string{queues50, halfMillisecond},
		Claims: []Claim{
			verdict.AtLeast("far above that of a 100M LAN: at 30,000 a second it is so many times as high", 2, func(c Curves) float64 { return c.at(nat, 30e3) / c.at(3, 30e3) }),
			verdict.Between("replies at 70,000 a second (NAT)", 56e3, 58e3, func(c Curves) float64 { return c.at(nat, 70e3) }),
			verdict.Between("replies a second from 90,000 on (NAT)", 69e3, 75e3, func(c Curves) float64 { return mean(c.where(nat, 90e3, 120e3)) }),
			verdict.AtMost("does not increase beyond 30,000 a second: replies at 90,000 by those at 30,000 (NAT)", 1.05, func(c Curves) float64 {
				return c.at(nat, 90e3) / c.at(nat, 30e3)
			}).Because("all of 30,000 a second are answered; the curve turns at 90,000, of which 30,000 may be a misprint"),
		},
	}
}

// severe returns the claims of Figs. 18 and 19.
func severe() []Claim {
	return []Claim{
		verdict.AtMost("packets lost a second up to 50,000 a second (NAT)", 0, func(c Curves) float64 { return total(c.where(nat, 0, 50e3)) }),
		verdict.AtLeast("still severe: packets lost at 90,000 a second (NAT)", 2000, func(c Curves) float64 { return c.at(nat, 90e3) }),
	}
}

func fig18() Figure {
	return Figure{
		Name: "fig18", Title: "Loss rate on the load balancer, topology 1, 1000M LAN, 1 server", X: offeredRate, Y: perSecond,
		Series: methods(oneServer(fast), rates1000, balancerLoss), Claims: severe(), Remarks: []string{queues50, halfMillisecond},
	}
}

func fig19() Figure {
	return Figure{
		Name: "fig19", Title: "Loss rate on the real server, topology 1, 1000M LAN, 1 server", X: offeredRate, Y: perSecond,
		Series: methods(oneServer(fast), rates1000, serverLoss), Claims: severe(), Remarks: []string{queues50, halfMillisecond},
	}
}

// fig20 is Fig. 20, or the same with another method, for which there are no results of
// ns-2 with the paper's queues.
func fig20(name, method string, m service.Method) Figure {
	f := Figure{
		Name: name, Title: "Throughput, " + method + ", topology 1, 1000M LAN", X: offeredRate, Y: "replies a second",
		Series: farms(fast, m, throughput), Remarks: remarks1000(m),
		Claims: []Claim{verdict.So("more servers, fewer replies, at 90,000 a second", func(c Curves) bool {
			return c.at(one, 90e3) > c.at(four, 90e3) && c.at(four, 90e3) > c.at(eight, 90e3) && c.at(eight, 90e3) > c.at(twelve, 90e3)
		})},
	}
	if m != service.DSRNAT {
		return f
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

// topology2 is the paper's second topology, with one server.
func topology2(m service.Method) Setup {
	return Setup{Topology: Direct, LAN: Mega1000, Method: m, Scheduler: service.RoundRobin, Servers: 1, Every: 0.001, Queue: queueOf(m), Seconds: 2}
}

func fig22() Figure {
	lossy, shared := topology2(service.DSRNAT), topology1(fast, service.DSRNAT, 1)
	return Figure{
		Name: "fig22", Title: "Throughput, topology 2, 1000M LAN, 1 server", X: offeredRate, Y: "replies a second",
		Series: append(methods(topology2, rates1000, throughput),
			over("topology 1, NAT", shared, rates1000, throughput),
			over("lost on the server", lossy, rates1000, serverLoss).aside(),
			over("undetected", lossy, rates1000, undetected).aside(),
		),
		Remarks: []string{queues50},
		Claims: []Claim{
			verdict.AtLeast("an upper bound: least of replies less those of topology 1, of all rates", 0, func(c Curves) float64 {
				least := math.Inf(1)
				for _, p := range c[nat] {
					least = min(least, p.Y-c.at(3, p.X))
				}
				return least
			}),
			verdict.AtMost("packets lost on the server", 0, func(c Curves) float64 { return total(c.where(4, 0, 1e9)) }),
			verdict.AtMost("packets lost by collision", 0, func(c Curves) float64 { return total(c.where(5, 0, 1e9)) }),
			verdict.Between("ns-2: 100 of a burst pass, 100,000 a second (NAT, within 1 %)", 0.99*burst, 1.01*burst, func(c Curves) float64 { return c.at(nat, 120e3) }),
			verdict.Between("TUN and DR are similar: TUN by DR, at 120,000 a second", 0.99, 1.01, func(c Curves) float64 { return c.at(tun, 120e3) / c.at(dr, 120e3) }),
			verdict.AtLeast("NAT has a higher throughput: NAT by DR, at 120,000 a second", 1.01, func(c Curves) float64 { return c.at(nat, 120e3) / c.at(dr, 120e3) }),
		},
	}
}

func fig41() Figure {
	return Figure{
		Name: "fig41", Title: "Loss rate on the load balancer, topology 2, 1000M LAN, 1 server", X: offeredRate, Y: perSecond,
		Series: methods(topology2, rates1000, balancerLoss), Remarks: []string{queues50},
		Claims: []Claim{
			verdict.AtMost("no loss up to 100,000 a second (NAT)", 0, func(c Curves) float64 { return total(c.where(nat, 0, burst)) }),
			verdict.Between("all beyond is lost: 20,000 at 120,000 a second, within 1 % (NAT)", 19.8e3, 20.2e3, func(c Curves) float64 { return c.at(nat, 120e3) }),
		},
	}
}

// fig34 is Fig. 34, or the same with another method.
func fig34(name, method string, m service.Method) Figure {
	return Figure{
		Name: name, Title: "Loss rate on the load balancer, " + method + ", topology 1, 1000M LAN", X: offeredRate, Y: perSecond,
		Series: farms(fast, m, balancerLoss), Remarks: remarks1000(m),
		Claims: []Claim{verdict.So("more servers, more loss, at 90,000 a second", func(c Curves) bool {
			return c.at(one, 90e3) < c.at(four, 90e3) && c.at(four, 90e3) < c.at(eight, 90e3) && c.at(eight, 90e3) < c.at(twelve, 90e3)
		})},
	}
}

// fig35 is Fig. 35, or the same with another method.
func fig35(name, method string, m service.Method) Figure {
	return Figure{
		Name: name, Title: "Loss rate on the real servers, " + method + ", topology 1, 1000M LAN", X: offeredRate, Y: perSecond,
		Series: farms(fast, m, serverLoss), Remarks: remarks1000(m),
		Claims: []Claim{more("12 servers lose more than 4, at 90,000 a second", twelve, four, 90e3).
			Because("a load balancer with queues of 50 packets loses more itself, and leaves servers less to lose")},
	}
}
