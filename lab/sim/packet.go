package sim

import "github.com/fairlead/fairlead/core/ring"

// carries is the type of a packet.
type carries uint8

// Types of packets. All except datagram belong to a connection. Replies have the type of
// their request, or are resets.
const (
	datagram carries = iota
	syn
	request
	more // an acknowledgment, which requests the next part of a reply
	fin
	reset // only in replies: the server does not know the connection
)

// packet is a request or a reply in flight. Several owners may hold it at the same time
// (a frame on the medium, and its sender), so it has a reference count.
type packet[T Time] struct {
	born    T     // when the client sent the request
	client  int32 // the client that sent the request, and gets the reply
	to      int32 // current destination
	hop     int32 // the next node, if it is on a shared medium
	flow    int32
	size    int32  // in bytes
	via     int32  // the load balancer through which the reply returns; none: directly to the client
	replies uint16 // number of replies requested
	held    uint8
	carries carries
	reply   bool
	reached bool // at the end of its line or LAN, while its sender still holds it
	ready   bool // a processor has handled it
	more    bool // it has an extra
}

// extra contains the fields that only some packets need. Packets are many, and should be
// small.
type extra struct {
	number  int32 // of the exchange in the flow
	index   int32 // index of this reply packet, or of the first one requested
	asks    int32 // number of bytes requested
	vip     Node  // original destination, if a router has selected a load balancer; none: to
	chained int   // number of servers left to try
	chain   [ring.Depth]Node
}

// pool contains the packets in flight, to avoid allocations, and counts what happens to
// them.
type pool[T Time] struct {
	all                                   []packet[T]
	extras                                []extra // at the indexes of their packets
	free                                  []int32
	made, copied, retired, consumed, lost uint64
}

// extra returns a packet's extra. The pointer is valid until the next call.
func (p *pool[T]) extra(id int32) *extra {
	if !p.all[id].more {
		p.all[id].more = true
		for len(p.extras) <= int(id) {
			p.extras = append(p.extras, extra{})
		}
		p.extras[id] = extra{vip: none}
	}
	return &p.extras[id]
}

// copy makes a separate copy of a packet.
func (p *pool[T]) copy(from int32) int32 {
	id := p.take()
	p.all[id] = p.all[from]
	p.all[id].held, p.all[id].reached, p.all[id].more = 1, false, false
	if p.all[from].more {
		e := p.extras[from]
		*p.extra(id) = e
	}
	return id
}

// take returns a packet that the caller holds. The caller must set all fields except the
// reference count.
func (p *pool[T]) take() int32 {
	if n := len(p.free); n > 0 {
		id := p.free[n-1]
		p.free = p.free[:n-1]
		p.all[id].held = 1
		return id
	}
	p.all = append(p.all, packet[T]{held: 1})
	return int32(len(p.all) - 1)
}

// drop releases a reference to a packet. Without references the packet is lost, unless it
// has reached its receiver, which continues with a copy.
func (p *pool[T]) drop(id int32) {
	k := &p.all[id]
	k.held--
	if k.held > 0 {
		return
	}
	if k.reached {
		p.retired++
	} else {
		p.lost++
	}
	p.free = append(p.free, id)
}

// consume ends a packet at its receiver, which holds the only reference.
func (p *pool[T]) consume(id int32) {
	p.consumed++
	p.free = append(p.free, id)
}

// own returns an arrived packet that only its receiver holds. It is a copy if the sender
// still holds the packet to retransmit it.
func (p *pool[T]) own(id int32) int32 {
	if k := &p.all[id]; k.held == 1 {
		k.reached = false
		return id
	}
	mine := p.copy(id)
	p.copied++
	p.drop(id)
	return mine
}

// fifo is a queue of packets.
type fifo struct {
	ring       []int32 // its length is a power of two
	head, tail int
}

func (f *fifo) len() int { return f.tail - f.head }

func (f *fifo) push(id int32) {
	if f.len() == len(f.ring) {
		all := make([]int32, max(16, 2*len(f.ring)))
		for i := f.head; i < f.tail; i++ {
			all[i&(len(all)-1)] = f.ring[i&(len(f.ring)-1)]
		}
		f.ring = all
	}
	f.ring[f.tail&(len(f.ring)-1)] = id
	f.tail++
}

func (f *fifo) pop() int32 {
	id := f.ring[f.head&(len(f.ring)-1)]
	f.head++
	return id
}

// first returns the packet that has waited longest.
func (f *fifo) first() int32 { return f.ring[f.head&(len(f.ring)-1)] }
