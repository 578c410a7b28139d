// Package engine embeds gobgp, which implements the protocol and the tables, and manages
// what gobgp is not fast or precise enough at: it dials and accepts connections, decides
// who may have a session, watches neighbors with BFD, compares what was sent with the
// table, and knows when a withdrawal has arrived.
//
// What differs between speaker, reflector and router belongs in package bgp, what concerns
// one connection in package session. Only this package imports gobgp's server. Tests start
// engines on loopback addresses.
package engine

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"

	"github.com/fairlead/fairlead/advertise/bfd"
	"github.com/fairlead/fairlead/advertise/bgp/internal/paths"
	"github.com/fairlead/fairlead/advertise/bgp/internal/session"
	"github.com/fairlead/fairlead/advertise/bgp/internal/tcp"
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

// Engine is an embedded gobgp with the connections that we hand to it.
type Engine struct {
	Setup
	server *server.BgpServer
	gate   gate
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	sweep  sync.Mutex // one removal of a dead neighbor at a time
	total  *session.Total

	mu        sync.Mutex
	dials     []*dialed
	peers     map[netip.Addr]*peerState
	endpoints map[netip.Addr]*bfd.Endpoint
	numbers   map[string]uint32 // of peers' names, in marks
	changed   chan struct{}     // closed and replaced on any change of a session
	listeners []*net.TCPListener
}

// families are carried by every session, whatever its own family.
var families = []*api.Family{
	{Afi: api.Family_AFI_IP, Safi: api.Family_SAFI_UNICAST},
	{Afi: api.Family_AFI_IP6, Safi: api.Family_SAFI_UNICAST},
}

