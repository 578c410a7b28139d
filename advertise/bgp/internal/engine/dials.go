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
// or are different now, end with a notification; those that stay are not affected.
func (e *Engine) SetDials(want []Dial) error {
	there, errs := e.dropBut(want)
	for _, d := range want {
		if !there[d.To.Addr()] {
			e.take(&dialed{Dial: d})
		}
	}
	return errors.Join(errs...)
}

// dropBut ends all sessions except those to keep, in parallel, because a stuck one takes
// a while. It returns the peers that are still there: until a peer is gone, no other can
// have its address.
func (e *Engine) dropBut(stay []Dial) (there map[netip.Addr]bool, errs []error) {
	there = map[netip.Addr]bool{}
	e.mu.Lock()
	dials := slices.Clone(e.dials)
	e.mu.Unlock()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, d := range dials {
		a := d.To.Addr()
		if slices.ContainsFunc(stay, func(w Dial) bool { return reflect.DeepEqual(w, d.Dial) }) {
			mu.Lock()
			there[a] = true
			mu.Unlock()
			continue
		}
		wg.Go(func() {
			if err := e.drop(d); err != nil {
				mu.Lock()
				defer mu.Unlock()
				there[a] = true
				errs = append(errs, fmt.Errorf("BGP peer %s: cannot be removed: %w", a, err))
			}
		})
	}
	wg.Wait()
	return there, errs
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
	deadline := time.Now().Add(endLimit)
	for over := false; !over; {
		e.endSession(a) // including one that was about to come up
		select {
		case <-d.ended:
			over = true
		case <-time.After(10 * time.Millisecond):
			if time.Now().After(deadline) {
				return errors.New("its session does not end")
			}
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
