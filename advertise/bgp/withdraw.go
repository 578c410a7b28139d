package bgp

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/advertise/bfd"
)

// leaving is a route that is being withdrawn.
type leaving struct {
	since time.Time
	// failed is why gobgp did not withdraw it.
	failed error
	// written holds per session how many octets had been written when the route was no
	// longer among them: once the peer has acknowledged that many, it has the withdrawal.
	written map[*tap]uint64
}

// settled is the minimum age of a session for everything from its start to have been
// written (audit.go).
const settled = 500 * time.Millisecond

// codeSendHold is the error code of RFC 9687 for a peer that does not read what it is
// sent.
const codeSendHold = 8

// Withdrawing lists routes that a peer may still have. A peer has received a withdrawal
// when it has acknowledged the octets and, if BFD watches it, sent a packet since: a peer
// that died silently may have propagated routes before. A peer without a session has none of
// our routes, unless others may not have noticed its silence yet. One that reads nothing
// for the hold time loses its session (RFC 9687).
func (s *Speaker) Withdrawing() []advertise.Withdrawal {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.leaving) == 0 {
		return nil
	}
	var all []advertise.Withdrawal
	now, left := time.Now(), map[netip.Prefix]bool{}
	add := func(p netip.Prefix, from, reason string) {
		left[p] = true
		all = append(all, advertise.Withdrawal{Prefix: p, From: from, Since: s.leaving[p].since, Reason: reason})
	}
	for _, o := range s.e.outlets() {
		for p, l := range s.leaving {
			if why := o.mayHave(p, l, now); why != "" {
				add(p, "BGP peer "+o.name, why)
			}
		}
	}
	for p, l := range s.leaving {
		if l.failed != nil {
			add(p, "BGP", l.failed.Error())
		}
		if !left[p] {
			delete(s.leaving, p)
		}
	}
	slices.SortFunc(all, advertise.Withdrawal.Compare)
	return all
}

// outlet is a peer and the progress of what it is sent, at one moment.
type outlet struct {
	name string
	tap  *tap // nil without an established session
	// silentUntil is until when others may have routes from a session that BFD ended.
	silentUntil time.Time
	watched     bool
	received    time.Time // time of the last BFD packet
	fresh       bool
	queued      bool // more must be written
	written     uint64
	acked       uint64
}

func (e *engine) outlets() []*outlet {
	var all []*outlet
	e.mu.Lock()
	for a, p := range e.peers {
		o := &outlet{name: cmp.Or(p.Name, a.String()), silentUntil: p.silentUntil}
		if p.tap != nil && p.State == stateEstablished {
			o.tap, o.fresh = p.tap, time.Since(p.Since) < settled
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
		if o.tap != nil {
			o.written = o.tap.written.Load() // first: what is written later is not acknowledged yet
			o.queued, o.acked = o.tap.isQueued(), o.written-o.tap.unacknowledged(o.written)
		}
	}
	return all
}

// mayHave returns why a peer may have a withdrawn route, or "" if it does not.
func (o *outlet) mayHave(p netip.Prefix, l *leaving, now time.Time) string {
	if o.tap == nil {
		if o.silentUntil.After(now) {
			return "BFD ended its session; its neighbors may not have detected the failure yet"
		}
		return ""
	}
	why := o.lacks(p, l)
	if why != "" && now.Sub(l.since) > o.tap.group.hold {
		o.tap.giveUp(why)
	}
	return why
}

func (o *outlet) lacks(p netip.Prefix, l *leaving) string {
	if o.queued || o.fresh || o.tap.hasSent(p) {
		return "the withdrawal has not been sent yet"
	}
	at, known := l.written[o.tap]
	if !known {
		at = o.tap.written.Load()
		l.written[o.tap] = at
	}
	switch {
	case o.acked < at:
		return "the peer has not acknowledged the withdrawal"
	case o.watched && !o.received.After(l.since):
		return "BFD has received nothing from the peer since"
	}
	return ""
}

// giveUp ends a session whose peer has not received a withdrawal for the hold time.
func (t *tap) giveUp(why string) {
	if _, _, _, reason, _ := t.status(); reason == "" {
		reason = fmt.Sprintf("a withdrawal was not confirmed within the hold time of %s: %s", t.group.hold, why)
		t.end(reason)
		go t.reject(codeSendHold, 0, reason) // in the background, because it writes
	}
}

// hasSent reports whether a route has been written and not withdrawn.
func (t *tap) hasSent(p netip.Prefix) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, is := t.sent[path{prefix: p}]
	return is
}

// isQueued reports whether messages are waiting to be written, or one is being written.
func (t *tap) isQueued() bool {
	if !t.writing.TryLock() {
		return true
	}
	t.writing.Unlock()
	t.mu.Lock()
	q := t.queue
	t.mu.Unlock()
	return q != nil && q.Len() > 0
}

// unacknowledged returns how many written octets the peer's kernel has not acknowledged;
// all of them if unknown.
func (t *tap) unacknowledged(written uint64) uint64 {
	raw, err := t.SyscallConn()
	if err != nil {
		return written
	}
	left := written
	_ = raw.Control(func(fd uintptr) {
		if n, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); err == nil {
			left = min(written, uint64(n))
		}
	})
	return left
}

// lose ends a session whose peer is silent. Others notice that at most one packet
// interval later.
func (e *engine) lose(t *tap, reason string) {
	e.mu.Lock()
	if p := e.peers[t.peer]; p != nil && p.tap == t {
		p.silentUntil = time.Now().Add(cmp.Or(t.group.timing.Interval, bfd.DefaultInterval))
	}
	e.mu.Unlock()
	t.fail(reason)
}
