package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

func checkDefaultRoutes(e exam) {
	if e.Network.Err != "" || !e.Has(Balancer, DSR, Proxy, Router, VDN) {
		return
	}
	devices := defaultDevices(e.network().Routes)
	switch {
	case len(devices) == 1:
		e.add("default-route", OK, "the default route uses "+devices[0], "")
	case len(devices) > 1:
		e.add("default-route", Info, "default routes use "+strings.Join(devices, " and ")+": replies may leave by a different interface than the packets arrived on", "")
	case e.Has(DSR):
		e.add("default-route", Degraded, "there is no default route: backends on this node can reply only to clients for which there is another route",
			"ip route add default via GATEWAY")
	case e.Has(Balancer):
		e.add("default-route", Degraded, "there is no default route: other clients get no ICMP errors, and no replies with nat and fullnat",
			"ip route add default via GATEWAY")
	default:
		e.add("default-route", Info, "there is no default route", "")
	}
}

// checkReversePath checks the interfaces on which tunneled packets arrive. After
// decapsulation, their source is a client anywhere.
func checkReversePath(e exam) {
	if !e.Has(DSR) {
		return
	}
	devices := defaultDevices(e.network().Routes)
	for _, l := range e.network().Links {
		name := sysctlOf("ipv4", l.Name, "rp_filter")
		check := "rp-filter/" + l.Name
		elsewhere := len(devices) > 0 && !slices.Contains(devices, l.Name)
		fix := fmt.Sprintf("sysctl -w %s=2 net.ipv4.conf.all.rp_filter=2", name)
		switch {
		case l.RPFilter != 1:
			e.add(check, OK, fmt.Sprintf("rp_filter of %s is %d: not strict", l.Name, l.RPFilter), "")
		case elsewhere:
			e.add(check, Broken, fmt.Sprintf("rp_filter of %s is strict (1), and the node reaches clients by %s: their packets are dropped after decapsulation",
				l.Name, strings.Join(devices, " and ")), fix)
		default:
			e.add(check, Degraded, fmt.Sprintf("rp_filter of %s is strict (1): packets of clients that the node reaches by another interface are dropped after decapsulation",
				l.Name), fix)
		}
	}
}

// sysctlOf returns the name of an interface setting as in sysctl(8): dots in the
// interface name become slashes.
func sysctlOf(family, device, setting string) string {
	return "net." + family + ".conf." + strings.ReplaceAll(device, ".", "/") + "." + setting
}

func checkRouteMTU(e exam) {
	if !e.Has(Balancer, DSR) {
		return
	}
	mtu := map[string]int{}
	for _, l := range e.network().Links {
		mtu[l.Name] = l.MTU
	}
	for _, r := range e.network().Routes {
		if of := mtu[r.Device]; r.MTU > 0 && r.MTU < of {
			e.add("route-mtu/"+r.Prefix, Degraded, fmt.Sprintf("the route %s by %s has MTU %d, less than the interface's %d: packets that are larger after encapsulation are dropped (too-big)",
				r.Prefix, r.Device, r.MTU, of), r.command(of))
		}
	}
}

// command returns the command that changes the MTU of a route.
func (r Route) command(mtu int) string {
	words := []string{"ip route change", r.Prefix}
	if r.IPv6 {
		words[0] = "ip -6 route change"
	}
	if r.Via != "" {
		words = append(words, "via", r.Via)
	}
	return strings.Join(append(words, "dev", r.Device, "mtu", strconv.Itoa(mtu)), " ")
}

// wanted is a setting that a role configures itself when it starts.
type wanted struct {
	roles []Role
	name  string
	good  func(string) bool
	value string
	// lost describes the consequence of a wrong value.
	lost string
}

func is(values ...string) func(string) bool {
	return func(v string) bool {
		for _, want := range values {
			if v == want {
				return true
			}
		}
		return false
	}
}

var forwarding = []wanted{
	{[]Role{Router, Balancer, Proxy}, "net.ipv4.ip_forward", is("1"), "1", "IPv4 packets are not forwarded"},
	{[]Role{Router, Balancer, Proxy}, "net.ipv6.conf.all.forwarding", is("1"), "1", "IPv6 packets are not forwarded"},
}

// portFields are the bits for both ports in fib_multipath_hash_fields.
const portFields = 0x30

var multipath = []wanted{
	{[]Role{Router}, "net.ipv4.fib_multipath_hash_policy", is("1", "3"), "3", policyLost},
	{[]Role{Router}, "net.ipv6.fib_multipath_hash_policy", is("1", "3"), "3", policyLost},
}

const policyLost = "next hops are selected without ports, so all connections of a client reach one load balancer"

func checkForwarding(e exam) { e.settings(forwarding) }

