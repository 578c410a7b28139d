// Package synflood decides when a frontend is protected against SYN floods, and keeps the keys
// and settings of the program that protects it. It does not write frontends. The policy is
// tested here, cookies and challenges with the program in dataplane/xdp.
package synflood

import (
	"time"
)

// When a frontend is under pressure: above a rate of new connections, with a large share
// of packets that open one. With normal connections that share is at most a third,
// because each has an ACK and an end. In a SYN flood it is all. Pressure ends when either
// stays well below its limit for a while.
const (
	pressureShare = 0.45
	calmShare     = 0.30
	calmFor       = 30 * time.Second
	// checkFor is how long cookies are checked after the last one was sent: as long
	// as one is valid.
	checkFor = 70 * time.Second
	// The share of opening flows in the flow table's capacity at which pressure
	// starts, and below which it ends.
	tablePressure = 0.5
	tableCalm     = 0.25
)

// openings are the packets at a frontend in an interval: TCP packets that open a
// connection, and all packets.
type openings struct {
	syns, packets uint64
	during        time.Duration
}

func (o openings) rate() float64 {
	if o.during <= 0 {
		return 0
	}
	return float64(o.syns) / o.during.Seconds()
}

func (o openings) share() float64 {
	if o.packets == 0 {
		return 0
	}
	return float64(o.syns) / float64(o.packets)
}

// pressure is that of one frontend.
type pressure struct {
	guarded bool
	calm    time.Duration // how long it has been calm
	ended   time.Duration // how long it has not been guarded
	checked bool
}

// step evaluates the packets since the last step. table reports that the flow table,
// which the frontend uses, is under pressure. It returns whether anything changed.
func (p *pressure) step(o openings, threshold float64, table bool) (changed bool) {
	was := *p
	high := table || o.rate() >= threshold && o.share() >= pressureShare
	low := !table && (o.rate() < threshold/2 || o.share() < calmShare)
	switch {
	case high:
		p.guarded, p.checked, p.calm, p.ended = true, true, 0, 0
	case p.guarded && low:
		if p.calm += o.during; p.calm >= calmFor {
			p.guarded, p.calm = false, 0
		}
	case p.guarded:
		p.calm = 0
	case p.checked:
		if p.ended += o.during; p.ended >= checkFor {
			p.checked, p.ended = false, 0
		}
	}
	return p.guarded != was.guarded || p.checked != was.checked
}

// idle reports whether the frontend needs no state.
func (p *pressure) idle() bool { return !p.guarded && !p.checked }

// tableUnderPressure reports whether the flow table is under pressure. was is its
// previous result.
func tableUnderPressure(was bool, opening, capacity int) bool {
	share := float64(opening) / float64(max(1, capacity))
	if was {
		return share >= tableCalm
	}
	return share >= tablePressure
}
