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

// endLimit is how long the end of a session is waited for, each step of it.
const endLimit = time.Second

// SetPeers has the speaker talk to exactly these peers. Sessions with others are
// ended, telling them (cease, peer deconfigured); one whose peer is configured
// otherwise than before is ended and begun anew; all others are left alone. New
// peers are dialled, not waited for. Where one peer is wrong nothing changes.
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

// errNotPeers is what is wrong with peers as they are configured.
var errNotPeers = errors.New("BGP speaker")

// apply takes and drops peers, as far as their addresses are known; runs under
// s.peering.
func (s *Speaker) apply() error {
	s.mu.Lock()
	closed, peers := s.closed, s.resolve(s.configured)
	s.mu.Unlock()
	if closed {
		return errors.New("BGP speaker: it is closed")
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

// dropBut ends the sessions with peers that are not to stay, all at once: one that is
// stuck takes a while. It gives those that are there now: until one is gone no other
// can have its address.
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
				errs = append(errs, fmt.Errorf("BGP peer %s: cannot be let go: %w", a, err))
			}
		})
	}
	wg.Wait()
	return there, errs
}

// dialled gives those that are dialled now.
func (e *engine) dialled() []*dialTarget {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.dials)
}

// take begins to dial one more peer.
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

// drop ends the session with a peer and forgets it. It may be called again where
// it fails.
func (e *engine) drop(d *dialTarget) error {
	a := d.to.Addr()
	d.stop()
	deadline := time.Now().Add(3 * endLimit)
	for over := false; !over; {
		e.endSession(a) // also one that was about to come up
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
		go p.watch.Close() // under the lock that a failing session of BFD has when it wants ours
	}
	delete(e.peers, a)
	e.dials = slices.DeleteFunc(e.dials, func(o *dialTarget) bool { return o == d })
	e.wake()
	return nil
}

// endSession tells a peer that its session ends, if there is one, and ends it.
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
	select { // before its OPEN is out gobgp may not know the neighbour yet
	case <-t.greeted:
	case <-t.done:
	case <-limit:
	}
	t.end("ended by us: the peer was taken away")
	_ = e.server.DeletePeer(e.ctx, &api.DeletePeerRequest{Address: a.String()})
	select {
	case <-t.done:
	case <-limit:
		t.Close()
	}
}

// removeGroup makes gobgp forget a group of one address.
func (e *engine) removeGroup(g *group) error {
	if e.deaf {
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
