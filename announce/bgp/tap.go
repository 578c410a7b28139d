package bgp

import (
	"encoding/binary"
	"net"
	"net/netip"
	"sync"
	"time"

	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/fairlead/fairlead/announce"
)

// tap is a BGP connection that we overhear: it tells how far the session is,
// what routes have really been written to it, and why it ended, none of which
// gobgp says in full. gobgp reads and writes it as it would the bare socket.
type tap struct {
	*net.TCPConn
	peer   netip.Addr
	group  *group
	ourAS  uint32
	in     scanner
	out    scanner
	change func(*tap) // called on any change of what follows, without lock
	done   chan struct{}
	// greeted is closed when our OPEN has gone out.
	greeted chan struct{}

	writing sync.Mutex

	mu     sync.Mutex
	state  string
	since  time.Time
	peerAS uint32
	heard  bool
	reason string
	closed bool
	sent   map[path]netip.Addr
	// addPath says in which families path identifiers go out.
	addPath map[pkt.Family]pkt.BGPAddPathMode
}

// path names a route on the wire: id is 0 without add-path (RFC 7911).
type path struct {
	prefix netip.Prefix
	id     uint32
}

// Names of states (RFC 4271, section 8.2.2).
const (
	stateIdle        = "idle"
	stateConnect     = "connect"
	stateActive      = "active"
	stateOpenSent    = "opensent"
	stateOpenConfirm = "openconfirm"
	stateEstablished = announce.Established
)

func newTap(c *net.TCPConn, peer netip.Addr, g *group, ourAS uint32, change func(*tap)) *tap {
	t := &tap{TCPConn: c, peer: peer, group: g, ourAS: ourAS, change: change, done: make(chan struct{}), greeted: make(chan struct{}),
		state: stateOpenSent, since: time.Now(), sent: map[path]netip.Addr{}}
	t.in.message, t.out.message = t.received, t.wrote
	t.out.updates = true
	return t
}

// Read overhears what comes in.
func (t *tap) Read(b []byte) (int, error) {
	n, err := t.TCPConn.Read(b)
	t.in.feed(b[:n])
	if err != nil && !isTimeout(err) {
		t.end(t.readFailure(err))
	}
	return n, err
}

// Write overhears what goes out, once it has gone out. gobgp's senders and the
// audit may write at the same time, each whole messages.
func (t *tap) Write(b []byte) (int, error) {
	t.writing.Lock()
	defer t.writing.Unlock()
	n, err := t.TCPConn.Write(b)
	t.out.feed(b[:n])
	if err != nil {
		t.end(errorWords(err))
	}
	return n, err
}

// Close is called by gobgp, which does not say why.
func (t *tap) Close() error {
	err := t.TCPConn.Close()
	t.mu.Lock()
	first := !t.closed
	t.closed = true
	if first && t.state != stateEstablished && !t.heard && t.reason == "" {
		t.reason = "our side would not take the session now: another one with this address is not yet over"
	}
	t.mu.Unlock()
	if first {
		close(t.done)
		t.change(t)
	}
	return err
}

// fail ends the session for a reason of ours, telling the peer why if it can
// still hear us (RFC 9384: cease, BFD down).
func (t *tap) fail(reason string) {
	t.end(reason)
	_ = t.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	msg := pkt.NewBGPNotificationMessage(pkt.BGP_ERROR_CEASE, subBFDDown, nil)
	if b, err := msg.Serialize(); err == nil {
		_, _ = t.TCPConn.Write(b)
	}
	t.Close()
}

// end keeps the first reason.
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
	if !t.heard && isEOF(err) {
		return "the peer closed the connection without a word: it expects no neighbour at our address, or still holds another session with it"
	}
	return errorWords(err)
}

// status gives the state, since when, the peer's AS and why it ended.
func (t *tap) status() (state string, since time.Time, peerAS uint32, reason string, closed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state, t.since, t.peerAS, t.reason, t.closed
}

// holds says whether exactly these routes have been written.
func (t *tap) holds(routes map[netip.Prefix]netip.Addr) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.sent) != len(routes) {
		return false
	}
	for p, nh := range routes {
		if t.sent[path{prefix: p}] != nh {
			return false
		}
	}
	return true
}

