package xdp

import "time"

// When a frontend is under pressure: so many connections a second are opened, and so
// great a part of its packets opens one. Of connections that come about at most a third
// does, as each has an ACK and an end; of a flood of SYNs all do. It is calm when either
// is well below that for a while.
const (
	pressureShare = 0.45
	calmShare     = 0.30
	calmFor       = 30 * time.Second
	// checkFor is for how long cookies are looked for when none are sent any more:
	// as long as one is valid.
	checkFor = 70 * time.Second
	// Of all that the flow table has room for, what is only opening: from the one
	// part on, until the other.
	tablePressure = 0.5
	tableCalm     = 0.25
)

// openings are what was seen at a frontend in a while: packets of TCP that open a
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
	calm    time.Duration // for how long it has been calm
	ended   time.Duration // for how long it has not been guarded
	checked bool
}

// step takes into account what was seen since the last step; table says that the flow
// table, which the frontend uses, is under pressure. It says whether anything changed.
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

// idle says that there is nothing to remember of the frontend.
func (p *pressure) idle() bool { return !p.guarded && !p.checked }

// tableUnderPressure says whether the flow table is, which was so before.
func tableUnderPressure(was bool, opening, capacity int) bool {
	share := float64(opening) / float64(max(1, capacity))
	if was {
		return share >= tableCalm
	}
	return share >= tablePressure
}
