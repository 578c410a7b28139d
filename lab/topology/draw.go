package topology

import (
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/lab"
)

// The router has the first address of the client's network.
const (
	clientGateway  = "192.168.0.1"
	clientGateway6 = "fd00:192:168::1"
)

// Topology returns the network with the current pods.
func (n *Net) Topology() lab.Topology {
	t := lab.Topology{
		Title:    "A container cluster with redundant load balancers (Fig. 5)",
		Hosts:    []lab.HostSpec{{Name: Client, Is: "client"}, n.routerSpec(), {Name: Reflector, Is: "route reflector"}},
		Switches: []lab.SwitchSpec{{Name: segment, Is: "node network"}},
		Links:    []lab.Link{n.clientLink(), n.routerLink(), n.reflectorLink(Reflector, ReflectorAddr, ReflectorAddr6)},
	}
	if n.twoReflectors {
		t.Hosts = append(t.Hosts, lab.HostSpec{Name: Second, Is: "second route reflector"})
		t.Links = append(t.Links, n.reflectorLink(Second, SecondAddr, SecondAddr6))
	}
	for _, node := range n.Nodes {
		t.Hosts = append(t.Hosts, n.nodeSpec(node))
		t.Links = append(t.Links, n.nodeLink(node))
	}
	for _, p := range n.Pods {
		part := n.drawPod(p)
		t.Hosts = append(t.Hosts, part.Hosts...)
		t.Links = append(t.Links, part.Links...)
	}
	return t
}

// routerSpec hashes a packet's own five fields, as in RFC 2992: the kernel's default for
// TCP would use the sender's txhash instead, which changes within a connection.
func (n *Net) routerSpec() lab.HostSpec {
	const fiveTuple = "55" // FIB_MULTIPATH_HASH_FIELD_*: addresses, protocol, ports (net/ip_fib.h)
	return lab.HostSpec{
		Name: Router, Is: "upstream router", Forward: true,
		Sysctls: map[string]string{
			"net.ipv4.fib_multipath_hash_policy": "3",
			"net.ipv4.fib_multipath_hash_fields": fiveTuple,
			"net.ipv6.fib_multipath_hash_policy": "3",
			"net.ipv6.fib_multipath_hash_fields": fiveTuple,
		},
	}
}

func (n *Net) nodeSpec(node *Node) lab.HostSpec {
	spare := []string{Overlay.String(), host(ReflectorAddr), host(SecondAddr)}
	spare6 := []string{Overlay6.String(), host(ReflectorAddr6), host(SecondAddr6)}
	for _, o := range n.Nodes {
		spare = append(spare, host(o.Addr))
		if n.ipv6 {
			spare6 = append(spare6, host(o.Addr6))
		}
	}
	spec := lab.HostSpec{
		Name: node.Name, Is: "node", Forward: true,
		SNAT: []lab.SNAT{{From: Overlay.String(), Spare: spare}},
	}
	if n.ipv6 {
		spec.SNAT = append(spec.SNAT, lab.SNAT{From: Overlay6.String(), Spare: spare6})
	}
	return spec
}

func (n *Net) clientLink() lab.Link {
	client, router := lab.At(Client, Dev), lab.At(Router, "eth0", clientGateway+"/24")
	for _, a := range n.ClientAddrs {
		client.Addrs = append(client.Addrs, netip.PrefixFrom(a, 24).String())
	}
	client = client.Via(clientGateway, "default")
	if n.ipv6 {
		for _, a := range n.ClientAddrs6 {
			client.Addrs = append(client.Addrs, netip.PrefixFrom(a, 64).String())
		}
		client = client.Via(clientGateway6, "default")
		router.Addrs = append(router.Addrs, clientGateway6+"/64")
	}
	return lab.Link{A: client, B: router}
}

