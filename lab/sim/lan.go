package sim

// The shared medium is that of ns-2's Mac/802_3: half duplex, collisions noticed
// by the first bit of another's frame, no jam on the wire. Two things are unlike a
// real Ethernet, and part of what the model is compared with: who has sent all of
// a frame takes it for heard, and who hears the beginning of one in the gap after
// another does not hear it at all.

// Bytes that a frame has, or costs, beside its packet.
const (
	frameHeader = 14
	frameLeast  = 64
	gapBytes    = 12
	jamBytes    = 16 // with the gap after it
	slotBytes   = 64
)

const (
	attemptsMost = 16 // then a frame is given up
	backoffMost  = 10 // doublings of the slots that a pause is drawn from
	firstBitTime = 4e-6
)

type mode uint8

const (
	idle mode = iota
	sending
	receiving
)

// station is a node's interface at a LAN. Its timers are known by their turn, so
// that one that was stopped does nothing when it ends; 0 is none.
type station struct {
	node     Node
	mode     mode
	retry    bool // a pause before another attempt is running
	blocked  bool // a frame is not done with, the queue waits
	wanted   bool // the frame being received is for this station
	attempts int32
	held     int32 // the frame to send
	send     uint32
	receive  uint32
	gap      uint32
}

// backlog is what waits at a station, and the limit for that.
type backlog struct {
	fifo
	limit int
}

// lan is a shared medium, with the lanes of its delays.
type lan[T Time] struct {
	rate                    float64
	up, down, tau, gap, jam int32
	stations                []station
	backlogs                []backlog // of stations
	gapEnds                 []T       // of stations
	turns                   uint32
	shortGaps, longGaps     shared[T]
	sizes                   []frameTime
}

// shared is a timer that stations have in common, which started it at one event.
type shared[T Time] struct {
	at   uint64 // the event's place
	turn uint32
	end  T
}

// frameTime is the lane of a frame with a packet of a size.
type frameTime struct{ bytes, lane int32 }

func (n *Net[T]) newLAN(rate, delay float64) lan[T] {
	link := n.q.lane(n.span(delay))
	return lan[T]{
		rate: rate, up: link, down: link, tau: n.q.lane(n.span(firstBitTime)),
		gap: n.q.lane(n.bits(8*gapBytes, rate)), jam: n.q.lane(n.bits(8*jamBytes, rate)),
	}
}

// frameLane gives the lane of the time that a frame takes.
func (n *Net[T]) frameLane(l *lan[T], bytes int32) int32 {
	for _, f := range l.sizes {
		if f.bytes == bytes {
			return f.lane
		}
	}
	lane := n.q.lane(n.bits(8*max(frameLeast, int(bytes)+frameHeader), l.rate))
	l.sizes = append(l.sizes, frameTime{bytes, lane})
	return lane
}

// stationOf numbers the stations of all LANs.
func stationOf(lan, i int) int32 { return int32(lan<<16 | i) }

func (n *Net[T]) station(who int32) (*lan[T], int, *station) {
	l, i := &n.lans[who>>16], int(who&0xffff)
	return l, i, &l.stations[i]
}

// enqueue takes a packet from the link layer into a station's queue.
func (n *Net[T]) enqueue(who, p int32) {
	l, i, st := n.station(who)
	if !st.blocked {
		st.blocked, st.held = true, p
		n.transmit(l, st, who)
		return
	}
	if waits := &l.backlogs[i]; waits.len()+1 < waits.limit {
		waits.push(p)
		return
	}
	n.lose(queueFull, st.node, p)
}

// transmit sends the held frame, if the station may: else the end of its gap comes
// back to it.
func (n *Net[T]) transmit(l *lan[T], st *station, who int32) {
	if st.mode != idle || st.gap != 0 {
		return
	}
	st.mode = sending
	l.turns++
	st.send = l.turns
	n.pool.all[st.held].held++ // by the air
	n.q.after(l.tau, event{kind: firstBit, who: who, what: st.held})
	n.q.after(n.frameLane(l, n.pool.all[st.held].size), event{kind: sent, who: who, turn: st.send})
}

// sent is the end of a frame at its sender, whatever became of it elsewhere.
func (n *Net[T]) sent(who int32, turn uint32) {
	l, i, st := n.station(who)
	if st.send != turn {
		return
	}
	n.pool.drop(st.held)
	st.send, st.attempts, st.held = 0, 1, none
	n.startGap(l, i, who, l.gap, &l.shortGaps)
}

