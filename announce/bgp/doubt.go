package bgp

import (
	"cmp"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/announce"
	"github.com/fairlead/fairlead/announce/bfd"
)

var _ announce.Doubter = (*Speaker)(nil)

// Doubt looks for peers that may have died without a word before they heard of a
// withdrawal. Routers have what such a reflector told until they notice its
// silence themselves, which is not before we do. A peer that has acknowledged all
// that it was sent, and was heard by BFD since, has heard of it; of one without
// BFD the former must do.
func (s *Speaker) Doubt(withdrawn time.Time) (until time.Time) {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	for _, p := range s.e.peers {
		if end := p.doubt(withdrawn); end.After(until) {
			until = end
		}
	}
	return until
}

// doubt runs under e.mu.
func (p *peerState) doubt(withdrawn time.Time) time.Time {
	if p.tap == nil || p.State != stateEstablished {
		return p.silentUntil
	}
	limit, heard := p.tap.group.hold, true
	if p.watch != nil {
		if last, silent := p.watch.Heard(); silent > 0 {
			limit, heard = silent, last.After(withdrawn)
		}
	}
	if heard && p.tap.acknowledged() {
		return time.Time{}
	}
	return withdrawn.Add(limit)
}

// lose ends a session whose peer is silent. Others notice that at most the time
// between two packets later.
func (e *engine) lose(t *tap, reason string) {
	e.mu.Lock()
	if p := e.peers[t.peer]; p != nil && p.tap == t {
		p.silentUntil = time.Now().Add(cmp.Or(t.group.timing.Interval, bfd.DefaultInterval))
	}
	e.mu.Unlock()
	t.fail(reason)
}

// acknowledged says that the peer's kernel has all that was written.
func (t *tap) acknowledged() bool {
	raw, err := t.SyscallConn()
	if err != nil {
		return false
	}
	left := -1
	_ = raw.Control(func(fd uintptr) {
		if n, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); err == nil {
			left = n
		}
	})
	return left == 0
}
