// Package session is one BGP connection (RFC 4271): the messages at its start, its timers,
// what is received and sent, its limits, and the reason for its end. What is sent always
// follows from the table (package rib) and what was sent before: nothing is queued, so a
// peer that reads slowly costs nothing, and no change can be missed.
//
// What concerns several sessions (who may connect, which routes are sent) belongs in
// package engine, except for the limits that they share (Total). Tests pass bytes to a
// session over the loopback interface.
package session

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/advertise/bgp/internal/rib"
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
	RouterID netip.Addr
	SendOnly bool // no updates are accepted
	Table    *rib.Table
	Total    *Total
	Counters *Counters
	// Accept returns the attributes with which a received route is stored, or false.
	Accept func(wire.Shared) (wire.Shared, bool)
	// Export returns the attributes with which a path is sent, or false.
	Export func(*Session, rib.Path) (wire.Shared, bool)
	// All returns all sessions.
	All func() []*Session
	// Changed is called without the lock on any change of the status.
	Changed func(*Session)
}

// Counters are those of a peer, across its sessions.
type Counters struct{ Received, Sent atomic.Uint64 }

// Session is a connection with a neighbor.
type Session struct {
	Options
	Local  netip.Addr
	Source *rib.Source

	conn *net.TCPConn
	in   *wire.Reader
	done chan struct{}
	// The following are set when the peer's OPEN is received, before anything is sent.
	hold    time.Duration
	decoder wire.Decoder
	encoder wire.Encoder

	writing sync.Mutex
	written atomic.Uint64 // octets
	blocked time.Duration // in writes, since paced; under writing
	paced   time.Time

	mu     sync.Mutex
	status Status
	broke  string // why a write failed: a message from the peer takes precedence
	cut    bool   // it exceeded a limit
	// updates counts the routes added or removed since minute.
	updates int
	minute  time.Time
	outbox
}

// Status is the state of a session at one moment.
type Status struct {
	State    string
	Since    time.Time
	PeerAS   uint32
	PeerID   netip.Addr
	Answered bool   // a message has been received
	Reason   string // why it ended
	Message  string // what the peer's operator says about it
	Closed   bool
}

// New returns a session that has just been connected.
func New(c *net.TCPConn, o Options) *Session {
	return &Session{
		Options: o, conn: c, Local: c.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap(), in: wire.NewReader(c), done: make(chan struct{}),
		Source: &rib.Source{Address: o.Peer, External: o.Group.AS != o.AS, Max: int(o.Group.MaxPaths)}, status: Status{State: OpenSent, Since: time.Now()}, outbox: newOutbox(),
	}
}

// Status returns the current state.
func (t *Session) Status() Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.status
	s.Reason = cmp.Or(s.Reason, t.broke)
	return s
}

func (t *Session) hello() wire.Hello {
	h := wire.Hello{AS: t.AS, ID: t.RouterID, Hold: uint16(t.Group.Hold / time.Second)}
	if t.Group.Receive {
		h.Paths |= pkt.BGP_ADD_PATH_RECEIVE
	}
	if t.Group.SendMax > 0 {
		h.Paths |= pkt.BGP_ADD_PATH_SEND
	}
	return h
}

// Run holds the session until its connection is closed.
func (t *Session) Run() {
	defer t.Table.Unsubscribe(t) // again: it may have been closed before it subscribed
	defer t.Close()
	open, err := t.hello().Message()
	if err != nil {
		t.End(err.Error())
		return
	}
	_ = t.conn.SetReadDeadline(time.Now().Add(t.Group.Hold)) // of the whole start
	if t.write(open) != nil {
		t.readRest()
		return
	}
	for {
		typ, body, err := t.in.Next()
		if err != nil {
			t.readFailed(err)
			return
		}
		if !t.receive(typ, body) {
			return
		}
	}
}

// receive handles a message, and reports whether the session continues.
func (t *Session) receive(typ uint8, body []byte) bool {
	t.mu.Lock()
	t.status.Answered = true
	state, closed := t.status.State, t.status.Closed
	t.mu.Unlock()
	switch {
	case closed:
		return false
	case typ == pkt.BGP_MSG_NOTIFICATION:
		t.notified(body)
		return false
	case typ < pkt.BGP_MSG_OPEN || typ > pkt.BGP_MSG_ROUTE_REFRESH:
		t.notify(pkt.BGP_ERROR_MESSAGE_HEADER_ERROR, pkt.BGP_ERROR_SUB_BAD_MESSAGE_TYPE)
		return false
	case state == OpenSent:
		return t.opened(typ, body)
	case typ == pkt.BGP_MSG_OPEN:
		t.rejectOpen(state)
		return false
	case state == OpenConfirm:
		return t.confirmed(typ)
	}
	return t.established(typ, body)
}

