package sim

import (
	"encoding/binary"
	"net/netip"

	"github.com/fairlead/fairlead/dataplane/ring"
	"github.com/fairlead/fairlead/schedule"
	"github.com/fairlead/fairlead/service"
)

// Balancer is who sends requests on to servers.
type Balancer struct {
	Name      string
	Method    service.Method
	Scheduler service.Scheduler
	Servers   []Weighted
	// Timeout is for how long after its last request a client's connection is
	// remembered, in seconds; 0: always.
	Timeout float64
	// PerPacket takes every request for a new connection.
	PerPacket bool
}

// Weighted is a server with its weight; 0 is 1.
type Weighted struct {
	Node   Node
	Weight uint32
}

// encapsulation is what a tunnel adds to a packet, in bytes: an IPv4 header.
const encapsulation = 20

// ringSize is the slots of a ring: what the product takes for small services.
const ringSize = 2039

type balancer[T Time] struct {
	Balancer
	chooser schedule.Chooser
	slots   []ring.Slot
	servers []Node            // by ring.ID-1
	state   []schedule.Server // by ring.ID-1
	by      []int32           // of clients, by Node: 1 more than the place in conns, 0 for none
	conns   []connection[T]
	free    []int32
	timeout T
	expiry  int32 // the lane of timeout
}

// connection is what a balancer remembers of a client.
type connection[T Time] struct {
	client Node
	id     ring.ID
	last   T
}

// Balancer adds one.
func (n *Net[T]) Balancer(c Balancer) (Node, error) {
	b := &balancer[T]{Balancer: c, timeout: n.span(c.Timeout)}
	var members []ring.Member
	for i, s := range c.Servers {
		m := ring.Member{ID: ring.ID(i + 1), Addr: addressOf(s.Node), Weight: max(s.Weight, 1)}
		members = append(members, m)
		b.servers = append(b.servers, s.Node)
		b.state = append(b.state, schedule.Server{Weight: m.Weight})
	}
	if b.timeout > 0 {
		b.expiry = n.q.lane(b.timeout)
	}
	var err error
	if b.slots, err = ring.For(c.Scheduler, nil, ringSize, members); err != nil {
		return none, err
	}
	id, k := n.add(c.Name, balancerNode)
	k.balancer = b
	return id, nil
}

// addressOf gives a node an address, for the schedulers.
func addressOf(of Node) netip.AddrPort {
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], 10<<24|uint32(of))
	return netip.AddrPortFrom(netip.AddrFrom4(a), 80)
}

// balance sends a request on to a server.
func (n *Net[T]) balance(at Node, p int32) {
	b, packet := n.nodes[at].balancer, &n.pool.all[p]
	id := b.remembered(packet.client, n.q.now)
	if id == 0 {
		id = n.open(at, b, packet)
	}
	if id == 0 {
		n.lose(queueFull, at, p)
		return
	}
	packet.to = b.servers[id-1]
	if b.Method == service.Tunnel {
		packet.size += encapsulation
	}
	n.forward(at, p)
}

func (b *balancer[T]) remembered(client Node, now T) ring.ID {
	if b.PerPacket || int(client) >= len(b.by) || b.by[client] == 0 {
		return 0
	}
	c := &b.conns[b.by[client]-1]
	c.last = now
	return c.id
}

// open lets the scheduler choose, and remembers it.
func (n *Net[T]) open(at Node, b *balancer[T], k *packet[T]) ring.ID {
	flow := schedule.Flow{Client: addressOf(k.client), Key: service.Key{VIP: addressOf(at).Addr(), Port: 80, Protocol: service.TCP}}
	hash := schedule.Hash(flow)
	if b.Scheduler == service.SourceHash {
		hash = schedule.HashBy(schedule.ByClient, flow)
	} else if b.Scheduler == service.DestinationHash {
		hash = schedule.HashBy(schedule.ByVIP, flow)
	}
	id := b.chooser.Choose(b.Scheduler, b.slots, hash, b.look)
	if id == 0 || b.PerPacket && b.timeout == 0 {
		return id
	}
	c := connection[T]{k.client, id, n.q.now}
	i := int32(len(b.conns))
	if last := len(b.free) - 1; last >= 0 {
		i, b.free = b.free[last], b.free[:last]
		b.conns[i] = c
	} else {
		b.conns = append(b.conns, c)
	}
	b.state[id-1].Conns++
	if !b.PerPacket {
		if b.by == nil {
			b.by = make([]int32, len(n.nodes))
		}
		b.by[k.client] = i + 1
	}
	if b.timeout > 0 {
		n.q.after(b.expiry, event{kind: expiry, who: at, what: i})
	}
	return id
}

func (b *balancer[T]) look(id ring.ID) schedule.Server { return b.state[id-1] }

// expire forgets a connection, unless it was in use meanwhile.
func (n *Net[T]) expire(at Node, i int32) {
	b := n.nodes[at].balancer
	c := &b.conns[i]
	if end := c.last + b.timeout; end > n.q.now {
		n.q.at(end, n.q.reserve(), event{kind: expiry, who: at, what: i})
		return
	}
	b.state[c.id-1].Conns--
	if !b.PerPacket {
		b.by[c.client] = 0
	}
	b.free = append(b.free, i)
}
