package bgp

import (
	"errors"
	"fmt"
)

// SetPeers replaces the speaker's peers. Sessions with removed peers are ended with a
// notification (cease, peer deconfigured); a session whose peer configuration changed is
// restarted; all others are not affected. New peers are dialed in the background. If one
// peer is invalid, nothing changes.
func (s *Speaker) SetPeers(peers []PeerConfig) error {
	s.peering.Lock()
	defer s.peering.Unlock()
	if err := validatePeers(peers, s.local); err != nil {
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
	want, err := dials(peers, s.e.AS, s.local)
	if err != nil {
		return fmt.Errorf("%w: %w", errNotPeers, err)
	}
	return s.e.SetDials(want)
}
