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
		batchRequests(), batchLatency(), batchWrites(), partition(), central(),
		routingLatency(), hashing(), searchTree(),
		{Item: "ipvs-modes", Title: "What IPVS is; load balancing modes", Drawing: "NAT, DR and tunnels: the forwarding modes nat and tunnel; Fairlead also has fullnat and dsr-nat"},
	}}
	p.Rows = append(append(p.Rows, bandwidths()...), addRules()...)
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

func routingLatency() Row {
	const last, first, middle = "iptables, %d Services: connect to the last", "iptables, %d Services: connect to the first", "iptables, %d Services: connect to the middle"
	sizes := []int{1, 1000, 10_000, 50_000}
	return Row{
		Item: "routing-latency", Title: "iptables: service routing performance", Claim: "The latency to a Service grows with its position in the list of iptables rules.", Experiment: ruleLists,
		Theirs: theirSlides, Ours: ourLists + "; nftables with one endpoint a Service, the others with three; IPVS in user-mode Linux if this kernel has none",
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
			curve("IPVS, last Service", "ipvs, %d Services: connect to the last", sizes...),
		}},
	}
}

// hashing is what the slides say about IPVS, without a measurement of latency.
func hashing() Row {
	row := Row{
		Item: "routing-latency-hash", Title: "Why using IPVS?", Claim: "IPVS has better performance: hashing instead of a chain, so the latency does not depend on the number of Services.", Experiment: ruleLists,
		Theirs: "no measurement", Ours: ourLists + "; " + ourGuest + "; nftables with one endpoint a Service, the others with three",
		Note: "nftables and eBPF are not in the slides.",
	}
	for _, way := range []string{"ipvs", "nftables", "ebpf"} {
		last, only := way+", 50000 Services: connect to the last", way+", 1 Services: connect to the last"
		row.Tests = append(row.Tests, atMost(way+": last of 50,000 by the only one", 1.5, times, ratioOfLows(last, only)))
		row.Plot.Ours = append(row.Plot.Ours, curve(way, way+", %d Services: connect to the last", 1, 1000, 10_000, 50_000))
	}
	row.Plot.X, row.Plot.Y = "Services", "µs"
	return row
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
