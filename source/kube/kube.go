// Package kube reads Services, EndpointSlices and this node from an API server and follows
// their changes. It caches only the required part of each object, as values of packages
// proxy and object: 50,000 Services take some tens of megabytes. One set of watches serves
// both the service proxy (a proxy.Sink) and the balancer (as a source.Source). While the
// API server is unreachable, the last known state stays in force.
//
// An object passes through client.go (requests), listing (a list, as it arrives),
// service.go, slice.go and node.go (conversion for the proxy; for the balancer: package
// object), store.go (differences), and balance.go (snapshots). pods.go follows Pods if a
// Service is on a secondary network. routing.go and peers.go do this for BGP, with the
// resources of api/v1alpha1, and gateway.go for the Gateway API, with source/gateway.
package kube

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/api/v1alpha1"
	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/kubeclient"
	"github.com/fairlead/fairlead/internal/wake"
	"github.com/fairlead/fairlead/source"
	"github.com/fairlead/fairlead/source/crd"
	"github.com/fairlead/fairlead/source/object"
)

// Config configures a Source.
type Config struct {
	// Kubeconfig is the path of a kubeconfig file; empty to use the pod's service account.
	Kubeconfig string
	// Node is the name of this node. A Sink requires it; if empty, no node is watched.
	Node string
	// Pod is the name of the pod if this is a dedicated load balancer: a node may have several.
	Pod string
	// Sink, if set, receives everything that a service proxy needs.
	Sink proxy.Sink
	// OnNode, if set, is called whenever the node changes.
	OnNode func(Node)
	// Balancers is the Service of the balancers themselves, used to detect terminating
	// ones; zero for none.
	Balancers service.ID
	// AcceptFrom selects the EndpointSlices of all load balancers from which this node's
	// backends accept packets; if empty, they are not followed.
	AcceptFrom []source.Selector
	// DrainOnCordon makes the balancer of a cordoned Node drain, DrainTaints that of a Node
	// with a taint of these keys. If that would affect all Balancers, none drains.
	DrainOnCordon bool
	DrainTaints   []string
	// RequireClass ignores Services without spec.loadBalancerClass.
	RequireClass bool
	// OnPeers, if set, is called with this node's BGPPeers, sorted by name, when they may
	// have changed and every few minutes. It returns their problems. Advertisements are then
	// followed too.
	OnPeers func([]crd.Peer) []problem.Problem
	// Advertisements follows Advertisements even without OnPeers: an agent that serves
	// Services only on behalf of others must know which addresses are advertised.
	Advertisements bool
	// GatewayAPI also balances Gateways with their TCPRoutes and UDPRoutes.
	GatewayAPI bool
	// Namespace is the agents' namespace, whose Secrets have the passwords of BGPPeers, and
	// which contains their BGPSessions; the default is this pod's, or DefaultNamespace.
	Namespace string
	Log       *slog.Logger
}

// Source reads a cluster and follows its changes.
type Source struct {
	config  Config
	client  *client
	balance bool // somebody receives snapshots

	mu       sync.Mutex
	services *store[serviceEntry]
	slices   *store[sliceEntry]
	nodes    *store[Node]
	drains   *store[nodeDrain] // of all Nodes, if the balancers are known
	balancer balancer
	senders  senders
	routing  routing
	pods     pods
	gateways gateways
	problems problems
	// quarantines has the backends that operators drain.
	quarantines *store[*v1alpha1.Quarantine]
	notified    bool            // whether the Sink was informed that everything has loaded
	unread      map[string]bool // the resources that cannot be read at present
	// wake has one element if there may be a new snapshot to publish.
	wake chan struct{}

	reporter reporter

	eventsMu sync.Mutex
	events   *kubeclient.Recorder // started by the first Event
}

var _ source.Source = (*Source)(nil)

// New creates a Source. It fails if the API server's address or the credentials cannot be
// determined, but not if the server is unreachable.
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
	s.services = newStore(s, object.KindService, s.readService, s.changeService)
	s.slices = newStore(s, object.KindSlice, s.readSlice, s.changeSlice)
	s.nodes = newStore(s, kindNode, s.readNode, s.changeNode)
	s.drains = newStore(s, kindDrain, s.readDrain, changeDrain)
	s.routing, s.gateways, s.quarantines = newRouting(s), newGateways(s), newQuarantines(s)
	s.senders = newSenders(s, c.AcceptFrom)
	return s, nil
}

// Run follows the cluster until ctx ends. The Sink receives everything; publish receives
// snapshots of the Services of type LoadBalancer that are ours and have an address, the
// first once everything has loaded. If publish is nil, nothing is cached for a balancer.
// Run must be called only once.
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

// Problems returns the current problems: objects rejected in full or in part, and what
// cannot be read.
func (s *Source) Problems() []problem.Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problems.all()
}

// Unread reports whether something cannot be read at present, so that the last known state
// is in use or, before the first snapshot, nothing.
func (s *Source) Unread() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.unread) > 0
}

// Node returns this node, once it is known and if it exists.
func (s *Source) Node() (Node, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, ok := s.nodes.held[service.ID{Name: s.config.Node}]
	return n, ok
}

// loaded is called when a resource has been listed. The caller holds the lock.
func (s *Source) loaded() {
	s.wakePeers()
	if s.notified || !s.services.loaded || !s.slices.loaded || !s.nodes.loaded && s.config.Node != "" {
		return
	}
	if _, known := s.nodes.held[service.ID{Name: s.config.Node}]; !known && s.config.Node != "" {
		s.noNode()
	}
	s.notified = true
	if s.config.Sink != nil {
		s.config.Sink.Loaded()
	}
}

// wakeUp requests a snapshot.
func (s *Source) wakeUp() {
	wake.Up(s.wake)
}
