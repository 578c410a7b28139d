package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/osrg/gobgp/v4/api"

	"github.com/fairlead/fairlead/advertise/bgp/internal/session"
	"github.com/fairlead/fairlead/advertise/bgp/internal/tcp"
	"github.com/fairlead/fairlead/internal/sleep"
)

// Pauses between connection attempts: short at first, so that a restarted reflector has
// its routes back immediately, and then up to the peer's ConnectRetry.
const (
	firstRetry = 20 * time.Millisecond
	// refusedRetry follows a peer that answered and then rejected us: only a change of
	// configuration fixes that.
	refusedRetry = 2 * time.Second
	// briefly is the minimum duration of a session to count as one: the pauses after
	// shorter sessions grow up to refusedRetry (RFC 4271's DampPeerOscillations).
	briefly = 3 * time.Second
)

func (e *Engine) listenAll() error {
	for _, at := range e.Listen {
		l, err := tcp.Listen(e.ctx, at, e.passwords())
		if err != nil {
			return err
		}
		e.listeners = append(e.listeners, l)
		e.wg.Add(1)
		go e.acceptLoop(l)
	}
	return nil
}

func (e *Engine) acceptLoop(l *net.TCPListener) {
	defer e.wg.Done()
	for {
		c, err := l.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			e.Log.Warn("failed to accept a BGP connection", "at", l.Addr(), "error", err)
			if !sleep.About(e.ctx, firstRetry) {
				return
			}
			continue
		}
		from := c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
		g := e.groupOf(from)
		if g == nil {
			e.refuse(from, fmt.Sprintf("rejected %s: no neighbor group includes this address", from))
			c.Close()
			continue
		}
		if !e.admit(c, from) {
			continue
		}
		if !e.makeRoom(from) {
			c.Close()
			continue
		}
		t := e.begin(c, from, g) // before the next connection is examined
		e.wg.Add(1)
		go func() {
			defer e.wg.Done()
			e.hand(t)
			t.Oversee()
		}()
	}
}

// makeRoom reports whether a neighbor may open a new connection. An established session
// is not given up for it (RFC 4271, section 6.8); if its other end is gone, BFD detects
// that. A connection that makes no progress is given up.
func (e *Engine) makeRoom(from netip.Addr) bool {
	e.mu.Lock()
	p := e.peers[from]
	if p == nil || p.session == nil {
		e.mu.Unlock()
		return true
	}
	t := p.session
	e.mu.Unlock()
	if s := t.Status(); s.State == session.Established || time.Since(s.Since) < tcp.ConnectTimeout {
		return false
	}
	t.End("the peer reconnected")
	t.Close()
	return true
}

// passwords returns the passwords of all neighbors that connect to us, by prefix.
func (e *Engine) passwords() map[netip.Prefix]string {
	all := map[netip.Prefix]string{}
	for _, g := range e.Groups {
		for _, p := range g.Prefixes {
			if g.Password != "" {
				all[p] = g.Password
			}
		}
	}
	return all
}

// groupOf returns the group with the longest prefix that contains an address.
func (e *Engine) groupOf(a netip.Addr) *session.Group {
	var best *session.Group
	bits := -1
	for _, g := range e.Groups {
		for _, p := range g.Prefixes {
			if p.Contains(a.WithZone("")) && p.Bits() > bits {
				best, bits = g, p.Bits()
			}
		}
	}
	return best
}

func (d Dial) target() tcp.Target {
	return tcp.Target{To: d.To, From: d.From, Device: d.Device, Password: d.Group.Password, TTL: d.Group.TTL, MaxHops: d.Group.Hops}
}

// dial starts to maintain a session with a peer.
func (e *Engine) dial(d *dialed) {
	e.enter(d.To.Addr(), d.Group, session.Connect) // so that it is listed from the start
	ctx, stop := context.WithCancel(e.ctx)
	d.stop, d.ended = stop, make(chan struct{})
	e.wg.Add(1)
	go e.dialLoop(ctx, d)
}

func (e *Engine) dialLoop(ctx context.Context, d *dialed) {
	defer e.wg.Done()
	defer close(d.ended)
	defer d.stop()
	wait, target := firstRetry, d.target()
	for {
		e.enter(d.To.Addr(), d.Group, session.Connect)
		start := time.Now()
		c, err := target.Dial(ctx)
		if ctx.Err() != nil {
			if c != nil {
				c.Close()
			}
			return
		}
		if err != nil {
			e.failed(d, target.DialWords(time.Since(start).Round(100*time.Millisecond), err))
			if !sleep.About(ctx, wait) {
				return
			}
			wait = min(2*wait, d.Retry)
			continue
		}
		t := e.begin(c, d.To.Addr(), d.Group)
		e.hand(t)
		t.Oversee()
		wait = afterSession(d, t, wait)
		if !sleep.About(ctx, wait) {
			return
		}
	}
}

// afterSession returns the pause after a connection that was established.
func afterSession(d *dialed, t *session.Session, wait time.Duration) time.Duration {
	if t.OverLimit() {
		return session.CutFor
	}
	switch s := t.Status(); {
	case s.State == session.Established && time.Since(s.Since) < briefly:
		return min(2*wait, max(refusedRetry, d.Retry))
	case s.State == session.Established:
		return firstRetry
	case s.Answered:
		return max(refusedRetry, d.Retry)
	}
	return min(2*wait, d.Retry)
}

// hand hands a connection to gobgp, after the remains of an earlier session with the same
// address are gone.
func (e *Engine) hand(t *session.Session) {
	deadline := time.Now().Add(time.Second)
	for !e.bury(t.Peer, t) {
		if time.Now().After(deadline) || e.ctx.Err() != nil {
			t.Close()
			return
		}
		time.Sleep(time.Millisecond)
	}
	select {
	case e.gate <- t:
	case <-e.ctx.Done():
		t.Close()
	}
}

// bury removes a neighbor whose session failed before it was up: gobgp would keep it
// forever, and occasionally reject its connections. Only next, a connection that is not
// yet handed over, may exist. It reports whether no neighbor with this address is left.
func (e *Engine) bury(addr netip.Addr, next *session.Session) bool {
	e.sweep.Lock()
	defer e.sweep.Unlock()
	e.mu.Lock()
	p := e.peers[addr]
	alive := p != nil && p.session != nil && p.session != next
	e.mu.Unlock()
	if alive {
		return false
	}
	left := false
	err := e.server.ListPeer(e.ctx, &api.ListPeerRequest{Address: addr.String()}, func(p *api.Peer) {
		switch p.GetState().GetSessionState() {
		case api.PeerState_SESSION_STATE_IDLE, api.PeerState_SESSION_STATE_ACTIVE:
			left = e.server.DeletePeer(e.ctx, &api.DeletePeerRequest{Address: addr.String()}) != nil
		default: // its connection is closed; gobgp is about to notice
			left = true
		}
	})
	return err == nil && !left
}
