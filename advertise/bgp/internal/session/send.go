package session

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/advertise/bgp/internal/rib"
	"github.com/fairlead/fairlead/advertise/bgp/internal/tcp"
	"github.com/fairlead/fairlead/advertise/bgp/internal/wire"
	"github.com/fairlead/fairlead/internal/wake"
)

const (
	// refreshEvery is the minimum interval at which a peer can request all routes again:
	// a ROUTE-REFRESH of 23 bytes makes us send the complete table.
	refreshEvery = time.Second
	// mostAtOnce limits the prefixes whose changes are computed and written in one go.
	mostAtOnce = 4096
)

// outbox is what a peer has been sent, and which prefixes must be compared with the table;
// under Session.mu.
type outbox struct {
	kick chan struct{}
	// changed lists the prefixes to compare; true: send them in any case.
	changed map[netip.Prefix]bool
	busy    bool // a part of changed is being sent
	sent    map[netip.Prefix][]sentPath
	count   int // of paths in sent
	most    int // the maximum size that sent has had
	// refreshed is when all routes were last sent again, or will be.
	refreshed time.Time
}

type sentPath struct {
	id    uint32
	attrs wire.Shared
}

func newOutbox() outbox {
	return outbox{kick: make(chan struct{}, 1), changed: map[netip.Prefix]bool{}, sent: map[netip.Prefix][]sentPath{}}
}

// Mark implements rib.Subscriber.
func (t *Session) Mark(prefixes []netip.Prefix) {
	t.mu.Lock()
	for _, p := range prefixes {
		t.changed[p] = t.changed[p] || false
	}
	t.mu.Unlock()
	wake.Up(t.kick)
}

// refresh sends all routes again, now or when it is permitted again.
func (t *Session) refresh() {
	t.mu.Lock()
	now := time.Now()
	wait := max(t.refreshed.Add(refreshEvery).Sub(now), 0)
	scheduled := t.refreshed.After(now)
	if !scheduled {
		t.refreshed = now.Add(wait)
	}
	t.mu.Unlock()
	if scheduled {
		return
	}
	time.AfterFunc(wait, func() {
		t.mu.Lock()
		for p := range t.sent {
			t.changed[p] = true
		}
		t.mu.Unlock()
		wake.Up(t.kick)
	})
}

// sendLoop sends keepalives and routes until the session ends.
func (t *Session) sendLoop() {
	defer t.Close()
	every := cmp.Or(t.Group.Keepalive, t.hold/3)
	if t.hold < t.Group.Hold {
		every = min(every, t.hold/3)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		var err error
		select {
		case <-tick.C:
			err = t.write(wire.Keepalive())
		case <-t.kick:
			err = t.send()
		case <-t.done:
			return
		}
		if err != nil {
			t.awaitReason()
			return
		}
	}
}

// send writes the differences between the table and what the peer has been sent, for some
// prefixes.
func (t *Session) send() error {
	forced := t.take()
	if len(forced) == 0 {
		return nil
	}
	prefixes := slices.Collect(maps.Keys(forced))
	var gone []wire.Key
	var order []wire.Shared
	news, now := map[wire.Shared][]wire.Key{}, map[netip.Prefix][]sentPath{}
	t.Table.Look(prefixes, func(p netip.Prefix, list []rib.Path) {
		due, before := t.due(p, list), t.sent[p] // only this goroutine changes it
		now[p] = due
		for _, s := range before {
			if !slices.ContainsFunc(due, func(d sentPath) bool { return d.id == s.id }) {
				gone = append(gone, wire.Key{Prefix: p, ID: s.id})
			}
		}
		for _, d := range due {
			if !forced[p] && slices.Contains(before, d) {
				continue
			}
			if news[d.attrs] == nil {
				order = append(order, d.attrs)
			}
			news[d.attrs] = append(news[d.attrs], wire.Key{Prefix: p, ID: d.id})
		}
	})
	if err := t.writeAll(t.encoder.Withdraw(gone)); err != nil {
		return err
	}
	for _, a := range order {
		if err := t.writeAll(t.encoder.Announce(a, news[a])); err != nil {
			return err
		}
	}
	t.noteSent(now)
	return nil
}

// take returns some of the prefixes to compare.
func (t *Session) take() map[netip.Prefix]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy = len(t.changed) > 0
	if len(t.changed) <= mostAtOnce {
		all := t.changed
		t.changed = map[netip.Prefix]bool{}
		return all
	}
	some := make(map[netip.Prefix]bool, mostAtOnce)
	for p, force := range t.changed {
		some[p] = force
		delete(t.changed, p)
		if len(some) == mostAtOnce {
			break
		}
	}
	return some
}

// due returns what the peer should have of a prefix.
func (t *Session) due(p netip.Prefix, list []rib.Path) (due []sentPath) {
	f := wire.Family(p)
	if _, is := t.decoder.Families[f]; !is {
		return nil
	}
	several, most := t.encoder.IDs[f], int(t.Group.SendMax)
	if !several {
		list, most = list[:min(1, len(list))], 1 // only the best one
	}
	for _, path := range list {
		if len(due) == most {
			break
		}
		if path.From != nil && (path.From == t.Source || path.From.ID == t.Source.ID) {
			continue // its own
		}
		if attrs, is := t.Export(t, path); is {
			s := sentPath{attrs: attrs}
			if several {
				s.id = path.ID
			}
			due = append(due, s)
		}
	}
	return due
}

func (t *Session) writeAll(messages [][]byte) error {
	for _, m := range messages {
		if err := t.write(m); err != nil {
			return err
		}
		t.Counters.Sent.Add(1)
	}
	return nil
}

// noteSent records what the peer has of some prefixes.
func (t *Session) noteSent(now map[netip.Prefix][]sentPath) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for p, list := range now {
		t.count += len(list) - len(t.sent[p])
		if len(list) == 0 {
			delete(t.sent, p)
		} else {
			t.sent[p] = list
		}
	}
	t.most = max(t.most, len(t.sent))
	t.sent, t.most = rib.Shrunk(t.sent, t.most)
	if t.busy = false; len(t.changed) > 0 {
		wake.Up(t.kick)
	}
}

// HasSent reports whether a route has been written and not withdrawn.
func (t *Session) HasSent(p netip.Prefix) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.sent[p]) > 0
}

// SentRoutes returns how many routes have been written and not withdrawn.
func (t *Session) SentRoutes() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count
}

// Queued reports whether changes are still to be written.
func (t *Session) Queued() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.busy || len(t.changed) > 0
}

// Written returns how many octets have been written.
func (t *Session) Written() uint64 { return t.written.Load() }

// Unacknowledged returns how many of the written octets the peer has not acknowledged.
func (t *Session) Unacknowledged(written uint64) uint64 {
	return tcp.Unacknowledged(t.conn, written)
}

// NextHop returns the next hop that the peer is sent instead of a route's.
func (t *Session) NextHop(of netip.Addr) netip.Addr {
	if t.Group.LinkLocal() {
		return t.Local.WithZone("")
	}
	return of
}
