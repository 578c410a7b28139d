package balancer

import (
	"github.com/fairlead/fairlead/core/schedule"
	"github.com/fairlead/fairlead/core/service"
)

// lasting is a frontend's affinity timeout, in ticks.
func lasting(f *frontend) uint32 { return uint32(uint64(f.affinity) * 1_000_000_000 >> tickShift) }

// noteClient records a client's backend, if affinity is configured.
func (m *model) noteClient(p *packet, f *frontend, o *opened, before uint8) {
	if f.affinity == 0 || o.flow == nil || !o.fresh && o.flow.state == before {
		return
	}
	k := clientKey{p.Src, f.id}
	c := m.clients[k]
	isEstablished := o.flow.state == established || o.flow.state == udp
	known := c != nil && !m.expired(c)
	if known {
		isEstablished = isEstablished || c.state == client
	}
	state, life := client, lasting(f)
	if !isEstablished {
		state, life = clientOpening, min(life, ticks(60))
	}
	m.saw.Saw(uint64(state) | 2<<20)
	tag := clientTag(&k.addr, k.frontend)
	server, generation := o.flow.server, o.flow.generation
	if !known {
		if c = m.enter(tag, o.flow); c == nil {
			return
		}
	}
	*c = flow{tag: tag, client: k, server: server, generation: generation, state: state, expires: m.now() + life, way: c.way}
	m.clients[k] = c
}

// recalled returns the backend for a client's new flows; 0 means any.
func (m *model) recalled(p *packet, f *frontend) uint32 {
	c := m.clients[clientKey{p.Src, f.id}]
	if f.affinity == 0 || c == nil || m.expired(c) {
		return 0
	}
	s := m.alive(c)
	if s == nil || s.drains || s.maxConns > 0 && m.connections[s.id].weight(1) >= uint64(s.maxConns) {
		return 0
	}
	return s.id
}

// hashOf returns the part of a packet's hash that selects its slot.
func hashOf(f *frontend, p *packet) uint32 {
	switch f.hashBy {
	case schedule.ByClient:
		return addrHash(&p.Src)
	case schedule.ByVIP:
		return addrHash(&p.Dst)
	}
	return flowHash(&p.Tuple)
}

// chooseNew selects a backend for a new flow, or returns why it cannot. byHash uses
// the hash whatever the scheduler.
func (m *model) chooseNew(p *packet, f *frontend, byHash bool) (uint32, reason) {
	if id := m.recalled(p, f); id != 0 {
		return id, ""
	}
	c := chooser{model: m, frontend: f}
	if f.slots == 0 { // all drain
		return 0, noBackend
	}
	start := slotOf(hashOf(f, p), f.slots)
	scheduler := f.Scheduler
	if byHash {
		scheduler = service.Maglev
	}
	switch scheduler {
	case service.LeastConn, service.WeightedLeastConn:
		c.weighted = scheduler == service.WeightedLeastConn
		for i := range min(f.slots, 4096) {
			c.compare(i)
		}
	case service.PowerOfTwo:
		c.weighted = true
		second := slotOf(hashOf(f, p)*0x9e3779b1, f.slots-1)
		c.compare(start)
		if second >= start {
			second++
		}
		if f.slots > 1 {
			c.compare(second)
		}
	}
	for i := uint32(0); c.best == 0 && i < min(f.slots, 128); i++ {
		at := start + i
		if scheduler == service.RoundRobin || scheduler == service.WeightedRoundRobin {
			at = f.turn
			f.turn++
			f.turned = true
		}
		if id, _ := f.slot(at % f.slots); c.hasRoom(id) {
			c.best = id
		}
	}
	switch {
	case c.best != 0:
		return c.best, ""
	case c.full:
		return 0, full
	}
	return 0, noBackend
}

// chooser compares backends.
type chooser struct {
	*model
	frontend     *frontend
	weighted     bool
	full         bool
	best         uint32
	load, weight uint64
}

func (c *chooser) hasRoom(id uint32) bool {
	if id == 0 || !c.config.server(id).used {
		return false
	}
	if most := c.config.server(id).maxConns; most > 0 && c.connections[id].weight(1) >= uint64(most) {
		c.full = true
		return false
	}
	return true
}

// compare selects a slot's backend if it is less loaded than the best so far.
func (c *chooser) compare(slot uint32) {
	id, chain := c.frontend.slot(slot)
	if !c.hasRoom(id) {
		return
	}
	weight := uint64(1)
	if c.weighted && chain > 0 {
		weight = uint64(chain)
	}
	load := c.connections[id].weight(256)
	if c.best != 0 && load*c.weight >= c.load*weight {
		return
	}
	c.best, c.load, c.weight = id, load, weight
}
