package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/ring"
	"github.com/fairlead/fairlead/core/schedule"
	"github.com/fairlead/fairlead/core/service"
)

// Balancer is a load balancer that forwards requests to servers.
type Balancer struct {
	Name string
	// Method determines how much a packet grows, and whether its reply returns through
	// the load balancer.
	Method    service.Method
	Scheduler service.Scheduler
	Servers   []Weighted
	// Serves contains the VIPs whose packets it accepts, in addition to its own address.
	// With hash-based selection, load balancers with the same VIP and the same servers
	// make the same choices.
	Serves []Node
	// Survival determines whether flows are tracked (the default), or only the Maglev
	// table selects, with or without second chance.
	Survival service.Survival
	// RingSize is the size of the Maglev table, a prime; 0 means 2039.
	RingSize int
	// Timeout is how long a client's flow is tracked after its last request, in seconds;
	// 0 means forever. Timeouts are for connections.
	Timeout  float64
	Timeouts Timeouts
	// Table is how tracked flows are looked up.
	Table ConnTable
	// PerPacket treats every request as a new connection.
	PerPacket bool
}

// Weighted is a server or a next hop with its weight; 0 means 1.
type Weighted struct {
	Node   Node
	Weight uint32
	// Draining servers get no new flows. The same applies to servers that have MaxConns
	// connections (0: no limit).
	Draining bool
	MaxConns uint32
}

// encapsulation is the overhead of a tunnel, in bytes: an IPv4 header.
const encapsulation = 20

// ringSize is the default table size: the product's size for small services.
const ringSize = 2039

type balancer[T Time] struct {
	Balancer
	table[T]
	leadsBack bool    // replies return through the load balancer
	byRing    bool    // the Maglev table selects, flows are not tracked
	address   Node    // the address that flows are hashed with
	chains    *chains // may be nil
	builder   *ring.Builder
	chooser   schedule.Chooser
	slots     []ring.Slot
	members   []ring.Member
	servers   []Node            // by ring.ID-1
	ids       map[Node]ring.ID  // of current and former servers
	state     []schedule.Server // by ring.ID-1
}

// Balancer adds a load balancer.
func (n *Net[T]) Balancer(c Balancer) (Node, error) {
	id := Node(len(n.nodes))
	b := &balancer[T]{Balancer: c, address: id, builder: ring.NewBuilder(0), ids: map[Node]ring.ID{}}
	if len(c.Serves) > 0 {
		b.address = c.Serves[0]
	}
	b.byRing = c.Survival == service.SecondChance || c.Survival == service.HashOnly
	b.leadsBack = c.Method.LeadsBack() && !c.PerPacket
	if b.RingSize == 0 {
		b.RingSize = ringSize
	}
	if b.byRing && service.NeedsFlowTable(c.Method, c.Scheduler) {
		return none, fmt.Errorf("balancer %s: method %q and scheduler %s need a flow table: survival %s is not possible", c.Name, c.Method, c.Scheduler, c.Survival)
	}
	for _, vip := range c.Serves {
		if n.nodes[vip].role != vipNode {
			return none, fmt.Errorf("balancer %s: serves %s, which is no VIP", c.Name, n.nodes[vip].name)
		}
	}
	var err error
	if b.chains, err = newChains(&c, b.byRing); err != nil {
		return none, err
	}
	n.newTable(&b.table, c)
	if err := n.setServers(b, c.Servers); err != nil {
		return none, err
	}
	_, k := n.add(c.Name, balancerNode)
	k.balancer, k.special = b, len(c.Serves) > 0
	return id, nil
}

func (b *balancer[T]) serves(vip Node) bool { return slices.Contains(b.Serves, vip) }

// member is a server of an address.
type member struct{ address, server Node }

// age contains a server's timestamps, which are the same on all load balancers.
type age struct{ since, drained time.Time }

// SetServers changes a load balancer's servers or weights. Tracked flows of removed
// servers are deleted. Draining servers keep theirs.
func (n *Net[T]) SetServers(of Node, servers []Weighted) error {
	b := n.nodes[of].balancer
	if b == nil {
		return fmt.Errorf("%s: is no balancer, and has no servers", n.nodes[of].name)
	}
	if err := n.setServers(b, servers); err != nil {
		return err
	}
	for i, s := range b.servers {
		if !slices.ContainsFunc(servers, func(w Weighted) bool { return w.Node == s }) {
			delete(n.ages, member{b.address, s})
			b.forgetIf(func(id ring.ID) bool { return id == ring.ID(i+1) })
		}
	}
	return nil
}

