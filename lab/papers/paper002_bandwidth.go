package papers

import (
	"fmt"
	"strings"
)

// bandwidths returns the table of bandwidth, measured in three ways.
func bandwidths() []Row {
	const (
		first = "rules apply to the first packet of a connection: bandwidth-connections and bandwidth-packets have the same rules and more first packets"
		scan  = "the first packet passes all rules before its own: some 0.6 ms for the last of 25,000 Services in the guest, no more than the transfer itself takes"
	)
	return []Row{
		bandwidth("bandwidth", "one connection", "messages of 64 KiB over one connection, as qperf's test of TCP sends them", first),
		bandwidth("bandwidth-connections", "short connections", "a connection for each message of 64 KiB", scan),
		bandwidth("bandwidth-packets", "single packets", "UDP packets of 1,000 bytes and their answers, each from a new socket", scan),
	}
}

func bandwidth(item, load, how, why string) Row {
	of := func(way string, services int, position string) string {
		return fmt.Sprintf("%s, %d Services: %s to the %s", way, services, load, position)
	}
	row := Row{
		Item: item, Title: "IPVS and iptables: network bandwidth, " + load, Experiment: bandwidthRules,
		Claim:  "Bandwidth through iptables falls with the position of the Service, to nothing with 25,000 Services; through IPVS it falls to a third, and first and last Service are equal.",
		Theirs: "qperf; 4 ports a Service; the slides give no machine", Ours: how + "; 4 ports and 8 rules a Service; iptables and IPVS one after the other; " + ourGuest,
		Tests: []Test{
			atMost("iptables: last of 50,000 by first of 50,000", 0.8, times, ratioOfHighs(of("iptables", 50_000, "last"), of("iptables", 50_000, "first"))).because(why),
			atMost("iptables: last of 25,000 by the only one", 0.05, times, ratioOfHighs(of("iptables", 25_000, "last"), of("iptables", 1, "last"))).because(why),
			between("IPVS: last of 50,000 by the only one", 0.25, 0.5, times, ratioOfHighs(of("ipvs", 50_000, "last"), of("ipvs", 1, "last"))).because("IPVS finds a Service by a hash; connections and transfers cost the rest"),
			between("IPVS: last of 50,000 by first of 50,000", 0.9, 1.1, times, ratioOfHighs(of("ipvs", 50_000, "last"), of("ipvs", 50_000, "first"))),
		},
		Plot: Plot{X: "Services", Y: "MB/s"},
	}
	services := []int{1, 1000, 5000, 10_000, 25_000, 50_000}
	for _, way := range []struct {
		name        string
		first, last []float64
	}{
		{"iptables", []float64{66.6, 64, 50, 15, 0, 0}, []float64{66.6, 56, 38.6, 6, 0, 0}},
		{"IPVS", []float64{65.3, 61.7, 53.5, 43, 30, 24}, []float64{65.3, 55.3, 53.8, 43.5, 28.5, 23.8}},
	} {
		theirs := Line{Name: way.name + ", last Service"}
		for i, n := range services {
			row.Values = append(row.Values, Value{fmt.Sprintf("%s, first of %d", way.name, n), way.first[i], "MB/s"})
			if n > 1 {
				row.Values = append(row.Values, Value{fmt.Sprintf("%s, last of %d", way.name, n), way.last[i], "MB/s"})
			}
			theirs.Points = append(theirs.Points, At{X: float64(n), Y: way.last[i]})
		}
		row.Plot.Theirs = append(row.Plot.Theirs, theirs)
		for _, position := range []string{"first", "last"} {
			row.Plot.Ours = append(row.Plot.Ours, curveOf(highs, way.name+", "+position+" Service", strings.ToLower(way.name)+", %d Services: "+load+" to the "+position, services...))
		}
	}
	return row
}
