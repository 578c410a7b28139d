package engine

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/advertise/bfd"
	"github.com/fairlead/fairlead/advertise/bgp/internal/session"
	"github.com/fairlead/fairlead/core/event"
)

// Leaving is a route that is being withdrawn.
type Leaving struct {
	Since time.Time
	// written holds per session how many octets had been written when the route was no
	// longer among them: once the peer has acknowledged that many, it has the withdrawal.
	written map[*session.Session]uint64
}

// NewLeaving returns a route that is withdrawn now.
func NewLeaving() *Leaving {
	return &Leaving{Since: time.Now(), written: map[*session.Session]uint64{}}
}

// Withdrawing lists which of these routes a peer may still have, and removes the others. A
// peer has received a withdrawal when it has acknowledged the octets and, if BFD watches
// it, sent a packet since: a peer that died silently may have propagated routes before. A
// peer without a session has none of our routes, unless others may not have noticed its
// silence yet. One that reads nothing for the hold time loses its session (RFC 9687).
func (e *Engine) Withdrawing(routes map[netip.Prefix]*Leaving) []advertise.Withdrawal {
	if len(routes) == 0 {
		return nil
	}
	var all []advertise.Withdrawal
	now, left := time.Now(), map[netip.Prefix]bool{}
	add := func(p netip.Prefix, from, reason string) {
		left[p] = true
		all = append(all, advertise.Withdrawal{Prefix: p, From: from, Since: routes[p].Since, Reason: reason})
	}
	for _, o := range e.outlets() {
		for p, l := range routes {
			if why := o.mayHave(p, l, now); why != "" {
				add(p, "BGP peer "+o.name, why)
			}
		}
	}
	for p := range routes {
		if !left[p] {
			delete(routes, p)
		}
	}
	slices.SortFunc(all, advertise.Withdrawal.Compare)
	return all
}

// outlet is a peer and the progress of what it is sent, at one moment.
type outlet struct {
	name string
	on   *session.Session // nil without an established session
	// silentUntil is until when others may have routes from a session that BFD ended.
	silentUntil time.Time
	watched     bool
	received    time.Time // time of the last BFD packet
	queued      bool      // more must be written
	written     uint64
	acked       uint64
}

func (e *Engine) outlets() []*outlet {
	var all []*outlet
	e.mu.Lock()
	for a, p := range e.peers {
		o := &outlet{name: cmp.Or(p.Name, a.String()), silentUntil: p.silentUntil}
		if p.session != nil && p.State == session.Established {
			o.on = p.session
			if p.watch != nil {
				var silent time.Duration
				o.received, silent = p.watch.LastReceived()
				o.watched = silent > 0
			}
		}
		all = append(all, o)
	}
	e.mu.Unlock()
	for _, o := range all {
		if o.on != nil {
			o.written = o.on.Written() // first: what is written later is not acknowledged yet
			o.queued, o.acked = o.on.Queued(), o.written-o.on.Unacknowledged(o.written)
		}
	}
	return all
}

// mayHave returns why a peer may have a withdrawn route, or "" if it does not.
func (o *outlet) mayHave(p netip.Prefix, l *Leaving, now time.Time) string {
	if o.on == nil {
		if o.silentUntil.After(now) {
			return "BFD ended its session; its neighbors may not have detected the failure yet"
		}
		return ""
	}
	why := o.lacks(p, l)
	if why != "" && now.Sub(l.Since) > o.on.Group.Hold {
		o.on.GiveUp(why)
	}
	return why
}

func (o *outlet) lacks(p netip.Prefix, l *Leaving) string {
	if o.queued || o.on.HasSent(p) {
		return "the withdrawal has not been sent yet"
	}
	at, known := l.written[o.on]
	if !known {
		at = o.on.Written()
		l.written[o.on] = at
	}
	switch {
	case o.acked < at:
		return "the peer has not acknowledged the withdrawal"
	case o.watched && !o.received.After(l.Since):
		return "BFD has received nothing from the peer since"
	}
	return ""
}

// lose ends a session whose peer is silent. Others notice that at most one packet
// interval later.
func (e *Engine) lose(t *session.Session, reason string) {
	e.mu.Lock()
	if p := e.peers[t.Peer]; p != nil && p.session == t {
		p.silentUntil = time.Now().Add(cmp.Or(t.Group.Timing.Interval, bfd.DefaultInterval))
	}
	e.mu.Unlock()
	e.record(t.Group, t.Peer, event.Event{Type: event.BFDDown, From: bfd.Up.String(), To: bfd.Down.String(), Cause: reason})
	t.Fail(reason)
}
