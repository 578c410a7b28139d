package bgp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/osrg/gobgp/v4/api"
)

// endLimit is the timeout of each step of ending a session.
const endLimit = time.Second

// SetPeers replaces the speaker's peers. Sessions with removed peers are ended with a
// notification (cease, peer deconfigured); a session whose peer configuration changed is
// restarted; all others are not affected. New peers are dialed in the background. If one
// peer is invalid, nothing changes.
func (s *Speaker) SetPeers(peers []PeerConfig) error {
	s.peering.Lock()
	defer s.peering.Unlock()
	if err := validatePeers(peers, s.e.local); err != nil {
		return fmt.Errorf("BGP speaker: %w", err)
	}
	s.mu.Lock()
	was := s.configured
	s.configured = peers
	s.mu.Unlock()
	s.seekFor(peers)
	err := s.apply()
	if errors.Is(err, errNotPeers) {
		s.mu.Lock()
		s.configured = was
		s.mu.Unlock()
		s.seekFor(was)
	}
	return err
}

// errNotPeers marks errors in the configuration of peers.
var errNotPeers = errors.New("BGP speaker")

// apply adds and removes peers whose addresses are known; runs under s.peering.
func (s *Speaker) apply() error {
	s.mu.Lock()
	closed, peers := s.closed, s.resolve(s.configured)
	s.mu.Unlock()
	if closed {
		return errors.New("BGP speaker: closed")
	}
	want := setup{as: s.e.as, local: s.e.local}
	if err := want.addDials(peers, func(*group) {}); err != nil {
		return fmt.Errorf("%w: %w", errNotPeers, err)
	}
	stays, errs := s.e.dropBut(func(d *dialTarget) bool {
		return slices.ContainsFunc(peers, func(p PeerConfig) bool { return p == d.config })
	})
	for _, d := range want.dials {
		if stays[d.to.Addr()] {
			continue
		}
		if err := s.e.take(d); err != nil {
			errs = append(errs, fmt.Errorf("BGP peer %s: %w", d.to.Addr(), err))
		}
	}
	return errors.Join(errs...)
}

// dropBut ends all sessions except those to keep, in parallel, because a stuck one takes
// a while. It returns the peers that are still there: until a peer is gone, no other can
// have its address.
func (e *engine) dropBut(stays func(*dialTarget) bool) (there map[netip.Addr]bool, errs []error) {
	there = map[netip.Addr]bool{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, d := range e.dialled() {
		a := d.to.Addr()
		if stays(d) {
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

// dialled returns the peers that are currently dialed.
func (e *engine) dialled() []*dialTarget {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.dials)
}

// take starts to dial one more peer.
func (e *engine) take(d *dialTarget) error {
	if err := e.addGroup(d.group); err != nil {
		e.removeGroup(d.group)
		return err
	}
	e.mu.Lock()
	e.dials = append(e.dials, d)
	e.mu.Unlock()
	e.dial(d)
	return nil
}

// drop ends the session with a peer and removes it. It may be called again if it fails.
func (e *engine) drop(d *dialTarget) error {
	a := d.to.Addr()
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
	if err := e.removeGroup(d.group); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if p := e.peers[a]; p != nil && p.watch != nil {
		go p.watch.Close() // asynchronously: a failing BFD session holds its lock when it wants ours
	}
	delete(e.peers, a)
	e.dials = slices.DeleteFunc(e.dials, func(o *dialTarget) bool { return o == d })
	e.wake()
	return nil
}

// endSession ends the session with a peer, if any, and notifies it.
func (e *engine) endSession(a netip.Addr) {
	e.mu.Lock()
	var t *tap
	if p := e.peers[a]; p != nil {
		t = p.tap
	}
	e.mu.Unlock()
	if t == nil {
		return
	}
	limit := time.After(endLimit)
	select { // before its OPEN is sent, gobgp may not know the neighbor yet
	case <-t.greeted:
	case <-t.done:
	case <-limit:
	}
	t.end("closed by this speaker: the peer was removed from the configuration")
	_ = e.server.DeletePeer(e.ctx, &api.DeletePeerRequest{Address: a.String()})
	select {
	case <-t.done:
	case <-limit:
		t.Close()
	}
}

// removeGroup removes a group of one address from gobgp.
func (e *engine) removeGroup(g *group) error {
	if e.sendOnly {
		defer e.endExport(g)
	}
	known := false
	err := e.server.ListPeerGroup(e.ctx, &api.ListPeerGroupRequest{PeerGroupName: g.name}, func(*api.PeerGroup) { known = true })
	if err != nil || !known {
		return err
	}
	for _, p := range g.prefixes {
		if err := e.server.DeleteDynamicNeighbor(e.ctx, &api.DeleteDynamicNeighborRequest{Prefix: p.String(), PeerGroup: g.name}); err != nil {
			return err
		}
	}
	return e.server.DeletePeerGroup(e.ctx, &api.DeletePeerGroupRequest{Name: g.name})
}
