package bgp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"github.com/osrg/gobgp/v4/api"

	"github.com/fairlead/fairlead/advertise/bfd"
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

func (e *engine) listenAll() error {
	for _, at := range e.listen {
		l, err := listenTCP(e.ctx, at, e.groups)
		if err != nil {
			return err
		}
		e.listeners = append(e.listeners, l)
		e.wg.Add(1)
		go e.acceptLoop(l)
	}
	return nil
}

func (e *engine) acceptLoop(l *net.TCPListener) {
	defer e.wg.Done()
	for {
		c, err := l.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			e.log.Warn("failed to accept a BGP connection", "at", l.Addr(), "error", err)
			if !sleepAbout(e.ctx, firstRetry) {
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
		t := e.newTap(c, from, g)
		e.track(t) // before the next connection is examined
		e.wg.Add(1)
		go func() {
			defer e.wg.Done()
			e.hand(t)
			t.oversee()
		}()
	}
}

// makeRoom reports whether a neighbor may open a new connection. An established session
// is not given up for it (RFC 4271, section 6.8); if its other end is gone, BFD detects
// that. A connection that makes no progress is given up.
func (e *engine) makeRoom(from netip.Addr) bool {
	e.mu.Lock()
	p := e.peers[from]
	if p == nil || p.tap == nil {
		e.mu.Unlock()
		return true
	}
	t := p.tap
	e.mu.Unlock()
	if state, since, _, _, _ := t.status(); state == stateEstablished || time.Since(since) < connectTimeout {
		return false
	}
	t.end("the peer reconnected")
	t.Close()
	return true
}

// groupOf returns the group with the longest prefix that contains an address.
func (e *engine) groupOf(a netip.Addr) *group {
	var best *group
	bits := -1
	for _, g := range e.groups {
		for _, p := range g.prefixes {
			if p.Contains(a.WithZone("")) && p.Bits() > bits {
				best, bits = g, p.Bits()
			}
		}
	}
	return best
}

// dial starts to maintain a session with a peer.
func (e *engine) dial(d *dialTarget) {
	e.enter(d.to.Addr(), d.group, stateConnect) // so that it is listed from the start
	ctx, stop := context.WithCancel(e.ctx)
	d.stop, d.ended = stop, make(chan struct{})
	e.wg.Add(1)
	go e.dialLoop(ctx, d)
}

func (e *engine) dialLoop(ctx context.Context, d *dialTarget) {
	defer e.wg.Done()
	defer close(d.ended)
	defer d.stop()
	wait := firstRetry
	for {
		e.enter(d.to.Addr(), d.group, stateConnect)
		start := time.Now()
		c, err := d.dialTCP(ctx)
		if ctx.Err() != nil {
			if c != nil {
				c.Close()
			}
			return
		}
		if err != nil {
			e.failed(d, dialWords(d.to, d.from, d.group.password != "", time.Since(start).Round(100*time.Millisecond), err))
			if !sleepAbout(ctx, wait) {
				return
			}
			wait = min(2*wait, d.retry)
			continue
		}
		t := e.newTap(c, d.to.Addr(), d.group)
		e.track(t)
		e.hand(t)
		t.oversee()
		wait = afterSession(d, t, wait)
		if !sleepAbout(ctx, wait) {
			return
		}
	}
}

// oversee waits for the end of a connection. If it is not a session after the hold time,
// it is closed: gobgp waits forever for a peer that sends but does not receive.
func (t *tap) oversee() {
	late := time.NewTimer(t.group.hold)
	defer late.Stop()
	select {
	case <-t.done:
		return
	case <-late.C:
	}
	if state, _, _, _, _ := t.status(); state != stateEstablished {
		t.end(fmt.Sprintf("no session within the hold time of %s: the peer receives nothing from us; a filter or the peer's TTL security may drop our packets", t.group.hold))
		t.Close()
	}
	<-t.done
}

// afterSession returns the pause after a connection that was established.
func afterSession(d *dialTarget, t *tap, wait time.Duration) time.Duration {
	if t.overLimit() {
		return cutFor
	}
	state, since, _, _, _ := t.status()
	if state == stateEstablished && time.Since(since) < briefly {
		return min(2*wait, max(refusedRetry, d.retry))
	}
	if state == stateEstablished {
		return firstRetry
	}
	t.mu.Lock()
	opened := t.opened
	t.mu.Unlock()
	if opened {
		return max(refusedRetry, d.retry)
	}
	return min(2*wait, d.retry)
}

// sleepAbout sleeps for d, plus or minus a quarter so that many speakers do not
// synchronize. It returns false if ctx is done.
func sleepAbout(ctx context.Context, d time.Duration) bool {
	return sleep.For(ctx, time.Duration(float64(d)*(0.75+rand.Float64()/2)))
}

// hand hands a connection to gobgp, after the remains of an earlier session with the same
// address are gone.
func (e *engine) hand(t *tap) {
	deadline := time.Now().Add(time.Second)
	for !e.bury(t.peer, t) {
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
func (e *engine) bury(addr netip.Addr, next *tap) bool {
	e.sweep.Lock()
	defer e.sweep.Unlock()
	e.mu.Lock()
	p := e.peers[addr]
	alive := p != nil && p.tap != nil && p.tap != next
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

// onTap handles state changes of a session.
func (e *engine) onTap(t *tap) {
	state, since, as, reason, closed := t.status()
	e.mu.Lock()
	p := e.peers[t.peer]
	if p == nil || p.tap != t {
		e.mu.Unlock()
		return
	}
	before := p.Peer.State
	p.AS, p.State, p.Since = as, state, since
	if as == 0 {
		p.AS = t.group.as
	}
	watch := p.watch
	code, sub, refused := uint8(0), uint8(0), ""
	if state == stateOpenConfirm && !closed && !p.admitted {
		if code, sub, refused = e.judge(t); refused == "" {
			p.admitted = true
		}
	}
	switch {
	case closed:
		p.ended(t, reason, before)
	case state == stateEstablished && before != stateEstablished:
		p.LastError = "" // why it once failed is in the log
	}
	e.wake()
	e.mu.Unlock()
	e.keepQueue(t, state, closed)
	switch {
	case refused != "":
		t.reject(code, sub, refused)
	case closed:
		if watch != nil {
			watch.Close()
		}
		e.log.Info("BGP session ended", "peer", t.peer, "reason", reason)
	case state == stateEstablished && before != stateEstablished:
		e.log.Info("BGP session established", "peer", t.peer, "as", as)
		if t.group.bfd {
			e.watch(t)
		}
		if t.bounded() {
			e.wg.Add(1)
			go e.boundPaths(t)
		}
		if !t.group.silent {
			e.wg.Add(2)
			go e.auditLoop(t)
			go e.refreshLoop(t)
		}
	}
}

// ended records the end of a session.
func (p *peerState) ended(t *tap, reason, before string) {
	p.State, p.Since, p.tap, p.watch = stateIdle, time.Now(), nil, nil
	if t.overLimit() {
		p.cutUntil = time.Now().Add(cutFor)
	}
	if reason != "" {
		p.LastError = reason
	}
	if before == stateEstablished {
		p.count.flaps.Add(1)
	}
}

// keepQueue looks up the queue of a session that comes up, while gobgp still has it, and
// drains it when the session ends.
func (e *engine) keepQueue(t *tap, state string, closed bool) {
	t.mu.Lock()
	q := t.queue
	t.mu.Unlock()
	switch {
	case closed && q != nil:
		go drain(q)
	case !closed && q == nil && state == stateEstablished:
		q = queueOf(e.server, t.peer)
		t.mu.Lock()
		t.queue = q
		t.mu.Unlock()
	}
}

// onThisMachine is reported instead of a BFD state for a peer at our own address: the end
// of the connection reveals its end, and it has the BFD ports, or needs them.
const onThisMachine = "not needed: on this machine"

// watch starts BFD for an established session.
func (e *engine) watch(t *tap) {
	if t.local == t.peer {
		e.mu.Lock()
		defer e.mu.Unlock()
		if p := e.peers[t.peer]; p != nil && p.tap == t {
			p.noBFD = onThisMachine
		}
		return
	}
	s, err := e.bfdSession(t)
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.peers[t.peer]
	switch {
	case errors.Is(err, context.Canceled): // shutting down
	case err != nil:
		if p != nil {
			p.noBFD = err.Error()
		}
		e.log.Warn("failed to start BFD, silent failures are detected by the hold time only", "peer", t.peer, "error", err)
	case p == nil || p.tap != t:
		go s.Close()
	default:
		p.watch, p.noBFD = s, ""
	}
}

func (e *engine) bfdSession(t *tap) (*bfd.Session, error) {
	e.mu.Lock()
	if err := e.ctx.Err(); err != nil { // nobody would close what is opened now
		e.mu.Unlock()
		return nil, err
	}
	ep := e.endpoints[t.local]
	if ep == nil {
		var err error
		if ep, err = bfd.Listen(t.local); err != nil {
			e.mu.Unlock()
			return nil, err
		}
		e.endpoints[t.local] = ep
	}
	e.mu.Unlock()
	return ep.Add(t.peer, t.group.timing, func(reason string) { e.lose(t, reason) })
}

// await waits until done returns true, for at most limit. done is called again whenever a
// session changes.
func (e *engine) await(ctx context.Context, limit time.Duration, done func() bool) bool {
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