func checkMultipath(e exam) {
	e.settings(multipath)
	if !e.Has(Router) {
		return
	}
	for _, family := range []string{"ipv4", "ipv6"} {
		policy := e.Sysctls.Value["net."+family+".fib_multipath_hash_policy"].Value
		name := "net." + family + ".fib_multipath_hash_fields"
		fields, err := strconv.ParseUint(e.Sysctls.Value[name].Value, 0, 32)
		if policy == "3" && err == nil && fields&portFields != portFields {
			e.add(short(name), Degraded, fmt.Sprintf("%s is %#x, without the ports: all connections of a client use one next hop", name, fields),
				"sysctl -w "+name+"=55")
		}
		if policy == "1" {
			e.add(short(name), Info, name+" has no effect with policy 1, which uses a hash of the network card that may change within a flow; `fairlead router` sets policy 3", "")
		}
	}
}

// settings adds a finding for each setting that the roles need.
func (e exam) settings(all []wanted) {
	if e.Sysctls.Err != "" {
		if e.area == "routing" && len(all) > 0 && e.Has(all[0].roles...) {
			e.add("sysctl", Unknown, "sysctls: "+e.Sysctls.Err, "")
		}
		return
	}
	for _, w := range all {
		have, known := e.Sysctls.Value[w.name]
		switch {
		case !e.Has(w.roles...):
		case !known || have.Value == "":
			e.add(short(w.name), Info, w.name+" does not exist in this namespace", "")
		case w.good(have.Value):
			e.add(short(w.name), OK, w.name+" is "+have.Value, "")
		default:
			e.wrong(w, have)
		}
	}
}

// wrong evaluates a setting with a wrong value. An agent corrects it when it starts, if
// it can.
func (e exam) wrong(w wanted, have Sysctl) {
	message := fmt.Sprintf("%s is %s: %s", w.name, have.Value, w.lost)
	fix := "sysctl -w " + w.name + "=" + w.value
	switch {
	case e.runs(w.roles...):
		e.add(short(w.name), Broken, message+"; it was changed after the agent or router started", fix)
	case !have.Writable && e.System.Value.Root:
		e.add(short(w.name), Broken, message+"; it is read-only in this container, so that it cannot be set at start", fix+" on the host")
	case e.Has(Router) && w.roles[0] == Router:
		e.add(short(w.name), Degraded, message+"; `fairlead router` sets it when it starts, other routing daemons do not", fix)
	default:
		e.add(short(w.name), Info, message+"; the agent sets it when it starts", fix)
	}
}

// runs reports whether something with one of the roles is running.
func (e exam) runs(roles ...Role) bool {
	for _, a := range e.Agents.Value {
		for _, r := range roles {
			if a.Running() && strings.Contains(a.Role, string(r)) {
				return true
			}
		}
	}
	return false
}

// short returns the check name of a setting.
func short(name string) string { return "sysctl/" + strings.TrimPrefix(name, "net.") }

// Percentages of a table's limit at which it counts as nearly full, or as practically
// full.
const (
	crowded = 80
	full    = 95
)

func checkNeighbors(e exam) {
	for _, family := range []struct {
		name string
		now  int
	}{{"ipv4", e.network().Neighbors4}, {"ipv6", e.network().Neighbors6}} {
		name := "net." + family.name + ".neigh.default.gc_thresh3"
		most, err := strconv.Atoi(e.Sysctls.Value[name].Value)
		if err != nil || !e.Has(Balancer, DSR, Proxy, Router, VDN) {
			continue // exists only in the initial network namespace
		}
		need := max(family.now, e.backends()) // at most one entry per backend
		message := fmt.Sprintf("%s is %d, for %d neighbors now and %d backends", name, most, family.now, e.backends())
		switch {
		case family.now*100 >= most*full:
			e.add(short(name), Degraded, message+": packets to new neighbors are dropped", fmt.Sprintf("sysctl -w %s=%d", name, roomFor(need)))
		case need*100 >= most*crowded:
			e.add(short(name), Degraded, message+": once the table is full, packets to new neighbors are dropped", fmt.Sprintf("sysctl -w %s=%d", name, roomFor(need)))
		default:
			e.add(short(name), OK, message, "")
		}
	}
}

// roomFor returns the next power of two that leaves the table half empty.
func roomFor(n int) int {
	room := 1024
	for room < 2*n {
		room *= 2
	}
	return room
}

func (e exam) backends() (n int) {
	for _, a := range e.Agents.Value {
		n += a.Backends
	}
	return n
}

func checkConntrack(e exam) {
	const most, now = "net.netfilter.nf_conntrack_max", "net.netfilter.nf_conntrack_count"
	limit, err1 := strconv.Atoi(e.Sysctls.Value[most].Value)
	count, err2 := strconv.Atoi(e.Sysctls.Value[now].Value)
	if err1 != nil || err2 != nil || limit == 0 || !e.Has(Balancer, DSR, Proxy, Router, VDN) {
		return
	}
	message := fmt.Sprintf("connection tracking has %d of %d entries", count, limit)
	fix := fmt.Sprintf("sysctl -w %s=%d", most, 2*limit)
	switch {
	case count*100 >= limit*crowded:
		e.add("conntrack", Degraded, message+": new connections are dropped once it is full", fix)
	default:
		e.add("conntrack", OK, message, "")
	}
}
