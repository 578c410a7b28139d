package bgp

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"

	"github.com/fairlead/fairlead/advertise/bfd"
)

// group is what is known about a kind of neighbor before any of them connects. A neighbor
// to which we connect is a group of one address.
type group struct {
	name      string
	peer      string // its name in the configuration, if it is a single peer
	prefixes  []netip.Prefix
	as        uint32
	password  string
	hold      time.Duration
	keepalive time.Duration // 0: a third of hold
	ttl       uint8         // of our segments to another AS; 0: 255
	hops      uint8         // maximum for the neighbor's segments; 0: no limit
	bfd       bool
	timing    bfd.Timing
	client    bool   // of this route reflector
	sendMax   uint8  // next hops per prefix that it is sent
	receive   bool   // accept several next hops per prefix from it
	silent    bool   // it is sent no routes at all
	maxPaths  uint32 // that it may send in each family; 0: no limit
	dialled   bool   // by us
	maxPeers  int    // neighbors with sessions; 0: no limit
}

// setup contains what differs between the three roles.
type setup struct {
	as        uint32
	routerID  netip.Addr
	clusterID netip.Addr
	local     netip.Addr
	listen    []netip.AddrPort
	groups    []*group
	dials     []*dialTarget
	sendOnly  bool // accepts no routes: a speaker
	avoids    bool // deprioritizes draining load balancers, if there are others
	maxTotal  uint32
	log       *slog.Logger
}

type dialTarget struct {
	to     netip.AddrPort
	from   netip.Addr // invalid: the kernel chooses
	device string     // the interface to bind to; empty: any
	retry  time.Duration
	group  *group
	config PeerConfig
	// stop ends the loop that maintains the session, which then closes ended.
	stop  context.CancelFunc
	ended chan struct{}
}

// engine is an embedded gobgp with the connections that we hand to it.
type engine struct {
	setup
	server *server.BgpServer
	gate   gate
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	sweep  sync.Mutex // one removal of a dead neighbor at a time
	total  total
	// counting is held while paths are counted. The next count starts at countNext.
	counting  sync.Mutex
	countNext time.Time

	mu        sync.Mutex
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

func startEngine(s setup) (*engine, error) {
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.log = quieten(s.log)
	ctx, cancel := context.WithCancel(context.Background())
	e := &engine{setup: s, ctx: ctx, cancel: cancel,
		peers: map[netip.Addr]*peerState{}, endpoints: map[netip.Addr]*bfd.Endpoint{}, changed: make(chan struct{}), total: total{maxPaths: int(s.maxTotal)}}
	level := new(slog.LevelVar)
	e.server = server.NewBgpServer(server.LoggerOption(s.log.With("part", "gobgp"), level))
	var err error
	if e.gate, err = openGate(e.server); err != nil {
		cancel()
		return nil, err
	}
	go e.server.Serve()
	if err := e.configure(); err != nil {
		e.close()
		return nil, err
	}
	if err := e.listenAll(); err != nil {
		e.close()
		return nil, err
	}
	if len(s.listen) > 0 {
		e.wg.Add(1)
		go e.watchSignatures()
	}
	for _, d := range s.dials {
		e.dial(d)
	}
	return e, nil
}

func (e *engine) configure() error {
	err := e.server.StartBgp(e.ctx, &api.StartBgpRequest{Global: &api.Global{
		Asn: e.as, RouterId: e.routerID.String(), ListenPort: -1, UseMultiplePaths: true,
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
	for _, g := range e.groups {
		if err := e.addGroup(g); err != nil {
			return fmt.Errorf("neighbors %s: %w", g.name, err)
		}
	}
	return e.addPolicies()
}

func (e *engine) addGroup(g *group) error {
	hold := uint64(g.hold / time.Second)
	keepalive := cmp.Or(uint64(g.keepalive/time.Second), max(hold/3, 1))
	pg := &api.PeerGroup{
		Conf: &api.PeerGroupConf{PeerGroupName: g.name, PeerAsn: g.as},
		Timers: &api.Timers{Config: &api.TimersConfig{
			HoldTime: hold, KeepaliveInterval: keepalive, IdleHoldTimeAfterReset: 1,
		}},
		Transport:      &api.Transport{PassiveMode: true},
		RouteReflector: &api.RouteReflector{RouteReflectorClient: g.client, RouteReflectorClusterId: e.clusterID.String()},
	}
	if g.hops != 0 {
		pg.TtlSecurity = &api.TtlSecurity{Enabled: true, TtlMin: uint32(g.minTTL())}
	} else if e.external(g) {
		pg.EbgpMultihop = &api.EbgpMultihop{Enabled: true, MultihopTtl: uint32(cmp.Or(g.ttl, 255))}
	}
	for _, f := range families {
		pg.AfiSafis = append(pg.AfiSafis, &api.AfiSafi{
			Config:   &api.AfiSafiConfig{Family: f, Enabled: true},
			AddPaths: &api.AddPaths{Config: &api.AddPathsConfig{Receive: g.receive, SendMax: uint32(g.sendMax)}},
		})
	}
	if e.sendOnly {
		if err := e.exportTo(g); err != nil {
			return err
		}
	}
	if err := e.server.AddPeerGroup(e.ctx, &api.AddPeerGroupRequest{PeerGroup: pg}); err != nil {
		return err
	}
	for _, p := range g.prefixes {
		err := e.server.AddDynamicNeighbor(e.ctx, &api.AddDynamicNeighborRequest{
			DynamicNeighbor: &api.DynamicNeighbor{Prefix: p.String(), PeerGroup: g.name}})
		if err != nil {
			return err
		}
	}
	return nil
}

// addPolicies prevents load balancers from receiving each other's routes: otherwise, each
// change would go to all of them.
func (e *engine) addPolicies() error {
	if e.avoids {
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

func (e *engine) reject(name string, neighbors []string, dir api.PolicyDirection) error {
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
func (e *engine) awaitGreetings() {
	limit := time.After(time.Second)
	for _, t := range e.taps() {
		select {
		case <-t.greeted:
		case <-t.done:
		case <-limit:
			return
		}
	}
}

// close ends all sessions; gobgp notifies the peers first.
func (e *engine) close() {
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
	for _, t := range e.taps() {
		t.Close()
	}
	e.wg.Wait()
	for _, ep := range endpoints {
		ep.Close()
	}
}
