// Package bgp advertises to routers which load balancers serve a prefix: the Speaker runs
// in each load balancer, the Reflector collects the routes of many of them, and the
// Router converts what it receives into complete route sets.
//
// This package contains the three roles and their configuration. The folders in internal
// contain what they share: engine manages neighbors, session is one connection, rib holds
// routes, paths converts them, wire reads and writes messages, tcp makes connections, and
// discover finds routers on a link. Imports point in one direction: this package, engine,
// session, then rib, paths, tcp and wire. gobgp's packet library parses messages; no type of
// it leaves them. Detecting a silent peer is up to advertise/bfd.
//
// Tests start the roles on loopback addresses, or as processes in namespaces.
package bgp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/advertise/bgp/internal/engine"
	"github.com/fairlead/fairlead/advertise/bgp/internal/paths"
	"github.com/fairlead/fairlead/core/route"
)

// Speaker advertises a load balancer's routes. It accepts none.
type Speaker struct {
	e     *engine.Engine
	local netip.Addr // the source address of sessions, if configured

	peering   sync.Mutex // one SetPeers at a time; taken before mu
	mu        sync.Mutex // one Set at a time
	closed    bool
	announced map[netip.Prefix]route.Route
	// leaving holds routes that are withdrawn but that a peer may still have.
	leaving map[netip.Prefix]*engine.Leaving
	// configured lists the peers as given. seekers look for those that are identified
	// only by their link, which is the key.
	configured []PeerConfig
	seekers    map[string]*seeker
}

var _ advertise.Announcer = (*Speaker)(nil)

// NewSpeaker starts to dial the peers in the background. The list may be empty: SetPeers
// sets them later.
func NewSpeaker(c SpeakerConfig) (*Speaker, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("BGP speaker: %w", err)
	}
	setup, err := c.setup()
	if err != nil {
		return nil, fmt.Errorf("BGP speaker: %w", err)
	}
	e, err := engine.Start(setup)
	if err != nil {
		return nil, fmt.Errorf("BGP speaker: %w", err)
	}
	s := &Speaker{e: e, local: c.LocalAddress, announced: map[netip.Prefix]route.Route{}, leaving: map[netip.Prefix]*engine.Leaving{}, configured: c.Peers, seekers: map[string]*seeker{}}
	s.seekFor(c.Peers)
	return s, nil
}

func (c SpeakerConfig) setup() (engine.Setup, error) {
	id, err := validateIdentity(c.AS, c.RouterID, c.LocalAddress)
	if err != nil {
		return engine.Setup{}, err
	}
	if err := validatePeers(c.Peers, c.LocalAddress); err != nil {
		return engine.Setup{}, err
	}
	numbered := slices.DeleteFunc(slices.Clone(c.Peers), PeerConfig.unnumbered)
	dials, err := dials(numbered, c.AS, c.LocalAddress)
	return engine.Setup{AS: c.AS, RouterID: id, ClusterID: id, SendOnly: true, Log: c.Log, Events: c.Events, Dials: dials}, err
}

// Set advertises exactly these routes: routes that are no longer desired are withdrawn
// first, then new ones are advertised, and those with a different next hop or other
// attributes are advertised again, which replaces them. It does not wait for peers;
// Withdrawing reports which have not confirmed. A route that cannot be advertised leaves
// its prefix unchanged.
func (s *Speaker) Set(routes []route.Route) error {
	want, bad := wanted(routes)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("announce: the speaker is closed")
	}
	var errs []error
	failed := func(p netip.Prefix, err error) { errs = append(errs, &advertise.RouteError{Prefix: p, Err: err}) }
	for p, err := range bad {
		failed(p, err)
	}
	for p := range s.announced {
		if _, keep := want[p]; keep || bad[p] != nil {
			continue
		}
		s.withdraw(p)
	}
	for p, r := range want {
		if s.announced[p] == r {
			continue
		}
		s.e.Announce(r)
		s.announced[p] = r
		delete(s.leaving, p)
	}
	return errors.Join(errs...)
}

// withdraw withdraws one route; runs under s.mu.
func (s *Speaker) withdraw(p netip.Prefix) {
	if s.leaving[p] == nil {
		s.leaving[p] = engine.NewLeaving()
	}
	s.e.Withdraw(p)
	delete(s.announced, p)
}

// Withdrawing lists routes that a peer may still have.
func (s *Speaker) Withdrawing() []advertise.Withdrawal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.e.Withdrawing(s.leaving)
}

// Announced returns a copy of what is currently advertised.
func (s *Speaker) Announced() map[netip.Prefix]route.Route {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.announced)
}

// AwaitEstablished waits until the sessions with all peers are up.
func (s *Speaker) AwaitEstablished(ctx context.Context) error { return s.e.AwaitEstablished(ctx) }

// Peers returns the state of the sessions. Every configured peer is listed from the
// start.
func (s *Speaker) Peers() []advertise.Peer {
	rows := s.e.Peers()
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(s.unlisted(rows), rows...)
}

// Close withdraws everything, then ends the sessions and notifies the peers.
func (s *Speaker) Close() error {
	err := s.Set(nil)
	s.endSeeking()
	s.peering.Lock()
	defer s.peering.Unlock()
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return nil
	}
	s.e.Close()
	return err
}

// wanted returns the routes by prefix, and those that cannot be advertised.
func wanted(routes []route.Route) (want map[netip.Prefix]route.Route, bad map[netip.Prefix]error) {
	want, bad = make(map[netip.Prefix]route.Route, len(routes)), map[netip.Prefix]error{}
	for _, r := range routes {
		if err := paths.Check(r); err != nil {
			bad[r.Prefix] = err
			continue
		}
		if other, twice := want[r.Prefix]; twice && other != r {
			bad[r.Prefix] = fmt.Errorf("duplicate route with different attributes, %s and %s", other, r)
			continue
		}
		want[r.Prefix] = r
	}
	for p := range bad {
		delete(want, p)
	}
	return want, bad
}