// opened handles the first message, which must be an OPEN.
func (t *Session) opened(typ uint8, body []byte) bool {
	if typ != pkt.BGP_MSG_OPEN {
		t.notify(pkt.BGP_ERROR_FSM_ERROR, pkt.BGP_ERROR_SUB_RECEIVE_UNEXPECTED_MESSAGE_IN_OPENSENT_STATE)
		return false
	}
	open, err := wire.ReadOpen(body)
	if err == nil {
		t.mu.Lock()
		t.status.PeerAS, t.status.PeerID = open.AS, open.ID
		t.mu.Unlock()
		err = open.Check(t.Group.AS, t.hello())
	}
	if err != nil {
		t.malformed(err, pkt.BGP_ERROR_OPEN_MESSAGE_ERROR)
		return false
	}
	if open.Hold == 0 {
		t.rejectHold()
		return false
	}
	t.negotiate(open)
	t.enter(OpenConfirm)
	if t.Status().Closed || t.write(wire.Keepalive()) != nil {
		return false
	}
	go t.sendLoop()
	return true
}

// negotiate determines what both sides support.
func (t *Session) negotiate(open wire.Open) {
	t.hold = min(t.Group.Hold, time.Duration(open.Hold)*time.Second)
	t.Source.ID = open.ID
	t.in.Extended = open.Extended
	t.decoder = wire.Decoder{
		TwoOctets: !open.FourOctets, External: t.Source.External, Loopback: t.Local.IsLoopback() && t.Peer.IsLoopback(), Extended: open.Extended,
		Families: map[pkt.Family]pkt.BGPAddPathMode{},
	}
	t.encoder = wire.Encoder{TwoOctets: !open.FourOctets, IDs: map[pkt.Family]bool{}}
	ours := t.hello().Paths
	for _, f := range wire.Families {
		mode, is := open.Speaks[f]
		if !is {
			continue
		}
		t.decoder.Families[f] = pkt.BGP_ADD_PATH_NONE
		if ours&pkt.BGP_ADD_PATH_RECEIVE != 0 && mode&pkt.BGP_ADD_PATH_SEND != 0 {
			t.decoder.Families[f] = pkt.BGP_ADD_PATH_RECEIVE
		}
		t.encoder.IDs[f] = ours&pkt.BGP_ADD_PATH_SEND != 0 && mode&pkt.BGP_ADD_PATH_RECEIVE != 0
	}
}

// confirmed handles the message after OPEN, which must be a KEEPALIVE.
func (t *Session) confirmed(typ uint8) bool {
	if typ != pkt.BGP_MSG_KEEPALIVE {
		t.End("the peer sent another message before its KEEPALIVE")
		return false
	}
	t.alive()
	if !t.Group.Silent {
		t.Table.Subscribe(t)
	}
	t.enter(Established)
	return true
}

// established handles a message in an established session.
func (t *Session) established(typ uint8, body []byte) bool {
	switch typ {
	case pkt.BGP_MSG_KEEPALIVE:
		t.alive()
	case pkt.BGP_MSG_ROUTE_REFRESH:
		t.refresh()
	case pkt.BGP_MSG_UPDATE:
		t.Counters.Received.Add(1)
		if !t.SendOnly && !t.update(body) {
			return false
		}
		t.alive()
	}
	return true
}

func (t *Session) update(body []byte) bool {
	u, err := t.decoder.Update(body)
	if err != nil {
		t.malformed(err, pkt.BGP_ERROR_UPDATE_MESSAGE_ERROR)
		return false
	}
	t.Table.Update(t.Source, u, t.Accept)
	t.bound(u.Routes())
	return true
}

// alive restarts the hold timer.
func (t *Session) alive() { _ = t.conn.SetReadDeadline(time.Now().Add(t.hold)) }

// write writes a message, for at most the hold time.
func (t *Session) write(b []byte) error {
	t.writing.Lock()
	defer t.writing.Unlock()
	_ = t.conn.SetWriteDeadline(time.Now().Add(t.Group.Hold))
	began := time.Now()
	n, err := t.conn.Write(b)
	t.written.Add(uint64(n)) // before a route counts as withdrawn
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
	return err
}

// Close closes the connection.
func (t *Session) Close() {
	t.conn.Close()
	t.mu.Lock()
	first := !t.status.Closed
	t.status.Closed = true
	t.mu.Unlock()
	if first {
		t.Table.Unsubscribe(t)
		t.Table.Drop(t.Source)
		close(t.done)
		t.Changed(t)
	}
}

func (t *Session) enter(state string) {
	t.mu.Lock()
	t.status.State, t.status.Since = state, time.Now()
	t.mu.Unlock()
	t.Changed(t)
}

// readFailed ends the session because nothing more can be read.
func (t *Session) readFailed(err error) {
	s := t.Status()
	var bad *pkt.MessageError
	switch {
	case errors.As(err, &bad):
		t.notify(bad.TypeCode, bad.SubTypeCode)
	case tcp.IsTimeout(err) && s.State == Established:
		t.notify(pkt.BGP_ERROR_HOLD_TIMER_EXPIRED, 0)
	case tcp.IsTimeout(err):
		t.End(fmt.Sprintf("no session within the hold time of %s: the peer receives nothing from us; a filter or the peer's TTL security may drop our packets", t.Group.Hold))
	case !s.Answered && tcp.IsEnd(err):
		t.End("the peer closed the connection without a notification: it has no neighbor with our address, or another session with it")
	default:
		t.End(cmp.Or(t.Status().Reason, tcp.EndWords(err)))
	}
}
