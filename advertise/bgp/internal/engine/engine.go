// Package engine manages neighbors: it dials and accepts connections, decides who may have a
// session and which routes are accepted and sent, watches neighbors with BFD, and knows
// when a withdrawal has arrived.
//
// What differs between speaker, reflector and router belongs in package bgp, what concerns
// one connection in package session. Tests start engines on loopback addresses.
package engine

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/fairlead/fairlead/advertise/bfd"
	"github.com/fairlead/fairlead/advertise/bgp/internal/rib"
	"github.com/fairlead/fairlead/advertise/bgp/internal/session"
	"github.com/fairlead/fairlead/core/event"
)

// Setup contains what differs between the roles.
type Setup struct {
	AS        uint32
	RouterID  netip.Addr
	ClusterID netip.Addr
	Listen    []netip.AddrPort
	Groups    []*session.Group
	Dials     []Dial
	SendOnly  bool // accepts no routes: a speaker
	Avoids    bool // deprioritizes draining load balancers, if there are others
	MaxTotal  uint32
	Log       *slog.Logger
	Events    event.Recorder // sessions and BFD; may be nil
}

// Dial is a peer to connect to.
type Dial struct {
	To     netip.AddrPort
	From   netip.Addr // invalid: the kernel chooses
	Device string     // the interface to bind to; empty: any
	Retry  time.Duration
	Group  *session.Group
}

// dialed is a peer whose session is maintained.
type dialed struct {
	Dial
	// stop ends the loop that maintains the session, which then closes ended.
	stop  context.CancelFunc
	ended chan struct{}
}

// Engine is the sessions with all neighbors, and the routes.
type Engine struct {
	Setup
	table  *rib.Table
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	total  *session.Total

	mu        sync.Mutex
	dials     []*dialed
	peers     map[netip.Addr]*peerState
	endpoints map[netip.Addr]*bfd.Endpoint
	changed   chan struct{} // closed and replaced on any change of a session
	listeners []*net.TCPListener
}

// Start listens, and starts to dial.
func Start(s Setup) (*Engine, error) {
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	s.Log = quieten(s.Log)
	ctx, cancel := context.WithCancel(context.Background())
	e := &Engine{Setup: s, ctx: ctx, cancel: cancel, table: rib.New(), total: &session.Total{MaxPaths: int(s.MaxTotal)},
		peers: map[netip.Addr]*peerState{}, endpoints: map[netip.Addr]*bfd.Endpoint{}, changed: make(chan struct{})}
	e.Groups = slices.Concat(s.dialedGroups(), s.Groups)
	if err := e.listenAll(); err != nil {
		e.Close()
		return nil, err
	}
	if len(s.Listen) > 0 {
		e.wg.Add(1)
		go e.watchSignatures()
	}
	for _, d := range s.Dials {
		e.take(&dialed{Dial: d})
	}
	return e, nil
}

func (s Setup) dialedGroups() (groups []*session.Group) {
	for _, d := range s.Dials {
		groups = append(groups, d.Group)
	}
	return groups
}

// Context ends when the engine is closed.
func (e *Engine) Context() context.Context { return e.ctx }

// Follow reports the prefixes whose paths change.
func (e *Engine) Follow(s rib.Subscriber) { e.table.Subscribe(s) }

// Close ends all sessions and notifies the peers.
func (e *Engine) Close() {
	e.cancel()
	e.mu.Lock()
	listeners, endpoints := e.listeners, e.endpoints
	e.listeners, e.endpoints = nil, map[netip.Addr]*bfd.Endpoint{}
	e.mu.Unlock()
	for _, l := range listeners {
		l.Close()
	}
	var all sync.WaitGroup
	for _, t := range e.sessions() {
		all.Go(func() { t.Reject(pkt.BGP_ERROR_CEASE, pkt.BGP_ERROR_SUB_PEER_DECONFIGURED, "closed by this speaker") })
	}
	all.Wait()
	e.wg.Wait()
	for _, ep := range endpoints {
		ep.Close()
	}
}
