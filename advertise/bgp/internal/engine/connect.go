package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

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
			e.Log.Warn("failed to accept a BGP connection", "address", l.Addr(), "error", err)
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
		if err := e.target(Dial{To: netip.AddrPortFrom(from, 0), Group: g}).Tune(c); err != nil {
			e.Log.Warn("failed to set the TTL of a BGP connection", "peer", from, "error", err)
		}
		t := e.begin(c, from, g) // before the next connection is examined
		e.wg.Go(t.Run)
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

// target returns how to connect to a peer. Segments to another AS have the maximum TTL
// unless something else is configured.
func (e *Engine) target(d Dial) tcp.Target {
	ttl := d.Group.TTL
	if e.external(d.Group) && ttl == 0 && d.Group.Hops == 0 {
		ttl = 255
	}
	return tcp.Target{To: d.To, From: d.From, Device: d.Device, Password: d.Group.Password, TTL: ttl, MaxHops: d.Group.Hops}
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
	wait, target := firstRetry, e.target(d.Dial)
	for {
		e.enter(d.To.Addr(), d.Group, session.Connect)
		c, err := target.Dial(ctx)
		if ctx.Err() != nil {
			if c != nil {
				c.Close()
			}
			return
		}
		if err != nil {
			e.failed(d, target.DialWords(err))
			if !sleep.About(ctx, wait) {
				return
			}
			wait = min(2*wait, d.Retry)
			continue
		}
		t := e.begin(c, d.To.Addr(), d.Group)
		t.Run()
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
