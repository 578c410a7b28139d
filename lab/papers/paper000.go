package papers

import (
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/lab/bench/migration"
	"github.com/fairlead/fairlead/lab/bench/scale"
	"github.com/fairlead/fairlead/lab/bench/standby"
)

// The set-ups of several rows.
const (
	theirECMP  = "Kubernetes on ten machines (Xeon E5-2450, 1 Gbit/s); pods with ipvs and exabgp; reflector and router with gobgp and zebra, Debian 9, Linux 4.16"
	ourECMP    = "one process of fairlead for each load balancer, reflector and router, in network namespaces of one machine; XDP instead of IPVS"
	theirBench = "wrk -c800 -t40 -d30s over HTTP; eight machines (Xeon E5-2450, 1 Gbit/s); Linux 3.16, flannel 0.7.0; nginx pods as web servers"
	ourPods    = "64 connections that send 64 bytes and wait for their echo, through a load balancer in a pod of site 1, to pods of site 2; all on one machine; fullnat by XDP instead of IPVS"
	noCloud    = "the measurement is about virtual machines and networks of a cloud, which this machine does not have"
)

// portable returns paper 000.
func portable() Paper {
	return Paper{
		ID: "000", Title: "A Portable Load Balancer with ECMP Redundancy for Container Clusters",
		Rows: slices.Concat(architecture(), oneBalancer(), webRows(), ecmpRows(), scaleRows(), portableText()),
	}
}

// architecture returns Figs. 1 to 7.
func architecture() []Row {
	return []Row{
		{Item: "fig1", Title: "Conventional architecture of a Kubernetes cluster", Drawing: "the architecture that the paper replaces: a cloud load balancer and iptables on each node"},
		{
			Item: "fig2", Title: "Cluster with the proposed load balancer", Claim: "A load balancer in a container follows the running pods without manual configuration.",
			Theirs: theirECMP, Ours: ourECMP, Experiment: demonstration,
			Tests: []Test{
				atMost("a pod is added: until every load balancer serves it", 2000, "ms", samples("add-server")),
				atMost("a pod drains: until every load balancer sends it nothing new", 2000, "ms", samples("drain-server")),
			},
		},
		{Item: "fig3", Title: "Network of a container cluster", Drawing: "node network and overlay network; lab/topology builds the same"},
		{
			Item: "fig4", Title: "Redundancy with ECMP and a route reflector", Claim: "A router that learns the routes from a reflector spreads connections over all load balancers, and several load balancers share a node.",
			Theirs: theirECMP, Ours: ourECMP, Experiment: demonstration,
			Tests: []Test{between("next hops of a service with three load balancers", 3, 3, "", samples("next hops, table b"))},
		},
		{
			Item: "fig5", Title: "Experimental container cluster", Claim: "Redundant load balancers of several services work together in one cluster.",
			Theirs: theirECMP, Ours: ourECMP, Experiment: demonstration,
			Tests: []Test{
				between("next hops of two services with three and two load balancers", 5, 5, "", samples("next hops, table c")),
				between("requests that fail while a load balancer is added", 0, 0, "", samples("add-balancer: failed")),
				between("requests that fail while one is removed", 0, 0, "", samples("remove-balancer: failed")),
			},
		},
		{
			Item: "fig6", Title: "Implementation of the ipvs container", Claim: "The controller applies a changed set of pods within a second.",
			Values: []Value{{"interval of the controller", 1, "s"}}, Theirs: "the controller polls the API server every second and signals keepalived", Ours: "the agent watches manifests; " + ourECMP, Experiment: demonstration,
			Tests: []Test{
				atMost("a pod is added: until every load balancer has it", 1000, "ms", samples("add-server")),
				atMost("a pod drains: until every load balancer has it", 1000, "ms", samples("drain-server")),
			},
		},
		{
			Item: "fig7", Title: "Network path and settings of the exabgp container", Claim: "With the node as the next hop and a route on the node, packets for the service reach the container.",
			Theirs: theirECMP, Ours: "the pod's own address is the next hop; " + ourECMP, Experiment: demonstration,
			Tests: []Test{between("next hops in the router's kernel with one load balancer that serves", 1, 1, "", samples("next hops, table a"))},
		},
	}
}

