// Package session observes one BGP connection, which gobgp reads and writes like a plain
// socket: it knows the state of the session, which routes have really been written, and why
// it ended, none of which gobgp reports completely. It also protects gobgp from its peer:
// it withholds what gobgp should not read, counts what the peer sends, and ends a session
// that exceeds a limit.
//
// What concerns several sessions (who may connect, which routes are sent) belongs in
// package engine, except for the limits that they share (Total). Tests pass bytes to a
// session over the loopback interface.
package session

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/eapache/channels"
	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/advertise/bgp/internal/paths"
	"github.com/fairlead/fairlead/advertise/bgp/internal/tcp"
	"github.com/fairlead/fairlead/advertise/bgp/internal/wire"
)

// Names of the states (RFC 4271, section 8.2.2).
const (
	Idle        = "idle"
	Connect     = "connect"
	OpenSent    = "opensent"
	OpenConfirm = "openconfirm"
	Established = advertise.Established
)

// Options are what a session needs to know besides its connection.
type Options struct {
	Peer     netip.Addr
	Group    *Group
	AS       uint32 // ours
	SendOnly bool   // no updates are accepted
	Total    *Total
	Counters *Counters
	// Changed is called without the lock on any change of the status or of what was sent.
	Changed func(*Session)
}

// Counters are those of a peer, across its sessions.
type Counters struct{ Received, Sent atomic.Uint64 }

// Session is a connection with a neighbor.
type Session struct {
	*net.TCPConn
	Options
	Local netip.Addr
	// Queue is what gobgp has yet to write; nil before the session is established.
	Queue atomic.Pointer[channels.InfiniteChannel]

	in      wire.Sieve
	out     wire.Scanner
	done    chan struct{}
	greeted chan struct{}
	refresh chan struct{}

	writing sync.Mutex
	written atomic.Uint64 // octets
	blocked time.Duration // in writes, since paced; under writing
	paced   time.Time

	mu     sync.Mutex
	status Status
	broke  string // why a write failed: a message from the peer takes precedence
	cut    bool   // it exceeded a limit
	// fresh counts routes received since its paths were counted; counted is the larger
	// count of both families, all the sum. more is signaled when a limit may be exceeded;
	// recounted is closed and replaced after each count.
	fresh, counted, all int
	recounted           chan struct{}
	more                chan struct{}
	// updates counts the routes added or removed since minute.
	updates int
	minute  time.Time
	sent    map[paths.Key]paths.Sent
	most    int // the maximum size that sent has had
	// sendsIDs lists the families in which path identifiers are sent, receivesIDs those in
	// which they are received.
	sendsIDs, receivesIDs map[pkt.Family]bool
}

// Status is the state of a session at one moment.
type Status struct {
	State    string
	Since    time.Time
	PeerAS   uint32
	PeerID   netip.Addr
	Answered bool   // a message has been received
	Reason   string // why it ended
	Closed   bool
}

// New returns a session that has just been connected.
func New(c *net.TCPConn, o Options) *Session {
	t := unconnected(o)
	t.TCPConn, t.Local = c, c.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
	return t
}

func unconnected(o Options) *Session {
	t := &Session{
		Options: o, done: make(chan struct{}), greeted: make(chan struct{}), refresh: make(chan struct{}, 1), more: make(chan struct{}, 1), recounted: make(chan struct{}),
		status: Status{State: OpenSent, Since: time.Now()}, sent: map[paths.Key]paths.Sent{},
	}
	t.in.Message, t.out.Message = t.filter, t.wrote
	t.in.Updates, t.out.Updates = !t.SendOnly, true
	return t
}

// Done is closed when the connection is.
func (t *Session) Done() <-chan struct{} { return t.done }

// Greeted is closed when our OPEN has been sent.
func (t *Session) Greeted() <-chan struct{} { return t.greeted }

// Refresh receives a value when the peer requests all routes again.
func (t *Session) Refresh() <-chan struct{} { return t.refresh }

// Status returns the current state.
func (t *Session) Status() Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.status
	s.Reason = cmp.Or(s.Reason, t.broke)
	return s
}

// Read observes and filters what is received. Before the session is established, gobgp
// may reject it at any message, and the next one must not count as received.
func (t *Session) Read(b []byte) (int, error) {
	return t.in.Read(b, t.Status().State == Established, t.readCounted)
}

func (t *Session) readCounted(b []byte) (int, error) {
	t.awaitCount()
	n, err := t.TCPConn.Read(b)
	if err != nil && !tcp.IsTimeout(err) {
		t.End(t.readFailure(err))
	}
	return n, err
}