// Start configures gobgp, listens, and starts to dial.
func Start(s Setup) (*Engine, error) {
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	s.Log = quieten(s.Log)
	ctx, cancel := context.WithCancel(context.Background())
	e := &Engine{Setup: s, ctx: ctx, cancel: cancel,
		peers: map[netip.Addr]*peerState{}, endpoints: map[netip.Addr]*bfd.Endpoint{}, changed: make(chan struct{})}
	e.total = &session.Total{MaxPaths: int(s.MaxTotal), Count: e.countReceived}
	for _, d := range s.Dials {
		e.dials = append(e.dials, &dialed{Dial: d})
	}
	e.Groups = slices.Concat(s.dialedGroups(), s.Groups)
	level := new(slog.LevelVar)
	e.server = server.NewBgpServer(server.LoggerOption(s.Log.With("part", "gobgp"), level))
	var err error
	if e.gate, err = openGate(e.server); err != nil {
		cancel()
		return nil, err
	}
	go e.server.Serve()
	if err := e.configure(); err != nil {
		e.Close()
		return nil, err
	}
	if err := e.listenAll(); err != nil {
		e.Close()
		return nil, err
	}
	if len(s.Listen) > 0 {
		e.wg.Add(1)
		go e.watchSignatures()
	}
	for _, d := range e.dials {
		e.dial(d)
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

// OnBestPath has a function called with the prefixes whose best paths changed.
func (e *Engine) OnBestPath(changed func([]netip.Prefix)) error {
	return e.server.WatchEvent(e.ctx, server.WatchEventMessageCallbacks{OnBestPath: func(best []*apiutil.Path, _ time.Time) {
		prefixes := make([]netip.Prefix, len(best))
		for i, p := range best {
			prefixes[i] = paths.Prefix(p.Nlri)
		}
		changed(prefixes)
	}}, server.WatchBestPath(true))
}

func (e *Engine) configure() error {
	err := e.server.StartBgp(e.ctx, &api.StartBgpRequest{Global: &api.Global{
		Asn: e.AS, RouterId: e.RouterID.String(), ListenPort: -1, UseMultiplePaths: true,
	}})
	if err != nil {
		return fmt.Errorf("start BGP: %w", err)
	}
	err = e.server.WatchEvent(e.ctx, server.WatchEventMessageCallbacks{
		OnPeerUpdate: func(ev *apiutil.WatchEventMessage_PeerEvent, _ time.Time) {
			if s := ev.Peer.State.SessionState; s == pkt.BGP_FSM_IDLE || s == pkt.BGP_FSM_ACTIVE {
				go e.bury(ev.Peer.State.NeighborAddress, nil)
			}
		},
	}, server.WatchPeer())
	if err != nil {
		return fmt.Errorf("watch BGP peers: %w", err)
	}
	for _, g := range e.Groups {
		if err := e.addGroup(g); err != nil {
			return fmt.Errorf("neighbors %s: %w", g.Name, err)
		}
	}
	return e.addPolicies()
}

func (e *Engine) addGroup(g *session.Group) error {
	hold := uint64(g.Hold / time.Second)
	keepalive := cmp.Or(uint64(g.Keepalive/time.Second), max(hold/3, 1))
	pg := &api.PeerGroup{
		Conf: &api.PeerGroupConf{PeerGroupName: g.Name, PeerAsn: g.AS},
		Timers: &api.Timers{Config: &api.TimersConfig{
			HoldTime: hold, KeepaliveInterval: keepalive, IdleHoldTimeAfterReset: 1,
		}},
		Transport:      &api.Transport{PassiveMode: true},
		RouteReflector: &api.RouteReflector{RouteReflectorClient: g.Client, RouteReflectorClusterId: e.ClusterID.String()},
	}
	if g.Hops != 0 {
		pg.TtlSecurity = &api.TtlSecurity{Enabled: true, TtlMin: uint32(tcp.MinTTL(g.Hops))}
	} else if e.external(g) {
		pg.EbgpMultihop = &api.EbgpMultihop{Enabled: true, MultihopTtl: uint32(cmp.Or(g.TTL, 255))}
	}
	for _, f := range families {
		pg.AfiSafis = append(pg.AfiSafis, &api.AfiSafi{
			Config:   &api.AfiSafiConfig{Family: f, Enabled: true},
			AddPaths: &api.AddPaths{Config: &api.AddPathsConfig{Receive: g.Receive, SendMax: uint32(g.SendMax)}},
		})
	}
	if e.SendOnly {
		if err := e.exportTo(g); err != nil {
			return err
		}
	}
	if err := e.server.AddPeerGroup(e.ctx, &api.AddPeerGroupRequest{PeerGroup: pg}); err != nil {
		return err
	}
	for _, p := range g.Prefixes {
		err := e.server.AddDynamicNeighbor(e.ctx, &api.AddDynamicNeighborRequest{
			DynamicNeighbor: &api.DynamicNeighbor{Prefix: p.String(), PeerGroup: g.Name}})
		if err != nil {
			return err
		}
	}
	return nil
}

// addPolicies prevents load balancers from receiving each other's routes: otherwise, each
// change would go to all of them.
func (e *Engine) addPolicies() error {
	if e.Avoids {
		if err := e.avoidDraining(); err != nil {
			return err
		}
	}
	silent := e.silentPrefixes()
	if len(silent) == 0 {
		return nil
	}
	return e.reject("balancers", silent, api.PolicyDirection_POLICY_DIRECTION_EXPORT)
}

func (e *Engine) reject(name string, neighbors []string, dir api.PolicyDirection) error {
	err := e.server.AddDefinedSet(e.ctx, &api.AddDefinedSetRequest{DefinedSet: &api.DefinedSet{
		DefinedType: api.DefinedType_DEFINED_TYPE_NEIGHBOR, Name: name, List: neighbors}})
	if err != nil {
		return fmt.Errorf("routing policy: %w", err)
	}
	policy := &api.Policy{Name: "not-" + name, Statements: []*api.Statement{{
		Name:       "not-" + name,
		Conditions: &api.Conditions{NeighborSet: &api.MatchSet{Type: api.MatchSet_TYPE_ANY, Name: name}},
		Actions:    &api.Actions{RouteAction: api.RouteAction_ROUTE_ACTION_REJECT},
	}}}
	if err := e.server.AddPolicy(e.ctx, &api.AddPolicyRequest{Policy: policy}); err != nil {
		return fmt.Errorf("routing policy: %w", err)
	}
	err = e.server.AddPolicyAssignment(e.ctx, &api.AddPolicyAssignmentRequest{Assignment: &api.PolicyAssignment{
		Name: "global", Direction: dir, Policies: []*api.Policy{policy}, DefaultAction: api.RouteAction_ROUTE_ACTION_ACCEPT}})
	if err != nil {
		return fmt.Errorf("routing policy: %w", err)
	}
	return nil
}

// awaitGreetings waits until gobgp has sent its OPEN on every connection that it was
// handed, or closed it. If it were stopped before that, it would send an OPEN without
// knowing its own AS any more, and panic (4.8.0: active in fsm.go gets nil from
// buildopen).
func (e *Engine) awaitGreetings() {
	limit := time.After(time.Second)
	for _, t := range e.sessions() {
		select {
		case <-t.Greeted():
		case <-t.Done():
		case <-limit:
			return
		}
	}
}

// Close ends all sessions; gobgp notifies the peers first.
func (e *Engine) Close() {
	e.cancel()
	e.mu.Lock()
	listeners, endpoints := e.listeners, e.endpoints
	e.listeners, e.endpoints = nil, map[netip.Addr]*bfd.Endpoint{}
	e.mu.Unlock()
	for _, l := range listeners {
		l.Close()
	}
	e.awaitGreetings()
	e.server.Stop()
	for _, t := range e.sessions() {
		t.Close()
	}
	e.wg.Wait()
	for _, ep := range endpoints {
		ep.Close()
	}
}