// oneBalancer returns Figs. 8 to 10.
func oneBalancer() []Row {
	return []Row{
		{Item: "fig8", Title: "Benchmark set-up and output", Drawing: "the set-up and an example of wrk's output, with 164,718 requests/s: see fig10a", Values: []Value{{"example of wrk's output", 164717.63, "requests/s"}}},
		{Item: "fig9", Title: "Hardware, virtual machines and software", Drawing: "a list; each row of this report has the set-ups"},
		{Item: "fig10b", Title: "Throughput in GCP", Claim: "The load balancer runs in GCP, with the same shape of curve.", Theirs: theirBench, Unknowable: noCloud},
		{Item: "fig10c", Title: "Throughput in AWS", Claim: "The load balancer runs in AWS, with the same shape of curve.", Theirs: theirBench, Unknowable: noCloud},
	}
}

// ecmpRows returns Figs. 11 to 13.
func ecmpRows() []Row {
	return []Row{
		{Item: "fig11", Title: "Benchmark set-up for ECMP", Drawing: "the set-up of Figs. 12 and 13"},
		routingTable("fig12a", "one load balancer", "a", 1),
		routingTable("fig12b", "three load balancers", "b", 3),
		routingTable("fig12c", "two services, with three and two load balancers", "c", 5),
		fig13a(), fig13b(), fig13c(),
		fig13cKubernetes(),
	}
}

// silentCut is the case without BFD.
const silentCut = "holdtime: fairlead: a balancer's link is cut silently"

// portableText returns what the text claims, and the appendices.
func portableText() []Row {
	return []Row{
		{
			Item: "sec5.2-kill", Title: "SIGKILL and SIGTERM", Claim: "When the process of a load balancer is killed or terminated, its route is withdrawn immediately.",
			Theirs: theirECMP, Ours: ourECMP, Note: "Immediately is taken as within 100 ms.", Experiment: ecmpFailures,
			Tests: []Test{atMost("SIGKILL: until the router's kernel has no route to it", 100, "ms", samples("failures: fairlead: a balancer's process is killed"))},
		},
		{
			Item: "sec5.2-hold-time", Title: "Hold time", Claim: "The route of an unresponsive load balancer is withdrawn after the hold time.",
			Values: []Value{{"hold time in appendix D", 1800, "s"}}, Theirs: theirECMP, Ours: "a hold time of 9 s, without BFD; the link of a load balancer is cut silently; " + ourECMP,
			Note: "The hold time begins with the last message before the cut, which is up to a third of it earlier.", Experiment: ecmpSilence,
			Tests: []Test{
				between("until the router's kernel has no route to it, by the hold time", 0.66, 1.05, times, scaled(samples(silentCut), 1./9000)),
				atLeast("share of delays within the hold time and half a second", 1, "", within(silentCut, 9500)),
			},
		},
		consumption(),
		{
			Item: "figA1", Title: "Redundancy with VRRP", Claim: "With VRRP one load balancer limits the throughput of all; with ECMP all of them are used.", Theirs: theirECMP,
			Ours: "three load balancers on one segment, with links of 20 Mbit/s; a VIP that one of them owns (--l2-interfaces), and one that a router learns by BGP; 32 TCP connections; XDP instead of IPVS",
			Note: "The plot is the longest interruption of 32 UDP flows while the link of the owner is cut, of which the other VIP loses a third of its load balancers. The owner is dead after 0.9 s, a BGP neighbor by BFD after 3 × 300 ms.", Experiment: activeStandby,
			Tests: []Test{
				between("active/standby by the link of one load balancer", 0.9, 1, times, scaled(samples(standby.Standby+": throughput"), 1./20)),
				between("ECMP with three load balancers by active/standby", 2.85, 3.15, times, ratio(standby.ECMP+": throughput", standby.Standby+": throughput")),
			},
			Plot: Plot{Y: "ms", Names: []string{standby.Standby, standby.ECMP}, Ours: []Line{bars("interruption", standby.Standby+": longest interruption of a flow", standby.ECMP+": longest interruption of a flow")}},
		},
		{
			Item: "appB", Title: "gobgp and zebra on the router", Claim: "A router with gobgp and zebra installs all paths.", Theirs: theirECMP,
			Ours: "GoBGP 4.8 (bin/tools/gobgpd) and zebra of Debian's FRR 8.4 behind our reflector, with three load balancers", Experiment: ecmpZebra,
			Note:  "Debian's gobgpd 3.10 does not work with Debian's zebra: it ends when zebra sends it the interfaces, whose names have 16 bytes, where it expects 20.",
			Tests: []Test{between("next hops in the router's kernel", 3, 3, "", samples("zebra: GoBGP 4: next hops in the router's kernel"))},
		},
		{
			Item: "appC", Title: "The reflector's dynamic neighbors", Claim: "The reflector accepts load balancers from a range of addresses, and sends all paths.", Theirs: theirECMP,
			Ours: "four load balancers at random addresses of 172.16.0.0/16, others in each round; " + ourECMP, Experiment: ecmpNeighbors,
			Tests: []Test{
				between("load balancers with a session, of four", 4, 4, "", samples("neighbors: sessions without a line for each neighbor")),
				between("next hops in the router's kernel", 4, 4, "", samples("neighbors: next hops in the router's kernel")),
			},
		},
		{Item: "appD", Title: "exabgp on the load balancer", Drawing: "a configuration; fairlead agent needs only --peer"},
		migrated("A web service moves between clusters: it starts at the new location, traffic is routed there, and the old cluster ends.", "described in the introduction, not measured"),
		unbroken("migration-apart", migration.Apart, "as in the paper, the clusters do not know each other", "packets of connections that stay open reach pods of the other cluster, which reset them; requests with their own connection fail only if they are in flight at that moment"),
		unbroken("migration-together", migration.Together, "the second cluster also has the EndpointSlice of the first, so its load balancer selects the same pods for connections that exist", ""),
	}
}

