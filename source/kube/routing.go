package kube

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/fairlead/fairlead/api/v1alpha1"
	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/wake"
	"github.com/fairlead/fairlead/source"
	"github.com/fairlead/fairlead/source/crd"
	"github.com/fairlead/fairlead/source/object"
)

// Names of Fairlead's resources and kinds.
const (
	bgpPeers, advertisements, addressPools = "bgppeers", "advertisements", "addresspools"
	kindPeer, kindAdvertisement, kindPool  = "BGPPeer", "Advertisement", "AddressPool"
)

// ownRetry is the backoff for optional resources, longer because many clusters lack them.
var ownRetry = wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Steps: 5, Cap: 15 * time.Second}

// routing is the BGP configuration of this node in the cluster's resources.
type routing struct {
	peers          *store[*v1alpha1.BGPPeer]
	advertisements *store[*v1alpha1.Advertisement]
	pools          *store[*v1alpha1.AddressPool]
	labels         map[string]string // this node's
	// awaited are the resources that did not exist when they were requested, forbidden
	// those that the agent may not read at present.
	awaited, forbidden map[string]bool
	// announced is the result of the Advertisements as of the last evaluation; stale means
	// that it must be computed again.
	announced source.Advertisements
	stale     bool
	// wake has one element if the peers may have changed.
	wake      chan struct{}
	passwords map[string]string // of Secrets, as last read
	beyond    beyond
}

func newRouting(s *Source) routing {
	r := routing{awaited: map[string]bool{}, forbidden: map[string]bool{}, wake: make(chan struct{}, 1), passwords: map[string]string{}}
	r.beyond = newBeyond()
	r.peers = own(s, kindPeer, func(in *v1alpha1.BGPPeer) *v1alpha1.BGPPeer {
		return &v1alpha1.BGPPeer{ObjectMeta: slim(&in.ObjectMeta), Spec: in.Spec}
	}, s.rerouted)
	r.advertisements = own(s, kindAdvertisement, func(in *v1alpha1.Advertisement) *v1alpha1.Advertisement {
		return &v1alpha1.Advertisement{ObjectMeta: slim(&in.ObjectMeta), Spec: in.Spec}
	}, s.rerouted)
	r.pools = own(s, kindPool, func(in *v1alpha1.AddressPool) *v1alpha1.AddressPool {
		return &v1alpha1.AddressPool{ObjectMeta: slim(&in.ObjectMeta), Spec: in.Spec}
	}, s.rerouted)
	return r
}

func slim(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: m.Name, CreationTimestamp: m.CreationTimestamp}
}

// own creates the store of a kind. keep returns the relevant part of an object; changed is
// called on changes, with the lock held.
func own[T any](s *Source, kind string, keep func(*T) *T, changed func()) *store[*T] {
	read := func(o runtime.Object) (*made[*T], error) {
		in, ok := any(o).(*T)
		if !ok {
			return nil, fmt.Errorf("%T came where one of kind %s was awaited", o, kind)
		}
		m := any(in).(metav1.Object)
		return &made[*T]{id: service.ID{Namespace: m.GetNamespace(), Name: m.GetName()}, value: keep(in)}, nil
	}
	change := func(_ service.ID, was, now *T) (*T, bool) {
		now = settle(was, now, func(*T) { changed() }, changed)
		return now, now != nil
	}
	return newStore(s, kind, read, change)
}

// followRouting returns the functions that fill these stores.
func (s *Source) followRouting() []func(context.Context) {
	r := &s.routing
	peers := resource{client: s.client.own, name: bgpPeers, own: func() runtime.Object { return &v1alpha1.BGPPeerList{} }}
	announced := resource{client: s.client.own, name: advertisements, own: func() runtime.Object { return &v1alpha1.AdvertisementList{} }}
	pools := resource{client: s.client.own, name: addressPools, own: func() runtime.Object { return &v1alpha1.AddressPoolList{} }}
	all := []func(context.Context){follow(s, announced, r.advertisements), follow(s, pools, r.pools)}
	if s.config.OnPeers != nil {
		all = append(all, follow(s, peers, r.peers), s.followPeers)
	}
	return all
}

// announces reports whether it is relevant what is advertised.
func (s *Source) announces() bool { return s.config.OnPeers != nil || s.config.Advertisements }

// rerouted is called when peers or Advertisements may have changed. The caller holds the
// lock.
func (s *Source) rerouted() {
	s.routing.stale = true
	wake.Up(s.routing.beyond.again)
	s.wakeUp()
	s.wakePeers()
}

func (s *Source) wakePeers() {
	wake.Up(s.routing.wake)
}

// setLabels stores this node's labels. The caller holds the lock.
func (s *Source) setLabels(now map[string]string) {
	if !maps.Equal(s.routing.labels, now) {
		s.routing.labels = now
		s.rerouted()
	}
}

// routingRead reports whether the selection of what to advertise is known, or known to be
// forbidden. Nothing is advertised before that, because it might be an address that must
// not be. The caller holds the lock.
func (s *Source) routingRead() bool {
	r := &s.routing
	return !s.announces() || s.nodeRead() &&
		(r.advertisements.loaded || r.forbidden[advertisements]) && (r.pools.loaded || r.forbidden[addressPools])
}

// nodeRead reports whether this node is known, or known not to be configured. The caller
// holds the lock.
func (s *Source) nodeRead() bool { return s.nodes.loaded || s.config.Node == "" }

// awaitResource records that a custom resource does not exist, and logs that once.
func (s *Source) awaitResource(resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.routing.awaited[resource] {
		s.routing.awaited[resource] = true
		s.config.Log.Info("the cluster does not define this resource, waiting for it", "resource", resource)
	}
}

// setForbidden records whether the agent may read a resource. The caller holds the lock.
func (s *Source) setForbidden(resource string, now bool) {
	if s.routing.forbidden[resource] != now {
		s.routing.forbidden[resource] = now
		s.rerouted()
	}
}

// announcedNow returns what Advertisements select for this node. The caller holds the lock.
func (s *Source) announcedNow() source.Advertisements {
	r := &s.routing
	if r.stale {
		r.announced, r.stale = s.announce(), false
	}
	return r.announced
}

func (s *Source) announce() source.Advertisements {
	r := &s.routing
	for _, unread := range []struct {
		resource string
		is       bool
	}{
		{advertisements, s.announces() && !r.advertisements.loaded},
		{addressPools, s.announces() && !r.pools.loaded && len(r.advertisements.held) > 0},
	} {
		if unread.is {
			return &nothing{unread.resource + " cannot be read, so nothing new is announced: allow this agent to get, list and watch them (ClusterRole)"}
		}
	}
	said, wrong := crd.AdvertisedBy(
		slices.Collect(maps.Values(r.advertisements.held)), slices.Collect(maps.Values(r.pools.held)), r.labels)
	s.problems.put(s.problems.kinds, object.Key{Kind: kindAdvertisement}, problemsOf(wrong))
	if said == nil {
		return nil
	}
	return said
}

// nothing advertises nothing, with the reason.
type nothing struct{ why string }

// Offers returns no offers.
func (n *nothing) Offers(*service.Service, netip.Addr) ([]route.Offer, string) { return nil, n.why }

func problemsOf(wrong []crd.Wrong) (all []problem.Problem) {
	for _, w := range wrong {
		all = append(all, problem.Problem{Object: w.Object, Message: w.Err.Error() + "; it is left out"})
	}
	return all
}
