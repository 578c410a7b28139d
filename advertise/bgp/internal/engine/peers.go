package engine

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/advertise/bfd"
	"github.com/fairlead/fairlead/advertise/bgp/internal/session"
	"github.com/fairlead/fairlead/core/event"
)

// keepDead is how long a disconnected neighbor is still listed, so that its reason can be
// seen.
const keepDead = 10 * time.Minute

type peerState struct {
	advertise.Peer
	group    *session.Group
	dial     bool
	session  *session.Session
	counters *session.Counters
	flaps    uint64
	watch    *bfd.Session
	noBFD    string
	// silentUntil is until when others may not have noticed the silence that ended its
	// last session.
	silentUntil time.Time
	// admitted means that the current session has passed judge.
	admitted bool
	// cutUntil is when a neighbor that sent too much may come back.
	cutUntil time.Time
	// connects limits its connections.
	connects bucket
	// notified is when it was last sent the reason.
	notified time.Time
}

// wake runs under e.mu.
func (e *Engine) wake() {
	close(e.changed)
	e.changed = make(chan struct{})
}

// state returns a peer's entry, creating it if needed; runs under e.mu.
func (e *Engine) state(a netip.Addr, g *session.Group) *peerState {
	p := e.peers[a]
	if p == nil {
		p = &peerState{group: g, counters: &session.Counters{}, Peer: advertise.Peer{Address: a.String(), State: session.Idle, Since: time.Now()}}
		if g != nil {
			p.Name, p.AS = g.Peer, g.AS
		}
		e.peers[a] = p
	}
	if g != nil {
		p.group = g
	}
	return p
}

// begin makes a session of a connection, and records it.
func (e *Engine) begin(c *net.TCPConn, from netip.Addr, g *session.Group) *session.Session {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.state(from, g)
	t := session.New(c, session.Options{
		Peer: from, Group: g, AS: e.AS, RouterID: e.RouterID, SendOnly: e.SendOnly || g.SendMax > 0, Table: e.table, Total: e.total, Counters: p.counters,
		Accept: e.accept, Export: e.export, All: e.sessions, Changed: e.onChange,
	})
	p.session, p.admitted, p.State, p.Since = t, false, session.OpenSent, time.Now()
	e.forget()
	if e.ctx.Err() != nil { // nobody would close it any more
		c.Close()
	}
	return t
}

// forget removes neighbors that connected to us once and disconnected long ago; runs
// under e.mu.
func (e *Engine) forget() {
	for a, p := range e.peers {
		if p.session == nil && !p.dial && time.Since(p.Since) > keepDead {
			delete(e.peers, a)
		}
	}
	e.trim()
}

func (e *Engine) enter(a netip.Addr, g *session.Group, state string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.state(a, g)
	p.dial = true
	if p.State != state {
		p.State, p.Since = state, time.Now()
	}
}

func (e *Engine) failed(d *dialed, reason string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.state(d.To.Addr(), d.Group)
	if p.LastError != reason {
		e.Log.Warn("cannot reach BGP peer", "peer", d.To, "error", reason)
		e.record(d.Group, d.To.Addr(), event.Event{Type: event.PeerUnreachable, Cause: reason})
	}
	p.LastError = reason
}

func (e *Engine) refuse(a netip.Addr, reason string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.state(a, nil)
	if p.LastError != reason {
		e.Log.Warn("BGP connection rejected", "peer", a, "reason", reason)
		e.record(p.group, a, event.Event{Type: event.PeerRejected, Cause: a.String() + ": " + reason})
	}
	p.LastError, p.Since = reason, time.Now()
	e.forget()
}

func (e *Engine) sessions() []*session.Session {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []*session.Session
	for _, p := range e.peers {
		if p.session != nil {
			all = append(all, p.session)
		}
	}
	return all
}

// Established counts the dialed peers whose session is up.
func (e *Engine) Established() (up, all int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, d := range e.dials {
		if p := e.peers[d.To.Addr()]; p != nil && p.State == session.Established {
			up++
		}
	}
	return up, len(e.dials)
}

// Peers returns all peers sorted by address.
func (e *Engine) Peers() []advertise.Peer {
	e.mu.Lock()
	defer e.mu.Unlock()
	var list []advertise.Peer
	for _, a := range slices.SortedFunc(maps.Keys(e.peers), netip.Addr.Compare) {
		p := e.peers[a]
		row := p.Peer
		if p.session != nil {
			_, received := p.session.Source.Count()
			row.Sent, row.Received = uint32(p.session.SentRoutes()), uint32(received)
		}
		row.BFD, row.Unconfigured = p.bfdWords(), p.group == nil
		row.UpdatesReceived, row.UpdatesSent, row.Flaps = p.counters.Received.Load(), p.counters.Sent.Load(), p.flaps
		list = append(list, row)
	}
	return list
}

func (p *peerState) bfdWords() string {
	switch {
	case p.group == nil || !p.group.BFD:
		return "off"
	case p.noBFD != "":
		return p.noBFD
	case p.watch == nil:
		return bfd.Down.String()
	}
	return p.watch.State().String()
}

// AwaitEstablished waits for all dialed peers. The error names one that is not up, and
// why.
func (e *Engine) AwaitEstablished(ctx context.Context) error {
	for {
		e.mu.Lock()
		changed := e.changed
		var missing *peerState
		for _, d := range e.dials {
			if p := e.peers[d.To.Addr()]; p == nil || p.State != session.Established {
				missing = e.state(d.To.Addr(), d.Group)
			}
		}
		var row advertise.Peer
		if missing != nil {
			row = missing.Peer
		}
		e.mu.Unlock()
		if missing == nil {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("BGP session with %s is not up (%s): %s", row.Address, row.State, cmp.Or(row.LastError, "no failure so far"))
		}
	}
}

// AllSent reports whether each dialed peer has sent at least one route.
func (e *Engine) AllSent() bool {
	sent := 0
	for _, t := range e.sessions() {
		if _, all := t.Source.Count(); all > 0 {
			sent++
		}
	}
	_, all := e.Established()
	return sent >= all
}

// Up reports whether a session with a peer is established.
func (e *Engine) Up(a netip.Addr) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.peers[a]
	return p != nil && p.State == session.Established
}
