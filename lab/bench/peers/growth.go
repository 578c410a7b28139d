package peers

import (
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/internal/design"
	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/bench/xdpbench"
)

// curve is what grows in a workload: the workloads of one curve differ only in that.
type curve struct {
	over string // such as "flows"
	at   int
}

// growth returns the scenarios of growth curves.
func growth(z size) (all []scenario) {
	of := func(over string, at, vips, backends int, flows uint64) scenario {
		w := workload{
			name: fmt.Sprintf("%d %s", at, over), curve: curve{over, at}, want: tx, floor: xdpbench.FloorBare,
			traffic: xdpbench.Traffic{Flows: flows, VIPs: vips},
		}
		if vips > 1 {
			w.floor = xdpbench.FloorRings
		}
		return scenario{name: w.name, vips: vips, backends: backends, pool: backends, size: z, workloads: []workload{w}}
	}
	flows := of("flows", 1, 1, z.backends, 1)
	for n := 4; n <= int(z.flows); n *= 4 {
		flows.workloads = append(flows.workloads, of("flows", n, 1, z.backends, uint64(n)).workloads...)
	}
	all = append(all, flows)
	for n := 10; n <= z.vips; n *= 10 {
		all = append(all, of("VIPs", n, n, z.backends, z.flows))
	}
	for n := 1; n <= 10*z.backends; n *= 10 {
		all = append(all, of("backends", n, 1, n, z.flows))
	}
	return all
}

// titles are those of the charts, in their order.
var titles = []struct{ over, title string }{
	{"flows", "Time per packet by the number of flows of one VIP"},
	{"VIPs", "Time per packet by the number of VIPs, which share their backends"},
	{"backends", "Time per packet by the number of backends of one VIP"},
}

// point adds a point to the curve of each program.
func (m *meter) point(c curve, all []*program, took map[string][]float64) {
	i := slices.IndexFunc(titles, func(t struct{ over, title string }) bool { return t.over == c.over })
	for len(m.report.Charts) <= i {
		title := titles[len(m.report.Charts)]
		m.report.Charts = append(m.report.Charts, design.Chart{
			Title: title.title, Kind: design.Lines, Height: 260,
			X: design.Axis{Label: title.over, Log: true}, Y: design.Axis{Unit: "ns", Log: true},
		})
	}
	chart := &m.report.Charts[i]
	for _, p := range all {
		n := slices.IndexFunc(chart.Series, func(s design.Series) bool { return s.Name == p.name })
		if n < 0 {
			n = len(chart.Series)
			chart.Series = append(chart.Series, design.Series{Name: p.name, Dashed: p.floor})
		}
		s := &chart.Series[n]
		s.Points = append(s.Points, design.Point{X: float64(c.at), Y: bench.SpreadOf(took[p.name]).Median})
	}
}
