package sim

type role uint8

const (
	clientNode role = iota
	balancerNode
	serverNode
)

// node is who has interfaces. A balancer may be another's server: then requests
// that come for it go on to servers of its own.
type node[T Time] struct {
	Counts
	name      string
	role      role
	doors     []hop // to neighbours; of a LAN one for all of them
	ways      []hop // to each node; of a client one for all of them
	firstLoss T
	// Of clients.
	target Node
	lane   int32 // of the span between two requests
	load   Load
	number int32
	// Of balancers and servers, nil for others.
	balancer *balancer[T]
	server   *server[T]
}

func (k *node[T]) forwards() bool { return k.role == balancerNode }

func (n *Net[T]) add(name string, r role) (Node, *node[T]) {
	n.nodes = append(n.nodes, node[T]{name: name, role: r, firstLoss: -1})
	id := Node(len(n.nodes) - 1)
	return id, &n.nodes[id]
}

// Load says what a client asks for. It may use the Stream, and nothing else that
// is not its own.
type Load interface {
	// Next gives the seconds until the next request after this one, and how many
	// replies this one asks for. The client stops where the seconds are below 0.
	Next(number int, random *Stream) (seconds float64, replies int)
}

// Client is who sends requests.
type Client struct {
	Name string
	To   Node // the balancer
	// Start is when the first request is sent, in seconds.
	Start float64
	// Every is the span between two, in seconds, where no Load says it.
	Every float64
	Load  Load
}

// Client adds one.
func (n *Net[T]) Client(c Client) Node {
	id, k := n.add(c.Name, clientNode)
	k.target, k.load = c.To, c.Load
	if c.Load == nil {
		k.lane = n.q.lane(n.span(c.Every))
	}
	n.q.at(n.span(c.Start), n.q.reserve(), event{kind: clientSends, who: id})
	return id
}

func (n *Net[T]) clientSends(id Node) {
	k := &n.nodes[id]
	p := n.pool.take()
	n.pool.made++
	k.Sent++
	seconds, replies := 0.0, 1
	if k.load != nil {
		seconds, replies = k.load.Next(int(k.number), n.random)
	}
	n.pool.all[p] = packet[T]{born: n.q.now, client: id, to: k.target, number: k.number,
		size: int32(n.config.PacketBytes), replies: int32(replies), held: 1}
	k.number++
	n.forward(id, p)
	switch again := (event{kind: clientSends, who: id}); {
	case k.load == nil:
		n.q.after(k.lane, again)
	case seconds >= 0:
		n.q.at(n.q.now+n.span(seconds), n.q.reserve(), again)
	}
}

// arrive is a packet at a node.
func (n *Net[T]) arrive(at Node, p int32) {
	p = n.pool.own(p)
	k := &n.nodes[at]
	packet := &n.pool.all[p]
	switch {
	case packet.to != at:
		n.forward(at, p)
	case k.role == balancerNode:
		k.Got++
		n.balance(at, p)
	case k.role == serverNode:
		k.Got++
		n.serve(at, p)
	default:
		k.Got++
		k.Delay += float64(n.q.now-packet.born) / n.second
		n.pool.consume(p)
	}
}
