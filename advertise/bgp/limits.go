package bgp

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"time"

	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// Anyone who can connect to us can also do harm, intentionally or not. These limits
// prevent one neighbor from affecting the others.
const (
	// maxPending limits connections that are not yet a session; one more closes the
	// oldest. A well-behaved neighbor needs milliseconds.
	maxPending = 128
	// cutFor is how long a disconnected neighbor must stay away.
	cutFor = time.Minute
	// notifyEvery is how often it is sent the reason.
	notifyEvery = time.Second
	// A neighbor may connect in bursts of connectBurst, and at a rate of
	// connectsPerSecond.
	connectBurst      = 30
	connectsPerSecond = 1
	// slowTimes is how many consecutive hold times a peer may block our writes.
	slowTimes = 3
	// maxListed limits the disconnected neighbors that are still listed.
	maxListed = 1024
)

// admit reports whether a newly accepted connection may proceed. It closes one that may
// not.
func (e *engine) admit(c *net.TCPConn, from netip.Addr) bool {
	e.mu.Lock()
	if p, now := e.peers[from], time.Now(); p != nil && now.Before(p.cutUntil) {
		notify := now.Sub(p.notified) > notifyEvery
		if notify {
			p.notified = now
		}
		e.mu.Unlock()
		turnAway(c, notify)
		return false
	} else if p != nil && p.tap == nil && !p.connects.take(now, connectBurst, connectsPerSecond) {
		p.LastError = fmt.Sprintf("%s connects too often: more than %d short connections; accepting one connection per second", from, connectBurst)
		e.mu.Unlock()
		c.Close()
		return false
	}
	var oldest *tap
	var since time.Time
	pending := 0
	for _, p := range e.peers {
		if p.tap == nil || p.dial {
			continue
		}
		state, at, _, _, closed := p.tap.status()
		if state == stateEstablished || closed {
			continue
		}
		if pending++; oldest == nil || at.Before(since) {
			oldest, since = p.tap, at
		}
	}
	e.mu.Unlock()
	if pending >= maxPending {
		oldest.end(fmt.Sprintf("too many connections (%d) without a session: the oldest one was closed", maxPending))
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
	farewell(c, pkt.BGP_ERROR_CEASE, pkt.BGP_ERROR_SUB_MAXIMUM_NUMBER_OF_PREFIXES_REACHED, time.Millisecond)
	c.Close()
}

// farewell sends a peer the NOTIFICATION that ends a session, if it accepts that in time.
// The kernel resets a connection that is closed with unread data, and the reset can
// overtake the NOTIFICATION: therefore a copy of the socket stays open until the peer
// closes it, for at most a second, and reads what arrives.
func farewell(c *net.TCPConn, code, sub uint8, in time.Duration) {
	b, err := pkt.NewBGPNotificationMessage(code, sub, nil).Serialize()
	if err != nil {
		return
	}
	_ = c.SetWriteDeadline(time.Now().Add(in))
	if _, err := c.Write(b); err != nil || c.CloseWrite() != nil {
		return
	}
	f, err := c.File()
	if err != nil {
		return
	}
	_ = f.SetReadDeadline(time.Now().Add(time.Second))
	go func() {
		defer f.Close()
		_, _ = io.Copy(io.Discard, f)
	}()
}

// judge checks a neighbor that has identified itself. It returns why it cannot have a
// session, with the BGP error code; runs under e.mu.
func (e *engine) judge(t *tap) (code, sub uint8, reason string) {
	if t.group.dialled {
		return 0, 0, ""
	}
	peers := 0
	t.mu.Lock()
	id, as := t.peerID, t.peerAS
	t.mu.Unlock()
	for a, p := range e.peers {
		if p.tap == nil || p.tap == t || !p.admitted {
			continue
		}
		if p.group == t.group {
			peers++
		}
		p.tap.mu.Lock()
		same := p.tap.peerID == id && p.tap.peerAS == as
		p.tap.mu.Unlock()
		// A speaker may have one session over each family.
		if same && id.IsValid() && a.Is4() == t.peer.Is4() {
			return pkt.BGP_ERROR_OPEN_MESSAGE_ERROR, pkt.BGP_ERROR_SUB_BAD_BGP_IDENTIFIER,
				fmt.Sprintf("%s is rejected: its router ID %s is in use by %s; router IDs must be unique", t.peer, id, a)
		}
	}
	if most := t.group.maxPeers; most > 0 && peers >= most {
		return pkt.BGP_ERROR_CEASE, pkt.BGP_ERROR_SUB_OUT_OF_RESOURCES,
			fmt.Sprintf("rejected %s: %s already has the maximum of %d neighbors; raise --max-clients", t.peer, t.group.name, peers)
	}
	return 0, 0, ""
}

// reject ends a connection with a reason, and sends the peer the code.
func (t *tap) reject(code, sub uint8, reason string) {
	t.end(reason)
	farewell(t.TCPConn, code, sub, 100*time.Millisecond)
	t.Close()
}

// tooSlow records how long a write took, and reports whether the peer has blocked our
// writes nearly all the time for several hold times. gobgp queues without limit what such
// a peer does not read (compare RFC 9687). Runs under t.writing.
func (t *tap) tooSlow(took time.Duration) bool {
	now := time.Now()
	if t.paced.IsZero() {
		t.paced = now.Add(-took)
	}
	t.blocked += took
	span := now.Sub(t.paced)
	if span < slowTimes*t.group.hold {
		return false
	}
	slow := t.blocked > span*9/10
	t.paced, t.blocked = now, 0
	return slow
}

// rejectHold ends a session that would never end by itself: without a hold time, nobody
// notices that the peer is gone (RFC 4271, section 6.2, permits the rejection).
func (t *tap) rejectHold() {
	t.reject(pkt.BGP_ERROR_OPEN_MESSAGE_ERROR, pkt.BGP_ERROR_SUB_UNACCEPTABLE_HOLD_TIME,
		fmt.Sprintf("%s requests the hold time 0, which would leave failures undetected; configure at least 3 seconds", t.peer))
}

// wantsNoHold reports whether an OPEN has a hold time of 0.
func wantsNoHold(open []byte) bool { return len(open) >= 5 && open[3] == 0 && open[4] == 0 }

// rejectOpen ends a session whose peer sends another OPEN (RFC 4271, section 8.2.2; codes
// of RFC 6608). gobgp would ignore it in an established session.
func (t *tap) rejectOpen(state string) {
	sub := uint8(pkt.BGP_ERROR_SUB_RECEIVE_UNEXPECTED_MESSAGE_IN_OPENCONFIRM_STATE)
	if state == stateEstablished {
		sub = pkt.BGP_ERROR_SUB_RECEIVE_UNEXPECTED_MESSAGE_IN_ESTABLISHED_STATE
	}
	t.reject(pkt.BGP_ERROR_FSM_ERROR, sub, fmt.Sprintf("%s sent an OPEN twice", t.peer))
}

// trim limits the list of disconnected neighbors: unknown ones are removed first, then
// those that disconnected first. One that must stay away for a while stays listed until
// then, or it could come back. Runs under e.mu.
func (e *engine) trim() {
	now := time.Now()
	var gone []netip.Addr
	for a, p := range e.peers {
		if p.tap == nil && !p.dial && now.After(p.cutUntil) {
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
