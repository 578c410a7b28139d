package papers

import (
	"fmt"
	"strings"
)

// batches contains what the slides measured with numbers of Services, before and after
// batching.
var batches = []struct {
	services          int
	requests, seconds [2]float64
}{{100, [2]float64{551, 10}, [2]float64{8.5, 3.5}}, {150, [2]float64{785, 14}, [2]float64{13.5, 5.3}}, {200, [2]float64{1105, 17}, [2]float64{22.8, 7.8}}}

func batchRequests() Row {
	row := batchRow("batch-requests", "requests", "Batching for 0.5 s reduces the requests of the endpoints controller by 98 %.", 2,
		"a request of Kubernetes' controllers contains one object, so 100 Services need at least 100; the slides' 10 contain several Services each")
	for _, b := range batches {
		row.print(b.services, b.requests, "requests")
	}
	return row
}

func batchLatency() Row {
	row := batchRow("batch-latency", "all known", "Batching for 0.5 s reduces the time until all endpoints are known by more than 59 %.", 41,
		"at 280 pods per second, the last of 1,000 is ready after 3.6 s, and of 2,000 after 7.1 s; the controllers are done less than 2.5 s later also without batching, as their queue joins what waits in it")
	row.Title = "Batch processing: latency"
	for _, b := range batches {
		row.print(b.services, b.seconds, "s")
	}
	return row
}

// batchRow returns a row about what is left of a quantity after batching, in percent.
func batchRow(item, quantity, claim string, left float64, why string) Row {
	row := Row{
		Item: item, Title: "Batch processing: " + quantity, Claim: claim, Experiment: batchPeriods, Theirs: "one master and four nodes, 16 cores; 10 pods for each of 100, 150 and 200 Services; one batch every 0.5 s",
		Ours: "kube-controller-manager and kube-apiserver; 280 pods become ready per second, the rate of the slides' batched runs, one Service after the other; each controller without a limit, or with 50 requests per second, about those of the slides' controller",
		Plot: Plot{X: "Services", Theirs: []Line{{Name: "not batched"}, {Name: "batched"}}},
	}
	for _, kind := range []string{"endpoints", "endpointslices"} {
		for _, limit := range []string{"", ", 50 requests/s at most"} {
			before, after := kind+", %d Services"+limit+", period 0s: "+quantity, kind+", %d Services"+limit+", period 500ms: "+quantity
			var ratios []func(*Measured) []float64
			for _, b := range batches {
				ratios = append(ratios, scaled(ratio(fmt.Sprintf(after, b.services), fmt.Sprintf(before, b.services)), 100))
			}
			row.Tests = append(row.Tests, atMost(kind+limit+": left", left, "%", pooled(ratios...)).because(why))
			row.Plot.Ours = append(row.Plot.Ours, curve(kind+limit+", not batched", before, 100, 150, 200), curve(kind+limit+", batched", after, 100, 150, 200))
		}
	}
	return row
}

// print adds what the slides print for a number of Services, before and after batching.
func (r *Row) print(services int, values [2]float64, unit string) {
	r.Plot.Y = unit
	for i, name := range []string{"before", "after"} {
		r.Values = append(r.Values, Value{fmt.Sprintf("%d Services: %s", services, name), values[i], unit})
		r.Plot.Theirs[i].Points = append(r.Plot.Theirs[i].Points, At{X: float64(services), Y: values[i]})
	}
}

// batchWrites is the same idea in our service proxy.
func batchWrites() Row {
	const unbatched, batched = "10 pods in %d Services, not gathered: times written", "10 pods in %d Services, gathered for 500ms: times written"
	row := Row{
		Item: "batch-writes", Title: "Batch processing in the service proxy", Claim: "Batching for 0.5 s reduces writes by 98 %.", Experiment: ruleLists,
		Theirs: "requests of the endpoints controller to the API server", Ours: "writes of Fairlead's service proxy to the kernel, while 500 pods a second come up behind the same Services",
		Values: []Value{{"reduction, 100 Services", 98.2, "%"}, {"reduction, 150 Services", 98.2, "%"}, {"reduction, 200 Services", 98.5, "%"}},
		Plot: Plot{X: "Services", Y: "requests or writes", Theirs: []Line{printed("not batched", 100, 551, 150, 785, 200, 1105), printed("batched", 100, 10, 150, 14, 200, 17)},
			Ours: []Line{curve("not batched", unbatched, 100, 150, 200), curve("batched", batched, 100, 150, 200)}},
	}
	for _, b := range batches {
		row.Tests = append(row.Tests, atMost(fmt.Sprintf("%d Services: writes left", b.services), 2, "%", scaled(ratio(fmt.Sprintf(batched, b.services), fmt.Sprintf(unbatched, b.services)), 100)))
	}
	return row
}

func partition() Row {
	of := func(quantity string) func(*Measured) []float64 {
		return ratio("endpointslices, 1000 pods: "+quantity, "endpoints, 1000 pods: "+quantity)
	}
	return Row{
		Item: "partition", Title: "Partitioned endpoints", Claim: "Several objects for the endpoints of a Service are smaller, but need more requests.", Experiment: partitions,
		Theirs: "no measurement", Ours: "kube-controller-manager writes Endpoints and EndpointSlices (100 endpoints each) of a Service with 1,000 pods, of which 280 become ready per second; then one pod changes. Bytes are those of one watch",
		Tests: []Test{
			atMost("bytes of one change: EndpointSlices by Endpoints", 0.5, times, of("bytes of one change")),
			atLeast("objects: EndpointSlices by Endpoints", 2, times, of("objects")),
			atLeast("requests until all pods are ready: EndpointSlices by Endpoints", 1.05, times, of("requests until all are ready")),
		},
		Plot: Plot{Y: "bytes", Log: true, Names: []string{"100 pods, one change", "1,000 pods, one change", "1,000 pods, all ready"},
			Ours: []Line{
				bars("Endpoints", "endpoints, 100 pods: bytes of one change", "endpoints, 1000 pods: bytes of one change", "endpoints, 1000 pods: bytes until all are ready"),
				bars("EndpointSlices", "endpointslices, 100 pods: bytes of one change", "endpointslices, 1000 pods: bytes of one change", "endpointslices, 1000 pods: bytes until all are ready"),
			}},
	}
}

func central() Row {
	const one, many = "one load balancer: ", "50 nodes: "
	row := Row{
		Item: "central", Title: "Central load balancer", Claim: "A central load balancer reduces connections and requests to the API server, for one more hop.", Experiment: centralBalancer,
		Theirs: "no measurement", Ours: "1 or 50 of Fairlead's sources, each with credentials of its own, read 1,000 Services with 10 endpoints each; requests of 64 bytes through the node's eBPF proxy, and through an agent with fullnat on another node, in network namespaces of one machine",
		Plot: Plot{Names: []string{"connections", "watches", "lists and watches", "a change is known, ms"}, Log: true},
	}
	for _, quantity := range []string{"connections", "watches", "requests until all is read"} {
		row.Tests = append(row.Tests, atMost(quantity+": one load balancer by 50 nodes", 0.1, times, ratio(one+quantity, many+quantity)))
	}
	row.Tests = append(row.Tests, atLeast("latency: central load balancer by the node's proxy", 1.05, times, ratioOfLows("request by a central load balancer", "request by the node's proxy")))
	for _, clients := range []string{one, many} {
		row.Plot.Ours = append(row.Plot.Ours, bars(strings.TrimSuffix(clients, ": "), clients+"connections", clients+"watches", clients+"requests until all is read", clients+"a change is known"))
	}
	return row
}
