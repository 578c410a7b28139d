package engine

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/osrg/gobgp/v4/api"

	"github.com/fairlead/fairlead/advertise/bgp/internal/session"
)

// endLimit is the timeout of each step of ending a session.
const endLimit = time.Second

// SetDials replaces the peers to connect to. Sessions with those that are no longer wanted,
// or are different now, end with a notification; those that stay are not affected.
func (e *Engine) SetDials(want []Dial) error {
	there, errs := e.dropBut(want)
	for _, d := range want {
		if a := d.To.Addr(); !there[a] {
			if err := e.take(&dialed{Dial: d}); err != nil {
				errs = append(errs, fmt.Errorf("BGP peer %s: %w", a, err))
			}
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
func (e *Engine) take(d *dialed) error {
	if err := e.addGroup(d.Group); err != nil {
		e.removeGroup(d.Group)
		return err
	}
	e.mu.Lock()
	e.dials = append(e.dials, d)
	e.mu.Unlock()
	e.dial(d)
	return nil
}

// drop ends the session with a peer and removes it. It may be called again if it fails.
func (e *Engine) drop(d *dialed) error {
	a := d.To.Addr()
	d.stop()
	deadline := time.Now().Add(3 * endLimit)
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
	for !e.bury(a, nil) {
		if time.Now().After(deadline) {
			return errors.New("gobgp still has it")
		}
		time.Sleep(time.Millisecond)
	}
	if err := e.removeGroup(d.Group); err != nil {
		return err
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
	limit := time.After(endLimit)
	select { // before its OPEN is sent, gobgp may not know the neighbor yet
	case <-t.Greeted():
	case <-t.Done():
	case <-limit:
	}
	t.End("closed by this speaker: the peer was removed from the configuration")
	_ = e.server.DeletePeer(e.ctx, &api.DeletePeerRequest{Address: a.String()})
	select {
	case <-t.Done():
	case <-limit:
		t.Close()
	}
}

// removeGroup removes a group of one address from gobgp.
func (e *Engine) removeGroup(g *session.Group) error {
	if e.SendOnly {
		defer e.endExport(g)
	}
	known := false
	err := e.server.ListPeerGroup(e.ctx, &api.ListPeerGroupRequest{PeerGroupName: g.Name}, func(*api.PeerGroup) { known = true })
	if err != nil || !known {
		return err
	}
	for _, p := range g.Prefixes {
		if err := e.server.DeleteDynamicNeighbor(e.ctx, &api.DeleteDynamicNeighborRequest{Prefix: p.String(), PeerGroup: g.Name}); err != nil {
			return err
		}
	}
	return e.server.DeletePeerGroup(e.ctx, &api.DeletePeerGroupRequest{Name: g.Name})
}
