package sim

import (
	"github.com/fairlead/fairlead/lab/sim/stochastic"
	"github.com/fairlead/fairlead/lab/sim/traffic"
	"math"
)

type role uint8

const (
	clientNode role = iota
	balancerNode
	serverNode
	routerNode
	switchNode
	vipNode // an address without a place in the network
)

// node is a node with interfaces. A load balancer may be a server of another one. It then
// forwards the requests that it receives to its own servers.
type node[T Time] struct {
	role    role
	special bool // needs more handling than in the paper's networks: see pass
	dead    bool
	// For clients.
	flow   int32 // the first one
	lane   int32 // for the time between two requests
	target Node
	number int32
	load   traffic.Load

	ways []hop // to each node; a client has one for all of them
	// Each one is nil for other nodes.
	balancer *balancer[T]
	server   *server[T]
	Counts
	firstLoss T
	router    *router[T]
	processor *processor[T]
	users     *users[T]
	done      func(seconds float64)
	flows     []int32 // of a client, by the number that a load uses
	doors     []hop   // to neighbors; a LAN has one for all of its neighbors
	name      string
}

// forwards reports whether paths may lead through a node.
func (k *node[T]) forwards() bool {
	return k.role == balancerNode || k.role == routerNode || k.role == switchNode
}

func (n *Net[T]) add(name string, r role) (Node, *node[T]) {
	n.nodes = append(n.nodes, node[T]{name: name, role: r, firstLoss: -1})
	id := Node(len(n.nodes) - 1)
	return id, &n.nodes[id]
}

// Name returns a node's name.
func (n *Net[T]) Name(of Node) string { return n.nodes[of].name }

// VIP adds an address that load balancers serve (Balancer.Serves) and routers have routes
// to.
func (n *Net[T]) VIP(name string) Node {
	id, _ := n.add(name, vipNode)
	return id
}

// Client sends requests in single packets.
type Client struct {
	Name string
	To   Node // the load balancer, or a VIP
	// Start is the time of the first request, in seconds. A Poisson load or a trace
	// begins at that time.
	Start float64
	// Every is the time between two requests, in seconds, if Load is nil.
	Every float64
	Load  traffic.Load
	// Done is called for each reply, with the seconds since its request. It may be nil.
	Done func(seconds float64)
}

// Client adds a client.
func (n *Net[T]) Client(c Client) Node {
	id, k := n.add(c.Name, clientNode)
	k.target, k.load, k.done, k.special = c.To, c.Load, c.Done, c.Done != nil
	if c.Load == nil {
		k.lane = n.q.Lane(n.span(c.Every))
	}
	k.flow = n.flowOf(id, 0)
	start := c.Start + n.lead(c.Load, n.random)
	if start >= c.Start {
		n.q.At(n.span(start), n.q.Reserve(), event{kind: clientSends, who: id})
	}
	return id
}

// bytes limits a size to what a packet can request.
func bytes(size int) int32 { return int32(max(0, min(size, math.MaxInt32))) }

// lead returns how long after a client's start its load begins, in seconds, or a negative
// number if it never does.
func (n *Net[T]) lead(l traffic.Load, random *stochastic.Stream) float64 {
	if s, ok := l.(traffic.Starter); ok {
		return s.First(random)
	}
	return 0
}

func (n *Net[T]) clientSends(id Node) {
	k := &n.nodes[id]
	p := n.pool.take()
	n.pool.made++
	k.Sent++
	n.pool.all[p] = packet[T]{born: n.q.Now, client: id, to: k.target, flow: k.flow,
		size: int32(n.config.PacketBytes), replies: 1, via: none, held: 1}
	if k.load == nil {
		n.forward(id, p)
		n.q.After(k.lane, event{kind: clientSends, who: id})
		return
	}
	r := k.load.Next(int(k.number), n.random)
	k.number++
	packet := &n.pool.all[p]
	packet.replies = uint16(max(0, min(r.Replies, math.MaxUint16)))
	if r.Flow > 0 {
		packet.flow = n.flowOf(id, r.Flow)
	}
	if r.Size > 0 {
		n.pool.extra(p).asks = bytes(r.Size)
	}
	n.forward(id, p)
	if r.Wait >= 0 {
		n.q.At(n.q.Now+n.span(r.Wait), n.q.Reserve(), event{kind: clientSends, who: id})
	}
}

// arrive handles a packet that arrives at a node.
func (n *Net[T]) arrive(at Node, p int32) {
	p = n.pool.own(p)
	k := &n.nodes[at]
	if k.special && !n.pass(at, k, p) {
		return
	}
	packet := &n.pool.all[p]
	switch {
	case packet.to != at:
		n.forward(at, p)
	case k.role == balancerNode && packet.reply:
		n.bringBack(at, p)
	case k.role == balancerNode:
		k.Got++
		n.balance(at, p)
	case k.role == serverNode:
		k.Got++
		if packet.carries != datagram {
			n.accept(at, p)
			return
		}
		n.take(at, p)
	default:
		k.Got++
		k.Delay += float64(n.q.Now-packet.born) / n.second
		n.pool.consume(p)
	}
}

// pass handles what the paper's nodes do not do. It reports whether the packet must then
// be handled like in the paper's networks.
func (n *Net[T]) pass(at Node, k *node[T], p int32) bool {
	packet := &n.pool.all[p]
	switch {
	case k.dead:
		n.lose(dead, at, p)
	case k.processor != nil && !packet.ready:
		n.process(at, p)
	case k.router != nil:
		packet.ready = false
		n.routeOn(at, p)
	case k.users != nil:
		k.Got++
		n.answered(p)
		n.pool.consume(p)
	default:
		packet.ready = false
		if k.balancer != nil && k.balancer.serves(packet.to) {
			packet.to = at
		}
		if k.done != nil {
			k.done(float64(n.q.Now-packet.born) / n.second)
		}
		return true
	}
	return false
}
