package papers

import (
	"fmt"

	"github.com/fairlead/fairlead/lab/bench/cni"
)

const (
	theirSites = "Kubernetes 2018; pods in Daejeon, an iperf3 server in Busan (Fig. 5) or pods there (Fig. 6), over the wide area network KREONET-S; 1,000 s"
	ourSites   = "two sites in network namespaces of one machine, a link with a rate limit and no delay; one TCP connection, five rounds of 0.8 s in alternation (paper: 1,000 s)"
)

// networks returns paper 004.
func networks() Paper {
	return Paper{ID: "004", Title: "Open-Cloud Computing Platform Design based on Virtually Dedicated Network and Container Interface", Rows: []Row{
		{Item: "fig1", Title: "Structure of Kubernetes", Drawing: "the architecture that the paper extends"},
		{Item: "fig2", Title: "Structure of the platform", Drawing: "Kubernetes, a controller of virtually dedicated networks, and a CNI plugin: docs/vdn.md"},
		{Item: "fig3", Title: "Structure of the CNI plugins", Drawing: "macvlan and host-device without a bridge: docs/cni.md; fig5 and fig6 measure them"},
		{Item: "fig4", Title: "Test environment", Drawing: "two sites and a server: fig5 and fig6 have it"},
		fig5Host(), fig5Bridge(), fig6(), fig6Spread(),
		fig5Far(), slower("flannel", 895, cni.VXLAN, "a bridge and masquerading, an MTU of 1,450"),
		slower("weave", 905, cni.Weave, "a bridge and masquerading, an MTU of 1,376; the tunnels are not on the path to a server"),
		slower("calico", 904, cni.Calico, "routes, proxy ARP and masquerading, no bridge, an MTU of 1,440; no chains of policies"),
		{Item: "fig6-wan", Title: "10 Gbit/s between pods of distant sites", Claim: "Between pods over 10 Gbit/s, macvlan has 9.7 and host-device 9.88 Gbit/s.", Theirs: theirSites, Unknowable: "this kernel delays packets only through a tun device and a process, which carry 4.0 Gbit/s at most on two CPUs, without a pod network (--case wan with 10 Gbit/s). fig6 has no delay"},
		{
			Item: "fig7", Title: "Pods of both sites in the controller", Claim: "The controller knows the pods that were created on both sites, and connects them.", Theirs: "ONOS and its page", Ours: "two controllers, federated; 500 attachments while a controller is killed",
			Experiment: podNetworks,
			Tests: []Test{
				between("leases lost", 0, 0, "", samples(attachedCase+"leases lost")), between("addresses given twice", 0, 0, "", samples(attachedCase+"addresses given twice")),
				atMost("until the pods of both sites reach each other", 10, "s", samples("federation, until the pods of both sites reach each other")),
			},
		},
		{
			Item: "slicing", Title: "VDN slicing", Claim: "A slice has the bandwidth that was requested for it.", Theirs: "OpenFlow meters; no measurement", Ours: "400 of 500 Mbit/s guaranteed, attacked by another network with UDP and 32 TCP connections", Experiment: podNetworks,
			Tests: []Test{atMost("below its share while it is attacked", 5, "%", samples("slices, 400M guaranteed of 500M, attacked: below its share"))},
		},
		{
			Item: "federation", Title: "VDN federation", Claim: "Hosts of two domains communicate only after both allow it.", Theirs: "ONOS; no measurement", Ours: "two domains with a controller each, enforced by the kernel", Experiment: podNetworks,
			Tests: []Test{between("connections before both networks name each other", 0, 0, "", samples("federation, connections before both networks name each other"))},
		},
		{
			Item: "future-dtn", Title: "Data transfer nodes and Science DMZ", Claim: "(Planned.) Bulk flows of a Science DMZ keep their rate over a guaranteed network.", Theirs: "not measured",
			Ours: "eight TCP connections in a network with 400 of 500 Mbit/s guaranteed, attacked by another network with UDP and 32 TCP connections; no delay", Experiment: podBulk,
			Tests: []Test{atMost("below the guarantee while attacked", 5, "%", samples(bulkCase+"attacked: below the guarantee"))},
			Plot:  Plot{Y: "Mbit/s", Names: []string{"alone", "attacked"}, Ours: []Line{bars("rate", bulkCase+"alone", bulkCase+"attacked")}},
		},
	}}
}

