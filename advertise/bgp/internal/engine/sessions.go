package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/advertise/bfd"
	"github.com/fairlead/fairlead/advertise/bgp/internal/session"
	"github.com/fairlead/fairlead/core/event"
)

// onChange handles state changes of a session.
func (e *Engine) onChange(t *session.Session) {
	now := t.Status()
	e.mu.Lock()
	p := e.peers[t.Peer]
	if p == nil || p.session != t {
		e.mu.Unlock()
		return
	}
	before := p.Peer.State
	p.AS, p.State, p.Since = now.PeerAS, now.State, now.Since
	if now.PeerAS == 0 {
		p.AS = t.Group.AS
	}
	watch := p.watch
	code, sub, refused := uint8(0), uint8(0), ""
	if now.State == session.OpenConfirm && !now.Closed && !p.admitted {
		if code, sub, refused = e.judge(t, now); refused == "" {
			p.admitted = true
		}
	}
	switch {
	case now.Closed:
		p.ended(t, now.Reason, before)
	case now.State == session.Established && before != session.Established:
		p.LastError = "" // why it once failed is in the log
	}
	e.wake()
	e.mu.Unlock()
	switch {
	case refused != "":
		t.Reject(code, sub, refused)
	case now.Closed:
		if watch != nil {
			watch.Close()
		}
		log := e.Log
		if now.Message != "" {
			log = log.With("message", now.Message)
		}
		log.Info("BGP session ended", "peer", t.Peer, "reason", now.Reason)
		if before == session.Established && e.ctx.Err() == nil {
			e.record(t.Group, t.Peer, event.Event{Type: event.PeerDown, From: before, To: session.Idle, Cause: now.Reason})
		}
	case now.State == session.Established && before != session.Established:
		e.Log.Info("BGP session established", "peer", t.Peer, "asn", now.PeerAS)
		e.record(t.Group, t.Peer, event.Event{Type: event.PeerEstablished, From: before, To: now.State, Cause: fmt.Sprintf("AS %d", now.PeerAS)})
		if t.Group.BFD {
			e.watch(t)
		}
	}
}

// record records an event of a neighbor. All those that no group knows are one object:
// anyone can connect.
func (e *Engine) record(g *session.Group, a netip.Addr, of event.Event) {
	of.Object = event.Object{Kind: "BGPPeer", Name: "unconfigured"}
	if g != nil {
		of.Object.Name = cmp.Or(g.Peer, a.String())
		if g.Peer != "" && g.Peer != a.String() {
			of.Field = a.String()
		}
	}
	e.Events.Record(of)
}

// ended records the end of a session.
func (p *peerState) ended(t *session.Session, reason, before string) {
	p.State, p.Since, p.session, p.watch = session.Idle, time.Now(), nil, nil
	if t.OverLimit() {
		p.cutUntil = time.Now().Add(session.CutFor)
	}
	if reason != "" {
		p.LastError = reason
	}
	if before == session.Established {
		p.flaps++
	}
}

// onThisMachine is reported instead of a BFD state for a peer at our own address: the end
// of the connection reveals its end, and it has the BFD ports, or needs them.
const onThisMachine = "not needed: on this machine"

// watch starts BFD for an established session.
func (e *Engine) watch(t *session.Session) {
	if t.Local == t.Peer {
		e.mu.Lock()
		defer e.mu.Unlock()
		if p := e.peers[t.Peer]; p != nil && p.session == t {
			p.noBFD = onThisMachine
		}
		return
	}
	s, err := e.bfdSession(t)
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.peers[t.Peer]
	switch {
	case errors.Is(err, context.Canceled): // shutting down
	case err != nil:
		if p != nil {
			p.noBFD = err.Error()
		}
		e.Log.Warn("failed to start BFD, silent failures are detected by the hold time only", "peer", t.Peer, "error", err)
	case p == nil || p.session != t:
		go s.Close()
	default:
		p.watch, p.noBFD = s, ""
		s.OnUp(func() { e.record(t.Group, t.Peer, event.Event{Type: event.BFDUp, To: bfd.Up.String()}) })
	}
}

func (e *Engine) bfdSession(t *session.Session) (*bfd.Session, error) {
	e.mu.Lock()
	if err := e.ctx.Err(); err != nil { // nobody would close what is opened now
		e.mu.Unlock()
		return nil, err
	}
	ep := e.endpoints[t.Local]
	if ep == nil {
		var err error
		if ep, err = bfd.Listen(t.Local); err != nil {
			e.mu.Unlock()
			return nil, err
		}
		e.endpoints[t.Local] = ep
	}
	e.mu.Unlock()
	return ep.Add(t.Peer, t.Group.Timing, func(reason string) { e.lose(t, reason) })
}

// Await waits until done returns true, for at most limit. done is called again whenever a
// session changes.
func (e *Engine) Await(ctx context.Context, limit time.Duration, done func() bool) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		e.mu.Lock()
		changed := e.changed
		e.mu.Unlock()
		if done() {
			return true
		}
		select {
		case <-changed:
		case <-timer.C:
			return done()
		case <-ctx.Done():
			return false
		}
	}
}