// startGap starts the gap of a station, which shares its end with those that start
// theirs at the same event.
func (n *Net[T]) startGap(l *lan[T], i int, who, lane int32, with *shared[T]) {
	if with.at != n.q.turn || with.turn == 0 {
		n.shareGap(l, who, lane, with)
	}
	l.stations[i].gap, l.gapEnds[i] = with.turn, with.end
}

func (n *Net[T]) shareGap(l *lan[T], who, lane int32, with *shared[T]) {
	l.turns++
	*with = shared[T]{n.q.turn, l.turns, n.q.now + n.q.lanes[lane].delay}
	n.q.after(lane, event{kind: gapEnd, who: who, turn: l.turns})
}

// gapEnd ends a gap at all stations that have it still; who is the first that had.
func (n *Net[T]) gapEnd(who int32, turn uint32) {
	l, first, _ := n.station(who)
	for i := first; i < len(l.stations); i++ {
		if st := &l.stations[i]; st.gap == turn {
			st.gap = 0
			n.resume(l, i, who+int32(i-first))
		}
	}
}

// resume is for a station whose medium is free again.
func (n *Net[T]) resume(l *lan[T], i int, who int32) {
	st := &l.stations[i]
	st.mode = idle
	if !st.blocked {
		return
	}
	if st.held == none {
		waits := &l.backlogs[i]
		if waits.len() == 0 {
			st.blocked = false
			return
		}
		st.held = waits.pop()
	} else if st.retry {
		return
	}
	n.transmit(l, st, who)
}

// firstBit is a frame's beginning at all stations but its sender.
func (n *Net[T]) firstBit(who, p int32) {
	l, from, _ := n.station(who)
	to := n.pool.all[p].hop
	var turn uint32
	for i := range l.stations {
		if i == from {
			continue
		}
		st, at := &l.stations[i], who+int32(i-from)
		if st.mode != idle && !n.interrupt(l, i, at, to) {
			continue
		}
		if turn == 0 {
			l.turns++
			turn = l.turns
			n.q.after(n.frameLane(l, n.pool.all[p].size), event{kind: received, who: at, what: p, turn: turn})
		}
		st.mode, st.receive, st.wanted = receiving, turn, st.node == to
	}
	if turn == 0 {
		n.pool.drop(p)
	}
}

// interrupt is the first bit of a frame to some node, at a station that does not wait
// for one: it says whether it hears the frame nevertheless.
func (n *Net[T]) interrupt(l *lan[T], i int, who int32, to Node) bool {
	st := &l.stations[i]
	if st.gap != 0 {
		if l.gapEnds[i]-n.q.now > n.rounding {
			if st.node == to {
				n.note(silent, to)
			}
			return false
		}
		st.gap = 0
		n.resume(l, i, who)
		if st.mode == idle {
			return true
		}
	}
	if st.node == to {
		n.note(collided, to)
	}
	n.collide(l, i, who)
	return false
}

// collide is the first bit of another frame at a station that sends or receives.
func (n *Net[T]) collide(l *lan[T], i int, who int32) {
	st := &l.stations[i]
	n.startGap(l, i, who, l.jam, &l.longGaps)
	if st.mode == receiving {
		if st.receive != 0 && st.wanted {
			n.note(collided, st.node)
		}
		st.receive = 0
		return
	}
	st.send = 0
	if st.retry || st.held == none {
		return
	}
	if st.attempts >= attemptsMost {
		n.lose(givenUp, st.node, st.held)
		st.held, st.attempts = none, 1
		return
	}
	st.retry = true
	slots := n.random.Below(1 << min(st.attempts, backoffMost))
	pause := T(T(slots)*n.bits(8*slotBytes, l.rate)) + n.q.lanes[l.jam].delay
	n.q.at(n.q.now+pause, n.q.reserve(), event{kind: retry, who: who})
	l.longGaps = shared[T]{} // without a slot the pause ends between this gap and the next station's
}

// retried is the end of the pause before another attempt.
func (n *Net[T]) retried(who int32) {
	l, _, st := n.station(who)
	st.retry = false
	st.attempts++
	n.transmit(l, st, who)
}

// received is a frame's end at all stations that heard all of it; who is the first
// that heard its beginning.
func (n *Net[T]) received(who, p int32, turn uint32) {
	l, first, _ := n.station(who)
	delivered := false
	for i := first; i < len(l.stations); i++ {
		st := &l.stations[i]
		if st.receive != turn {
			continue
		}
		st.receive = 0
		if st.wanted {
			delivered = true
			n.pool.all[p].reached = true
			n.q.after(l.up, event{kind: arrival, who: st.node, what: p})
		}
		n.startGap(l, i, who+int32(i-first), l.gap, &l.shortGaps)
	}
	if !delivered {
		n.pool.drop(p)
	}
}