func routingTable(item, what, table string, hops float64) Row {
	return Row{
		Item: item, Title: "Routing table with " + what, Claim: "The router's kernel has every load balancer of every service as a next hop.",
		Values: []Value{{"next hops", hops, ""}}, Theirs: theirECMP, Ours: ourECMP, Experiment: demonstration,
		Tests: []Test{between("next hops in the router's kernel", hops, hops, "", samples("next hops, table "+table))},
	}
}

func fig13a() Row {
	const shaped, free = "throughput: links of 20 Mbit/s, %d balancers", "throughput: no limits, %d balancers"
	row := Row{
		Item: "fig13a", Title: "Throughput of one to four load balancers", Claim: "Throughput grows linearly with the number of load balancers up to four.",
		Theirs: theirECMP + "; each load balancer fills its link of 1 Gbit/s", Ours: "32 uploads over TCP, each load balancer behind a link of 20 Mbit/s; " + ourECMP,
		Note:       "As in the paper, links are the limit, so the test is whether ECMP spreads the load over all of them. Without limits, all load balancers here share the same CPUs; that curve is not judged. fig13a-cpu has a limit by the CPU of each load balancer.",
		Experiment: ecmpThroughput,
		Plot:       Plot{X: "load balancers", Y: "Mbit/s", Ours: []Line{curve("links of 20 Mbit/s", shaped, 1, 2, 3, 4), curve("no limits", free, 1, 2, 3, 4)}},
	}
	for n, name := range []string{"two", "three", "four"} {
		few := float64(n + 2)
		row.Tests = append(row.Tests, between(name+" load balancers by one, over their number", 0.95, 1.05, times,
			scaled(ratio(fmt.Sprintf(shaped, n+2), fmt.Sprintf(shaped, 1)), 1/few)))
	}
	return row
}

func fig13b() Row {
	return Row{
		Item: "fig13b", Title: "Throughput while the number of load balancers changes", Claim: "Throughput follows the number of load balancers.",
		Theirs: theirECMP + "; another number every 60 s", Ours: "another number every 10 s, of which the last 5 are measured; links of 20 Mbit/s; " + ourECMP, Experiment: ecmpThroughput,
		Tests: []Test{atMost("difference from the throughput of one times their number", 5, "%", samples("throughput: over time, off the number of balancers times one"))},
	}
}

func fig13c() Row {
	const starts, stops = "convergence: fairlead: balancers start, ", "convergence: fairlead: balancers stop, "
	return Row{
		Item: "fig13c", Title: "ECMP update delay", Claim: "Most delays until the router's kernel has the running load balancers are within 6 s, and the largest is 10 s.",
		Values: []Value{{"most delays", 6, "s"}, {"largest delay", 10, "s"}}, Theirs: theirECMP + "; another number every 60 s for 20 h", Ours: "another number every 5 s for a minute (paper: every 60 s for 20 h); " + ourECMP,
		Note: "The paper's delays include Kubernetes, which starts the pods. Here processes start directly: see fig13c-kubernetes.", Experiment: ecmpChanges,
		Tests: []Test{
			atLeast("starts: share of delays within 6 s", 0.5, "", within(starts+"p50", 6000)), atLeast("starts: share within 10 s", 1, "", within(starts+"p50", 10_000)),
			atLeast("stops: share of delays within 6 s", 0.5, "", within(stops+"p50", 6000)), atLeast("stops: share within 10 s", 1, "", within(stops+"p50", 10_000)),
		},
		Plot: Plot{Y: "ms", Names: []string{"largest, start", "largest, stop", "mean, start", "mean, stop"}, Log: true, Theirs: []Line{printed("delay", 0, 10_000, 1, 10_000)}, Ours: []Line{
			bars("delay", starts+"max", stops+"max", starts+"p50", stops+"p50"),
		}},
	}
}

