package session

import (
	"maps"
	"net/netip"

	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/fairlead/fairlead/advertise/bgp/internal/paths"
	"github.com/fairlead/fairlead/advertise/bgp/internal/tcp"
	"github.com/fairlead/fairlead/advertise/bgp/internal/wire"
)

// leastShrunk is the map size above which shrinking is worthwhile.
const leastShrunk = 4096

// Sent returns what has been written and not withdrawn, and the families in which path
// identifiers are written.
func (t *Session) Sent() (sent map[paths.Key]paths.Sent, ids map[pkt.Family]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.sent), t.sendsIDs
}

// HasSent reports whether a route has been written and not withdrawn.
func (t *Session) HasSent(p netip.Prefix) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, is := t.sent[paths.Key{Prefix: p}]
	return is
}

// SentRoutes returns how many routes have been written and not withdrawn.
func (t *Session) SentRoutes() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.sent)
}

// Queued reports whether messages are waiting to be written, or one is being written.
func (t *Session) Queued() bool {
	if !t.writing.TryLock() {
		return true
	}
	t.writing.Unlock()
	q := t.Queue.Load()
	return q != nil && q.Len() > 0
}

// Written returns how many octets have been written.
func (t *Session) Written() uint64 { return t.written.Load() }

// Unacknowledged returns how many of the written octets the peer has not acknowledged.
func (t *Session) Unacknowledged(written uint64) uint64 {
	return tcp.Unacknowledged(t.TCPConn, written)
}

// NextHop returns the next hop that the peer is sent instead of a route's.
func (t *Session) NextHop(of netip.Addr) netip.Addr {
	if t.Group.LinkLocal() {
		return t.Local.WithZone("")
	}
	return of
}

// Withdraw writes a withdrawal, bypassing gobgp. gobgp writes each message with one call,
// so ours goes between two of them.
func (t *Session) Withdraw(p paths.Key) error {
	t.mu.Lock()
	ids := t.sendsIDs
	t.mu.Unlock()
	b, err := wire.Withdrawal(p.Prefix, p.ID, ids)
	if err != nil {
		return err
	}
	_, err = t.Write(b)
	return err
}

// noteSent records an UPDATE that we sent.
func (t *Session) noteSent(body []byte) {
	t.mu.Lock()
	ids := t.sendsIDs
	t.mu.Unlock()
	u, err := wire.ReadUpdate(body, ids)
	if err != nil {
		return
	}
	t.mu.Lock()
	t.withdrew(u.WithdrawnRoutes)
	attrs := paths.Words(u.PathAttributes)
	for _, a := range u.PathAttributes {
		switch a := a.(type) {
		case *pkt.PathAttributeMpReachNLRI:
			t.announced(a.Value, paths.Sent{NextHop: paths.NextHop(u.PathAttributes, a.AFI == pkt.AFI_IP), Attributes: attrs})
		case *pkt.PathAttributeMpUnreachNLRI:
			t.withdrew(a.Value)
		}
	}
	t.announced(u.NLRI, paths.Sent{NextHop: paths.NextHop(u.PathAttributes, true), Attributes: attrs})
	t.mu.Unlock()
	t.Changed(t)
}

func (t *Session) announced(list []pkt.PathNLRI, attrs paths.Sent) {
	for _, n := range list {
		t.sent[paths.Key{Prefix: paths.Prefix(n.NLRI), ID: n.ID}] = attrs
	}
	t.most = max(t.most, len(t.sent))
}

func (t *Session) withdrew(list []pkt.PathNLRI) {
	for _, n := range list {
		delete(t.sent, paths.Key{Prefix: paths.Prefix(n.NLRI), ID: n.ID})
	}
	if t.most > leastShrunk && len(t.sent) < t.most/8 { // a map never shrinks
		less := make(map[paths.Key]paths.Sent, len(t.sent))
		maps.Copy(less, t.sent)
		t.sent, t.most = less, len(less)
	}
}