// Write observes what is sent, after it was sent. gobgp's senders and the audit may write
// concurrently, each complete messages.
func (t *Session) Write(b []byte) (int, error) {
	t.writing.Lock()
	defer t.writing.Unlock()
	_ = t.SetWriteDeadline(time.Now().Add(t.Group.Hold)) // gobgp would queue without limit
	began := time.Now()
	n, err := t.TCPConn.Write(b)
	t.written.Add(uint64(n)) // before a route counts as withdrawn
	t.out.Feed(b[:n])
	if err == nil && t.tooSlow(time.Since(began)) {
		err = fmt.Errorf("the peer reads too slowly: writing was blocked for %s", slowTimes*t.Group.Hold)
		t.End(err.Error())
	} else if err != nil && tcp.IsTimeout(err) {
		t.End(fmt.Sprintf("the peer read nothing for the hold time of %s", t.Group.Hold))
	} else if err != nil {
		t.mu.Lock()
		t.broke = tcp.EndWords(err)
		t.mu.Unlock()
	}
	return n, err
}

// Close is called by gobgp, which does not give a reason.
func (t *Session) Close() error {
	err := t.TCPConn.Close()
	t.mu.Lock()
	first := !t.status.Closed
	t.status.Closed = true
	if first {
		t.Total.paths.Add(int64(-t.all - t.fresh))
	}
	if first && t.status.State != Established && !t.status.Answered && t.status.Reason == "" && t.broke == "" {
		t.status.Reason = "connection rejected: another session with this address has not ended yet"
	}
	t.mu.Unlock()
	if first {
		close(t.done)
		t.Changed(t)
	}
	return err
}

// Fail ends the session for a reason of ours, and sends it to the peer if it still
// receives (RFC 9384: cease, BFD down).
func (t *Session) Fail(reason string) {
	t.End(reason)
	tcp.Farewell(t.TCPConn, wire.Notification(pkt.BGP_ERROR_CEASE, subBFDDown), 100*time.Millisecond)
	t.Close()
}

// End records the reason unless there already is one.
func (t *Session) End(reason string) {
	t.mu.Lock()
	if t.status.Reason == "" {
		t.status.Reason = reason
	}
	t.mu.Unlock()
}

func (t *Session) readFailure(err error) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.status.Answered && tcp.IsEnd(err) {
		return "the peer closed the connection without a notification: it has no neighbor with our address, or another session with it"
	}
	return tcp.EndWords(err)
}

func (t *Session) enter(state string) {
	t.mu.Lock()
	t.status.State, t.status.Since = state, time.Now()
	t.mu.Unlock()
	t.Changed(t)
}

func (t *Session) received(typ uint8, body []byte) {
	t.mu.Lock()
	t.status.Answered = true
	state := t.status.State
	t.mu.Unlock()
	switch typ {
	case pkt.BGP_MSG_OPEN:
		if state != OpenSent {
			t.rejectOpen(state)
			return
		}
		if wire.WantsNoHold(body) {
			t.rejectHold()
			return
		}
		open := wire.ReadOpen(body)
		t.mu.Lock()
		t.status.PeerAS, t.status.PeerID = open.AS, open.ID
		if t.Group.SendMax > 0 {
			t.sendsIDs = open.Receives
		}
		if t.Group.Receive {
			t.receivesIDs = open.Sends
		}
		t.mu.Unlock()
		t.enter(OpenConfirm)
	case pkt.BGP_MSG_UPDATE:
		t.Counters.Received.Add(1)
		t.tally(body)
	case pkt.BGP_MSG_KEEPALIVE:
		if state == OpenConfirm {
			t.enter(Established)
		}
	case pkt.BGP_MSG_ROUTE_REFRESH:
		select {
		case t.refresh <- struct{}{}:
		default:
		}
	case pkt.BGP_MSG_NOTIFICATION:
		t.End(t.receivedWords(body))
	}
}

func (t *Session) wrote(typ uint8, body []byte) {
	switch typ {
	case pkt.BGP_MSG_OPEN:
		close(t.greeted) // only one per session
	case pkt.BGP_MSG_NOTIFICATION:
		t.End(t.sentWords(body))
	case pkt.BGP_MSG_UPDATE:
		t.Counters.Sent.Add(1)
		t.noteSent(body)
	}
}

// maxNotification is the longest NOTIFICATION body that is passed on: a code, a subcode and
// a shutdown communication (RFC 9003). gobgp logs all of it.
const maxNotification = 2 + 1 + 255

// filter decides what gobgp reads of a message from the peer.
func (t *Session) filter(typ uint8, body []byte) {
	t.received(typ, body)
	switch {
	case typ == pkt.BGP_MSG_UPDATE && t.SendOnly, typ == pkt.BGP_MSG_ROUTE_REFRESH:
		// Deaf: gobgp would store all routes in case a policy changes. A refresh is
		// answered by the engine.
		t.in.Put(pkt.BGP_MSG_KEEPALIVE, nil)
	case typ == pkt.BGP_MSG_UPDATE:
		t.in.Put(typ, wire.Scrub(body))
	case typ == pkt.BGP_MSG_NOTIFICATION && len(body) > maxNotification:
		t.in.Put(typ, body[:maxNotification])
	default:
		t.in.Pass()
	}
}
