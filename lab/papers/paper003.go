package papers

import "fmt"

// japanese returns paper 003.
func japanese() Paper {
	return Paper{ID: "003", Title: "A portable load balancer for Kubernetes clusters (in Japanese, 2017)", Rows: []Row{
		{Item: "fig1", Title: "Structure of Kubernetes", Drawing: "the architecture that the paper replaces"},
		{
			Item: "fig2", Title: "Structure with the portable load balancer", Claim: "A load balancer in a container serves the pods of a Service without help of the infrastructure.",
			Theirs: theirBench, Ours: ourECMP, Experiment: demonstration, Tests: []Test{
				atMost("a pod is added: until every load balancer serves it", 2000, "ms", samples("add-server")),
				between("next hops of a service with three load balancers", 3, 3, "", samples("next hops, table b")),
			},
		},
		{Item: "fig3", Title: "Inside the container of the load balancer", Drawing: "controller, keepalived and ipvs; fairlead agent is one process"},
		{Item: "fig4", Title: "Generated configuration of keepalived", Drawing: "an example; fairlead import reads such files, with fwmark"},
		{Item: "fig5", Title: "Table of ipvs", Drawing: "an example; the IPVS data plane writes the same entries"},
		{Item: "fig6", Title: "Benchmark set-up", Drawing: "the set-up of Figs. 11 to 13"},
		{Item: "fig7", Title: "Command line and output of wrk", Drawing: "the output is that of paper 000, Fig. 8", Values: []Value{{"example of wrk's output", 164717.63, "requests/s"}}},
		{Item: "fig8", Title: "Hardware and software", Drawing: "a list; each row of this report has the set-ups"},
		{
			Item: "fig9", Title: "Frame formats of flannel's modes", Claim: "VXLAN leaves 1,450 of 1,500 bytes to a packet, and so less throughput than host-gw.",
			Values: []Value{{"host-gw", 1500, "byte"}, {"vxlan", 1450, "byte"}, {"udp", 1472, "byte"}}, Theirs: "derived from the formats", Ours: "one TCP connection between pods over a link of 1 Gbit/s", Experiment: podThroughput,
			Tests: []Test{between("throughput of VXLAN by that of host-gw: 1,398 by 1,448 bytes of payload is 0.965", 0.955, 0.975, times,
				ratio("1G, pod to pod, bridge+vxlan: throughput", "1G, pod to pod, bridge+host-gw: throughput"))},
			Plot: Plot{Y: "Mbit/s", Names: []string{"host-gw", "vxlan", "udp"}, Ours: []Line{bars("throughput",
				"1G, pod to pod, bridge+host-gw: throughput", "1G, pod to pod, bridge+vxlan: throughput", "1G, pod to pod, tun+udp: throughput")}},
		},
		{Item: "table1", Title: "Modes of flannel in GCP and AWS", Claim: "host-gw works in the data center, not in GCP, and within one subnet of AWS; vxlan and udp work everywhere.", Unknowable: noCloud},
		{Item: "fig10", Title: "Interrupts and queues of the network card", Drawing: "four receive queues of a BCM5720, and how RSS and RPS are set"},
		overlays("fig11", "ipvs", "fairlead", "XDP instead of IPVS"), overlays("fig12", "iptables", "iptables", "iptables rules like kube-proxy's"),
		{
			Item: "fig11-linear", Title: "ipvs: requests over the number of pods", Claim: "Throughput grows linearly up to 12 or 13 pods and saturates, except with udp.", Theirs: theirBench,
			Missing: "HTTP requests over 1 to 20 web pods with CPU quotas, on flannel's three networks",
		},
		{Item: "fig12-linear", Title: "iptables: requests over the number of pods", Claim: "The curves of iptables have the shape of those of ipvs.", Theirs: theirBench, Missing: "the same with iptables"},
		multicore("fig11-rps", "ipvs", "fairlead"), multicore("fig12-rps", "iptables", "iptables"),
		{
			Item: "fig11-rss", Title: "RSS", Claim: "Distributing interrupts over four CPUs helps, less than RPS over 14.", Theirs: theirBench,
			Missing: "multi-queue veths with pinned senders, on a machine with more CPUs than queues",
		},
		{
			Item: "fig13", Title: "ipvs and iptables", Claim: "ipvs in a container and iptables hardly differ.", Theirs: theirBench, Ours: ourPods, Experiment: podBalancer,
			Tests: []Test{between(comparedWithIPTables, 0.9, 1.1, times, asIPTables)},
		},
		{Item: "fig13-nginx", Title: "nginx as a load balancer", Claim: "nginx is much slower than both, and gains nothing from more pods.", Theirs: theirBench, Missing: "nginx as a proxy in a pod, with the same pods behind it"},
		migrated("A web service moves between clusters with the same configuration.", "not measured"),
	}}
}

// requests returns the name of a case of the load balancers in pods.
func requests(maker, network, steering string, servers int) string {
	return fmt.Sprintf("balancer, %s, %s, %s, %d servers", maker, network, steering, servers)
}

// comparedWithIPTables is the test that compares the load balancer with iptables, asIPTables its
// quantity.
const comparedWithIPTables = "host-gw: requests by those of iptables, for 1, 4 and 8 servers, with and without RPS"

func asIPTables(m *Measured) []float64 {
	var all []func(*Measured) []float64
	for _, steering := range []string{"RPS", "no RPS"} {
		for _, servers := range []int{1, 4, 8} {
			all = append(all, ratio(requests("fairlead", "bridge+host-gw", steering, servers), requests("iptables", "bridge+host-gw", steering, servers)))
		}
	}
	return together(all...)(m)
}

// overlays is about the order of flannel's networks.
func overlays(item, theirs, maker, ours string) Row {
	const off = "no RPS"
	hostGW, vxlan, udp := requests(maker, "bridge+host-gw", off, 4), requests(maker, "bridge+vxlan", off, 4), requests(maker, "tun+udp", off, 4)
	return Row{
		Item: item, Title: theirs + " on flannel's networks", Claim: "host-gw is the fastest, then vxlan; udp is far slower.", Theirs: theirBench, Ours: ourPods + "; " + ours,
		Note: "The paper has its values only in diagrams.", Experiment: podBalancer,
		Tests: []Test{atMost("vxlan by host-gw", 1, times, ratio(vxlan, hostGW)), atMost("udp by vxlan", 0.75, times, ratio(udp, vxlan))},
		Plot: Plot{Y: "requests/s", Names: []string{"host-gw", "vxlan", "udp"}, Ours: []Line{
			bars("without RPS", hostGW, vxlan, udp), bars("with RPS", requests(maker, "bridge+host-gw", "RPS", 4), requests(maker, "bridge+vxlan", "RPS", 4), requests(maker, "tun+udp", "RPS", 4)),
		}},
	}
}

// multicore is about RPS.
func multicore(item, theirs, maker string) Row {
	return Row{
		Item: item, Title: theirs + " with RPS", Claim: "Without RSS and RPS, performance is remarkably poor; RPS is best.", Theirs: theirBench + "; 16 CPUs, a network card that interrupts one of them", Ours: ourPods, Experiment: podBalancer,
		Tests: []Test{atLeast("host-gw: with RPS by without", 1.2, times, ratio(requests(maker, "bridge+host-gw", "RPS", 4), requests(maker, "bridge+host-gw", "no RPS", 4))).
			because("packets over a veth are processed by the CPU of their sender, so they are spread over all CPUs before RPS, which only adds interrupts between them")},
	}
}
