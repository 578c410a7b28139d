package session

import (
	"fmt"
	"time"

	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/fairlead/fairlead/advertise/bgp/internal/tcp"
	"github.com/fairlead/fairlead/advertise/bgp/internal/wire"
)

const (
	// slowTimes is how many consecutive hold times a peer may block our writes.
	slowTimes = 3
	// codeSendHold is the error code of RFC 9687 for a peer that does not read what it is
	// sent.
	codeSendHold = 8
)

// Reject ends a connection with a reason, and sends the peer the code.
func (t *Session) Reject(code, sub uint8, reason string) {
	t.End(reason)
	tcp.Farewell(t.conn, wire.Notification(code, sub), 100*time.Millisecond)
	t.Close()
}

// Fail ends the session for a reason of ours, and sends it to the peer if it still
// receives (RFC 9384: cease, BFD down).
func (t *Session) Fail(reason string) { t.Reject(pkt.BGP_ERROR_CEASE, subBFDDown, reason) }

// End records the reason unless there already is one.
func (t *Session) End(reason string) {
	t.mu.Lock()
	if t.status.Reason == "" {
		t.status.Reason = reason
	}
	t.mu.Unlock()
}

// notified records why the peer ended the session.
func (t *Session) notified(body []byte) {
	t.End(t.receivedWords(body))
	t.mu.Lock()
	t.status.Message = wire.ShutdownMessage(body)
	t.mu.Unlock()
}

// notify ends a session with a code that explains itself.
func (t *Session) notify(code, sub uint8) { t.Reject(code, sub, t.sentWords(code, sub)) }

// malformed ends a session because of an error in a message, or in general in its kind.
func (t *Session) malformed(err error, kind uint8) {
	code, sub, is := wire.ErrorCode(err)
	if !is {
		code = kind
	}
	t.notify(code, sub)
}

// reasonWithin is how long a peer's last message may take to be read after a write failed.
const reasonWithin = time.Second

// awaitReason gives the reader time to read why the peer closed the connection.
func (t *Session) awaitReason() {
	t.mu.Lock()
	known := t.status.Reason != ""
	t.mu.Unlock()
	if known {
		return
	}
	_ = t.conn.SetReadDeadline(time.Now().Add(reasonWithin))
	select {
	case <-t.done:
	case <-time.After(reasonWithin):
	}
}

// readRest reads why the peer closed the connection before it could be sent anything.
func (t *Session) readRest() {
	_ = t.conn.SetReadDeadline(time.Now().Add(reasonWithin))
	for {
		typ, body, err := t.in.Next()
		if err != nil {
			t.readFailed(err)
			return
		}
		if typ == pkt.BGP_MSG_NOTIFICATION {
			t.notified(body)
			return
		}
	}
}

// tooSlow records how long a write took, and reports whether the peer has blocked our
// writes nearly all the time for several hold times: what it has is out of date (compare
// RFC 9687). Runs under t.writing.
func (t *Session) tooSlow(took time.Duration) bool {
	now := time.Now()
	if t.paced.IsZero() {
		t.paced = now.Add(-took)
	}
	t.blocked += took
	span := now.Sub(t.paced)
	if span < slowTimes*t.Group.Hold {
		return false
	}
	slow := t.blocked > span*9/10
	t.paced, t.blocked = now, 0
	return slow
}

// rejectHold ends a session that would never end by itself: without a hold time, nobody
// notices that the peer is gone (RFC 4271, section 6.2, permits the rejection).
func (t *Session) rejectHold() {
	t.Reject(pkt.BGP_ERROR_OPEN_MESSAGE_ERROR, pkt.BGP_ERROR_SUB_UNACCEPTABLE_HOLD_TIME,
		fmt.Sprintf("%s requests the hold time 0, which would leave failures undetected; configure at least 3 seconds", t.Peer))
}

// rejectOpen ends a session whose peer sends another OPEN (RFC 4271, section 8.2.2; codes
// of RFC 6608).
func (t *Session) rejectOpen(state string) {
	sub := uint8(pkt.BGP_ERROR_SUB_RECEIVE_UNEXPECTED_MESSAGE_IN_OPENCONFIRM_STATE)
	if state == Established {
		sub = pkt.BGP_ERROR_SUB_RECEIVE_UNEXPECTED_MESSAGE_IN_ESTABLISHED_STATE
	}
	t.Reject(pkt.BGP_ERROR_FSM_ERROR, sub, fmt.Sprintf("%s sent an OPEN twice", t.Peer))
}

// GiveUp ends a session whose peer has not received a withdrawal for the hold time.
func (t *Session) GiveUp(why string) {
	if t.Status().Reason == "" {
		reason := fmt.Sprintf("a withdrawal was not confirmed within the hold time of %s: %s", t.Group.Hold, why)
		t.End(reason)
		go t.Reject(codeSendHold, 0, reason) // in the background, because it writes
	}
}
