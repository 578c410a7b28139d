package papers

import "fmt"

const (
	theirSlides = "the slides give no machine for this slide; kube-proxy's chains of 2017, 8 rules a Service"
	ourLists    = "one network namespace; chains like kube-proxy's, written by iptables-restore; the client connects from the same namespace"
	ourGuest    = "a kernel with IPVS, in user-mode Linux if this one has none: absolute times are longer, and both are measured in the same kernel"
)

// services returns paper 002.
func services() Paper {
	p := Paper{ID: "002", Title: "Scale Kubernetes to Support 50,000 Services (slides)", Rows: []Row{
		{Item: "control-plane", Title: "Control plane", Drawing: "how Endpoints reach the nodes, and an example of their objects"},
		batching("batch-requests", "Batch processing: requests", "Batching for 0.5 s reduces the requests of the endpoints controller by 98 %.", []Value{
			{"100 Services: before", 551, "requests"}, {"100 Services: after", 10, "requests"}, {"150 Services: before", 785, "requests"},
			{"150 Services: after", 14, "requests"}, {"200 Services: before", 1105, "requests"}, {"200 Services: after", 17, "requests"},
		}),
		batching("batch-latency", "Batch processing: latency", "Batching for 0.5 s reduces the time until all endpoints are known by more than 59 %.", []Value{
			{"100 Services: before", 8.5, "s"}, {"100 Services: after", 3.5, "s"}, {"150 Services: before", 13.5, "s"},
			{"150 Services: after", 5.3, "s"}, {"200 Services: before", 22.8, "s"}, {"200 Services: after", 7.8, "s"},
		}),
		batchWrites(),
		{Item: "partition", Title: "Partitioned endpoints", Claim: "Several objects for the endpoints of a Service are smaller, but need more requests.", Missing: "Endpoints next to EndpointSlices: bytes and requests for one change"},
		{Item: "central", Title: "Central load balancer", Claim: "A central load balancer reduces connections and requests to the API server, for one more hop.", Missing: "watches, requests and latency with one load balancer for all nodes"},
		routingLatency(), searchTree(),
		{
			Item: "bandwidth", Title: "IPVS and iptables: network bandwidth", Claim: "Bandwidth through iptables falls to nothing with 25,000 Services; through IPVS it falls to a third, and first and last Service are equal.",
			Theirs: "qperf; 4 ports a Service", Values: bandwidth(), Missing: "bandwidth to the first and the last of 1 to 50,000 Services, with short connections and with single packets",
			Plot: Plot{X: "Services", Y: "MB/s", Theirs: []Line{
				printed("iptables, last Service", 1, 66.6, 1000, 56, 5000, 38.6, 10_000, 6, 25_000, 0, 50_000, 0),
				printed("IPVS, last Service", 1, 65.3, 1000, 55.3, 5000, 53.8, 10_000, 43.5, 25_000, 28.5, 50_000, 23.8),
			}},
		},
		{Item: "ipvs-modes", Title: "What IPVS is; load balancing modes", Drawing: "NAT, DR and tunnels: the forwarding modes nat and tunnel; Fairlead also has fullnat and dsr-nat"},
	}}
	p.Rows = append(p.Rows, addRules()...)
	return p
}

// addRules returns the rows about adding one Service to many.
func addRules() []Row {
	return []Row{
		{
			Item: "add-rule", Title: "Latency to add iptables rules", Claim: "The time to add a rule to iptables grows with the number of Services: all rules are copied.",
			Theirs: theirSlides, Ours: ourGuest, Values: addedRules(), Experiment: ipvsRules,
			Tests: []Test{
				atLeast("iptables: one more among 5,000 by one more among 1", 2, times, ratio("iptables, one more among 5000", "iptables, one more among 1")),
				atLeast("iptables: one more among 20,000 by one more among 5,000", 2, times, ratio("iptables, one more among 20000", "iptables, one more among 5000")),
			},
			Plot: addRulePlot(),
		},
		{
			Item: "add-rule-iptables", Title: "IPVS and iptables: latency to add rules, iptables", Claim: "Adding one rule to iptables takes 11 minutes with 5,000 Services and 5 hours with 20,000.",
			Theirs: theirSlides, Ours: ourGuest, Values: addedRules(), Experiment: ipvsRules,
			Note: "The claim counts as confirmed from half of the printed value.",
			Tests: []Test{
				atLeast("one more among 5,000", 330, "s", scaled(samples("iptables, one more among 5000"), 0.001)).because("iptables-restore --noflush adds a Service in one transaction; the slides' times are those of a call for each rule, and of the kernels and tools of 2017"),
				atLeast("one more among 20,000", 9000, "s", scaled(samples("iptables, one more among 20000"), 0.001)).because("the same"),
			},
			Plot: addRulePlot(),
		},
		{
			Item: "add-rule-ipvs", Title: "IPVS and iptables: latency to add rules, IPVS", Claim: "Adding a Service to IPVS takes 2 ms at any number of Services.",
			Theirs: theirSlides, Ours: ourGuest, Values: addedRules(), Experiment: ipvsRules,
			Tests: []Test{
				atMost("one more among 1", 2, "ms", samples("fairlead, one more among 1")), atMost("one more among 20,000", 2, "ms", samples("fairlead, one more among 20000")),
				atMost("20,000 less 1: below the slides' precision", 0.5, "ms", difference("fairlead, one more among 20000", "fairlead, one more among 1")),
			},
			Plot: addRulePlot(),
		},
	}
}

