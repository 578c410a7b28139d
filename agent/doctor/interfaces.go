package doctor

import (
	"fmt"
	"slices"
	"strings"
)

// Selected returns the names of the interfaces to examine: the specified ones, or those
// with a default route and those of agents.
func Selected(o Options, routes []Route) []string {
	if len(o.Interfaces) > 0 {
		return o.Interfaces
	}
	names := defaultDevices(routes)
	for _, n := range o.Attached {
		if !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return names
}

func defaultDevices(routes []Route) (names []string) {
	for _, r := range routes {
		if r.Prefix == "default" && r.Device != "" && !slices.Contains(names, r.Device) {
			names = append(names, r.Device)
		}
	}
	return names
}

// network returns the network facts. If they are unknown, the first check of an area
// reports that.
func (e exam) network() Network { return e.Network.Value }

func checkSelection(e exam) {
	if e.Network.Err != "" {
		e.add("interfaces", Unknown, "interfaces and routes: "+e.Network.Err, "")
		return
	}
	if !e.Has(Balancer, DSR, Proxy, VDN) {
		return
	}
	names := Selected(e.Options, e.network().Routes)
	if len(names) == 0 {
		e.add("interfaces", Unknown, "no interface was checked, because none has a default route: set --interface to the interfaces that receive packets", "")
		return
	}
	for _, name := range names {
		if !slices.Contains(e.network().Names, name) {
			e.add("interface/"+name, Broken, "there is no interface "+name+": an agent with --interface "+name+" does not start",
				"fairlead doctor --interface "+strings.Join(e.physical(), ",")+", and the same for the agent")
		}
	}
}

// physical returns all interface names except lo, as suggestions.
func (e exam) physical() []string {
	names := slices.DeleteFunc(slices.Clone(e.network().Names), func(n string) bool { return n == "lo" })
	if len(names) == 0 {
		return []string{"NAME"}
	}
	return names
}

func checkLinks(e exam) {
	for _, l := range e.network().Links {
		check := "interface/" + l.Name
		switch {
		case !l.Up:
			e.add(check, Broken, l.Name+" is down: it receives no packets", "ip link set dev "+l.Name+" up")
		case !l.Carrier:
			e.add(check, Broken, l.Name+" has no carrier: it receives no packets", "check the cable and the other end of the link: ip -details link show dev "+l.Name)
		case l.Addresses == 0 && e.Has(Balancer):
			e.add(check, Degraded, l.Name+" has no address: tunnel and fullnat have no source address, and BGP has no router ID",
				"ip address add ADDRESS/PREFIX dev "+l.Name)
		default:
			e.add(check, OK, fmt.Sprintf("%s is up (%s, MTU %d)", l.Name, driver(l), l.MTU), "")
		}
	}
}

func driver(l Link) string {
	if l.Driver == "" {
		return "driver unknown"
	}
	return l.Driver
}

// pageMTU is about the largest MTU that a driver supports in one page with XDP: 4096
// bytes minus headroom, the skb_shared_info and the Ethernet header. Drivers differ by a
// few hundred bytes.
const pageMTU = 3498

func checkNativeXDP(e exam) {
	if !e.usesXDP() {
		return
	}
	for _, l := range e.network().Links {
		x, known := l.XDP.Get()
		check := "native-xdp/" + l.Name
		generic := "packets use generic XDP, which needs several times as much CPU time"
		switch {
		case !known:
			e.add(check, Unknown, fmt.Sprintf("cannot determine whether %s (%s) supports native XDP: %s", l.Name, driver(l), l.XDP.Err), "")
		case !x.Basic:
			e.add(check, Degraded, fmt.Sprintf("the driver of %s (%s) does not support native XDP: %s", l.Name, driver(l), generic),
				"use an interface with a driver that supports it, such as i40e, ice, mlx5_core, bnxt_en, ena, gve or virtio_net")
		case l.Driver == "veth" && !x.RedirectTarget:
			e.add(check, Degraded, fmt.Sprintf("the peer of %s (veth) has NAPI disabled, and would lose packets that native XDP sends to it: %s", l.Name, generic),
				"ethtool -K VETH gro on, for the peer of "+l.Name)
		case !x.Fragments && l.MTU > pageMTU:
			e.add(check, Degraded, fmt.Sprintf("MTU %d of %s is larger than about %d, the limit of its driver (%s) for native XDP "+
				"without multi-buffer support: %s", l.MTU, l.Name, pageMTU, driver(l), generic), fmt.Sprintf("ip link set dev %s mtu %d", l.Name, pageMTU))
		default:
			e.add(check, OK, fmt.Sprintf("%s (%s) supports native XDP%s", l.Name, driver(l), fragments(x)), "")
		}
	}
}

func fragments(x XDPFeatures) string {
	if x.Fragments {
		return ", with multi-buffer support"
	}
	return fmt.Sprintf(" up to an MTU of about %d", pageMTU)
}

func checkQueues(e exam) {
	if !e.Has(Balancer, DSR, Router) {
		return
	}
	for _, l := range e.network().Links {
		q, known := l.Queues.Get()
		cpus := e.System.Value.CPUs
		if !known || q.MaxRX == 0 || cpus == 0 || l.Driver == "veth" {
			continue
		}
		check := "queues/" + l.Name
		few := fmt.Sprintf("%s has %d receive queues for %d CPUs: only that many CPUs can process its packets", l.Name, q.RX, cpus)
		switch {
		case q.RX >= cpus:
			e.add(check, OK, fmt.Sprintf("%s has %d receive queues for %d CPUs", l.Name, q.RX, cpus), "")
		case q.MaxRX > q.RX:
			e.add(check, Degraded, few, fmt.Sprintf("ethtool -L %s combined %d", l.Name, min(cpus, q.MaxRX)))
		default:
			e.add(check, Info, few+", and the device has no more", "")
		}
	}
}

// Bytes that tunnels add to a packet: at least IPIP over IPv4, at most GUE over IPv6 with
// all options.
const (
	leastTunnel = 20
	mostTunnel  = 148
	ethernetMTU = 1500
)

func checkMTU(e exam) {
	if !e.Has(Balancer) {
		return
	}
	for _, l := range e.network().Links {
		check := "mtu/" + l.Name
		room := l.MTU - ethernetMTU
		fix := fmt.Sprintf("ip link set dev %s mtu %d, if the network between load balancers and backends supports it", l.Name, ethernetMTU+mostTunnel)
		switch {
		case l.MTU == 0:
		case room >= mostTunnel:
			e.add(check, OK, fmt.Sprintf("MTU %d of %s fits packets of %d bytes in any tunnel", l.MTU, l.Name, ethernetMTU), "")
		case room >= leastTunnel:
			e.add(check, Info, fmt.Sprintf("MTU %d of %s leaves %d bytes for tunnels, which add %d to %d", l.MTU, l.Name, room, leastTunnel, mostTunnel), fix)
		case room >= 0:
			e.add(check, Info, fmt.Sprintf("MTU %d of %s leaves no room for tunnels (%d to %d bytes): TCP uses smaller segments, larger UDP packets are dropped (too-big)",
				l.MTU, l.Name, leastTunnel, mostTunnel), fix)
		default:
			e.add(check, Degraded, fmt.Sprintf("MTU %d of %s is below %d, and tunnels add %d to %d bytes: full-sized UDP packets are dropped (too-big)",
				l.MTU, l.Name, ethernetMTU, leastTunnel, mostTunnel), fix)
		}
	}
}
