package xdp

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/dataplane/internal/netorder"
	"github.com/fairlead/fairlead/internal/testkit"
	"github.com/fairlead/fairlead/service"
)

// benchFlows is the size of the flow table that is measured.
const benchFlows = 1 << 21

// newBenchTable opens a data plane with a large flow table and one frontend.
func newBenchTable(b *testing.B, method service.Method, udp bool) (subject, *testNet, *DataPlane) {
	b.Helper()
	n := newNet(b)
	c := config()
	c.MaxFlows = benchFlows
	d := n.open(b, c)
	s := subject{method: method, scheduler: service.Maglev, udp: udp, want: tx}
	if method != service.FullNAT {
		s.scheduler = service.RoundRobin
	}
	s.prepare(b, n, d, 1)
	return s, n, d
}

// timed runs a state's packets several times and gives the nanoseconds of each.
func timed(b *testing.B, n *testNet, d *DataPlane, state *harnessBench, packets uint32) (all []float64) {
	b.Helper()
	r, err := newRig(d, balancerProgBalancer)
	must(b, err)
	defer r.Close()
	testkit.Do(b, n.balancer, func() error {
		_, err := r.run(state, n.eth0, packets) // warms up, fills the table
		must(b, err)
		state.Verdicts = [8]uint64{}
		for range 5 {
			ns, err := r.run(state, n.eth0, packets)
			must(b, err)
			all = append(all, ns)
		}
		return nil
	})
	for v, count := range state.Verdicts {
		if verdict(v) != tx && count > 0 {
			b.Errorf("%d packets were judged %v: %v", count, verdict(v), d.Describe().Drops)
		}
	}
	return all
}

func reportTimes(b *testing.B, all []float64, goal float64) {
	slices.Sort(all)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(all[0], "ns/packet-min")
	b.ReportMetric(all[len(all)/2], "ns/packet-median")
	b.ReportMetric(goal, "ns/packet-goal")
}

// BenchmarkFlowTable measures packets of remembered flows that go by tunnel, in
// a table that is fresh, and in one that has been filled several times over.
func BenchmarkFlowTable(b *testing.B) {
	for _, aged := range []bool{false, true} {
		for _, l := range []struct {
			name  string
			flows uint64
			goal  float64
		}{{"1 flow", 1, 65}, {"1 k flows", 1 << 10, 65}, {"64 k flows", 1 << 16, 140}, {"1 M flows", 1 << 20, 200}, {"every packet new", 0, 200}} {
			b.Run(fmt.Sprintf("aged %v/%s", aged, l.name), func(b *testing.B) {
				s, n, d := newBenchTable(b, service.Tunnel, false)
				state := s.state(b, load{flows: l.flows, vips: 1})
				if aged {
					old := s.state(b, load{vips: 1})
					timed(b, n, d, old, benchFlows)
					state.Turn = old.Turn
				}
				reportTimes(b, timed(b, n, d, state, uint32(max(1<<19, l.flows))), l.goal)
			})
		}
	}
}

// BenchmarkFullNAT measures both directions of flows.
func BenchmarkFullNAT(b *testing.B) {
	for _, l := range []struct {
		flows uint64
		goal  float64
	}{{1, 150}, {1 << 10, 200}} {
		b.Run(fmt.Sprintf("%d flows", l.flows), func(b *testing.B) {
			n := newNet(b)
			c := config()
			c.MaxFlows = benchFlows
			d := n.open(b, c)
			s := subject{method: service.FullNAT, scheduler: service.Maglev, want: tx}
			f := frontend(service.FullNAT, netip.AddrPortFrom(s.vip(0), 80).String(), service.TCP, "172.16.8.1:8080")
			upsert(b, d, f)
			forth := s.state(b, load{flows: l.flows, vips: 1})
			there := timed(b, n, d, forth, 1<<19)
			back := &harnessBench{Flows: l.flows - 1, Back: 1}
			frame := packet{src: "172.16.8.1:8080", dst: netip.AddrPortFrom(own4, 1).String(), flags: "A", payload: 26}.bytes(b)
			for i := range frame {
				back.Frame[i/8] |= uint64(frame[i]) << (i % 8 * 8)
			}
			flows, err := allFlows(d)
			must(b, err)
			for _, f := range flows {
				back.Ports[(f.Client.Port()-1024)%1024] = netorder.Port(f.Source.Port())
			}
			again := timed(b, n, d, back, 1<<19)
			for i := range there {
				there[i] += again[i]
			}
			reportTimes(b, there, l.goal)
		})
	}
}
