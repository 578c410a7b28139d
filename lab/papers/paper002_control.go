package papers

import "fmt"

const theirControl = "one master and four nodes, 16 cores; 10 pods for each of 100, 150 and 200 Services; one batch every 0.5 s"

// batch is a number of Services and what the slides measured with it, before and after
// batching.
type batch struct {
	services                  int
	requests, requestsBatched float64
	seconds, secondsBatched   float64
}

var batches = []batch{{100, 551, 10, 8.5, 3.5}, {150, 785, 14, 13.5, 5.3}, {200, 1105, 17, 22.8, 7.8}}

func batchRequests() Row {
	row := batchRow("batch-requests", "requests", "Batching for 0.5 s reduces the requests of the endpoints controller by 98 %.", "requests", 2,
		"a request of Kubernetes' controllers contains one object, so 100 Services need at least 100; the slides' 10 contain several Services each")
	for _, b := range batches {
		row.Values = append(row.Values, Value{fmt.Sprintf("%d Services: before", b.services), b.requests, "requests"}, Value{fmt.Sprintf("%d Services: after", b.services), b.requestsBatched, "requests"})
	}
	row.Plot.Theirs = []Line{printed("not batched", 100, 551, 150, 785, 200, 1105), printed("batched", 100, 10, 150, 14, 200, 17)}
	return row
}

func batchLatency() Row {
	row := batchRow("batch-latency", "latency", "Batching for 0.5 s reduces the time until all endpoints are known by more than 59 %.", "all known", 41,
		"the pods become ready during most of the time, and a batch period adds to it; fewer requests save time only where the controller's requests are the limit")
	for _, b := range batches {
		row.Values = append(row.Values, Value{fmt.Sprintf("%d Services: before", b.services), b.seconds, "s"}, Value{fmt.Sprintf("%d Services: after", b.services), b.secondsBatched, "s"})
	}
	row.Plot.Y = "s"
	row.Plot.Theirs = []Line{printed("not batched", 100, 8.5, 150, 13.5, 200, 22.8), printed("batched", 100, 3.5, 150, 5.3, 200, 7.8)}
	return row
}

// batchRow returns a row about what is left of a quantity after batching, in percent.
func batchRow(item, title, claim, quantity string, left float64, why string) Row {
	row := Row{
		Item: item, Title: "Batch processing: " + title, Claim: claim, Experiment: batchPeriods, Theirs: theirControl,
		Ours: "kube-controller-manager and kube-apiserver; 280 pods become ready per second, the rate of the slides' batched runs; each controller without a limit, or with 50 requests per second, about those of the slides' controller",
		Plot: Plot{X: "Services", Y: quantity},
	}
	for _, kind := range []string{"endpoints", "endpointslices"} {
		for _, limit := range []string{"", ", 50 requests/s at most"} {
			before, after := kind+", %d Services"+limit+", period 0s: "+quantity, kind+", %d Services"+limit+", period 500ms: "+quantity
			for _, b := range batches {
				row.Tests = append(row.Tests, atMost(fmt.Sprintf("%s, %d Services%s: left", kind, b.services, limit), left, "%", scaled(ratio(fmt.Sprintf(after, b.services), fmt.Sprintf(before, b.services)), 100)).because(why))
			}
			row.Plot.Ours = append(row.Plot.Ours, curve(kind+limit+", not batched", before, 100, 150, 200), curve(kind+limit+", batched", after, 100, 150, 200))
		}
	}
	return row
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
