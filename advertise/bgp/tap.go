package bgp

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/fairlead/fairlead/advertise"
)

// tap wraps a BGP connection and observes it: it knows the state of the session, which
// routes have really been written, and why it ended, none of which gobgp reports
// completely. gobgp reads and writes it like a plain socket.
type tap struct {
	*net.TCPConn
	peer     netip.Addr
	local    netip.Addr
	group    *group
	ourAS    uint32
	in       sieve
	out      scanner
	sendOnly bool       // no updates are accepted
	limits   *total     // of all neighbors together
	change   func(*tap) // called without the lock on any change of the following fields
	done     chan struct{}
	count    *count // its peer's
	// greeted is closed when our OPEN has been sent.
	greeted chan struct{}

	writing sync.Mutex
	written atomic.Uint64 // octets
	blocked time.Duration // in writes, since paced; under writing
	paced   time.Time

	mu     sync.Mutex
	state  string
	since  time.Time
	peerAS uint32
	peerID netip.Addr
	cut    bool // it exceeded a limit
	// fresh counts routes received since its paths were counted; counted is the larger
	// count of both families, all the sum. more is signaled when a limit may be exceeded;
	// recounted is closed and replaced after each count.
	fresh, counted, all int
	recounted           chan struct{}
	more                chan struct{}
	// queue is what gobgp has yet to write; nil before the session is established.
	queue *queue
	// refresh receives a value when the peer requests all routes again.
	refresh chan struct{}
	// updates counts the routes added or removed since minute.
	updates int
	minute  time.Time
	opened  bool // a message has been received
	reason  string
	broke   string // why a write failed: a message from the peer takes precedence
	closed  bool
	sent    map[path]sentRoute
	most    int // the maximum size that sent has had
	// addPath lists the families in which path identifiers are sent.
	addPath map[pkt.Family]pkt.BGPAddPathMode
	// sendsIDs lists the families in which path identifiers are received.
	sendsIDs map[pkt.Family]bool
}

// path identifies a route on the wire: id is 0 without ADD-PATH (RFC 7911).
type path struct {
	prefix netip.Prefix
	id     uint32
}

// Names of the states (RFC 4271, section 8.2.2).
const (
	stateIdle        = "idle"
	stateConnect     = "connect"
	stateActive      = "active"
	stateOpenSent    = "opensent"
	stateOpenConfirm = "openconfirm"
	stateEstablished = advertise.Established
)

func (e *engine) newTap(c *net.TCPConn, peer netip.Addr, g *group) *tap {
	t := &tap{
		TCPConn: c, sendOnly: e.sendOnly || g.sendMax > 0, limits: &e.total, refresh: make(chan struct{}, 1), peer: peer, local: c.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap(), group: g, ourAS: e.as, change: e.onTap,
		done: make(chan struct{}), greeted: make(chan struct{}), more: make(chan struct{}, 1), recounted: make(chan struct{}), state: stateOpenSent, since: time.Now(), sent: map[path]sentRoute{}, count: &count{},
	}
	t.in.message, t.out.message = t.filter, t.wrote
	t.in.updates, t.out.updates = !t.sendOnly, true
	return t
}

// Read observes and filters what is received. Before the session is established, gobgp
// may reject it at any message, and the next one must not count as received.
func (t *tap) Read(b []byte) (int, error) {
	state, _, _, _, _ := t.status()
	return t.in.read(b, state == stateEstablished, t.readCounted)
}

func (t *tap) readCounted(b []byte) (int, error) {
	t.awaitCount()
	n, err := t.TCPConn.Read(b)
	if err != nil && !isTimeout(err) {
		t.end(t.readFailure(err))
	}
	return n, err
}

