// Package topology is the ready-made topology of the papers' container cluster with
// redundant software load balancers ("A portable load balancer with ECMP redundancy for
// container clusters", Fig. 5 and 7): the hosts, with their addresses and routes. It
// plans and draws; lab builds it, and the caller decides what runs in the hosts.
//
//	client ── upstream router ══ node network ══ route reflector
//	192.168.0.0/24            10.0.0.0/16  ╠═ node1 ── web-lb1, web-1 …
//	                                       ╠═ node2 ── web-lb2, shop-lb1, web-2 …
//	                                       ╚═ …        (overlay 172.16.0.0/16)
//
// Load balancers and backends are pods: hosts with a random address of the overlay
// network behind a node, which routes the load balancer's service prefix to it. Nodes and
// the reflector have routes to the overlay network, the router does not: what a pod sends
// to the router or beyond leaves with its node's address.
package topology

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/lab"
)

// Names of the unique hosts.
const (
	Client    = "client"
	Router    = "router"
	Reflector = "reflector"
	// Second is the second reflector, if there are two.
	Second = "reflector2"
	// Dev is the interface of every pod, node and reflector.
	Dev = "eth0"
	// AS is the autonomous system of all hosts.
	AS = 65021
	// ServerPort is the port of the papers' backends.
	ServerPort = 80
)

const (
	segment = "nodes"
	// overlayMTU allows a client's 1500 bytes in a tunnel of either family, with
	// Fairlead's option in it (40 + 24 bytes at most).
	overlayMTU = 1600
	// firstNode to 108 are the nodes' last address bytes, as in Fig. 12; further nodes
	// come after the router's 110.
	firstNode    = 105
	secondNum    = 104
	reflectorNum = 109
	routerNum    = 110
)

// Options select what is drawn.
type Options struct {
	// Services, at most 9; Default returns those of the papers' Fig. 12 (c).
	Services []ServiceOptions
	// Nodes; 0 means one more than any service has load balancers, at least 4.
	Nodes int
	// IPv6 adds IPv6 addresses to everything.
	IPv6 bool
	// ClientAddrs is the number of addresses of the client; 0 means 16.
	ClientAddrs int
	// OnNodes prepares the nodes' links for load balancers that run on the nodes
	// themselves.
	OnNodes bool
	// TwoReflectors adds Second.
	TwoReflectors bool
	// BalancerRate limits packets to a load balancer for its service, in bits per second;
	// 0 means no limit. Packets to its own address are not limited by it.
	BalancerRate uint64
	// Seed determines the pods' addresses.
	Seed uint64
}

// ServiceOptions are the initial numbers of pods of a service.
type ServiceOptions struct {
	Balancers, Servers int
}

// Default is two services with three and two load balancers.
func Default() Options {
	return Options{Services: []ServiceOptions{{Balancers: 3, Servers: 4}, {Balancers: 2, Servers: 2}}}
}

// Service is one web service with its own load balancers.
type Service struct {
	Name   string
	Prefix netip.Prefix
	VIP    netip.AddrPort
	// Prefix6 and VIP6 are not valid without IPv6.
	Prefix6 netip.Prefix
	VIP6    netip.AddrPort

	balancers, servers int // created so far
}

// Node is a machine with pods.
type Node struct {
	Name string
	Addr netip.Addr
	// Pods is the prefix of its pods' addresses.
	Pods netip.Prefix
	// Addr6 and Pods6 are not valid without IPv6.
	Addr6 netip.Addr
	Pods6 netip.Prefix

	taken map[netip.Addr]bool
}

// Pod is a load balancer or a backend: a host with that name.
type Pod struct {
	Name string
	// Service is an index into Net.Services.
	Service  int
	Balancer bool
	Node     *Node
	Addr     netip.Addr
	Addr6    netip.Addr // not valid without IPv6
}

// NodeDev is the node's interface toward the pod.
func (p Pod) NodeDev() string { return p.Name }

