package bgp

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/osrg/gobgp/v4/api"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/advertise/bfd"
)

// keepDead is how long a disconnected neighbor is still listed, so that its reason can be
// seen.
const keepDead = 10 * time.Minute

type peerState struct {
	advertise.Peer
	group *group
	dial  bool
	tap   *tap
	watch *bfd.Session
	noBFD string
	// silentUntil is until when others may not have noticed the silence that ended its
	// last session.
	silentUntil time.Time
	count       *count
	// admitted means that the current session has passed judge.
	admitted bool
	// cutUntil is when a neighbor that sent too much may come back.
	cutUntil time.Time
	// connects limits its connections.
	connects bucket
	// notified is when it was last sent the reason.
	notified time.Time
}

// count holds a peer's counters across its sessions.
type count struct{ received, sent, flaps atomic.Uint64 }

// wake runs under e.mu.
func (e *engine) wake() {
	close(e.changed)
	e.changed = make(chan struct{})
}

// state returns a peer's entry, creating it if needed; runs under e.mu.
func (e *engine) state(a netip.Addr, g *group) *peerState {
	p := e.peers[a]
	if p == nil {
		p = &peerState{group: g, count: &count{}, Peer: advertise.Peer{Address: a.String(), State: stateIdle, Since: time.Now()}}
		if g != nil {
			p.Name, p.AS = g.peer, g.as
		}
		e.peers[a] = p
	}
	if g != nil {
		p.group = g
	}
	return p
}

func (e *engine) track(t *tap) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.state(t.peer, t.group)
	p.tap, p.admitted, p.State, p.Since = t, false, stateOpenSent, time.Now()
	t.count = p.count
	e.forget()
}

// forget removes neighbors that connected to us once and disconnected long ago; runs
// under e.mu.
func (e *engine) forget() {
	for a, p := range e.peers {
		if p.tap == nil && !p.dial && time.Since(p.Since) > keepDead {
			delete(e.peers, a)
		}
	}
	e.trim()
}

func (e *engine) enter(a netip.Addr, g *group, state string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.state(a, g)
	p.dial = true
	if p.State != state {
		p.State, p.Since = state, time.Now()
	}
}

func (e *engine) failed(d *dialTarget, reason string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.state(d.to.Addr(), d.group)
	if p.LastError != reason {
		e.log.Warn("cannot reach BGP peer", "peer", d.to, "error", reason)
	}
	p.LastError = reason
}

func (e *engine) refuse(a netip.Addr, reason string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.state(a, nil)
	if p.LastError != reason {
		e.log.Warn("BGP connection rejected", "from", a, "reason", reason)
	}
	p.LastError, p.Since = reason, time.Now()
	e.forget()
}

func (e *engine) taps() []*tap {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []*tap
	for _, p := range e.peers {
		if p.tap != nil {
			all = append(all, p.tap)
		}
	}
	return all
}

// established counts the dialed peers whose session is up.
func (e *engine) established() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for _, d := range e.dials {
		if p := e.peers[d.to.Addr()]; p != nil && p.State == stateEstablished {
			n++
		}
	}
	return n
}

// list returns all peers sorted by address, with what gobgp received. What was sent comes
// from the taps: gobgp would apply its policies to the complete table for each peer.
func (e *engine) list() []advertise.Peer {
	e.mu.Lock()
	rows := make(map[netip.Addr]advertise.Peer, len(e.peers))
	for a, p := range e.peers {
		row := p.Peer
		if p.tap != nil {
			p.tap.mu.Lock()
			row.Sent = uint32(len(p.tap.sent))
			p.tap.mu.Unlock()
		}
		row.BFD, row.Unconfigured = p.bfdWords(), p.group == nil
		row.UpdatesReceived, row.UpdatesSent, row.Flaps = p.count.received.Load(), p.count.sent.Load(), p.count.flaps.Load()
		rows[a] = row
	}
	e.mu.Unlock()
	_ = e.server.ListPeer(context.Background(), &api.ListPeerRequest{}, func(p *api.Peer) {
		a, _ := netip.ParseAddr(p.GetState().GetNeighborAddress())
		row, ok := rows[a]
		if !ok {
			return
		}
		for _, f := range p.GetAfiSafis() {
			row.Received += uint32(f.GetState().GetReceived())
		}
		rows[a] = row
	})
	addrs := make([]netip.Addr, 0, len(rows))
	for a := range rows {
		addrs = append(addrs, a)
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	list := make([]advertise.Peer, len(addrs))
	for i, a := range addrs {
		list[i] = rows[a]
	}
	return list
}

func (p *peerState) bfdWords() string {
	switch {
	case p.group == nil || !p.group.bfd:
		return "off"
	case p.noBFD != "":
		return p.noBFD
	case p.watch == nil:
		return bfd.Down.String()
	}
	return p.watch.State().String()
}

// awaitEstablished waits for all dialed peers. The error names one that is not up, and
// why.
func (e *engine) awaitEstablished(ctx context.Context) error {
	for {
		e.mu.Lock()
		changed := e.changed
		var missing *peerState
		for _, d := range e.dials {
			if p := e.peers[d.to.Addr()]; p == nil || p.State != stateEstablished {
				missing = e.state(d.to.Addr(), d.group)
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
