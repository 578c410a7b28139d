package model

import (
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/programmed"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/worth"
)

// The table: sets of eight entries in two lines of four, one of which is a tag's home
// line. A new entry takes the least valuable place:
//
//  1. its own, whatever is there;
//  2. the first that is free or expired, starting at home;
//  3. of the entries that a flood may replace, the one that expires first, those at
//     home first;
//  4. of the entries that have been silent for long, the same; an entry that may not
//     really have ended needs to be silent for less long.
//
// An established flow that is in use is never replaced.

// idle is how long a flow must have been silent before a new one may replace it.
var idle = ticks(200)

// soonIdle is the same for a flow that seems to have ended, but may continue.
var soonIdle = ticks(60)

// worthOf returns the value of the i-th place from home.
func (m *Model) worthOf(e *Flow, tag uint64, i int) worth.Worth {
	switch {
	case e != nil && e.Tag == tag:
		return worth.Worth{Left: -1 << 40}
	case e == nil || m.expired(e):
		return worth.Worth{Left: -1, Order: i}
	}
	w := worth.Worth{Far: i >= 4, Left: int64(e.Expires - m.now()), Order: i}
	switch e.State {
	case established:
		w.Strong, w.Kept = true, w.Left > int64(ticks(900)-idle)
	case udp:
		w.Strong, w.Kept = true, w.Left > int64(ticks(300)-idle)
	case finishing, clientReset, serverFin:
		w.Strong, w.Kept = true, w.Left > int64(ticks(120)-soonIdle)
	case client:
		w.Strong = true
	}
	return w
}

// enter makes room for a tag by replacing another entry, except one that must stay. It
// returns nil if there is no room.
func (m *Model) enter(tag uint64, spare *Flow) *Flow {
	set := tag >> 32 * uint64(len(m.sets)) >> 32
	home := int(tag>>1) & 4
	best, at := worth.Worth{Kept: true, Left: 1 << 40}, 0
	for i := range 8 {
		if w := m.worthOf(m.sets[set][home^i], tag, i); w.Less(best) {
			best, at = w, home^i
		}
	}
	if best.Kept {
		return nil
	}
	e := m.sets[set][at]
	if e != nil && e == spare {
		return nil
	}
	if e == nil {
		e = m.take()
		e.Way = int(set)*8 + at
		m.sets[set][at] = e
	} else {
		m.saw.Saw(uint64(e.State) | 3<<20)
		m.release(e)
	}
	return e
}

// take allocates an entry, which does not move afterwards.
func (m *Model) take() *Flow {
	if len(m.pool) == cap(m.pool) {
		panic("a case with more flows than steps")
	}
	m.pool = append(m.pool, Flow{})
	return &m.pool[len(m.pool)-1]
}

// unremembered selects a backend for a flow for which the table has no room.
func (m *Model) unremembered(p *packet, f *programmed.Frontend, o *opened) (*opened, int32) {
	if f.Nat {
		return nil, m.drop(flowsFull)
	}
	var why reason
	if o.server, why = m.chooseNew(p, f, true); why != "" {
		return nil, m.drop(why)
	}
	o.flow = nil
	return o, 0
}
