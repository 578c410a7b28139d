package sim

import "math"

type role uint8

const (
	clientNode role = iota
	balancerNode
	serverNode
	routerNode
	switchNode
	vipNode // an address, which is nowhere
)

// node is who has interfaces. A balancer may be another's server: then requests
// that come for it go on to servers of its own.
type node[T Time] struct {
	Counts
	name      string
	role      role
	dead      bool
	doors     []hop // to neighbours; of a LAN one for all of them
	ways      []hop // to each node; of a client one for all of them
	firstLoss T
	// Of clients.
	target Node
	lane   int32 // of the span between two requests
	load   Load
	number int32
	flows  []int32 // by the number that a load gives them
	done   func(seconds float64)
	// Each nil for others.
	users     *users[T]
	balancer  *balancer[T]
	server    *server[T]
	router    *router[T]
	processor *processor[T]
}

// forwards says that ways may lead through a node.
func (k *node[T]) forwards() bool {
	return k.role == balancerNode || k.role == routerNode || k.role == switchNode
}

func (n *Net[T]) add(name string, r role) (Node, *node[T]) {
	n.nodes = append(n.nodes, node[T]{name: name, role: r, firstLoss: -1})
	id := Node(len(n.nodes) - 1)
	return id, &n.nodes[id]
}

// Name gives a node's name.
func (n *Net[T]) Name(of Node) string { return n.nodes[of].name }

// VIP adds an address that balancers serve (Balancer.Serves) and routers have
// routes to.
func (n *Net[T]) VIP(name string) Node {
	id, _ := n.add(name, vipNode)
	return id
}

// Client is who sends requests in single packets.
type Client struct {
	Name string
	To   Node // the balancer, or a VIP
	// Start is when the first request is sent, in seconds; a Poisson load and a
	// trace begin there.
	Start float64
	// Every is the span between two, in seconds, where no Load says it.
	Every float64
	Load  Load
	// Done is told of each reply that comes, with the seconds since its request;
	// nil for nobody.
	Done func(seconds float64)
}

// Client adds one.
func (n *Net[T]) Client(c Client) Node {
	id, k := n.add(c.Name, clientNode)
	k.target, k.load, k.done = c.To, c.Load, c.Done
	if c.Load == nil {
		k.lane = n.q.lane(n.span(c.Every))
	}
	n.flowOf(id, 0)
	start := c.Start + n.lead(c.Load, n.random)
	if start >= c.Start {
		n.q.at(n.span(start), n.q.reserve(), event{kind: clientSends, who: id})
	}
	return id
}

// bytes is so many, or as many as a packet can ask for.
func bytes(size int) int32 { return int32(max(0, min(size, math.MaxInt32))) }

// lead is how long after a client's start its load begins, in seconds; below 0:
// never.
func (n *Net[T]) lead(l Load, random *Stream) float64 {
	if s, ok := l.(starter); ok {
		return s.first(random)
	}
	return 0
}

func (n *Net[T]) clientSends(id Node) {
	k := &n.nodes[id]
	p := n.pool.take()
	n.pool.made++
	k.Sent++
	r, flow := Request{Replies: 1}, k.flows[0]
	if k.load != nil {
		r = k.load.Next(int(k.number), n.random)
		flow = n.flowOf(id, r.Flow)
	}
	n.pool.all[p] = packet[T]{born: n.q.now, client: id, to: k.target, flow: flow, number: k.number,
		size: int32(n.config.PacketBytes), replies: int32(r.Replies), asks: bytes(r.Size), via: none, vip: none, held: 1}
	k.number++
	n.forward(id, p)
	switch again := (event{kind: clientSends, who: id}); {
	case k.load == nil:
		n.q.after(k.lane, again)
	case r.Wait >= 0:
		n.q.at(n.q.now+n.span(r.Wait), n.q.reserve(), again)
	}
}

// arrive is a packet at a node.
func (n *Net[T]) arrive(at Node, p int32) {
	p = n.pool.own(p)
	k := &n.nodes[at]
	switch {
	case k.dead:
		n.lose(dead, at, p)
	case k.processor != nil:
		n.process(at, p)
	default:
		n.handle(at, p)
	}
}

// handle does with a packet what the node is for.
func (n *Net[T]) handle(at Node, p int32) {
	k := &n.nodes[at]
	packet := &n.pool.all[p]
	switch {
	case k.role == routerNode:
		n.routeOn(at, p)
	case packet.to != at:
		if k.role == balancerNode && k.balancer.serves(packet.to) {
			k.Got++
			n.balance(at, p)
			return
		}
		n.forward(at, p)
	case k.role == balancerNode && packet.reply:
		n.bringBack(at, p)
	case k.role == balancerNode:
		k.Got++
		n.balance(at, p)
	case k.role == serverNode:
		k.Got++
		n.serve(at, p)
	default:
		k.Got++
		n.came(k, packet)
		n.pool.consume(p)
	}
}

// came is a reply at its client.
func (n *Net[T]) came(k *node[T], p *packet[T]) {
	if k.users != nil {
		n.answered(p)
		return
	}
	seconds := float64(n.q.now-p.born) / n.second
	k.Delay += seconds
	if k.done != nil {
		k.done(seconds)
	}
}
