package balancer

import "github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"

// limited is the state of rate limits: for each bucket the time at which it will be full
// again (GCRA, ITU-T I.371).
type limited struct {
	each map[clientKey]*clientBuckets
	all  map[uint32]*allBuckets // by frontend
}

type clientBuckets struct{ packets, opens uint32 }

type allBuckets struct {
	packets, opens             uint64
	packetsCredit, opensCredit uint32
}

// guard reports whether a packet may pass to a frontend that has source ranges or rate
// limits. A packet that returns from other load balancers has been charged here before.
func (m *model) guard(p *packet, f *frontend, handed flags) bool {
	if !f.serves(&p.Src) {
		m.drop(sourceDenied)
		return false
	}
	if handed == last || !f.limits.some {
		return true
	}
	isOpening := p.flags&opens != 0 || p.Proto == wire.UDP
	l := &f.limits
	ok := true
	if l.eachPacket.step > 0 || l.eachOpen.step > 0 {
		ok = m.ofClient(p, f, isOpening)
	}
	if ok && (l.allPackets.step > 0 || l.allOpen.step > 0) {
		ok = m.ofAll(f, isOpening)
	}
	if !ok {
		m.drop(rateLimited)
	}
	return ok
}

// ofClient takes a packet out of its client's buckets, in sixteenths of a microsecond.
func (m *model) ofClient(p *packet, f *frontend, isOpening bool) bool {
	k := clientKey{p.Src, f.id}
	now := uint32(m.ns * 2 / 125)
	c := m.each[k]
	if c == nil {
		c = &clientBuckets{now, now}
		m.each[k] = c
	}
	if isOpening && f.limits.eachOpen.step > 0 && !takeEach(&c.opens, now, f.limits.eachOpen) {
		return false
	}
	return f.limits.eachPacket.step == 0 || takeEach(&c.packets, now, f.limits.eachPacket)
}

func takeEach(full *uint32, now uint32, l limit) bool {
	debt := uint64(*full - now)
	if debt > l.depth { // it is long ago
		debt = 0
	}
	if debt+l.step > l.depth {
		return false
	}
	*full = now + uint32(debt+l.step)
	return true
}

// ofAll takes a packet out of the buckets shared by all clients, in sixteenths of a
// nanosecond, in batches.
func (m *model) ofAll(f *frontend, isOpening bool) bool {
	b := m.all[f.id]
	if b == nil {
		b = &allBuckets{}
		m.all[f.id] = b
	}
	now := m.ns * 16
	if isOpening && f.limits.allOpen.step > 0 && !takeAll(&b.opens, &b.opensCredit, f.limits.batchOpens, now, f.limits.allOpen) {
		return false
	}
	return f.limits.allPackets.step == 0 || takeAll(&b.packets, &b.packetsCredit, f.limits.batchPackets, now, f.limits.allPackets)
}

func takeAll(full *uint64, credit *uint32, batch uint32, now uint64, l limit) bool {
	if *credit > 0 {
		*credit--
		return true
	}
	debt := *full - now
	if debt > l.depth {
		debt = 0
	}
	takes := l.step * uint64(batch)
	if debt+takes > l.depth {
		return false
	}
	*full = now + debt + takes
	*credit = batch - 1
	return true
}
