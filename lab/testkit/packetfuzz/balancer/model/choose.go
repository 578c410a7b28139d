package model

import (
	"github.com/fairlead/fairlead/core/schedule"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/hashes"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/programmed"
)

// lasting is a frontend's affinity timeout, in ticks.
func lasting(f *programmed.Frontend) uint32 {
	return uint32(uint64(f.Affinity) * 1_000_000_000 >> tickShift)
}

// noteClient records a client's backend, if affinity is configured.
func (m *Model) noteClient(p *packet, f *programmed.Frontend, o *opened, before uint8) {
	if f.Affinity == 0 || o.flow == nil || !o.fresh && o.flow.State == before {
		return
	}
	k := ClientKey{p.Src, f.Id}
	c := m.Clients[k]
	isEstablished := o.flow.State == established || o.flow.State == udp
	known := c != nil && !m.expired(c)
	if known {
		isEstablished = isEstablished || c.State == client
	}
	state, life := client, lasting(f)
	if !isEstablished {
		state, life = clientOpening, min(life, ticks(60))
	}
	m.saw.Saw(uint64(state) | 2<<20)
	tag := hashes.ClientTag(&k.Addr, k.Frontend)
	server, generation := o.flow.Server, o.flow.Generation
	if !known {
		if c = m.enter(tag, o.flow); c == nil {
			return
		}
	}
	*c = Flow{Tag: tag, client: k, Server: server, Generation: generation, State: state, Expires: m.now() + life, Way: c.Way}
	m.Clients[k] = c
}

// recalled returns the backend for a client's new flows; 0 means any.
func (m *Model) recalled(p *packet, f *programmed.Frontend) uint32 {
	c := m.Clients[ClientKey{p.Src, f.Id}]
	if f.Affinity == 0 || c == nil || m.expired(c) {
		return 0
	}
	s := m.alive(c)
	if s == nil || s.Drains || s.MaxConns > 0 && m.Connections[s.Id].weight(1) >= uint64(s.MaxConns) {
		return 0
	}
	return s.Id
}

// hashOf returns the part of a packet's hash that selects its slot.
func hashOf(f *programmed.Frontend, p *packet) uint32 {
	switch f.HashBy {
	case schedule.ByClient:
		return hashes.AddrHash(&p.Src)
	case schedule.ByVIP:
		return hashes.AddrHash(&p.Dst)
	}
	return hashes.FlowHash(&p.Tuple)
}

// chooseNew selects a backend for a new flow, or returns why it cannot. byHash uses
// the hash whatever the scheduler.
func (m *Model) chooseNew(p *packet, f *programmed.Frontend, byHash bool) (uint32, reason) {
	if id := m.recalled(p, f); id != 0 {
		return id, ""
	}
	c := chooser{Model: m, frontend: f}
	if f.Slots == 0 { // all drain
		return 0, noBackend
	}
	start := hashes.SlotOf(hashOf(f, p), f.Slots)
	scheduler := f.Scheduler
	if byHash {
		scheduler = service.Maglev
	}
	switch scheduler {
	case service.LeastConn, service.WeightedLeastConn:
		c.weighted = scheduler == service.WeightedLeastConn
		for i := range min(f.Slots, 4096) {
			c.compare(i)
		}
	case service.PowerOfTwo:
		c.weighted = true
		second := hashes.SlotOf(hashOf(f, p)*0x9e3779b1, f.Slots-1)
		c.compare(start)
		if second >= start {
			second++
		}
		if f.Slots > 1 {
			c.compare(second)
		}
	}
	for i := uint32(0); c.best == 0 && i < min(f.Slots, 128); i++ {
		at := start + i
		if scheduler == service.RoundRobin || scheduler == service.WeightedRoundRobin {
			at = f.Turn
			f.Turn++
			f.Turned = true
		}
		if id, _ := f.Slot(at % f.Slots); c.hasRoom(id) {
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
	*Model
	frontend     *programmed.Frontend
	weighted     bool
	full         bool
	best         uint32
	load, weight uint64
}

func (c *chooser) hasRoom(id uint32) bool {
	if id == 0 || !c.config.Server(id).Used {
		return false
	}
	if most := c.config.Server(id).MaxConns; most > 0 && c.Connections[id].weight(1) >= uint64(most) {
		c.full = true
		return false
	}
	return true
}

// compare selects a slot's backend if it is less loaded than the best so far.
func (c *chooser) compare(slot uint32) {
	id, chain := c.frontend.Slot(slot)
	if !c.hasRoom(id) {
		return
	}
	weight := uint64(1)
	if c.weighted && chain > 0 {
		weight = uint64(chain)
	}
	load := c.Connections[id].weight(256)
	if c.best != 0 && load*c.weight >= c.load*weight {
		return
	}
	c.best, c.load, c.weight = id, load, weight
}
