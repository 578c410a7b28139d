package sim

// The shared medium is modeled after Mac/802_3 of ns-2: half duplex, collisions detected
// at the first bit of another frame, no jam signal on the wire. Two properties differ
// from a real Ethernet, and are part of the model to compare with: a sender that has sent
// a complete frame assumes that it was received, and a station that receives the start of
// a frame in the gap after another one does not receive it at all.

// Bytes of a frame, or its overhead, in addition to the packet.
const (
	frameHeader = 14
	frameLeast  = 64
	gapBytes    = 12
	jamBytes    = 16 // including the gap after it
	slotBytes   = 64
)

const (
	attemptsMost = 16 // after which a frame is given up
	backoffMost  = 10 // maximum number of doublings of the backoff range
	firstBitTime = 4e-6
)

type mode uint8

const (
	idle mode = iota
	sending
	receiving
)

// station is a node's interface on a LAN. Its timers are identified by their turn, so
// that a timer that was stopped has no effect; 0 means none.
type station struct {
	node     Node
	mode     mode
	retry    bool // a backoff before another attempt is running
	blocked  bool // a frame is in progress, the queue waits
	wanted   bool // the frame being received is for this station
	attempts int32
	held     int32 // the frame to send
	send     uint32
	receive  uint32
	gap      uint32
}

// backlog is a station's queue and its limit.
type backlog struct {
	fifo
	limit int
}

// lan is a shared medium, with the lanes of its delays.
type lan[T Time] struct {
	rate                    float64
	up, down, tau, gap, jam int32
	stations                []station
	backlogs                []backlog // by station
	gapEnds                 []T       // by station
	turns                   uint32
	shortGaps, longGaps     shared[T]
	sizes                   []frameTime
}

// shared is a timer shared by the stations that started it at the same event.
type shared[T Time] struct {
	at   uint64 // the sequence number of the event
	turn uint32
	end  T
}

// frameTime is the lane for frames with packets of this size.
type frameTime struct{ bytes, lane int32 }

func (n *Net[T]) newLAN(rate, delay float64) lan[T] {
	link := n.q.Lane(n.span(delay))
	return lan[T]{
		rate: rate, up: link, down: link, tau: n.q.Lane(n.span(firstBitTime)),
		gap: n.q.Lane(n.bits(8*gapBytes, rate)), jam: n.q.Lane(n.bits(8*jamBytes, rate)),
	}
}

// frameLane returns the lane for the transmission time of a frame.
func (n *Net[T]) frameLane(l *lan[T], bytes int32) int32 {
	for _, f := range l.sizes {
		if f.bytes == bytes {
			return f.lane
		}
	}
	lane := n.q.Lane(n.bits(8*max(frameLeast, int(bytes)+frameHeader), l.rate))
	l.sizes = append(l.sizes, frameTime{bytes, lane})
	return lane
}

// stationOf returns the number of a station among the stations of all LANs.
func stationOf(lan, i int) int32 { return int32(lan<<16 | i) }

func (n *Net[T]) station(who int32) (*lan[T], int, *station) {
	l, i := &n.lans[who>>16], int(who&0xffff)
	return l, i, &l.stations[i]
}

// enqueue moves a packet from the link layer to a station's queue.
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

// transmit sends the held frame if the station may send. Otherwise the end of the gap
// calls it again.
func (n *Net[T]) transmit(l *lan[T], st *station, who int32) {
	if st.mode != idle || st.gap != 0 {
		return
	}
	st.mode = sending
	l.turns++
	st.send = l.turns
	n.pool.all[st.held].held++ // held by the medium
	n.q.After(l.tau, event{kind: firstBit, who: who, what: st.held})
	n.q.After(n.frameLane(l, n.pool.all[st.held].size), event{kind: sent, who: who, turn: st.send})
}

// sent handles the end of a frame at its sender, independent of its receivers.
func (n *Net[T]) sent(who int32, turn uint32) {
	l, i, st := n.station(who)
	if st.send != turn {
		return
	}
	n.pool.drop(st.held)
	st.send, st.attempts, st.held = 0, 1, none
	n.startGap(l, i, who, l.gap, &l.shortGaps)
}

// startGap starts the gap of a station. Stations that start theirs at the same event
// share one timer.
func (n *Net[T]) startGap(l *lan[T], i int, who, lane int32, with *shared[T]) {
	if with.at != n.q.Turn || with.turn == 0 {
		n.shareGap(l, who, lane, with)
	}
	l.stations[i].gap, l.gapEnds[i] = with.turn, with.end
}

func (n *Net[T]) shareGap(l *lan[T], who, lane int32, with *shared[T]) {
	l.turns++
	*with = shared[T]{n.q.Turn, l.turns, n.q.Now + n.q.Delay(lane)}
	n.q.After(lane, event{kind: gapEnd, who: who, turn: l.turns})
}

// gapEnd ends a gap at all stations that still have it. who is the first that started it.
func (n *Net[T]) gapEnd(who int32, turn uint32) {
	l, first, _ := n.station(who)
	for i := first; i < len(l.stations); i++ {
		if st := &l.stations[i]; st.gap == turn {
			st.gap = 0
			n.resume(l, i, who+int32(i-first))
		}
	}
}

// resume continues at a station whose medium is free again.
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

// firstBit handles the start of a frame at all stations except its sender.
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
			n.q.After(n.frameLane(l, n.pool.all[p].size), event{kind: received, who: at, what: p, turn: turn})
		}
		st.mode, st.receive, st.wanted = receiving, turn, st.node == to
	}
	if turn == 0 {
		n.pool.drop(p)
	}
}

// interrupt handles the first bit of a frame at a station that is not idle. It reports
// whether the station receives the frame nevertheless.
func (n *Net[T]) interrupt(l *lan[T], i int, who int32, to Node) bool {
	st := &l.stations[i]
	if st.gap != 0 {
		if l.gapEnds[i]-n.q.Now > n.rounding {
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

// collide handles the first bit of another frame at a station that sends or receives.
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
	pause := T(T(slots)*n.bits(8*slotBytes, l.rate)) + n.q.Delay(l.jam)
	n.q.At(n.q.Now+pause, n.q.Reserve(), event{kind: retry, who: who})
	l.longGaps = shared[T]{} // without a slot, the backoff ends between this gap and the next station's
}

// retried handles the end of the backoff before another attempt.
func (n *Net[T]) retried(who int32) {
	l, _, st := n.station(who)
	st.retry = false
	st.attempts++
	n.transmit(l, st, who)
}

// received handles the end of a frame at all stations that received all of it. who is the
// first that received its start.
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
			n.q.After(l.up, event{kind: arrival, who: st.node, what: p})
		}
		n.startGap(l, i, who+int32(i-first), l.gap, &l.shortGaps)
	}
	if !delivered {
		n.pool.drop(p)
	}
}
