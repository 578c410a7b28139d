package sim

import "github.com/fairlead/fairlead/core/ring"

// carries is what a packet is for.
type carries uint8

// What packets carry. All but the first are of a connection, and their answers
// carry the same, or a reset.
const (
	datagram carries = iota
	syn
	request
	more // an acknowledgement, which asks for the next part of an answer
	fin
	reset // an answer alone: the server does not know the connection
)

// packet is a request or a reply on its way. Several places may hold it at once
// (a frame in the air, and its sender), so it has a count of them.
type packet[T Time] struct {
	born    T     // when the client sent the request
	client  int32 // the node it is from, or the reply goes to
	to      int32 // the node it goes to now
	hop     int32 // the next node on its way, where that is at a shared medium
	flow    int32
	size    int32  // bytes
	via     int32  // the balancer that the reply goes back by; none: straight to the client
	replies uint16 // that the request asks for
	held    uint8
	carries carries
	reply   bool
	reached bool // the end of its line or LAN, while its sender holds it
	ready   bool // a processor has done with it
	more    bool // it has an extra
}

// extra is what only some packets have: they are many, and should be small.
type extra struct {
	number  int32 // of a flow's exchanges
	index   int32 // of the reply among those of an answer, or of the first that is asked for
	asks    int32 // bytes that the request is for
	vip     Node  // what it went to, where a router has chosen a router; none: to
	chained int   // how many servers there are to ask yet
	chain   [ring.Depth]Node
}

// pool holds the packets on their way, so that none costs an allocation, and
// counts what becomes of them.
type pool[T Time] struct {
	all                                   []packet[T]
	extras                                []extra // at the places of their packets
	free                                  []int32
	made, copied, retired, consumed, lost uint64
}

// extra gives a packet's, until the next one is asked for.
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

// copy makes a packet of its own of another one.
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

// take gives a packet, which its caller holds, and must fill but for its count.
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

// drop is for who holds a packet no more. It is lost where nobody does, unless it
// had reached who was to have it, of which a copy goes on.
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

// consume ends a packet at who it was for, who alone holds it.
func (p *pool[T]) consume(id int32) {
	p.consumed++
	p.free = append(p.free, id)
}

// own gives a packet that has come, for its receiver alone: a copy, where its
// sender holds it still, to send it again.
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

// fifo is packets that wait.
type fifo struct {
	ring       []int32 // a power of two long
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

// first gives the one that waits longest.
func (f *fifo) first() int32 { return f.ring[f.head&(len(f.ring)-1)] }