// Net is the papers' network.
type Net struct {
	Services []*Service
	Nodes    []*Node
	// Pods are the existing ones, in order of creation.
	Pods []Pod
	// leaving are the pods that no longer count.
	leaving map[string]bool
	// ClientAddrs and ClientAddrs6 are the client's own addresses.
	ClientAddrs, ClientAddrs6 []netip.Addr

	ipv6, onNodes, twoReflectors bool
	balancerRate                 uint64

	random *rand.Rand
}

// ReflectorAddr and RouterAddr are in the node network.
var (
	ReflectorAddr  = nodeAddr(reflectorNum)
	ReflectorAddr6 = nodeAddr6(reflectorNum)
	SecondAddr     = nodeAddr(secondNum)
	SecondAddr6    = nodeAddr6(secondNum)
	RouterAddr     = nodeAddr(routerNum)
	RouterAddr6    = nodeAddr6(routerNum)
	// Overlay is the pods' network; each node has a part of it.
	Overlay  = netip.MustParsePrefix("172.16.0.0/16")
	Overlay6 = netip.MustParsePrefix("fd00:172:16::/48")
	// NodeNetwork is the nodes' network.
	NodeNetwork  = netip.MustParsePrefix("10.0.0.0/16")
	NodeNetwork6 = netip.MustParsePrefix("fd00:10::/64")
)

// IPv6 addresses have the decimal digits of the IPv4 ones as hexadecimal digits.
func nodeAddr(n int) netip.Addr  { return netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", n)) }
func nodeAddr6(n int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("fd00:10::%d", n)) }

var serviceNames = []string{"web", "shop", "mail", "wiki", "blog", "chat", "news", "maps", "docs"}

// New plans the network with the pods in the options.
func New(o Options) (*Net, error) {
	most := 0
	for _, s := range o.Services {
		most = max(most, s.Balancers)
	}
	if o.Nodes == 0 {
		o.Nodes = max(most+1, 4)
	}
	if o.ClientAddrs == 0 {
		o.ClientAddrs = 16
	}
	switch {
	case len(o.Services) == 0 || len(o.Services) > len(serviceNames):
		return nil, fmt.Errorf("paper: %d services: want 1 to %d", len(o.Services), len(serviceNames))
	case most > o.Nodes:
		return nil, fmt.Errorf("paper: %d balancers of one service on %d nodes: a node can route a prefix to one balancer only", most, o.Nodes)
	case o.Nodes > 100:
		return nil, fmt.Errorf("paper: %d nodes: want at most 100", o.Nodes)
	case o.ClientAddrs > 200:
		return nil, fmt.Errorf("paper: %d client addresses: want at most 200", o.ClientAddrs)
	}
	n := &Net{
		leaving: map[string]bool{}, ipv6: o.IPv6, onNodes: o.OnNodes, twoReflectors: o.TwoReflectors, balancerRate: o.BalancerRate,
		random: rand.New(rand.NewPCG(o.Seed, 0)),
	}
	n.addClient(o.ClientAddrs)
	for i := range o.Nodes {
		n.Nodes = append(n.Nodes, n.newNode(i))
	}
	for i := range o.Services {
		n.Services = append(n.Services, n.newService(i))
	}
	for i, s := range o.Services {
		for range s.Balancers {
			if _, _, err := n.AddBalancer(i); err != nil {
				return nil, err
			}
		}
		for range s.Servers {
			n.AddServer(i)
		}
	}
	return n, nil
}

func (n *Net) addClient(addrs int) {
	for i := range addrs {
		n.ClientAddrs = append(n.ClientAddrs, netip.AddrFrom4([4]byte{192, 168, 0, byte(10 + i)}))
		if n.ipv6 {
			n.ClientAddrs6 = append(n.ClientAddrs6, netip.MustParseAddr(fmt.Sprintf("fd00:192:168::%d", 10+i)))
		}
	}
}

func (n *Net) newNode(i int) *Node {
	num := firstNode + i
	if num >= reflectorNum {
		num += 2
	}
	node := &Node{
		Name:  fmt.Sprintf("node%d", i+1),
		Addr:  nodeAddr(num),
		Pods:  netip.MustParsePrefix(fmt.Sprintf("172.16.%d.0/24", i+1)),
		taken: map[netip.Addr]bool{},
	}
	if n.ipv6 {
		node.Addr6 = nodeAddr6(num)
		node.Pods6 = netip.MustParsePrefix(fmt.Sprintf("fd00:172:16:%d::/64", i+1))
	}
	return node
}

