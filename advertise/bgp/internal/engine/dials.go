package engine

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/fairlead/fairlead/advertise/bgp/internal/session"
)

// endLimit is the timeout of ending a session.
const endLimit = 3 * time.Second

// SetDials replaces the peers to connect to. Sessions with those that are no longer wanted,
// or are different now, end with a notification; those that stay are not affected. A peer
// whose session does not end stays, and no other can have its address.
func (e *Engine) SetDials(want []Dial) error {
	e.mu.Lock()
	dials := slices.Clone(e.dials)
	e.mu.Unlock()
	same := func(d *dialed) func(Dial) bool {
		return func(w Dial) bool { return reflect.DeepEqual(w, d.Dial) }
	}
	errs := make([]error, len(dials))
	var all sync.WaitGroup // because a stuck one takes a while
	for i, d := range dials {
		if !slices.ContainsFunc(want, same(d)) {
			all.Go(func() { errs[i] = e.drop(d) })
		}
	}
	all.Wait()
	for _, d := range want {
		e.mu.Lock()
		there := slices.ContainsFunc(e.dials, func(o *dialed) bool { return o.To.Addr() == d.To.Addr() })
		e.mu.Unlock()
		if !there {
			e.take(&dialed{Dial: d})
		}
	}
	return errors.Join(errs...)
}

// take starts to dial one more peer.
func (e *Engine) take(d *dialed) {
	e.mu.Lock()
	e.dials = append(e.dials, d)
	e.mu.Unlock()
	e.dial(d)
}

// drop ends the session with a peer and removes it. It may be called again if it fails.
func (e *Engine) drop(d *dialed) error {
	a := d.To.Addr()
	d.stop()
	late := time.After(endLimit)
	for over := false; !over; {
		e.endSession(a) // including one that was about to come up
		select {
		case <-d.ended:
			over = true
		case <-time.After(10 * time.Millisecond):
		case <-late:
			return fmt.Errorf("BGP peer %s: cannot be removed: its session does not end", a)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if p := e.peers[a]; p != nil && p.watch != nil {
		go p.watch.Close() // asynchronously: a failing BFD session holds its lock when it wants ours
	}
	delete(e.peers, a)
	e.dials = slices.DeleteFunc(e.dials, func(o *dialed) bool { return o == d })
	e.wake()
	return nil
}

// endSession ends the session with a peer, if any, and notifies it.
func (e *Engine) endSession(a netip.Addr) {
	e.mu.Lock()
	var t *session.Session
	if p := e.peers[a]; p != nil {
		t = p.session
	}
	e.mu.Unlock()
	if t == nil {
		return
	}
	t.Reject(pkt.BGP_ERROR_CEASE, pkt.BGP_ERROR_SUB_PEER_DECONFIGURED, "closed by this speaker: the peer was removed from the configuration")
}
