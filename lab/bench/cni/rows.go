package cni

import (
	"fmt"
	"math"

	"github.com/fairlead/fairlead/lab/bench"
)

// belowGoal is the maximum percentage by which the throughput of pods on macvlan and
// host-device may be below the host's, if the link's rate is the limit.
const belowGoal = 3

// published contains the paper's averages in Mbit/s: from a pod to a server over 1 Gbit/s
// (Fig. 5), and between pods over 10 Gbit/s (Fig. 6). Its hosts reach "about 940". Its
// Calico, Flannel and Weave Net have no counterpart here.
var published = map[[3]string]float64{
	{"1G", toServer, Macvlan}:        938,
	{"1G", toServer, HostDevice}:     940,
	{"10G", betweenPods, Macvlan}:    9700,
	{"10G", betweenPods, HostDevice}: 9880,
}

// throughputRows adds the rows of one setting.
func throughputRows(r *bench.Report, s setting, all measured) {
	for _, pair := range []string{toServer, betweenPods} {
		for _, kind := range Kinds {
			got := all[[2]string{pair, kind}]
			if len(got) == 0 {
				continue
			}
			name := fmt.Sprintf("%s, %s, %s: ", s, pair, kind)
			rate := bench.Estimated(name+"throughput", "Mbit/s", got.rates()...)
			if p, ok := published[[3]string{s.rate, pair, kind}]; ok && s.offloads {
				rate = rate.ComparedWith("paper", p)
			}
			r.Rows = append(r.Rows, rate)
			if s.rate != noRate && (kind == Macvlan || kind == HostDevice) {
				less := below(got.rates(), all[[2]string{pair, Host}].rates())
				r.Rows = append(r.Rows, bench.Estimated(name+"less than the host", "%", less...).AtMost(belowGoal))
			}
			r.Rows = append(r.Rows,
				bench.Plain(name+"spread", "%", got.each(run.spread)...),
				bench.Estimated(name+"CPU", "ms/Gbit", got.cpu()...),
				bench.Plain(name+"CPU, softirq", "ms/Gbit", got.each(func(r run) float64 { return r.used.Softirq })...),
				bench.Plain(name+"CPU, processes", "ms/Gbit", got.each(func(r run) float64 { return r.used.Processes })...),
			)
			if kind == Macvlan || kind == HostDevice {
				r.Rows = append(r.Rows, ahead(name, got, pair, all))
			}
		}
	}
}

// below returns by how many percent each round's figure is below the floor's.
func below(figures, floor []float64) []float64 {
	all := make([]float64, len(figures))
	for i := range figures {
		all[i] = 100 * (1 - figures[i]/floor[i])
	}
	return all
}

// ahead compares the CPU time per Gbit with the lowest of bridge and overlays in the same
// round.
func ahead(name string, got runs, pair string, all measured) bench.Row {
	ratios := make([]float64, len(got))
	for i, mine := range got.cpu() {
		least := math.Inf(1)
		for kind := range behind {
			if other := all[[2]string{pair, kind}]; len(other) > i {
				least = min(least, other[i].used.Machine)
			}
		}
		ratios[i] = mine / least
	}
	return bench.Estimated(name+"CPU, over the least of bridge and overlays", "times", ratios...).AtMost(1)
}