const bulkCase = "bulk, 8 flows, 400M guaranteed of 500M, "

const attachedCase = "attachments, 500, controller killed 3 times: "

func fig5Plot() Plot {
	return Plot{Y: "Mbit/s", Names: []string{"host", "macvlan", "host-device", "bridge, routed"},
		Theirs: []Line{printed("throughput", 0, 940, 1, 938, 2, 940, 3, 904)},
		Ours:   []Line{bars("throughput", toServer("host"), toServer("macvlan"), toServer("host-device"), toServer("bridge+host-gw"))}}
}

func toServer(kind string) string { return "1G, pod to server, " + kind + ": throughput" }
func betweenPods(kind string) string {
	return "10G, pod to pod, " + kind + ": throughput"
}

var fig5Values = []Value{
	{"host (about)", 940, "Mbit/s"}, {"macvlan", 938, "Mbit/s"}, {"host-device", 940, "Mbit/s"}, {"Calico", 904, "Mbit/s"}, {"Flannel", 895, "Mbit/s"}, {"Weave Net", 905, "Mbit/s"},
}

func fig5Host() Row {
	return Row{
		Item: "fig5", Title: "1 Gbit/s: the new plugins", Claim: "From a pod to a server, macvlan and host-device have the throughput of the host.", Values: fig5Values,
		Theirs: theirSites, Ours: ourSites, Experiment: podThroughput, Plot: fig5Plot(),
		Tests: []Test{
			atLeast("macvlan by the host", 0.99, times, ratio(toServer("macvlan"), toServer("host"))), atLeast("host-device by the host", 0.99, times, ratio(toServer("host-device"), toServer("host"))),
		},
	}
}

func fig5Bridge() Row {
	row := Row{
		Item: "fig5-bridge", Title: "1 Gbit/s: the existing plugins", Claim: "From a pod to a server, plugins with a bridge or an overlay have more than 30 Mbit/s less than macvlan and host-device.", Values: fig5Values,
		Theirs: theirSites, Ours: ourSites + "; a bridge and routing like flannel's host-gw, which carries the traffic of all of flannel's modes to a server outside",
		Note: "Weave Net and Calico are not rebuilt here.", Experiment: podThroughput, Plot: fig5Plot(),
		Tests: []Test{atLeast("macvlan less bridge", 30, "Mbit/s", difference(toServer("macvlan"), toServer("bridge+host-gw"))).because(
			"a bridge costs CPU time, not throughput, as long as the CPUs are not the limit: both fill the link, of which 1,448 of 1,514 bytes are payload. The plot has the experiment: without offloads, where each packet of 1,500 bytes is processed alone, the CPUs are the limit")},
	}
	row.Plot.Names = append(row.Plot.Names, "no offloads, pod to pod: macvlan", "no offloads, pod to pod: bridge, routed")
	const plain = "1G, no offloads, pod to pod, %s: throughput"
	row.Plot.Ours[0].Points = append(row.Plot.Ours[0].Points, At{X: 4, of: samples(fmt.Sprintf(plain, "macvlan"))}, At{X: 5, of: samples(fmt.Sprintf(plain, "bridge+host-gw"))})
	return row
}