// Write observes what is sent, after it was sent. gobgp's senders and the audit may write
// concurrently, each complete messages.
func (t *tap) Write(b []byte) (int, error) {
	t.writing.Lock()
	defer t.writing.Unlock()
	_ = t.SetWriteDeadline(time.Now().Add(t.group.hold)) // gobgp would queue without limit
	began := time.Now()
	n, err := t.TCPConn.Write(b)
	t.written.Add(uint64(n)) // before a route counts as withdrawn
	t.out.feed(b[:n])
	if err == nil && t.tooSlow(time.Since(began)) {
		err = fmt.Errorf("the peer reads too slowly: writing was blocked for %s", slowTimes*t.group.hold)
		t.end(err.Error())
	} else if err != nil && isTimeout(err) {
		t.end(fmt.Sprintf("the peer read nothing for the hold time of %s", t.group.hold))
	} else if err != nil {
		t.mu.Lock()
		t.broke = errorWords(err)
		t.mu.Unlock()
	}
	return n, err
}

// Close is called by gobgp, which does not give a reason.
func (t *tap) Close() error {
	err := t.TCPConn.Close()
	t.mu.Lock()
	first := !t.closed
	t.closed = true
	if first && t.limits != nil {
		t.limits.paths.Add(int64(-t.all - t.fresh))
	}
	if first && t.state != stateEstablished && !t.opened && t.reason == "" && t.broke == "" {
		t.reason = "connection rejected: another session with this address has not ended yet"
	}
	t.mu.Unlock()
	if first {
		close(t.done)
		t.change(t)
	}
	return err
}

// fail ends the session for a reason of ours, and sends it to the peer if it still
// receives (RFC 9384: cease, BFD down).
func (t *tap) fail(reason string) {
	t.end(reason)
	farewell(t.TCPConn, pkt.BGP_ERROR_CEASE, subBFDDown, 100*time.Millisecond)
	t.Close()
}

// end records the reason unless there already is one.
func (t *tap) end(reason string) {
	t.mu.Lock()
	if t.reason == "" {
		t.reason = reason
	}
	t.mu.Unlock()
}

func (t *tap) readFailure(err error) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.opened && isEOF(err) {
		return "the peer closed the connection without a notification: it has no neighbor with our address, or another session with it"
	}
	return errorWords(err)
}

// status returns the state, its start, the peer's AS and why the session ended.
func (t *tap) status() (state string, since time.Time, peerAS uint32, reason string, closed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state, t.since, t.peerAS, cmp.Or(t.reason, t.broke), t.closed
}

// queued reports whether gobgp has yet to write something.
func (t *tap) queued() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.queue != nil && t.queue.Len() > 0
}

func (t *tap) enter(state string) {
	t.mu.Lock()
	t.state, t.since = state, time.Now()
	t.mu.Unlock()
	t.change(t)
}

func (t *tap) received(typ uint8, body []byte) {
	t.mu.Lock()
	t.opened = true
	state := t.state
	t.mu.Unlock()
	switch typ {
	case pkt.BGP_MSG_OPEN:
		if state != stateOpenSent {
			t.rejectOpen(state)
			return
		}
		if wantsNoHold(body) {
			t.rejectHold()
			return
		}
		t.mu.Lock()
		t.peerAS, t.peerID, t.addPath, t.sendsIDs = readOpen(body)
		if t.group.sendMax == 0 {
			t.addPath = nil
		}
		if !t.group.receive {
			t.sendsIDs = nil
		}
		t.mu.Unlock()
		t.enter(stateOpenConfirm)
	case pkt.BGP_MSG_UPDATE:
		t.count.received.Add(1)
		t.tally(body)
	case pkt.BGP_MSG_KEEPALIVE:
		if state == stateOpenConfirm {
			t.enter(stateEstablished)
		}
	case pkt.BGP_MSG_ROUTE_REFRESH:
		select {
		case t.refresh <- struct{}{}:
		default:
		}
	case pkt.BGP_MSG_NOTIFICATION:
		t.end(t.receivedWords(body))
	}
}

func (t *tap) wrote(typ uint8, body []byte) {
	switch typ {
	case pkt.BGP_MSG_OPEN:
		close(t.greeted) // only one per session
	case pkt.BGP_MSG_NOTIFICATION:
		t.end(t.sentWords(body))
	case pkt.BGP_MSG_UPDATE:
		t.count.sent.Add(1)
		t.noteSent(body)
	}
}

