package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// vendors identifies other software by the prefixes of its BPF program names.
var vendors = []struct{ prefix, name string }{
	{"cil_", "Cilium"}, {"cali_", "Calico"}, {"calico_", "Calico"}, {"xdp_dispatcher", "libxdp"}, {"xdp_disp", "libxdp"},
	{"balancer_ingres", "Katran"}, {"antrea", "Antrea"}, {"loxilb", "LoxiLB"}, {"classifier_", "bpfman"}, {"tcx_dispatcher", "bpfman"},
}

// vendor returns the vendor of a program in parentheses, or "".
func vendor(program string) string {
	for _, v := range vendors {
		if strings.HasPrefix(program, v.prefix) {
			return " (" + v.name + ")"
		}
	}
	return ""
}

func checkXDPPrograms(e exam) {
	if !e.usesXDP() {
		return
	}
	for _, l := range e.network().Links {
		check := "xdp/" + l.Name
		switch p := l.Attached; {
		case p == nil && slices.Contains(e.Attached, l.Name):
			e.add(check, Broken, "the agent attached its XDP program to "+l.Name+", and it is gone: packets pass by the load balancer",
				"restart the agent, which attaches it again, and stop what detached it")
		case p == nil:
			e.add(check, OK, l.Name+" has no other XDP program", "")
		case p.Ours:
			e.add(check, OK, fmt.Sprintf("%s has Fairlead's XDP program (id %d)", l.Name, p.ID), "")
		case p.Name == Nameless:
			e.add(check, Unknown, fmt.Sprintf("%s has an XDP program, id %d; run as root to see its name", l.Name, p.ID), "")
		default:
			e.add(check, Broken, fmt.Sprintf("%s has the XDP program %q%s, id %d, which is not Fairlead's: the agent does not replace it",
				l.Name, p.Name, vendor(p.Name), p.ID), fmt.Sprintf("stop the software that attached it, or run ip link set dev %s xdp off", l.Name))
		}
	}
}

func checkTCPrograms(e exam) {
	if !e.Has(DSR, Proxy, VDN) {
		return
	}
	for _, l := range e.network().Links {
		programs, known := l.TC.Get()
		if !known {
			e.add("tc/"+l.Name, Unknown, "programs at tcx and clsact of "+l.Name+": "+l.TC.Err, "")
			continue
		}
		foreign := 0
		for _, p := range programs {
			if !p.Ours {
				foreign++
			}
			switch {
			case p.Ours:
			case p.Name == Nameless:
				e.add("tc/"+l.Name, Unknown, fmt.Sprintf("%s has a program, id %d, at %s; run as root to see its name", l.Name, p.ID, p.Hook), "")
			default:
				e.add("tc/"+l.Name, Degraded, fmt.Sprintf("%s has the program %q%s, id %d, at %s: packets that it redirects or drops do not reach Fairlead's programs",
					l.Name, p.Name, vendor(p.Name), p.ID, p.Hook), remedy(p, l.Name))
			}
		}
		if foreign == 0 {
			e.add("tc/"+l.Name, OK, "no other programs at tcx and clsact of "+l.Name, "")
		}
	}
}

func remedy(p Program, device string) string {
	hook, side, _ := strings.Cut(p.Hook, " ")
	if hook == "clsact" {
		return fmt.Sprintf("stop the software that attached it, or run tc filter del dev %s %s", device, side)
	}
	return fmt.Sprintf("stop the software that attached it: bpftool net show dev %s, bpftool prog show id %d", device, p.ID)
}

func checkIPVSServices(e exam) {
	n, known := e.IPVSServices.Get()
	ours := slices.ContainsFunc(e.Agents.Value, func(a Agent) bool { return a.Running() && a.IPVS })
	switch {
	case !e.Has(Balancer):
	case !known:
		e.add("ipvs-services", Unknown, "virtual services of IPVS: "+e.IPVSServices.Err, "")
	case n == 0:
		e.add("ipvs-services", OK, "IPVS has no virtual services", "")
	case ours:
		e.add("ipvs-services", OK, fmt.Sprintf("IPVS has %d virtual services, and the agent uses IPVS", n), "")
	case e.DataPlane == "ipvs":
		e.add("ipvs-services", Degraded, fmt.Sprintf("IPVS has %d virtual services that no running agent manages: services with the same address conflict", n),
			"stop keepalived, or kube-proxy in IPVS mode, then run ipvsadm --clear; `fairlead import` converts their configuration")
	default:
		e.add("ipvs-services", Info, fmt.Sprintf("IPVS has %d virtual services that no running agent manages", n), "")
	}
}