func fig6() Row {
	return Row{
		Item: "fig6", Title: "10 Gbit/s between pods", Claim: "Between pods over 10 Gbit/s, macvlan has 9.7 and host-device 9.88 Gbit/s.", Values: []Value{{"macvlan", 9.7, "Gbit/s"}, {"host-device", 9.88, "Gbit/s"}},
		Theirs: theirSites, Ours: ourSites, Note: "The test is 9.7 Gbit/s for both, as the paper's conclusion says.", Experiment: podThroughput,
		Tests: []Test{
			atLeast("macvlan", 9700, "Mbit/s", samples(betweenPods("macvlan"))).because(frameLimit), atLeast("host-device", 9700, "Mbit/s", samples(betweenPods("host-device"))).because(frameLimit),
		},
		Plot: Plot{Y: "Mbit/s", Names: []string{"host", "macvlan", "host-device", "bridge, routed"}, Theirs: []Line{printed("throughput", 1, 9700, 2, 9880)},
			Ours: []Line{bars("throughput", betweenPods("host"), betweenPods("macvlan"), betweenPods("host-device"), betweenPods("bridge+host-gw"))}},
	}
}

const frameLimit = "frames of 1,514 bytes carry at most 9,564 Mbit/s of payload over 10 Gbit/s, and all kinds, the host included, reach that: 9.7 and 9.88 need larger frames, which the paper does not mention"

func fig6Spread() Row {
	return Row{
		Item: "fig6-stability", Title: "10 Gbit/s: stability", Claim: "macvlan is less stable than host-device.", Theirs: theirSites, Ours: ourSites, Note: "The spread is the standard deviation of tenths of seconds by their mean.",
		Experiment: podThroughput, Tests: []Test{atLeast("spread of macvlan by that of host-device", 1, times, ratio("10G, pod to pod, macvlan: spread", "10G, pod to pod, host-device: spread"))},
		Plot: Plot{Y: "%", Names: []string{"macvlan", "host-device"}, Ours: []Line{bars("spread", "10G, pod to pod, macvlan: spread", "10G, pod to pod, host-device: spread")}},
	}
}

const ourDistance = "two sites in network namespaces of one machine, 2 ms apart in each direction, 1 Gbit/s of IP packets; one TCP connection, seven rounds of 2 s in alternation (paper: 1,000 s)"

// far is the throughput of a kind to the server with a delay.
func far(kind string) string { return "wan, 1G, pod to server, " + kind + ": throughput" }

func fig5Far() Row {
	return Row{
		Item: "fig5-wan", Title: "1 Gbit/s over a distance: the new plugins", Claim: "From a pod to a server, macvlan and host-device have the throughput of the host.", Values: fig5Values,
		Theirs: theirSites, Ours: ourDistance, Experiment: podsFarAway,
		Tests: []Test{
			atLeast("macvlan by the host", 0.99, times, ratio(far(cni.Macvlan), far(cni.Host))), atLeast("host-device by the host", 0.99, times, ratio(far(cni.HostDevice), far(cni.Host))),
		},
		Plot: Plot{
			Y: "Mbit/s", Names: []string{"host", "macvlan", "host-device", "flannel", "Weave Net", "Calico"}, Theirs: []Line{printed("throughput", 0, 940, 1, 938, 2, 940, 3, 895, 4, 905, 5, 904)},
			Ours: []Line{bars("throughput", far(cni.Host), far(cni.Macvlan), far(cni.HostDevice), far(cni.VXLAN), far(cni.Weave), far(cni.Calico))},
		},
	}
}

// slower is about one of the existing plugins.
func slower(name string, theirs float64, kind, ours string) Row {
	return Row{
		Item: "fig5-" + name, Title: "1 Gbit/s over a distance: " + name, Claim: "From a pod to a server, this plugin has more than 30 Mbit/s less than macvlan.",
		Values: []Value{{name, theirs, "Mbit/s"}, {"macvlan", 938, "Mbit/s"}}, Theirs: theirSites, Ours: ourDistance + "; its path rebuilt from the kernel's features: " + ours, Experiment: podsFarAway,
		Tests: []Test{atLeast("macvlan less "+name, 30, "Mbit/s", difference(far(cni.Macvlan), far(kind))).because(
			"the link is the limit, not the CPU. The smaller MTU costs a few Mbit/s: 1,324 of 1,376 bytes are payload with the smallest, 1,448 of 1,500 with the largest")},
	}
}
