package papers

import "fmt"

// japanese returns paper 003.
func japanese() Paper {
	p := Paper{ID: "003", Title: "A portable load balancer for Kubernetes clusters (in Japanese, 2017)", Rows: []Row{
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
		multicore("fig11-rps", "ipvs", "fairlead"), multicore("fig12-rps", "iptables", "iptables"),
		receiveQueues(),
		migrated("A web service moves between clusters with the same configuration.", "not measured"),
	}}
	p.Rows = append(p.Rows, append(overPods(), twoBalancers()...)...)
	return p
}

// requests returns the name of a case of the load balancers in pods.
func requests(maker, network, steering string, servers int) string {
	return fmt.Sprintf("balancer, %s, %s, %s, %d servers", maker, network, steering, servers)
}

// multicore is about RPS.
func multicore(item, theirs, maker string) Row {
	return Row{
		Item: item, Title: theirs + " with RPS", Claim: "Without RSS and RPS, performance is remarkably poor; RPS is best.", Theirs: theirBench + "; 16 CPUs, a network card that interrupts one of them", Ours: ourPods, Experiment: podBalancer,
		Tests: []Test{atLeast("host-gw: with RPS by without", 1.2, times, ratio(requests(maker, "bridge+host-gw", "RPS", 4), requests(maker, "bridge+host-gw", "no RPS", 4))).
			because("packets over a veth are processed by the CPU of their sender, so they are spread over all CPUs before RPS, which only adds interrupts between them")},
	}
}
