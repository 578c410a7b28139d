package engine

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/fairlead/fairlead/advertise/bgp/internal/session"
	"github.com/fairlead/fairlead/advertise/bgp/internal/tcp"
	"github.com/fairlead/fairlead/advertise/bgp/internal/wire"
)

// Anyone who can connect to us can also do harm, intentionally or not. These limits
// prevent one neighbor from affecting the others.
const (
	// maxPending limits connections that are not yet a session; one more closes the
	// oldest. A well-behaved neighbor needs milliseconds.
	maxPending = 128
	// notifyEvery is how often it is sent the reason.
	notifyEvery = time.Second
	// A neighbor may connect in bursts of connectBurst, and at a rate of
	// connectsPerSecond.
	connectBurst      = 30
	connectsPerSecond = 1
	// maxListed limits the disconnected neighbors that are still listed.
	maxListed = 1024
)

// admit reports whether a newly accepted connection may proceed. It closes one that may
// not.
func (e *Engine) admit(c *net.TCPConn, from netip.Addr) bool {
	e.mu.Lock()
	if p, now := e.peers[from], time.Now(); p != nil && now.Before(p.cutUntil) {
		notify := now.Sub(p.notified) > notifyEvery
		if notify {
			p.notified = now
		}
		e.mu.Unlock()
		turnAway(c, notify)
		return false
	} else if p != nil && p.session == nil && !p.connects.take(now, connectBurst, connectsPerSecond) {
		p.LastError = fmt.Sprintf("%s connects too often: more than %d short connections; accepting one connection per second", from, connectBurst)
		e.mu.Unlock()
		c.Close()
		return false
	}
	var oldest *session.Session
	var since time.Time
	pending := 0
	for _, p := range e.peers {
		if p.session == nil || p.dial {
			continue
		}
		s := p.session.Status()
		if s.State == session.Established || s.Closed {
			continue
		}
		if pending++; oldest == nil || s.Since.Before(since) {
			oldest, since = p.session, s.Since
		}
	}
	e.mu.Unlock()
	if pending >= maxPending {
		oldest.End(fmt.Sprintf("too many connections (%d) without a session: the oldest one was closed", maxPending))
		oldest.Close()
	}
	return true
}

// turnAway closes the connection of a disconnected neighbor, and may send the reason.
func turnAway(c *net.TCPConn, notify bool) {
	if !notify {
		c.Close()
		return
	}
	tcp.Farewell(c, wire.Notification(pkt.BGP_ERROR_CEASE, pkt.BGP_ERROR_SUB_MAXIMUM_NUMBER_OF_PREFIXES_REACHED), time.Millisecond)
	c.Close()
}

// judge checks a neighbor that has identified itself. It returns why it cannot have a
// session, with the BGP error code; runs under e.mu.
func (e *Engine) judge(t *session.Session, now session.Status) (code, sub uint8, reason string) {
	if t.Group.Dialed {
		return 0, 0, ""
	}
	peers := 0
	for a, p := range e.peers {
		if p.session == nil || p.session == t || !p.admitted {
			continue
		}
		if p.group == t.Group {
			peers++
		}
		other := p.session.Status()
		same := other.PeerID == now.PeerID && other.PeerAS == now.PeerAS
		// A speaker may have one session over each family.
		if same && now.PeerID.IsValid() && a.Is4() == t.Peer.Is4() {
			return pkt.BGP_ERROR_OPEN_MESSAGE_ERROR, pkt.BGP_ERROR_SUB_BAD_BGP_IDENTIFIER,
				fmt.Sprintf("%s is rejected: its router ID %s is in use by %s; router IDs must be unique", t.Peer, now.PeerID, a)
		}
	}
	if most := t.Group.MaxPeers; most > 0 && peers >= most {
		return pkt.BGP_ERROR_CEASE, pkt.BGP_ERROR_SUB_OUT_OF_RESOURCES,
			fmt.Sprintf("rejected %s: %s already has the maximum of %d neighbors; raise --max-clients", t.Peer, t.Group.Name, peers)
	}
	return 0, 0, ""
}

// trim limits the list of disconnected neighbors: unknown ones are removed first, then
// those that disconnected first. One that must stay away for a while stays listed until
// then, or it could come back. Runs under e.mu.
func (e *Engine) trim() {
	now := time.Now()
	var gone []netip.Addr
	for a, p := range e.peers {
		if p.session == nil && !p.dial && now.After(p.cutUntil) {
			gone = append(gone, a)
		}
	}
	if len(gone) <= maxListed {
		return
	}
	slices.SortFunc(gone, func(a, b netip.Addr) int {
		p, q := e.peers[a], e.peers[b]
		if unknown := p.group == nil; unknown != (q.group == nil) {
			if unknown {
				return -1
			}
			return 1
		}
		return p.Since.Compare(q.Since)
	})
	for _, a := range gone[:len(gone)-maxListed*3/4] { // in batches
		delete(e.peers, a)
	}
}