func (t *tap) enter(state string) {
	t.mu.Lock()
	t.state, t.since = state, time.Now()
	t.mu.Unlock()
	t.change(t)
}

func (t *tap) received(typ uint8, body []byte) {
	t.mu.Lock()
	t.heard = true
	state := t.state
	t.mu.Unlock()
	switch typ {
	case pkt.BGP_MSG_OPEN:
		t.mu.Lock()
		t.peerAS, t.addPath = readOpen(body)
		if t.group.sendMax == 0 {
			t.addPath = nil
		}
		t.mu.Unlock()
		t.enter(stateOpenConfirm)
	case pkt.BGP_MSG_KEEPALIVE:
		if state == stateOpenConfirm {
			t.enter(stateEstablished)
		}
	case pkt.BGP_MSG_NOTIFICATION:
		t.end(t.receivedWords(body))
	}
}

func (t *tap) wrote(typ uint8, body []byte) {
	switch typ {
	case pkt.BGP_MSG_OPEN:
		close(t.greeted) // there is one in a session
	case pkt.BGP_MSG_NOTIFICATION:
		t.end(t.sentWords(body))
	case pkt.BGP_MSG_UPDATE:
		t.noteSent(body)
	}
}

// noteSent reads an UPDATE of ours.
func (t *tap) noteSent(body []byte) {
	t.mu.Lock()
	// To read what we send as add-path is to receive it.
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
	var nextHop netip.Addr
	for _, a := range u.PathAttributes {
		switch a := a.(type) {
		case *pkt.PathAttributeNextHop:
			nextHop = a.Value
		case *pkt.PathAttributeMpReachNLRI:
			t.announced(a.Value, a.Nexthop)
		case *pkt.PathAttributeMpUnreachNLRI:
			t.withdrew(a.Value)
		}
	}
	t.announced(u.NLRI, nextHop)
	t.mu.Unlock()
	t.change(t)
}

func (t *tap) announced(list []pkt.PathNLRI, nextHop netip.Addr) {
	for _, n := range list {
		t.sent[path{nlriPrefix(n.NLRI), n.ID}] = nextHop
	}
}

func (t *tap) withdrew(list []pkt.PathNLRI) {
	for _, n := range list {
		delete(t.sent, path{nlriPrefix(n.NLRI), n.ID})
	}
}

// readOpen reads an OPEN message: the AS, the four octet one if it is there
// (RFC 6793), and the families in which the peer takes several paths.
func readOpen(body []byte) (as uint32, addPath map[pkt.Family]pkt.BGPAddPathMode) {
	h := &pkt.BGPHeader{Type: pkt.BGP_MSG_OPEN, Len: uint16(pkt.BGP_HEADER_LENGTH + len(body))}
	m, err := pkt.ParseBGPBody(h, body)
	if err != nil {
		return 0, nil
	}
	open := m.Body.(*pkt.BGPOpen)
	as, addPath = uint32(open.MyAS), map[pkt.Family]pkt.BGPAddPathMode{}
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
				}
			}
		}
	}
	return as, addPath
}

// scanner cuts a stream into BGP messages, however it was chopped. Bodies of
// updates are kept only where they are asked for.
type scanner struct {
	message func(typ uint8, body []byte)
	updates bool
	head    []byte
	body    []byte
	left    int
	keep    bool
}

func (s *scanner) feed(b []byte) {
	for len(b) > 0 {
		if len(s.head) < pkt.BGP_HEADER_LENGTH {
			n := min(pkt.BGP_HEADER_LENGTH-len(s.head), len(b))
			s.head, b = append(s.head, b[:n]...), b[n:]
			if len(s.head) < pkt.BGP_HEADER_LENGTH {
				return
			}
			s.left = max(int(binary.BigEndian.Uint16(s.head[16:]))-pkt.BGP_HEADER_LENGTH, 0)
			s.keep = s.head[18] != pkt.BGP_MSG_UPDATE || s.updates
		}
		n := min(s.left, len(b))
		if s.keep {
			s.body = append(s.body, b[:n]...)
		}
		s.left -= n
		b = b[n:]
		if s.left == 0 {
			s.message(s.head[18], s.body)
			s.head, s.body = s.head[:0], s.body[:0]
		}
	}
}
