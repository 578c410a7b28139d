// Package bgp advertises to routers which load balancers serve a prefix: the Speaker runs
// in each load balancer, the Reflector collects the routes of many of them, and the
// Router converts what it receives into complete route sets. gobgp implements the
// protocol; none of its types leaves this package. This package implements what gobgp is
// not fast or precise enough at: establishing connections (gate.go, transport.go,
// sessions.go), explaining why a session is down (tap.go, words.go), and detecting a silent
// peer (advertise/bfd).
package bgp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/osrg/gobgp/v4/pkg/apiutil"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/core/route"
)

// Speaker advertises a load balancer's routes. It accepts none.
type Speaker struct {
	e *engine

	peering   sync.Mutex // one SetPeers at a time; taken before mu
	mu        sync.Mutex // one Set at a time
	closed    bool
	announced map[netip.Prefix]route.Route
	// leaving holds routes that are withdrawn but that a peer may still have.
	leaving map[netip.Prefix]*leaving
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
	setup, err := speakerEngine(c)
	if err != nil {
		return nil, fmt.Errorf("BGP speaker: %w", err)
	}
	e, err := startEngine(setup)
	if err != nil {
		return nil, fmt.Errorf("BGP speaker: %w", err)
	}
	s := &Speaker{e: e, announced: map[netip.Prefix]route.Route{}, leaving: map[netip.Prefix]*leaving{}, configured: c.Peers, seekers: map[string]*seeker{}}
	s.seekFor(c.Peers)
	return s, nil
}

func speakerEngine(c SpeakerConfig) (setup, error) {
	id, err := validateIdentity(c.AS, c.RouterID, c.LocalAddress)
	if err != nil {
		return setup{}, err
	}
	s := setup{as: c.AS, routerID: id, clusterID: id, local: c.LocalAddress, sendOnly: true, log: c.Log}
	if err := validatePeers(c.Peers, s.local); err != nil {
		return s, err
	}
	numbered := slices.DeleteFunc(slices.Clone(c.Peers), PeerConfig.unnumbered)
	return s, s.addDials(numbered, func(*group) {})
}

// validatePeers validates all peers, including those that must be discovered.
func validatePeers(peers []PeerConfig, local netip.Addr) error {
	links := map[string]int{}
	for i, p := range peers {
		field := fmt.Sprintf("peers[%d]", i)
		if err := validatePeer(field, p, local); err != nil {
			return err
		}
		if j, twice := links[p.SourceInterface]; twice && p.unnumbered() {
			return fmt.Errorf("%s.sourceInterface: peers[%d] is the router on %s already", field, j, p.SourceInterface)
		} else if p.unnumbered() {
			links[p.SourceInterface] = i
		}
	}
	return nil
}

// addDials adds a group of one address for each peer to dial.
func (s *setup) addDials(peers []PeerConfig, more func(*group)) error {
	seen, names := map[netip.Addr]int{}, map[string]int{}
	for i, p := range peers {
		if err := validatePeer(fmt.Sprintf("peers[%d]", i), p, s.local); err != nil {
			return err
		}
		bare := p.Address.WithZone("")
		if j, twice := seen[bare]; twice {
			return fmt.Errorf("peers[%d].address: %s is peers[%d] already", i, bare, j)
		}
		seen[bare] = i
		name := cmp.Or(p.Name, p.Address.String())
		if j, twice := names[name]; twice {
			return fmt.Errorf("peers[%d].name: %s is peers[%d] already", i, name, j)
		}
		names[name] = i
		g := &group{
			name: "peer " + p.Address.String(), peer: name, as: p.AS, password: p.Password, hold: p.HoldTime, keepalive: p.Keepalive,
			prefixes: []netip.Prefix{netip.PrefixFrom(bare, bare.BitLen())}, bfd: p.BFD, timing: p.Timing, ttl: p.EBGPMultihop, hops: p.TTLSecurity, dialled: true,
		}
		s.defaults(g)
		more(g)
		d := &dialTarget{
			to: netip.AddrPortFrom(p.Address, cmp.Or(p.Port, DefaultPort)), from: s.local, device: p.SourceInterface,
			retry: cmp.Or(p.ConnectRetry, DefaultConnectRetry), group: g, config: p,
		}
		if p.SourceAddress.IsValid() {
			d.from = p.SourceAddress
		}
		s.groups = append(s.groups, g)
		s.dials = append(s.dials, d)
	}
	return nil
}

func (s *setup) defaults(g *group) {
	if g.as == 0 {
		g.as = s.as
	}
	if g.hold == 0 {
		g.hold = DefaultHoldTime
	}
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
	for p, r := range s.announced {
		if _, keep := want[p]; keep || bad[p] != nil {
			continue
		}
		if err := s.withdraw(p, r); err != nil {
			failed(p, err)
		}
	}
	for p, r := range want {
		if s.announced[p] == r {
			continue
		}
		if _, err := s.e.server.AddPath(apiutil.AddPathRequest{Paths: []*apiutil.Path{s.path(r)}}); err != nil {
			failed(p, fmt.Errorf("announce by %s: %w", r.NextHop, err))
			continue
		}
		s.announced[p] = r
		delete(s.leaving, p)
	}
	return errors.Join(errs...)
}

// withdraw withdraws one route; runs under s.mu.
func (s *Speaker) withdraw(p netip.Prefix, r route.Route) error {
	l := s.leaving[p]
	if l == nil {
		l = &leaving{since: time.Now(), written: map[*tap]uint64{}}
		s.leaving[p] = l
	}
	if err := s.e.server.DeletePath(apiutil.DeletePathRequest{Paths: []*apiutil.Path{s.path(r)}}); err != nil {
		l.failed = fmt.Errorf("withdraw: %w", err)
		return l.failed
	}
	l.failed = nil
	delete(s.announced, p)
	return nil
}

func (s *Speaker) path(r route.Route) *apiutil.Path {
	return localPath(r, s.e.as, s.e.marks(r.Attributes))
}

// Announced returns a copy of what is currently advertised.
func (s *Speaker) Announced() map[netip.Prefix]route.Route {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.announced)
}

// AwaitEstablished waits until the sessions with all peers are up.
func (s *Speaker) AwaitEstablished(ctx context.Context) error { return s.e.awaitEstablished(ctx) }

// Peers returns the state of the sessions. Every configured peer is listed from the
// start.
func (s *Speaker) Peers() []advertise.Peer {
	rows := s.e.list()
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
	s.e.close()
	return err
}