// onSegment is an end on the node network.
func (n *Net) onSegment(name, dev string, addr, addr6 netip.Addr) lab.End {
	e := lab.At(name, dev, netip.PrefixFrom(addr, NodeNetwork.Bits()).String())
	if n.ipv6 {
		e.Addrs = append(e.Addrs, netip.PrefixFrom(addr6, NodeNetwork6.Bits()).String())
	}
	return e
}

func (n *Net) routerLink() lab.Link {
	return lab.Link{A: n.onSegment(Router, "eth1", RouterAddr, RouterAddr6), B: lab.Port(segment), MTU: overlayMTU}
}

func (n *Net) reflectorLink(name string, addr, addr6 netip.Addr) lab.Link {
	e := n.byRouter(n.onSegment(name, Dev, addr, addr6))
	return lab.Link{A: n.overlay(e, nil), B: lab.Port(segment), MTU: overlayMTU}
}

func (n *Net) nodeLink(node *Node) lab.Link {
	port := lab.Port(segment)
	if n.onNodes {
		port = port.ForXDP()
	}
	e := n.byRouter(n.onSegment(node.Name, Dev, node.Addr, node.Addr6))
	return lab.Link{A: n.overlay(e, node), B: port, MTU: overlayMTU}
}

func (n *Net) byRouter(e lab.End) lab.End {
	e = e.Via(RouterAddr.String(), "default")
	if n.ipv6 {
		e = e.Via(RouterAddr6.String(), "default")
	}
	return e
}

// overlay adds the routes to the pods of all other nodes.
func (n *Net) overlay(e lab.End, self *Node) lab.End {
	for _, o := range n.Nodes {
		if o == self {
			continue
		}
		e = e.Via(o.Addr.String(), o.Pods.String())
		if n.ipv6 {
			e = e.Via(o.Addr6.String(), o.Pods6.String())
		}
	}
	return e
}

// drawPod returns a pod on its node. The node has its network's first address on each
// pod's link; through a load balancer it routes the service's prefix (Fig. 7).
func (n *Net) drawPod(p Pod) lab.Topology {
	s := n.Services[p.Service]
	gateway := p.Node.Pods.Addr().Next()
	node := lab.At(p.Node.Name, p.NodeDev(), host(gateway)).To(host(p.Addr))
	pod := lab.At(p.Name, Dev, host(p.Addr)).To(host(gateway)).Via(gateway.String(), "default")
	if n.ipv6 {
		gateway6 := p.Node.Pods6.Addr().Next()
		node.Addrs = append(node.Addrs, host(gateway6))
		pod.Addrs = append(pod.Addrs, host(p.Addr6))
		node = node.To(host(p.Addr6))
		pod = pod.To(host(gateway6)).Via(gateway6.String(), "default")
	}
	is := "server of " + s.Name
	if p.Balancer {
		is = "balancer of " + s.Name
		node = node.ForXDP().Via(p.Addr.String(), s.Prefix.String())
		if n.ipv6 {
			node = node.Via(p.Addr6.String(), s.Prefix6.String())
		}
		node = node.Shaped(ServiceShape(n.balancerRate, s.Prefix))
	}
	pod.GRO = true // a load balancer on the node may redirect to it
	return lab.Topology{
		Hosts: []lab.HostSpec{{Name: p.Name, Is: is}},
		Links: []lab.Link{{A: node, B: pod, MTU: overlayMTU, Cuttable: p.Balancer}},
	}
}

// host is the prefix of one address.
func host(a netip.Addr) string { return fmt.Sprintf("%s/%d", a, a.BitLen()) }

// besides is the rate, in bits per second, of packets that do not belong to a service, on
// a link with a limit for those that do: BGP and BFD must not queue behind them.
const besides = 2_000_000

// ServiceShape limits packets to a service; 0 means no limit.
func ServiceShape(rate uint64, prefix netip.Prefix) lab.Shape {
	if rate == 0 {
		return lab.Shape{}
	}
	return lab.Shape{Rate: rate + besides, Classes: []lab.Class{{To: prefix.String(), Rate: rate, Ceil: rate}}}
}
