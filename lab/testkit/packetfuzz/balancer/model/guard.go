package model

import (
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/programmed"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// limited is the state of rate limits: for each bucket the time at which it will be full
// again (GCRA, ITU-T I.371).
type limited struct {
	Each map[ClientKey]*ClientBuckets
	All  map[uint32]*AllBuckets // by frontend
}

type ClientBuckets struct{ packets, opens uint32 }

type AllBuckets struct {
	packets, opens             uint64
	PacketsCredit, OpensCredit uint32
}

// guard reports whether a packet may pass to a frontend that has source ranges or rate
// limits. A packet that returns from other load balancers has been charged here before.
func (m *Model) guard(p *packet, f *programmed.Frontend, handed flags) bool {
	if !f.Serves(&p.Src) {
		m.drop(sourceDenied)
		return false
	}
	if handed == last || !f.Limits.Some {
		return true
	}
	isOpening := p.flags&opens != 0 || p.Proto == wire.UDP
	l := &f.Limits
	ok := true
	if l.EachPacket.Step > 0 || l.EachOpen.Step > 0 {
		ok = m.ofClient(p, f, isOpening)
	}
	if ok && (l.AllPackets.Step > 0 || l.AllOpen.Step > 0) {
		ok = m.ofAll(f, isOpening)
	}
	if !ok {
		m.drop(rateLimited)
	}
	return ok
}

// ofClient takes a packet out of its client's buckets, in sixteenths of a microsecond.
func (m *Model) ofClient(p *packet, f *programmed.Frontend, isOpening bool) bool {
	k := ClientKey{p.Src, f.Id}
	now := uint32(m.Ns * 2 / 125)
	c := m.Each[k]
	if c == nil {
		c = &ClientBuckets{now, now}
		m.Each[k] = c
	}
	if isOpening && f.Limits.EachOpen.Step > 0 && !takeEach(&c.opens, now, f.Limits.EachOpen) {
		return false
	}
	return f.Limits.EachPacket.Step == 0 || takeEach(&c.packets, now, f.Limits.EachPacket)
}

func takeEach(full *uint32, now uint32, l programmed.Limit) bool {
	debt := uint64(*full - now)
	if debt > l.Depth { // it is long ago
		debt = 0
	}
	if debt+l.Step > l.Depth {
		return false
	}
	*full = now + uint32(debt+l.Step)
	return true
}

// ofAll takes a packet out of the buckets shared by all clients, in sixteenths of a
// nanosecond, in batches.
func (m *Model) ofAll(f *programmed.Frontend, isOpening bool) bool {
	b := m.All[f.Id]
	if b == nil {
		b = &AllBuckets{}
		m.All[f.Id] = b
	}
	now := m.Ns * 16
	if isOpening && f.Limits.AllOpen.Step > 0 && !takeAll(&b.opens, &b.OpensCredit, f.Limits.BatchOpens, now, f.Limits.AllOpen) {
		return false
	}
	return f.Limits.AllPackets.Step == 0 || takeAll(&b.packets, &b.PacketsCredit, f.Limits.BatchPackets, now, f.Limits.AllPackets)
}

func takeAll(full *uint64, credit *uint32, batch uint32, now uint64, l programmed.Limit) bool {
	if *credit > 0 {
		*credit--
		return true
	}
	debt := *full - now
	if debt > l.Depth {
		debt = 0
	}
	takes := l.Step * uint64(batch)
	if debt+takes > l.Depth {
		return false
	}
	*full = now + debt + takes
	*credit = batch - 1
	return true
}