const ourMigration = "two clusters with a load balancer and two web servers each, on segments of their own behind one router; the same manifest of the Service; the second starts and advertises, the first drains and ends; 400 requests a second, half of them on 32 connections that stay open"

// migrated is about the move of a service, which both papers about portable load balancers
// describe and do not measure.
func migrated(claim, theirs string) Row {
	apart := func(what string) func(*Measured) []float64 { return samples(migration.Apart + ": " + what) }
	second := func(cluster string) Line {
		return curve(cluster+" cluster", migration.Apart+": "+cluster+" cluster, second %d", seconds()...)
	}
	return Row{
		Item: "migration", Title: "Migration of a web service", Claim: claim, Theirs: theirs, Ours: ourMigration,
		Note: "Second 0 of the plot begins when the router sends the first cluster no more packets.", Experiment: moves,
		Tests: []Test{
			atMost("until the router sends packets to the second cluster, from its start", 10, "s", scaled(apart(migration.Advertised), 1./1000)),
			atMost("until it sends none to the first, from the start of its drain", 10, "s", scaled(apart(migration.Withdrawn), 1./1000)),
			between("answers of the first cluster in the fourth second after", 0, 0, "", apart("old cluster, second 4")),
			atLeast("answers of the second cluster in that second, of 400", 380, "", apart("new cluster, second 4")),
		},
		Plot: Plot{X: "seconds", Y: "requests/s", Ours: []Line{second("old"), second("new")}},
	}
}

func seconds() (all []int) {
	for s := migration.First; s <= migration.Last; s++ {
		all = append(all, s)
	}
	return all
}

// unbroken is about what a move loses.
func unbroken(item, way, ours, why string) Row {
	return Row{
		Item: item, Title: "Losses while a web service migrates", Claim: "(Not claimed.) No request fails and no connection breaks.", Theirs: "not measured", Ours: ours + "; " + ourMigration, Experiment: moves,
		Tests: []Test{
			between("requests that fail", 0, 0, "", samples(way+": requests failed")).because(why),
			between("connections that break", 0, 0, "", samples(way+": connections broken")).because(why),
		},
	}
}

// fig13cKubernetes is Fig. 13 (c) with Kubernetes, which starts and stops the pods.
func fig13cKubernetes() Row {
	share := func(name, of string) Line {
		l := Line{Name: name}
		for seconds := range 13 {
			l.Points = append(l.Points, At{X: float64(seconds), of: within(of, 1000*float64(seconds))})
		}
		return l
	}
	return Row{
		Item: "fig13c-kubernetes", Title: "ECMP update delay, with Kubernetes starting the pods", Claim: "Most delays are within 6 s and the largest is 10 s, including the start of the pods by Kubernetes.",
		Values: []Value{{"most delays", 6, "s"}, {"largest delay", 10, "s"}}, Theirs: theirECMP + "; another number every 60 s for 20 h",
		Ours: "kubectl scale of a Deployment on a cluster of two nodes with kubelet and containerd, every 5 s, 12 times (paper: every 60 s for 20 h); pods on the router's segment, one router; XDP instead of IPVS; all on one machine", Experiment: kubeChanges,
		Note: "The paper's histogram has no numbers; its points in the plot are those of its text, with at least half for most.",
		Tests: []Test{
			atLeast("scaled up: share of delays within 6 s", 0.5, "", within(scale.Up, 6000)), atLeast("scaled up: share within 10 s", 1, "", within(scale.Up, 10_000)),
			atLeast("scaled down: share of delays within 6 s", 0.5, "", within(scale.Down, 6000)), atLeast("scaled down: share within 10 s", 1, "", within(scale.Down, 10_000)),
		},
		Plot: Plot{X: "seconds", Y: "share of delays within", Theirs: []Line{printed("delay", 6, 0.5, 10, 1)}, Ours: []Line{share("scaled up", scale.Up), share("scaled down", scale.Down)}},
	}
}
