package lvs

import (
	"fmt"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/sim/verdict"
)

// digits claims that a curve has a value of the paper's text at x, to the microsecond.
func digits(what string, curve int, x, value float64) Claim {
	const half = 0.5e-6
	return verdict.Between(fmt.Sprintf("%s: %.6f s", what, value), value-half, value+half, func(c Curves) float64 { return c.at(curve, x) }).
		Because("only the clock compat rounds like ns-2, which decides what happens first")
}

// seeded returns a setup with ns-2's seed, and its length in seconds.
func (s Setup) seeded(length int) Setup {
	s.Seed, s.Seconds = 1, length
	return s
}

// textRoundTrip has the round trips from the text after Fig. 16.
func textRoundTrip() Figure {
	f := Figure{
		Name: "text-round-trip", Title: "Round trip at 6,000 requests a second, 100M LAN, 1 server", X: offeredRate, Y: second,
		Remarks: []string{"the curves are means over the seeds; the digits are those of ns-2's seed, over the first second, with TUN over two"},
	}
	for i, m := range theMethods {
		f.Series = append(f.Series, along(methodNames[i], thousands(1, 9, 1), topology1(slow, m, 1).offered, (*Result).roundTrip))
	}
	for i, m := range theMethods {
		length := []int{nat: 1, tun: 2, dr: 1}[i]
		s := along(methodNames[i]+", ns-2's seed", []int{6e3}, topology1(slow, m, 1).seeded(length).offered, (*Result).roundTrip)
		f.Claims = append(f.Claims, digits(methodNames[i], len(f.Series), 6e3, []float64{nat: 0.007233, tun: 0.007242, dr: 0.007233}[i]))
		f.Series = append(f.Series, s.aside())
	}
	f.Claims = append(f.Claims, verdict.AtLeast("TUN takes longer, because of its header: TUN by NAT at 6,000 a second", 1.000001, func(c Curves) float64 {
		return c.at(tun, 6e3) / c.at(nat, 6e3)
	}).Over(20))
	return f
}

// textFirstLoss has the times from the text after Fig. 16: of the first loss on the load
// balancer at 9,000 requests per second, and of the first loss at 70,000.
func textFirstLoss() Figure {
	f := Figure{
		Name: "text-first-loss", Title: "First loss at 9,000 requests a second (100M LAN) and 70,000 (1000M), 1 server, ns-2's seed", X: "packets in a queue of the LAN", Y: second,
		Remarks: []string{
			"the paper says that all queues hold 100 packets, and that DR and TUN lose packets earlier because their agents are faster. They lose them at the paper's times with queues of 50, which is ns-2's default, and NAT would lose them as early as DR",
			"at 70,000 a second with DR, the server is the first to lose a packet",
		},
	}
	for i, m := range theMethods {
		for _, at := range []struct {
			mega, rate, length int
			of                 func(*Result) float64
			want               float64
		}{
			{slow, 9e3, 2, (*Result).balancerLost, []float64{nat: 2.712400, tun: 1.075400, dr: 1.160400}[i]},
			{fast, 70e3, 1, (*Result).firstLost, []float64{nat: 1.388400, tun: 1.039900, dr: 1.038527}[i]},
		} {
			name := fmt.Sprintf("%s at %d,000 a second", methodNames[i], at.rate/1000)
			setup := func(queue int) Setup {
				s := topology1(at.mega, m, 1).seeded(at.length)
				s.Queue = queue
				return s.offered(at.rate)
			}
			queue, curve := float64(queueOf(m)), len(f.Series)
			f.Claims = append(f.Claims, digits(fmt.Sprintf("%s, queues of %g", name, queue), curve, queue, at.want))
			if queue != stated {
				f.Claims = append(f.Claims, verdict.AtLeast(fmt.Sprintf("%s, queues of %d: later", name, stated), at.want+0.001, func(c Curves) float64 { return c.at(curve, stated) }))
			}
			f.Series = append(f.Series, along(name, []int{40, 50, 60, 80, 100}, setup, at.of))
		}
	}
	return f
}

// text200Servers has the round trip from the text on scheduling algorithms.
func text200Servers() Figure {
	f := Figure{
		Name: "text-200-servers", Title: "Round trip of 1 client by scheduler, 100M LAN", X: "servers", Y: second,
		Remarks: []string{"schedulers take no time in ns-2, nor here: their cost on real machines is in the benchmarks"},
	}
	for i, scheduler := range []service.Scheduler{service.RoundRobin, service.WeightedRoundRobin, service.LeastConn, service.WeightedLeastConn} {
		f.Series = append(f.Series, along(schedulerNames[scheduler], []int{1, 50, 100, 200}, func(servers int) Setup {
			s := topology1(slow, service.DSRNAT, servers).seeded(1).offered(1000)
			s.Scheduler = scheduler
			return s
		}, (*Result).roundTrip))
		f.Claims = append(f.Claims, digits(schedulerNames[scheduler]+", 200 servers", i, 200, 0.006891))
	}
	return f
}
