package bgp

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/advertise/bgp/internal/discover"
	"github.com/fairlead/fairlead/advertise/bgp/internal/session"
	"github.com/fairlead/fairlead/internal/sleep"
)

// unnumbered reports whether a peer is identified only by its link.
func (p PeerConfig) unnumbered() bool { return !p.Address.IsValid() && p.SourceInterface != "" }

// seeker looks for the peer on a link.
type seeker struct {
	stop  context.CancelFunc
	ended chan struct{}
	// The following fields are protected by Speaker.mu.
	found netip.Addr // invalid: none yet
	since time.Time
	why   string // why none was found, or why it cannot be a peer
}

// resolve fills in discovered addresses and omits peers without an address; runs under
// s.mu.
func (s *Speaker) resolve(peers []PeerConfig) (known []PeerConfig) {
	for _, p := range peers {
		if k := s.seekers[p.SourceInterface]; p.unnumbered() && k != nil {
			p.Address = k.found
		}
		if p.Address.IsValid() {
			known = append(known, p)
		}
	}
	return known
}

// seekFor starts a seeker for each of these peers that needs one, and stops all others;
// runs under s.peering.
func (s *Speaker) seekFor(peers []PeerConfig) {
	var gone []*seeker
	s.mu.Lock()
	for device, k := range s.seekers {
		if !slices.ContainsFunc(peers, func(p PeerConfig) bool { return p.unnumbered() && p.SourceInterface == device }) {
			delete(s.seekers, device)
			gone = append(gone, k)
		}
	}
	for _, p := range peers {
		if p.unnumbered() && s.seekers != nil && s.seekers[p.SourceInterface] == nil { // otherwise the speaker is closing
			ctx, stop := context.WithCancel(s.e.Context())
			k := &seeker{stop: stop, ended: make(chan struct{}), since: time.Now()}
			s.seekers[p.SourceInterface] = k
			go s.seek(ctx, k, p.SourceInterface)
		}
	}
	s.mu.Unlock()
	for _, k := range gone {
		k.stop()
	}
}

// seek looks for the router on a link, and repeats while its session is not up.
func (s *Speaker) seek(ctx context.Context, k *seeker, device string) {
	defer close(k.ended)
	defer k.stop()
	for {
		s.mu.Lock()
		was := k.found
		s.mu.Unlock()
		routers, err := discover.Routers(ctx, device, !was.IsValid())
		if ctx.Err() != nil {
			return
		}
		s.mu.Lock()
		switch {
		case err != nil:
			k.why = err.Error()
		case len(routers) == 0 && !was.IsValid():
			k.why = fmt.Sprintf("no router advertisement received on %s: the router must send them there", device)
		case len(routers) > 0 && !slices.Contains(routers, was) && !s.e.Up(was):
			k.found, k.why = routers[0], ""
		}
		now := k.found
		s.mu.Unlock()
		pause := time.Second
		if now != was {
			s.e.Log.Info("router discovered", "interface", device, "address", now)
			if !s.reapply(k) {
				pause = refusedPause
			}
		}
		if !sleep.About(ctx, pause) {
			return
		}
	}
}

// refusedPause follows a router that cannot be a peer.
const refusedPause = 30 * time.Second

// reapply applies the discovered peers, and reports whether that was possible.
func (s *Speaker) reapply(k *seeker) bool {
	s.peering.Lock()
	defer s.peering.Unlock()
	err := s.apply()
	if err == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.e.Log.Warn("cannot peer with a discovered router", "address", k.found, "error", err)
	k.found, k.why = netip.Addr{}, err.Error()
	return false
}

// unlisted returns the configured peers that are not among rows: they have not been
// discovered, or are about to be dialed; runs under s.mu.
func (s *Speaker) unlisted(rows []advertise.Peer) (more []advertise.Peer) {
	if s.closed {
		return nil
	}
	for _, p := range s.configured {
		row := advertise.Peer{Name: p.Name, AS: cmp.Or(p.AS, s.e.AS), State: session.Idle, Since: time.Now()}
		address := p.Address
		if p.unnumbered() {
			k := s.seekers[p.SourceInterface]
			if k == nil { // its search is ending
				continue
			}
			address, row.Address, row.Since, row.LastError = k.found, "%"+p.SourceInterface, k.since, k.why
		} else {
			row.Address = p.Address.String()
			row.Name = cmp.Or(p.Name, row.Address)
		}
		if !slices.ContainsFunc(rows, func(r advertise.Peer) bool { return address.IsValid() && r.Address == address.String() }) {
			more = append(more, row)
		}
	}
	return more
}

// endSeeking stops all seekers.
func (s *Speaker) endSeeking() {
	s.mu.Lock()
	all := s.seekers
	s.seekers = nil
	s.mu.Unlock()
	for _, k := range all {
		k.stop()
		<-k.ended
	}
}
