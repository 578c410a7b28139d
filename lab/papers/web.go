package papers

import (
	"context"
	"fmt"

	"github.com/fairlead/fairlead/lab/bench/cni"
)

// The set-ups of the rows about web pods.
const (
	ourWeb    = "wrk with 800 connections that stay open; nginx pods with 1 % of a CPU each; the load balancer's machine has a budget with which iptables carries 8 of 20 pods; all on one machine"
	ourGuest1 = ourWeb + "; IPVS and iptables in one guest, user-mode Linux, whose kernel has the budget"
)

// twoTables is why IPVS does not reach iptables.
const twoTables = "IPVS with fullnat finds each packet's connection in its own table and in that of netfilter, which masquerades; in the paper, the network is the limit"

// web returns an experiment of bench web.
func web(name string) func(context.Context, Options, *Measured) error {
	return func(ctx context.Context, o Options, m *Measured) error {
		w := cni.DefaultWebOptions()
		w.Binary, w.Progress, w.Cases = o.Binary, o.Progress, []string{name}
		if name != "balancers" { // the others have fewer figures
			w.Rounds = 6
		}
		if o.Length == Full {
			w.Pods, w.Rounds, w.Seconds = []int{1, 2, 4, 8, 12, 16, 20}, 5, 30
		}
		r, err := cni.Web(ctx, w)
		if err == nil {
			m.add(r)
		}
		return err
	}
}

// The numbers of web pods of a short run: those before any load balancer saturates, and
// those after.
const few, enough, most = 4, 16, 20

var podCounts = []int{1, few, 8, enough, most}

// Networks as in the names of cases.
const (
	hostGW = "bridge+host-gw"
	vxlan  = "bridge+vxlan"
	udp    = "tun+udp"
)

// through is the name of a case: requests through a load balancer. Its %d is the number of
// pods.
func through(maker, network string) string { return "web, " + maker + ", " + network + ", %d pods" }

// inGuest is the same in a guest.
func inGuest(maker string) string { return "web in a guest, " + maker + ", %d pods" }

// grows tests that requests grow with the number of pods, and saturates that they no
// longer do.
func grows(what, format string) Test {
	return between(fmt.Sprintf("%s: %d web pods by one, over their number", what, few), 0.7, 1.3, times, scaled(ratio(fmt.Sprintf(format, few), fmt.Sprintf(format, 1)), 1.0/few))
}

func saturates(what, format string) Test {
	return between(fmt.Sprintf("%s: %d web pods by %d", what, most, enough), 0.85, 1.15, times, ratio(fmt.Sprintf(format, most), fmt.Sprintf(format, enough)))
}

// over compares two cases at several numbers of pods.
func over(of, to string, pods ...int) func(*Measured) []float64 {
	var all []func(*Measured) []float64
	for _, n := range pods {
		all = append(all, ratio(fmt.Sprintf(of, n), fmt.Sprintf(to, n)))
	}
	return together(all...)
}

func webPlot(theirs []Line, lines ...[2]string) Plot {
	p := Plot{X: "web pods", Y: "requests/s", Theirs: theirs}
	for _, l := range lines {
		p.Ours = append(p.Ours, curve(l[0], l[1], podCounts...))
	}
	return p
}

// webRows returns Fig. 10 (a) of paper 000.
func webRows() []Row {
	ours, tables, proxy := through("fairlead", hostGW), through("iptables", hostGW), through("nginx", hostGW)
	last := fmt.Sprintf(tables, most)
	return []Row{
		{
			Item: "fig10a-iptables", Title: "Throughput in the data center: the container next to iptables", Claim: "The load balancer in a container has the same throughput as iptables DNAT outside of one.",
			Values: []Value{{"saturation of both", 190000, "requests/s"}}, Theirs: theirBench, Ours: ourGuest1, Experiment: webGuest,
			Note:  "The paper's plateau is the bandwidth of its network, 1 Gbit/s.",
			Tests: []Test{atLeast("IPVS by iptables, 16 and 20 web pods", 0.9, times, over(inGuest("ipvs"), inGuest("iptables"), enough, most)).because(twoTables)},
			Plot:  webPlot([]Line{printed("saturation", 14, 190000)}, [2]string{"IPVS", inGuest("ipvs")}, [2]string{"iptables", inGuest("iptables")}),
		},
		{
			Item: "fig10a", Title: "Throughput in the data center", Claim: "Throughput grows linearly from 1 to about 14 web pods and then saturates; nginx as a load balancer gains nothing.",
			Values: []Value{{"pods at saturation", 14, "pods"}, {"saturation", 190000, "requests/s"}, {"size of a request", 636, "byte"}}, Theirs: theirBench, Ours: ourWeb + "; XDP instead of IPVS", Experiment: webBalancers,
			Note: "Pods and load balancers are limited by their CPU budgets, so the number of pods at saturation is a choice.",
			Tests: []Test{
				grows("iptables", tables), grows("Fairlead", ours), saturates("iptables", tables), saturates("Fairlead", ours),
				atLeast("iptables without a limit by with its budget, 20 web pods: the budget is the limit", 1.3, times, ratio(last+", no limit", last)),
				atLeast("Fairlead by iptables, 16 and 20 web pods", 0.9, times, over(ours, tables, enough, most)),
				nginxGains(proxy),
			},
			Plot: webPlot([]Line{printed("saturation", 14, 190000)}, [2]string{"Fairlead", ours}, [2]string{"iptables", tables}, [2]string{"nginx", proxy}),
		},
	}
}

