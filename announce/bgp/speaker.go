// Package bgp tells the network's routers which balancers carry a prefix: the
// Speaker in each balancer, the Reflector that gathers many of them, and the
// Router that turns what it hears into whole route sets. gobgp does the
// protocol; no type of it leaves this package. What gobgp is not quick or not
// clear enough at is done here: bringing the connections (gate.go,
// transport.go, sessions.go), saying in words why there is none (tap.go,
// words.go), and noticing a silent peer (announce/bfd).
package bgp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/osrg/gobgp/v4/pkg/apiutil"
	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/fairlead/fairlead/announce"
)

// sendLimit is how long Set waits for a peer that is established but does not
// take what it is sent.
const sendLimit = time.Second

// Speaker announces a balancer's routes. It takes in none.
type Speaker struct {
	e *engine

	peering   sync.Mutex // one SetPeers at a time; taken before mu
	mu        sync.Mutex // one Set at a time
	closed    bool
	announced map[netip.Prefix]netip.Addr
}

var _ announce.Announcer = (*Speaker)(nil)

// NewSpeaker starts dialling the peers; it does not wait for them. There may be
// none yet: SetPeers brings them.
func NewSpeaker(c SpeakerConfig) (*Speaker, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("BGP speaker: %w", err)
	}
	s, err := speakerEngine(c)
	if err != nil {
		return nil, fmt.Errorf("BGP speaker: %w", err)
	}
	e, err := startEngine(s)
	if err != nil {
		return nil, fmt.Errorf("BGP speaker: %w", err)
	}
	return &Speaker{e: e, announced: map[netip.Prefix]netip.Addr{}}, nil
}

func speakerEngine(c SpeakerConfig) (setup, error) {
	id, err := validateIdentity(c.AS, c.RouterID, c.LocalAddress)
	if err != nil {
		return setup{}, err
	}
	s := setup{as: c.AS, routerID: id, clusterID: id, local: c.LocalAddress, deaf: true, log: c.Log}
	return s, s.addDials(c.Peers, func(*group) {})
}

// addDials makes a group of one address for each peer that is dialled.
func (s *setup) addDials(peers []PeerConfig, more func(*group)) error {
	seen := map[netip.Addr]int{}
	for i, p := range peers {
		if err := validatePeer(fmt.Sprintf("peers[%d]", i), p, s.local); err != nil {
			return err
		}
		if j, twice := seen[p.Address]; twice {
			return fmt.Errorf("peers[%d].address: %s is peers[%d] already", i, p.Address, j)
		}
		seen[p.Address] = i
		g := &group{name: "peer " + p.Address.String(), as: p.AS, password: p.Password, hold: p.HoldTime,
			prefixes: []netip.Prefix{netip.PrefixFrom(p.Address.WithZone(""), p.Address.BitLen())}, bfd: p.BFD, timing: p.Timing, dialled: true}
		s.defaults(g)
		more(g)
		port := p.Port
		if port == 0 {
			port = DefaultPort
		}
		s.groups = append(s.groups, g)
		s.dials = append(s.dials, &dialTarget{to: netip.AddrPortFrom(p.Address, port), group: g, config: p})
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

// Set announces exactly these routes: what is no longer wanted is withdrawn
// first, then what is new or has another next hop is announced. It returns
// once every established peer's connection has been written the change.
func (s *Speaker) Set(routes []announce.Route) error {
	want, err := wanted(routes)
	if err != nil {
		return fmt.Errorf("announce: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("announce: the speaker is closed")
	}
	for p, nh := range s.announced {
		if _, keep := want[p]; keep {
			continue
		}
		if err := s.e.server.DeletePath(apiutil.DeletePathRequest{Paths: []*apiutil.Path{localPath(p, nh)}}); err != nil {
			return fmt.Errorf("withdraw %s: %w", p, err)
		}
		delete(s.announced, p)
	}
	for p, nh := range want {
		if s.announced[p] == nh {
			continue
		}
		if _, err := s.e.server.AddPath(apiutil.AddPathRequest{Paths: []*apiutil.Path{localPath(p, nh)}}); err != nil {
			return fmt.Errorf("announce %s via %s: %w", p, nh, err)
		}
		s.announced[p] = nh
	}
	s.awaitSent()
	return nil
}

func wanted(routes []announce.Route) (map[netip.Prefix]netip.Addr, error) {
	want := make(map[netip.Prefix]netip.Addr, len(routes))
	for _, r := range routes {
		switch {
		case !r.Prefix.IsValid():
			return nil, errors.New("a route has no prefix")
		case r.Prefix != r.Prefix.Masked():
			return nil, fmt.Errorf("%s has bits set behind its length; did you mean %s?", r.Prefix, r.Prefix.Masked())
		case !r.NextHop.IsValid() || r.NextHop.IsUnspecified():
			return nil, fmt.Errorf("%s has no next hop; give the node's address", r.Prefix)
		case r.NextHop.Is4() != r.Prefix.Addr().Is4():
			return nil, fmt.Errorf("%s via %s: prefix and next hop are of different families", r.Prefix, r.NextHop)
		}
		if nh, twice := want[r.Prefix]; twice && nh != r.NextHop {
			return nil, fmt.Errorf("%s is given twice, via %s and %s; a balancer has one next hop for a prefix", r.Prefix, nh, r.NextHop)
		}
		want[r.Prefix] = r.NextHop
	}
	return want, nil
}

func (s *Speaker) awaitSent() {
	var slow netip.Addr
	sent := s.e.await(s.e.ctx, sendLimit, func() bool {
		for _, t := range s.e.taps() {
			if state, _, _, _, closed := t.status(); state == stateEstablished && !closed && !t.holds(s.announced) {
				slow = t.peer
				return false
			}
		}
		return true
	})
	if !sent && s.e.ctx.Err() == nil {
		s.e.log.Warn("a peer does not take what it is sent", "peer", slow, "waited", sendLimit)
	}
}

// Announced gives what is announced now, for a look.
func (s *Speaker) Announced() map[netip.Prefix]netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.announced)
}

// AwaitEstablished waits until a session with every peer is up.
func (s *Speaker) AwaitEstablished(ctx context.Context) error { return s.e.awaitEstablished(ctx) }

// Peers tells how the sessions stand.
func (s *Speaker) Peers() []announce.Peer { return s.e.list() }

// Close withdraws everything, then ends the sessions, telling the peers.
func (s *Speaker) Close() error {
	err := s.Set(nil)
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

func localPath(p netip.Prefix, nextHop netip.Addr) *apiutil.Path {
	nlri, _ := pkt.NewIPAddrPrefix(p)
	family := pkt.RF_IPv4_UC
	attrs := []pkt.PathAttributeInterface{pkt.NewPathAttributeOrigin(pkt.BGP_ORIGIN_ATTR_TYPE_IGP)}
	if p.Addr().Is4() {
		nh, _ := pkt.NewPathAttributeNextHop(nextHop)
		attrs = append(attrs, nh)
	} else {
		family = pkt.RF_IPv6_UC
		reach, _ := pkt.NewPathAttributeMpReachNLRI(family, []pkt.PathNLRI{{NLRI: nlri}}, nextHop)
		attrs = append(attrs, reach)
	}
	return &apiutil.Path{Family: family, Nlri: nlri, Attrs: attrs, Age: time.Now().Unix()}
}