// KubeServices is the chain at which kube-proxy's rules start.
const KubeServices = "KUBE-SERVICES"

func checkKubeProxyChains(e exam) {
	chains, known := e.Chains.Get()
	const fix = "kubectl -n kube-system delete daemonset kube-proxy, then kube-proxy --cleanup on each node"
	switch {
	case !e.Has(Balancer, DSR, Proxy):
	case !known:
		e.add("kube-proxy-rules", Unknown, "chains of nftables and iptables: "+e.Chains.Err, "")
	case len(chains) == 0:
		e.add("kube-proxy-rules", OK, "kube-proxy has no rules here", "")
	case e.Has(Proxy):
		e.add("kube-proxy-rules", Degraded, "kube-proxy's rules are in place ("+strings.Join(chains, ", ")+"): they translate the traffic that the service proxy does not handle, "+
			"and point to stale endpoints once kube-proxy has exited", fix)
	default:
		e.add("kube-proxy-rules", Info, "kube-proxy's rules are in place ("+strings.Join(chains, ", ")+"): they serve Services to this node's clients", "")
	}
}

// rival is other software, identified by its process.
type rival struct {
	comm    string
	roles   []Role
	status  Status
	message string
	fix     string
}

var rivals = []rival{
	{"kube-proxy", []Role{Proxy}, Degraded, "serves the same Services as the role proxy", "kubectl -n kube-system delete daemonset kube-proxy"},
	{"kube-proxy", []Role{Balancer, DSR}, Info, "serves Services to this node's clients", ""},
	{"keepalived", []Role{Balancer}, Degraded, "may manage VIPs and IPVS services of the same addresses",
		"fairlead import keepalived /etc/keepalived/keepalived.conf --output-dir FOLDER, then systemctl disable --now keepalived"},
	{"speaker", []Role{Balancer}, Degraded, "may be MetalLB's speaker, which advertises addresses of the same Services",
		"kubectl -n metallb-system delete daemonset speaker, or give its Services another loadBalancerClass"},
	{"cilium-agent", []Role{Balancer, DSR, Proxy}, Degraded, "attaches programs to the same hooks, and may serve the same Services",
		"set kubeProxyReplacement=false and loadBalancer.acceleration=disabled in Cilium"},
	{"calico-node", []Role{Balancer, DSR, Proxy}, Info, "attaches programs to the same hooks if its eBPF data plane is enabled", ""},
	{"bgpd", []Role{Balancer, Reflector}, Info, "speaks BGP, too: it needs a different router ID and different peers", ""},
	{"bgpd", []Role{Router}, Info, "speaks BGP: `fairlead router --shadow-protocol bgp` makes its routes resilient", ""},
	{"bird", []Role{Balancer, Reflector}, Info, "speaks BGP, too: it needs a different router ID and different peers", ""},
	{"bird", []Role{Router}, Info, "speaks BGP: `fairlead router --shadow-protocol bird` makes its routes resilient", ""},
	{"katran", []Role{Balancer}, Degraded, "attaches its own XDP program", "systemctl disable --now katran"},
	{"loxilb", []Role{Balancer, DSR, Proxy}, Degraded, "attaches programs to the same hooks", "stop loxilb"},
}

// Comms lists the processes to look for.
func Comms() (all []string) {
	for _, r := range rivals {
		if !slices.Contains(all, r.comm) {
			all = append(all, r.comm)
		}
	}
	return all
}

func checkProcesses(e exam) {
	processes, known := e.Processes.Get()
	if !known {
		e.add("processes", Unknown, "other processes: "+e.Processes.Err, "")
		return
	}
	found := 0
	for _, r := range rivals {
		for _, p := range processes {
			if p.Comm == r.comm && e.Has(r.roles...) {
				found++
				e.add("process/"+r.comm, r.status, fmt.Sprintf("%s runs (process %d): it %s", r.comm, p.PID, r.message), r.fix)
				break
			}
		}
	}
	if found == 0 {
		e.add("processes", OK, "no other load balancer or routing daemon runs in this PID namespace", "")
	}
}

