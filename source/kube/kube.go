// Package kube reads Services, EndpointSlices and this node from an API server
// and follows their changes. Of each object only what is needed is kept, as
// values of package proxy and of package object: 50,000 Services are some tens
// of megabytes. One set of watches serves both who want them, the service
// proxy (a proxy.Sink) and the balancer (as a source.Source). What an API
// server said last stays in force for as long as it is away.
//
// An object's way: client.go (requests), list.go (a list, as it arrives),
// service.go, slice.go and node.go (what they mean to the proxy; to the
// balancer: package object), store.go (what differs), balance.go (snapshots).
// pods.go follows Pods where a Service is on a network other than the cluster's.
// routing.go and peers.go do so for BGP, of which api/v1alpha1 says the meaning,
// gateway.go for the Gateway API, of which source/gateway does.
package kube

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/source"
	"github.com/fairlead/fairlead/source/crd"
	"github.com/fairlead/fairlead/source/object"
)

// Config says what is wanted of the cluster.
type Config struct {
	// Kubeconfig is the path of a file that leads to the API server; where it
	// is empty, the service account of the pod does.
	Kubeconfig string
	// Node is the name of the node that this is on. A Sink needs it; where it
	// is empty, no node is watched.
	Node string
	// Sink, where there is one, is told all that a service proxy needs.
	Sink proxy.Sink
	// OnNode, where there is one, is told of the node whenever it is another.
	OnNode func(Node)
	// Balancers is the Service that the balancers themselves are behind, so
	// that those that terminate are known; zero for none.
	Balancers service.ID
	// AcceptFrom selects the EndpointSlices of all load balancers, from which this
	// node's backends accept packets; none: they are not followed.
	AcceptFrom []source.Selector
	// DrainOnCordon lets the balancer of a Node that is cordoned drain, DrainTaints
	// that of one with a taint of these keys. Where all Balancers had to, none does.
	DrainOnCordon bool
	DrainTaints   []string
	// RequireClass leaves Services without spec.loadBalancerClass to others.
	RequireClass bool
	// OnPeers, where there is one, is told of the BGPPeers that this node has, by
	// name, when they may be others and every few minutes, and gives what is wrong
	// with them. Announcements are then followed, too.
	OnPeers func([]crd.Peer) []problem.Problem
	// Announcements has them followed though there is no OnPeers: who serves no
	// Service but for others must know which addresses they announce.
	Announcements bool
	// GatewayAPI has Gateways, and their TCPRoutes and UDPRoutes, balanced, too.
	GatewayAPI bool
	// Namespace is the agents', whose Secrets have the passwords of BGPPeers;
	// where it is empty, this pod's, or DefaultNamespace.
	Namespace string
	Log       *slog.Logger
}

// Source reads a cluster and follows its changes.
type Source struct {
	config  Config
	client  *client
	balance bool // somebody wants snapshots

	mu       sync.Mutex
	services *store[serviceEntry]
	slices   *store[sliceEntry]
	nodes    *store[Node]
	drains   *store[nodeDrain] // of all Nodes, where the balancers are known
	balancer balancer
	senders  senders
	routing  routing
	pods     pods
	gateways gateways
	problems problems
	told     bool            // the Sink, that all has loaded
	unread   map[string]bool // the resources that cannot be read now
	// wake has one element where there may be a new snapshot to publish.
	wake    chan struct{}
	telling sync.WaitGroup // Events
}

var _ source.Source = (*Source)(nil)

// New makes a Source. It says no where the API server's address, or the way to
// prove who asks, cannot be had; that it does not answer is no error.
func New(c Config) (*Source, error) {
	config, err := Connection(c.Kubeconfig)
	if err != nil {
		return nil, err
	}
	return newFor(config, c)
}

func newFor(config *rest.Config, c Config) (*Source, error) {
	if c.Sink != nil && c.Node == "" {
		return nil, errors.New("the service proxy must know the name of its node; give it one")
	}
	client, err := newClient(config)
	if err != nil {
		return nil, err
	}
	s := &Source{config: c, client: client, wake: make(chan struct{}, 1), unread: map[string]bool{}}
	s.balancer, s.pods, s.problems = newBalancer(), newPods(), newProblems(c.Log)
	s.services = newStore(s, object.KindService, s.readService, s.tellService)
	s.slices = newStore(s, object.KindSlice, s.readSlice, s.tellSlice)
	s.nodes = newStore(s, kindNode, s.readNode, s.tellNode)
	s.drains = newStore(s, kindDrain, s.readDrain, tellDrain)
	s.routing, s.gateways = newRouting(s), newGateways(s)
	s.senders = newSenders(s, c.AcceptFrom)
	return s, nil
}

// Run follows the cluster until ctx ends. The Sink is told of all; publish gets
// snapshots of the Services of type LoadBalancer that are ours and have an
// address, the first once all has loaded. Where publish is nil no balancer
// wants them, and nothing is kept for one. Run is called once.
func (s *Source) Run(ctx context.Context, publish func(source.Snapshot)) error {
	s.balance = publish != nil
	s.config.GatewayAPI = s.config.GatewayAPI && s.balance
	var all sync.WaitGroup
	defer all.Wait()
	for _, follow := range s.reflectors() {
		all.Go(func() { follow(ctx) })
	}
	var last *source.Snapshot
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		}
		if !s.balance {
			continue
		}
		now, ok := s.snapshot()
		if ok && (last == nil || !now.Equal(*last)) {
			last = &now
			publish(now)
		}
	}
}

// Problems gives what is wrong now: objects refused, in full or in part, and
// what cannot be read.
func (s *Source) Problems() []problem.Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problems.all()
}

// Unread says that something cannot be read now, so that what was read last is
// served on or, before the first snapshot, nothing.
func (s *Source) Unread() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.unread) > 0
}

// Node gives this node, once it is known and where it is there.
func (s *Source) Node() (Node, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, ok := s.nodes.held[service.ID{Name: s.config.Node}]
	return n, ok
}

// loaded is called with the lock held when a kind has been listed.
func (s *Source) loaded() {
	s.wakePeers()
	if s.told || !s.services.loaded || !s.slices.loaded || !s.nodes.loaded && s.config.Node != "" {
		return
	}
	if _, known := s.nodes.held[service.ID{Name: s.config.Node}]; !known && s.config.Node != "" {
		s.noNode()
	}
	s.told = true
	if s.config.Sink != nil {
		s.config.Sink.Loaded()
	}
}

// wakeUp asks for a snapshot.
func (s *Source) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default: // asked for already
	}
}