func (n *Net) newService(i int) *Service {
	s := &Service{
		Name:   serviceNames[i],
		Prefix: netip.MustParsePrefix(fmt.Sprintf("10.1.%d.0/24", i+1)),
		VIP:    netip.MustParseAddrPort(fmt.Sprintf("10.1.%d.1:80", i+1)),
	}
	if n.ipv6 {
		s.Prefix6 = netip.MustParsePrefix(fmt.Sprintf("fd00:10:1:%d::/64", i+1))
		s.VIP6 = netip.MustParseAddrPort(fmt.Sprintf("[fd00:10:1:%d::1]:80", i+1))
	}
	return s
}

// AddBalancer plans another load balancer of a service, on the first node without one,
// starting at the service's own node, and returns what lab.Lab.Add must create.
func (n *Net) AddBalancer(service int) (Pod, lab.Topology, error) {
	s := n.Services[service]
	for i := range n.Nodes {
		node := n.Nodes[(service+i)%len(n.Nodes)]
		if n.balancerOn(node, service) {
			continue
		}
		s.balancers++
		p := n.newPod(fmt.Sprintf("%s-lb%d", s.Name, s.balancers), service, node)
		p.Balancer = true
		n.Pods = append(n.Pods, p)
		return p, n.drawPod(p), nil
	}
	return Pod{}, lab.Topology{}, fmt.Errorf("paper: every node has a balancer of %s already: draw more nodes", s.Name)
}

// AddServer plans another backend of a service, on the next node.
func (n *Net) AddServer(service int) (Pod, lab.Topology) {
	s := n.Services[service]
	node := n.Nodes[(service+s.servers)%len(n.Nodes)]
	s.servers++
	p := n.newPod(fmt.Sprintf("%s-%d", s.Name, s.servers), service, node)
	n.Pods = append(n.Pods, p)
	return p, n.drawPod(p)
}

// Leave removes a pod from Balancers and Servers; its place stays taken.
func (n *Net) Leave(name string) { n.leaving[name] = true }

// Stay adds it again.
func (n *Net) Stay(name string) { delete(n.leaving, name) }

// Remove removes a pod, whose place becomes free. Its name is not reused.
func (n *Net) Remove(name string) {
	delete(n.leaving, name)
	for i, p := range n.Pods {
		if p.Name == name {
			n.Pods = append(n.Pods[:i:i], n.Pods[i+1:]...)
			return
		}
	}
}

// Balancers returns the load balancers of one service.
func (n *Net) Balancers(service int) []Pod { return n.pods(service, true) }

// Servers returns the backends of one service.
func (n *Net) Servers(service int) []Pod { return n.pods(service, false) }

func (n *Net) pods(service int, balancer bool) []Pod {
	var found []Pod
	for _, p := range n.Pods {
		if p.Service == service && p.Balancer == balancer && !n.leaving[p.Name] {
			found = append(found, p)
		}
	}
	return found
}

func (n *Net) has(pod netip.Addr) bool {
	return slices.ContainsFunc(n.Pods, func(p Pod) bool { return p.Addr == pod })
}

func (n *Net) balancerOn(node *Node, service int) bool {
	return slices.ContainsFunc(n.Pods, func(p Pod) bool { return p.Balancer && p.Service == service && p.Node == node })
}

// newPod takes a random address of the node that no pod has had, or, when all have been
// used, that no pod has now.
func (n *Net) newPod(name string, service int, node *Node) Pod {
	for {
		last := byte(2 + n.random.IntN(253))
		b := node.Pods.Addr().As4()
		b[3] = last
		addr := netip.AddrFrom4(b)
		if node.taken[addr] && len(node.taken) < 253 || n.has(addr) {
			continue
		}
		node.taken[addr] = true
		p := Pod{Name: name, Service: service, Node: node, Addr: addr}
		if n.ipv6 {
			b := node.Pods6.Addr().As16()
			b[15] = last
			p.Addr6 = netip.AddrFrom16(b)
		}
		return p
	}
}
