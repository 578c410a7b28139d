package papers

import (
	"fmt"
	"math"
	"testing"
)

// ideal returns the curves of the papers: each load balancer carries a number of pods, and
// no more.
func ideal() *Measured {
	m := &Measured{Repetition: 1, Samples: map[string][]float64{}}
	put := func(name string, x float64) { m.Samples[name] = []float64{x, x, x} }
	carries := map[string]float64{
		through("iptables", hostGW): 8, through("fairlead", hostGW): 8, through("nginx", hostGW): 3, through("iptables", vxlan): 7, through("fairlead", vxlan): 7,
		through("iptables", udp): 4, through("fairlead", udp): 4, inGuest("ipvs"): 8, inGuest("iptables"): 8,
	}
	for name, pods := range carries {
		for _, n := range podCounts {
			put(fmt.Sprintf(name, n), 500*math.Min(float64(n), pods))
		}
	}
	last := fmt.Sprintf(through("iptables", hostGW), most)
	put(last+", no limit", 8000)
	put(last+": CPU", 15)
	put(fmt.Sprintf(through("fairlead", hostGW), most)+": CPU", 14)
	put(fmt.Sprintf(through("nginx", hostGW), most)+": CPU", 50)
	for _, maker := range []string{"fairlead", "iptables"} {
		put(fmt.Sprintf(through(maker, hostGW), most)+", queues: 1", 4000)
		put(fmt.Sprintf(through(maker, hostGW), most)+", queues: 2", 7000)
	}
	for n := range 4 {
		put(fmt.Sprintf(balancersCase, n+1), 1000*float64(n+1))
		put(fmt.Sprintf(smallClient, n+1), 2000)
		put(fmt.Sprintf(balancersCase, n+1)+": client idle", 60)
		put(fmt.Sprintf(smallClient, n+1)+": client idle", 1)
	}
	return m
}

// TestWebClaims judges curves that have the papers' shape, and curves without saturation.
func TestWebClaims(t *testing.T) {
	judge := func(m *Measured) (verdicts map[string]Verdict) {
		verdicts = map[string]Verdict{}
		for _, p := range All() {
			for i := range p.Rows {
				r := &p.Rows[i]
				if r.Experiment != webBalancers && r.Experiment != webGuest && r.Experiment != webScaling {
					continue
				}
				var found []Finding
				for _, test := range r.Tests {
					found = append(found, test.judge([]*Measured{m}))
				}
				verdicts[p.id(r)], _ = sum(found)
			}
		}
		return verdicts
	}
	m := ideal()
	for id, v := range judge(m) {
		if v != Holds {
			t.Errorf("%s: %s with the paper's curves", id, v)
		}
	}
	for _, name := range []string{through("iptables", hostGW), inGuest("ipvs")} {
		m.Samples[fmt.Sprintf(name, most)] = []float64{9000, 9000, 9000}
	}
	m.Samples[fmt.Sprintf(balancersCase, 4)] = []float64{1500, 1500, 1500}
	verdicts := judge(m)
	for _, id := range []string{"000/fig10a", "000/fig13a-cpu", "000/sec5.2-idle", "003/fig11-linear", "003/fig12-linear", "003/fig13"} {
		if verdicts[id] != DoesNot {
			t.Errorf("%s: %s without saturation", id, verdicts[id])
		}
	}
}