func (n *Net[T]) setServers(b *balancer[T], servers []Weighted) error {
	members := make([]ring.Member, 0, len(servers))
	for _, s := range servers {
		if role := n.nodes[s.Node].role; role != serverNode && role != balancerNode && role != vipNode {
			return fmt.Errorf("balancer %s: %s cannot be a server", b.Name, n.nodes[s.Node].name)
		}
		if slices.ContainsFunc(members, func(m ring.Member) bool { return b.servers[m.ID-1] == s.Node }) {
			return fmt.Errorf("balancer %s: has server %s twice", b.Name, n.nodes[s.Node].name)
		}
		members = append(members, n.member(b, s))
	}
	slots, err := b.builder.For(b.Scheduler, b.slots, b.RingSize, members, b.members)
	if err != nil {
		return fmt.Errorf("balancer %s: %w", b.Name, err)
	}
	b.Servers, b.members, b.slots = slices.Clone(servers), members, slots
	for i, m := range members {
		its := &b.state[m.ID-1]
		its.Weight, its.MaxConns = m.Weight, servers[i].MaxConns
	}
	return nil
}

// member returns a server's ring member at a load balancer, with its ID there and its age
// at the address.
func (n *Net[T]) member(b *balancer[T], s Weighted) ring.Member {
	id := b.ids[s.Node]
	if id == 0 {
		b.servers, b.state = append(b.servers, s.Node), append(b.state, schedule.Server{})
		id = ring.ID(len(b.servers))
		b.ids[s.Node] = id
	}
	if n.ages == nil {
		n.ages = map[member]*age{}
	}
	its := n.ages[member{b.address, s.Node}]
	if its == nil {
		its = &age{since: n.moment()}
		n.ages[member{b.address, s.Node}] = its
	}
	m := ring.Member{ID: id, Addr: addressOf(s.Node), Weight: max(s.Weight, 1), Since: its.since}
	if s.Draining {
		if its.drained.IsZero() {
			its.drained = n.moment()
		}
		m.Weight, m.Drained = 0, its.drained
	} else {
		its.drained = time.Time{}
	}
	return m
}

// moment returns the simulated time in the form that rings use. The start counts as
// "always there".
func (n *Net[T]) moment() time.Time {
	if n.q.Now == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(n.Now()*1e9))
}

// hash returns the hash by which a flow is looked up in the slots.
func (n *Net[T]) hash(b *balancer[T], f *flow) uint32 {
	switch {
	case b.Scheduler == service.SourceHash:
		return schedule.HashBy(schedule.ByClient, f.toward(b.address))
	case b.Scheduler == service.DestinationHash:
		return schedule.HashBy(schedule.ByVIP, f.toward(b.address))
	case f.to == b.address:
		return f.hash
	}
	return schedule.Hash(f.toward(b.address))
}

// balance forwards a request to a server.
func (n *Net[T]) balance(at Node, p int32) {
	b, packet := n.nodes[at].balancer, &n.pool.all[p]
	id := n.choose(at, b, p)
	if id == 0 {
		n.lose(unserved, at, p)
		return
	}
	packet.to = b.servers[id-1]
	if b.Method == service.Tunnel {
		packet.size += encapsulation
	} else if b.leadsBack {
		packet.via = at
	}
	n.forward(at, p)
}

// choose returns the server for a packet, or 0.
func (n *Net[T]) choose(at Node, b *balancer[T], p int32) ring.ID {
	packet := &n.pool.all[p]
	if b.chains != nil {
		n.lookUp(b, packet.flow)
	}
	if int(packet.flow) < len(b.by) && b.by[packet.flow] != 0 {
		if id := n.remembered(at, b, packet); id != 0 {
			return id
		}
	}
	if b.byRing {
		return n.fromRing(b, p)
	}
	return n.open(at, b, packet)
}

// fromRing returns the owner of a flow's slot. Packets of older flows also get the chain
// of previous owners.
func (n *Net[T]) fromRing(b *balancer[T], p int32) ring.ID {
	packet := &n.pool.all[p]
	slot := schedule.Slot(b.slots, n.hash(b, &n.flows[packet.flow]))
	if b.Survival != service.SecondChance || packet.carries == datagram || packet.carries == syn {
		return slot.First
	}
	e := n.pool.extra(p)
	for e.chained = 0; e.chained < ring.Depth && slot.Older[e.chained] != 0; e.chained++ {
		e.chain[e.chained] = b.servers[slot.Older[e.chained]-1]
	}
	if slot.First == 0 && e.chained > 0 { // all servers are draining
		return b.ids[e.pop()]
	}
	return slot.First
}

// open lets the scheduler select a server, and tracks the flow.
func (n *Net[T]) open(at Node, b *balancer[T], k *packet[T]) ring.ID {
	id := b.chooser.Choose(b.Scheduler, b.slots, n.hash(b, &n.flows[k.flow]), b.look)
	if id == 0 || b.PerPacket && b.timeouts[stateless] == 0 {
		return id
	}
	n.remember(at, b, k, id)
	return id
}

func (b *balancer[T]) look(id ring.ID) schedule.Server { return b.state[id-1] }
