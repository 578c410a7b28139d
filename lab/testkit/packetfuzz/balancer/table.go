package balancer

// The table: sets of eight entries in two lines of four, of which one is a tag's
// home. A new entry takes the place that is worth least:
//
//  1. its own, whatever is there;
//  2. the first that is free or over, from home on;
//  3. of those that a flood may push out, the one nearest to its end, those at home
//     first;
//  4. of those that were silent for long, likewise; of those that only seem to have
//     ended, for less long.
//
// An established flow that is in use gives way to none.

// worth is what a place is worth; the least is taken.
type worth struct {
	kept, strong, beside bool
	left                 int64
	order                int
}

func (a worth) less(b worth) bool {
	switch {
	case a.kept != b.kept:
		return b.kept
	case a.strong != b.strong:
		return b.strong
	case a.beside != b.beside:
		return b.beside
	case a.left != b.left:
		return a.left < b.left
	}
	return a.order < b.order
}

// idle is for how long a flow must have been silent to give way to a new one.
var idle = ticks(200)

// soonIdle is the same of one that seems to have ended, but may go on.
var soonIdle = ticks(60)

// worthOf gives what the i-th place from home is worth.
func (m *model) worthOf(e *flow, tag uint64, i int) worth {
	switch {
	case e != nil && e.tag == tag:
		return worth{left: -1 << 40}
	case e == nil || m.expired(e):
		return worth{left: -1, order: i}
	}
	w := worth{beside: i >= 4, left: int64(e.expires - m.now()), order: i}
	switch e.state {
	case established:
		w.strong, w.kept = true, w.left > int64(ticks(900)-idle)
	case udp:
		w.strong, w.kept = true, w.left > int64(ticks(300)-idle)
	case finishing, clientReset, serverFin:
		w.strong, w.kept = true, w.left > int64(ticks(120)-soonIdle)
	case client:
		w.strong = true
	}
	return w
}

// enter makes room for a tag, at a cost to who is there, but for one that must stay.
// nil: there is none.
func (m *model) enter(tag uint64, spare *flow) *flow {
	set := tag >> 32 * uint64(len(m.sets)) >> 32
	home := int(tag>>1) & 4
	best, at := worth{kept: true, left: 1 << 40}, 0
	for i := range 8 {
		if w := m.worthOf(m.sets[set][home^i], tag, i); w.less(best) {
			best, at = w, home^i
		}
	}
	if best.kept {
		return nil
	}
	e := m.sets[set][at]
	if e != nil && e == spare {
		return nil
	}
	if e == nil {
		e = m.take()
		e.way = int(set)*8 + at
		m.sets[set][at] = e
	} else {
		m.saw.Saw(uint64(e.state) | 3<<20)
		m.release(e)
	}
	return e
}

// take takes memory for an entry, which stays where it is.
func (m *model) take() *flow {
	if len(m.pool) == cap(m.pool) {
		panic("a case with more flows than steps")
	}
	m.pool = append(m.pool, flow{})
	return &m.pool[len(m.pool)-1]
}

// unremembered gives a server to a flow for which the table has no place.
func (m *model) unremembered(p *packet, f *frontend, o *opened) (*opened, int32) {
	if f.nat {
		return nil, m.drop(flowsFull)
	}
	var why reason
	if o.server, why = m.chooseNew(p, f, true); why != "" {
		return nil, m.drop(why)
	}
	o.flow = nil
	return o, 0
}
