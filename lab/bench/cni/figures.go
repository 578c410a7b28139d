package cni

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/design"
	"github.com/fairlead/fairlead/lab/bench"
)

// drawn is a line of a picture: a pair of endpoints, a kind of network, and the paper's
// figure.
type drawn struct{ pair, kind, paper string }

// figure5 and figure6 list the lines of the paper's figures 5 and 6. Flannel's overlays
// carry only traffic between pods.
var (
	figure5 = []drawn{
		{toServer, Host, "about 940"}, {toServer, Macvlan, "938"}, {toServer, HostDevice, "940"},
		{toServer, HostGW, "none"}, {betweenPods, VXLAN, "none"}, {betweenPods, TunUDP, "none"},
	}
	figure6 = []drawn{{betweenPods, Macvlan, "9700"}, {betweenPods, HostDevice, "9880"}, {betweenPods, Host, "none"}}
)

// drawThroughput draws the paper's figures at each measured rate, and the CPU time of
// each kind.
func drawThroughput(all map[setting]measured) (charts []design.Chart) {
	settings := slices.SortedFunc(maps.Keys(all), func(a, b setting) int { return strings.Compare(a.String(), b.String()) })
	for _, s := range settings {
		if s.offloads {
			charts = append(charts, drawOverTime(5, s, all[s], figure5), drawOverTime(6, s, all[s], figure6))
		}
	}
	return append(charts, drawCPU(settings, all))
}

// drawOverTime draws the throughput in each interval of sampleEvery, with the rounds one
// after the other.
func drawOverTime(figure int, s setting, all measured, lines []drawn) design.Chart {
	c := design.Chart{
		Title: fmt.Sprintf("Throughput between the sites, %s (Fig. %d)", s, figure), Kind: design.Lines,
		X: design.Axis{Label: "rounds joined", Unit: "s"}, Y: design.Axis{Unit: "Mbit/s"},
	}
	for _, d := range lines {
		got := all[[2]string{d.pair, d.kind}]
		if len(got) == 0 {
			continue
		}
		var points []design.Point
		for _, one := range got {
			for _, mbits := range one.samples {
				points = append(points, design.Point{X: float64(len(points)) * sampleEvery.Seconds(), Y: mbits})
			}
		}
		name := fmt.Sprintf("%s, %s: %.0f (paper: %s)", d.pair, d.kind, bench.SpreadOf(got.rates()).Median, d.paper)
		c.Series = append(c.Series, design.Series{Name: name, Points: points})
	}
	return c
}

// drawCPU draws the CPU time between pods, for each setting and kind.
func drawCPU(settings []setting, all map[setting]measured) design.Chart {
	c := design.Chart{Title: "CPU time of the machine for each Gbit from pod to pod", Kind: design.Bars, Y: design.Axis{Unit: "ms"}}
	for _, s := range settings {
		for _, kind := range Kinds {
			if got := all[s][[2]string{betweenPods, kind}]; len(got) > 0 {
				c.Bars = append(c.Bars, design.Bar{Name: fmt.Sprintf("%s, %s", s, kind), Value: bench.SpreadOf(got.cpu()).Median})
			}
		}
	}
	return c
}

// drawRequests draws Fig. 11 or 12: requests per second by the number of backends, one
// line per network, with and without RPS.
func drawRequests(figure int, maker string, points []point, rates map[point][]float64) design.Chart {
	c := design.Chart{
		Title: fmt.Sprintf("Through a load balancer of %s in flannel's networks (Fig. %d)", maker, figure), Kind: design.Lines,
		X: design.Axis{Label: "backends"}, Y: design.Axis{Unit: "requests/s"},
	}
	top, at := 0.0, map[string]int{}
	for _, p := range points {
		y := bench.SpreadOf(rates[p]).Median
		top = max(top, y)
		if p.maker != maker {
			continue
		}
		i, known := at[p.line()]
		if !known {
			i = len(c.Series)
			at[p.line()] = i
			c.Series = append(c.Series, design.Series{Name: p.line()})
		}
		c.Series[i].Points = append(c.Series[i].Points, design.Point{X: float64(p.of), Y: y})
	}
	c.Y.Max = &top // the same for both makers
	return c
}