// nginxGains tests that nginx gains nothing from more pods.
func nginxGains(proxy string) Test {
	return atMost("nginx: 20 web pods by 4", 1.25, times, ratio(fmt.Sprintf(proxy, most), fmt.Sprintf(proxy, few))).
		because("a pod has a hundredth of a CPU here, so that nginx, with a tenth, needs several of them to saturate")
}

// consumption is § 5.3 of paper 000.
func consumption() Row {
	cpu := func(maker string) string { return fmt.Sprintf(through(maker, hostGW), most) + ": CPU" }
	return Row{
		Item: "sec5.3", Title: "Resource consumption", Claim: "(The section is empty: it announces a comparison of CPU time.) A load balancer at layer 4 takes less CPU time than nginx.", Theirs: "not measured", Ours: ourWeb, Experiment: webBalancers,
		Note: "CPU time of the whole machine of the load balancer for 1,000 requests, at saturation.",
		Tests: []Test{
			atMost("iptables by nginx", 0.5, times, ratio(cpu("iptables"), cpu("nginx"))), atMost("Fairlead by nginx", 0.5, times, ratio(cpu("fairlead"), cpu("nginx"))),
		},
		Plot: Plot{Y: "ms for 1,000 requests", Names: []string{"Fairlead", "iptables", "nginx"}, Ours: []Line{bars("CPU time", cpu("fairlead"), cpu("iptables"), cpu("nginx"))}},
	}
}

// Names of cases with several load balancers.
const (
	balancersCase = "web, %d balancers"
	smallClient   = "web, %d balancers, small client"
)

// scaleRows returns Fig. 13 (a) of paper 000 with the CPU as the limit, and the reason
// for its end.
func scaleRows() []Row {
	const ours = "requests/s through IPVS in guests, user-mode Linux, each of whose kernels has the same budget of CPU time, behind a router with ECMP; 200 connections for each guest; nginx pods with 1 % of a CPU each; all on one machine"
	cpu := Row{
		Item: "fig13a-cpu", Title: "Throughput of one to four load balancers, limited by their CPU", Claim: "Throughput grows linearly with the number of load balancers up to four.",
		Theirs: theirECMP + "; each load balancer fills its link of 1 Gbit/s", Ours: ours, Experiment: webScaling,
		Plot: Plot{X: "load balancers", Y: "requests/s", Ours: []Line{curve("IPVS", balancersCase, 1, 2, 3, 4)}},
	}
	for n, name := range []string{"two", "three", "four"} {
		cpu.Tests = append(cpu.Tests, between(name+" load balancers by one, over their number", 0.9, 1.1, times,
			scaled(ratio(fmt.Sprintf(balancersCase, n+2), fmt.Sprintf(balancersCase, 1)), 1/float64(n+2))))
	}
	cpu.Tests = append(cpu.Tests, atLeast("idle time of the client with four load balancers: it is not the limit", 20, "%", samples(fmt.Sprintf(balancersCase, 4)+": client idle")))
	return []Row{cpu, {
		Item: "sec5.2-idle", Title: "CPU of the client", Claim: "Throughput does not grow beyond four load balancers because the client's CPU is 0 % idle.", Theirs: theirECMP, Ours: ours, Experiment: webScaling,
		Note: "The client, too, has a budget of CPU time: what it needs for two load balancers.",
		Tests: []Test{
			atMost("idle time of the small client with four load balancers", 10, "%", samples(fmt.Sprintf(smallClient, 4)+": client idle")),
			atMost("four load balancers by two, with the small client", 1.2, times, ratio(fmt.Sprintf(smallClient, 4), fmt.Sprintf(smallClient, 2))),
			atLeast("four load balancers by two, with a client that is idle", 1.6, times, ratio(fmt.Sprintf(balancersCase, 4), fmt.Sprintf(balancersCase, 2))),
		},
		Plot: Plot{X: "load balancers", Y: "requests/s", Ours: []Line{curve("client with idle time", balancersCase, 2, 4), curve("small client", smallClient, 2, 4)}},
	}}
}