// noteSent records an UPDATE that we sent.
func (t *tap) noteSent(body []byte) {
	t.mu.Lock()
	// Parsing what we send as ADD-PATH is the receive mode.
	read := map[pkt.Family]pkt.BGPAddPathMode{}
	for f := range t.addPath {
		read[f] = pkt.BGP_ADD_PATH_RECEIVE
	}
	t.mu.Unlock()
	h := &pkt.BGPHeader{Type: pkt.BGP_MSG_UPDATE, Len: uint16(pkt.BGP_HEADER_LENGTH + len(body))}
	m, err := pkt.ParseBGPBody(h, body, &pkt.MarshallingOption{AddPath: read})
	if err != nil {
		return
	}
	u := m.Body.(*pkt.BGPUpdate)
	t.mu.Lock()
	t.withdrew(u.WithdrawnRoutes)
	attrs := words(u.PathAttributes)
	for _, a := range u.PathAttributes {
		switch a := a.(type) {
		case *pkt.PathAttributeMpReachNLRI:
			t.announced(a.Value, sentRoute{nextHop(u.PathAttributes, a.AFI == pkt.AFI_IP), attrs})
		case *pkt.PathAttributeMpUnreachNLRI:
			t.withdrew(a.Value)
		}
	}
	t.announced(u.NLRI, sentRoute{nextHop(u.PathAttributes, true), attrs})
	t.mu.Unlock()
	t.change(t)
}

func (t *tap) announced(list []pkt.PathNLRI, attrs sentRoute) {
	for _, n := range list {
		t.sent[path{nlriPrefix(n.NLRI), n.ID}] = attrs
	}
	t.most = max(t.most, len(t.sent))
}

func (t *tap) withdrew(list []pkt.PathNLRI) {
	for _, n := range list {
		delete(t.sent, path{nlriPrefix(n.NLRI), n.ID})
	}
	if t.most > leastShrunk && len(t.sent) < t.most/8 { // a map never shrinks
		less := make(map[path]sentRoute, len(t.sent))
		maps.Copy(less, t.sent)
		t.sent, t.most = less, len(less)
	}
}

// leastShrunk is the map size above which shrinking is worthwhile.
const leastShrunk = 4096

// readOpen parses an OPEN message: the AS, the four-octet one if present (RFC 6793), the
// router ID, and the families in which the peer receives several paths of a prefix, or
// sends them.
func readOpen(body []byte) (as uint32, id netip.Addr, addPath map[pkt.Family]pkt.BGPAddPathMode, sends map[pkt.Family]bool) {
	h := &pkt.BGPHeader{Type: pkt.BGP_MSG_OPEN, Len: uint16(pkt.BGP_HEADER_LENGTH + len(body))}
	m, err := pkt.ParseBGPBody(h, body)
	if err != nil {
		return 0, id, nil, nil
	}
	open := m.Body.(*pkt.BGPOpen)
	as, id, addPath = uint32(open.MyAS), open.ID, map[pkt.Family]pkt.BGPAddPathMode{}
	sends = map[pkt.Family]bool{}
	for _, p := range open.OptParams {
		caps, ok := p.(*pkt.OptionParameterCapability)
		if !ok {
			continue
		}
		for _, c := range caps.Capability {
			switch c := c.(type) {
			case *pkt.CapFourOctetASNumber:
				as = c.CapValue
			case *pkt.CapAddPath:
				for _, f := range c.Tuples {
					if f.Mode&pkt.BGP_ADD_PATH_RECEIVE != 0 {
						addPath[f.Family] = pkt.BGP_ADD_PATH_SEND
					}
					sends[f.Family] = sends[f.Family] || f.Mode&pkt.BGP_ADD_PATH_SEND != 0
				}
			}
		}
	}
	return as, id, addPath, sends
}