// port is a port that a role binds, or whose packets it intercepts.
type port struct {
	name   string
	udp    bool
	number uint16
	roles  []Role
	status Status
	taken  string
	fix    string
}

func (o Options) ports() []port {
	all := []port{
		{"bgp", false, 179, []Role{Router, Reflector}, Broken, "no BGP session can be accepted",
			"stop it, or keep it and run `fairlead router --shadow-protocol bgp`"},
		{"bfd", true, 3784, []Role{Balancer, Router, Reflector}, Degraded, "BGP sessions run without BFD, so failures are detected only after the hold time",
			"stop it, or set --bfd=false"},
		{"bfd-multihop", true, 4784, []Role{Balancer, Router, Reflector}, Degraded, "BGP sessions run without BFD, so failures are detected only after the hold time",
			"stop it, or set --bfd=false"},
	}
	if o.GUEPort != 0 {
		all = append(all, port{"gue", true, o.GUEPort, []Role{DSR}, Degraded, "GUE packets to backends on this node use the same port",
			"stop it, or set another --gue-port on all load balancers and nodes"})
	}
	if n := portOf(o.Health); n != 0 {
		all = append(all, port{"health", false, n, []Role{Proxy}, Degraded, "the service proxy cannot answer health checks on it",
			"stop it (kube-proxy uses 10256), or set another port in --health-address"})
	}
	if n := portOf(o.Metrics); n != 0 {
		all = append(all, port{"metrics", false, n, Roles, Broken, "an agent with this --metrics-address does not start",
			"stop it, or set another port in --metrics-address"})
	}
	return all
}

// portOf returns the port of "address:port" or ":port", or 0.
func portOf(text string) uint16 {
	if strings.HasPrefix(text, ":") {
		text = "0.0.0.0" + text
	}
	at, err := netip.ParseAddrPort(text)
	if err != nil {
		return 0
	}
	return at.Port()
}

// Ports lists the port numbers that are relevant to the roles.
func (o Options) Ports() (numbers []uint16) {
	for _, p := range o.ports() {
		if o.Has(p.roles...) {
			numbers = append(numbers, p.number)
		}
	}
	return numbers
}

func checkPorts(e exam) {
	sockets, known := e.Sockets.Get()
	for _, p := range e.ports() {
		if !e.Has(p.roles...) {
			continue
		}
		check, what := "port/"+p.name, fmt.Sprintf("TCP port %d", p.number)
		if p.udp {
			what = fmt.Sprintf("UDP port %d", p.number)
		}
		if !known {
			e.add(check, Unknown, what+": "+e.Sockets.Err, "")
			continue
		}
		i := slices.IndexFunc(sockets, func(s Socket) bool { return s.UDP == p.udp && s.Port == p.number && !e.isOurs(s) })
		switch {
		case i >= 0 && sockets[i].PID == 0 && len(e.running()) > 0:
			e.add(check, Info, what+" is in use, possibly by Fairlead: run as root to see the process", "")
		case i >= 0:
			e.add(check, p.status, what+" is in use by "+owner(sockets[i])+": "+p.taken, p.fix)
		case slices.ContainsFunc(sockets, func(s Socket) bool { return s.UDP == p.udp && s.Port == p.number }):
			e.add(check, OK, what+" is in use by Fairlead", "")
		default:
			e.add(check, OK, what+" is free", "")
		}
	}
}

func owner(s Socket) string {
	if s.PID == 0 {
		return "an unknown process (as root: ss -lnptu)"
	}
	return fmt.Sprintf("%s (process %d)", s.Comm, s.PID)
}

func (e exam) running() (agents []Agent) {
	for _, a := range e.Agents.Value {
		if a.Running() {
			agents = append(agents, a)
		}
	}
	return agents
}

// isOurs reports whether a running agent owns the socket.
func (e exam) isOurs(s Socket) bool {
	return slices.ContainsFunc(e.running(), func(a Agent) bool { return s.PID != 0 && a.PID == s.PID })
}