// overPods is about Figs. 11 and 12 of paper 003: the shape of their curves.
func overPods() []Row {
	tables, ipvs := through("iptables", hostGW), inGuest("ipvs")
	return []Row{
		{
			Item: "fig11-linear", Title: "ipvs: requests over the number of pods", Claim: "Throughput grows linearly up to 12 or 13 pods and saturates, except with udp.", Theirs: theirBench, Ours: ourGuest1 + "; host-gw", Experiment: webGuest,
			Tests: []Test{grows("IPVS", ipvs), saturates("IPVS", ipvs)}, Plot: webPlot(nil, [2]string{"IPVS", ipvs}),
		},
		{
			Item: "fig12-linear", Title: "iptables: requests over the number of pods", Claim: "The curves of iptables have the shape of those of ipvs.", Theirs: theirBench, Ours: ourWeb, Experiment: webBalancers,
			Tests: []Test{
				grows("host-gw", tables), saturates("host-gw", tables), grows("vxlan", through("iptables", vxlan)), saturates("vxlan", through("iptables", vxlan)),
				atMost("udp: 20 web pods by 4", 1.5, times, ratio(fmt.Sprintf(through("iptables", udp), most), fmt.Sprintf(through("iptables", udp), few))),
			},
			Plot: webPlot(nil, [2]string{"host-gw", tables}, [2]string{"vxlan", through("iptables", vxlan)}, [2]string{"udp", through("iptables", udp)}),
		},
	}
}

// overlays is about the order of flannel's networks.
func overlays(item, theirs, maker, ours string) Row {
	at := func(network string) string { return fmt.Sprintf(through(maker, network), most) }
	return Row{
		Item: item, Title: theirs + " on flannel's networks", Claim: "host-gw is the fastest, then vxlan; udp is far slower.", Theirs: theirBench, Ours: ourWeb + "; " + ours,
		Note: "The paper has its values only in diagrams. Each thread that carries packets has the same budget: the card's, and the two of the udp tunnel.", Experiment: webBalancers,
		Tests: []Test{atMost("vxlan by host-gw, 20 web pods", 1, times, ratio(at(vxlan), at(hostGW))), atMost("udp by vxlan, 20 web pods", 0.75, times, ratio(at(udp), at(vxlan)))},
		Plot:  webPlot(nil, [2]string{"host-gw", through(maker, hostGW)}, [2]string{"vxlan", through(maker, vxlan)}, [2]string{"udp", through(maker, udp)}),
	}
}

// receiveQueues is about RSS.
func receiveQueues() Row {
	row := Row{
		Item: "fig11-rss", Title: "RSS", Claim: "Distributing interrupts over four CPUs helps, less than RPS over 14.", Theirs: theirBench,
		Ours: ourWeb + "; 100 connections; one or two receive queues, whose threads have a budget each, like CPUs that do nothing else", Note: "Only that it helps is tested: RPS would use CPUs without a budget.", Experiment: webBalancers,
	}
	for _, maker := range []string{"fairlead", "iptables"} {
		one := fmt.Sprintf(through(maker, hostGW), most)
		row.Tests = append(row.Tests, atLeast(maker+": two queues by one, 20 web pods", 1.2, times, ratio(one+", queues: 2", one+", queues: 1")))
		row.Plot.Ours = append(row.Plot.Ours, bars(maker, one+", queues: 1", one+", queues: 2"))
	}
	row.Plot.Y, row.Plot.Names = "requests/s", []string{"one queue", "two queues"}
	return row
}

// twoBalancers is Fig. 13 of paper 003.
func twoBalancers() []Row {
	proxy, tables := through("nginx", hostGW), through("iptables", hostGW)
	return []Row{
		{
			Item: "fig13", Title: "ipvs and iptables", Claim: "ipvs in a container and iptables hardly differ.", Theirs: theirBench, Ours: ourGuest1, Experiment: webGuest,
			Tests: []Test{between("IPVS by iptables, 16 and 20 web pods", 0.9, 1.1, times, over(inGuest("ipvs"), inGuest("iptables"), enough, most)).because(twoTables)},
			Plot:  webPlot(nil, [2]string{"IPVS", inGuest("ipvs")}, [2]string{"iptables", inGuest("iptables")}),
		},
		{
			Item: "fig13-nginx", Title: "nginx as a load balancer", Claim: "nginx is much slower than both, and gains nothing from more pods.", Theirs: theirBench, Ours: ourWeb, Experiment: webBalancers,
			Tests: []Test{
				atMost("nginx by iptables, 16 and 20 web pods", 0.6, times, over(proxy, tables, enough, most)),
				nginxGains(proxy),
			},
			Plot: webPlot(nil, [2]string{"nginx", proxy}, [2]string{"iptables", tables}),
		},
	}
}