func batching(item, title, claim string, values []Value) Row {
	return Row{
		Item: item, Title: title, Claim: claim, Values: values, Theirs: "one master and four nodes, 16 cores; 10 pods for each of 100, 150 and 200 Services; one batch every 0.5 s",
		Missing: "kube-controller-manager with a batch period of 0 and 0.5 s: its requests, and the time until all endpoints are known. batch-writes tests the same idea in the service proxy",
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
	for _, n := range []int{100, 150, 200} {
		row.Tests = append(row.Tests, atMost(fmt.Sprintf("%d Services: writes left", n), 2, "%", scaled(ratio(fmt.Sprintf(batched, n), fmt.Sprintf(unbatched, n)), 100)))
	}
	return row
}

func routingLatency() Row {
	const last, first, middle = "iptables, %d Services: connect to the last", "iptables, %d Services: connect to the first", "iptables, %d Services: connect to the middle"
	sizes := []int{1, 1000, 10_000, 50_000}
	return Row{
		Item: "routing-latency", Title: "iptables: service routing performance", Claim: "The latency to a Service grows with its position in the list of iptables rules.", Experiment: ruleLists,
		Theirs: theirSlides, Ours: ourLists,
		Values: []Value{
			{"1 Service", 575, "µs"}, {"first of 1,000", 614, "µs"}, {"middle of 1,000", 602, "µs"}, {"last of 1,000", 631, "µs"}, {"first of 10,000", 1023, "µs"},
			{"middle of 10,000", 1048, "µs"}, {"last of 10,000", 1050, "µs"}, {"first of 50,000", 1821, "µs"}, {"middle of 50,000", 4174, "µs"}, {"last of 50,000", 7077, "µs"},
		},
		Tests: []Test{
			atLeast("last of 50,000 by first of 50,000", 2, times, ratioOfLows(fmt.Sprintf(last, 50_000), fmt.Sprintf(first, 50_000))),
			atLeast("last of 50,000 by the only one", 2, times, ratioOfLows(fmt.Sprintf(last, 50_000), fmt.Sprintf(last, 1))),
			atLeast("last of 50,000 by middle of 50,000", 1.3, times, ratioOfLows(fmt.Sprintf(last, 50_000), fmt.Sprintf(middle, 50_000))),
		},
		Plot: Plot{X: "Services", Y: "µs", Theirs: []Line{
			printed("iptables, last Service", 1, 575, 1000, 631, 10_000, 1050, 50_000, 7077), printed("iptables, first Service", 1, 575, 1000, 614, 10_000, 1023, 50_000, 1821),
		}, Ours: []Line{
			curve("iptables, last Service", last, sizes...), curve("iptables, first Service", first, sizes...),
			curve("search tree, last Service", "iptables-tree, %d Services: connect to the last", sizes...),
			curve("nftables, last Service", "nftables, %d Services: connect to the last", sizes...), curve("eBPF, last Service", "ebpf, %d Services: connect to the last", sizes...),
		}},
	}
}

func searchTree() Row {
	const tree, linear = "iptables-tree, %d Services: connect to the last", "iptables, %d Services: connect to the last"
	return Row{
		Item: "search-tree", Title: "iptables as a search tree", Claim: "A search tree of networks makes the latency grow with the root of the number of Services, not with the number.",
		Theirs: "networks of 16 and 24 bits; no measurement", Ours: ourLists, Experiment: ruleLists,
		Tests: []Test{
			atMost("last of 10,000: search tree by list", 0.8, times, ratioOfLows(fmt.Sprintf(tree, 10_000), fmt.Sprintf(linear, 10_000))),
			atMost("last of 50,000: search tree by list", 0.5, times, ratioOfLows(fmt.Sprintf(tree, 50_000), fmt.Sprintf(linear, 50_000))),
		},
		Plot: Plot{X: "Services", Y: "µs", Ours: []Line{curve("search tree", tree, 1, 1000, 10_000, 50_000), curve("list", linear, 1, 1000, 10_000, 50_000)}},
	}
}

func addedRules() []Value {
	return []Value{
		{"iptables, 1 Service", 2, "ms"}, {"iptables, 5,000 Services", 11, "min"}, {"iptables, 20,000 Services", 5, "h"},
		{"IPVS, 1 Service", 2, "ms"}, {"IPVS, 5,000 Services", 2, "ms"}, {"IPVS, 20,000 Services", 2, "ms"},
	}
}

func addRulePlot() Plot {
	return Plot{Y: "ms", Log: true, Names: []string{"iptables, 1", "iptables, 5,000", "iptables, 20,000", "IPVS, 1", "IPVS, 5,000", "IPVS, 20,000"},
		Theirs: []Line{printed("one more", 0, 2, 1, 660_000, 2, 18e6, 3, 2, 4, 2, 5, 2)},
		Ours: []Line{bars("one more", "iptables, one more among 1", "iptables, one more among 5000", "iptables, one more among 20000",
			"fairlead, one more among 1", "fairlead, one more among 5000", "fairlead, one more among 20000")}}
}

func bandwidth() (all []Value) {
	columns := []string{"1, first", "1,000, first", "1,000, last", "5,000, first", "5,000, last", "10,000, first", "10,000, last", "25,000, first", "25,000, last", "50,000, first", "50,000, last"}
	for i, x := range []float64{66.6, 64, 56, 50, 38.6, 15, 6, 0, 0, 0, 0} {
		all = append(all, Value{"iptables, " + columns[i], x, "MB/s"})
	}
	for i, x := range []float64{65.3, 61.7, 55.3, 53.5, 53.8, 43, 43.5, 30, 28.5, 24, 23.8} {
		all = append(all, Value{"IPVS, " + columns[i], x, "MB/s"})
	}
	return all
}
