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
	"github.com/fairlead/fairlead/source"
	"github.com/fairlead/fairlead/source/crd"
	"github.com/fairlead/fairlead/source/object"
)

// Names of our own resources and kinds.
const (
	bgpPeers, announcements, addressPools = "bgppeers", "announcements", "addresspools"
	kindPeer, kindAnnouncement, kindPool  = "BGPPeer", "Announcement", "AddressPool"
)

// ownRetry is for resources that a cluster need not have: who awaits them asks
// seldom.
var ownRetry = wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Steps: 5, Cap: 15 * time.Second}

// routing is what a cluster's own resources say of BGP to this node.
type routing struct {
	peers         *store[*v1alpha1.BGPPeer]
	announcements *store[*v1alpha1.Announcement]
	pools         *store[*v1alpha1.AddressPool]
	labels        map[string]string // this node's
	// awaited are the resources that were not there when they were asked for,
	// forbidden those that we may not read now.
	awaited, forbidden map[string]bool
	// announced is what Announcements say, as of the last look; stale says that
	// it must be made anew.
	announced source.Announcements
	stale     bool
	// wake has one element where the peers may be others.
	wake      chan struct{}
	passwords map[string]string // of Secrets, as they were last read
	beyond    beyond
}

func newRouting(s *Source) routing {
	r := routing{awaited: map[string]bool{}, forbidden: map[string]bool{}, wake: make(chan struct{}, 1), passwords: map[string]string{}}
	r.beyond = newBeyond()
	r.peers = own(s, kindPeer, func(in *v1alpha1.BGPPeer) *v1alpha1.BGPPeer {
		return &v1alpha1.BGPPeer{ObjectMeta: slim(&in.ObjectMeta), Spec: in.Spec}
	}, s.rerouted)
	r.announcements = own(s, kindAnnouncement, func(in *v1alpha1.Announcement) *v1alpha1.Announcement {
		return &v1alpha1.Announcement{ObjectMeta: slim(&in.ObjectMeta), Spec: in.Spec}
	}, s.rerouted)
	r.pools = own(s, kindPool, func(in *v1alpha1.AddressPool) *v1alpha1.AddressPool {
		return &v1alpha1.AddressPool{ObjectMeta: slim(&in.ObjectMeta), Spec: in.Spec}
	}, s.rerouted)
	return r
}

func slim(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: m.Name, CreationTimestamp: m.CreationTimestamp}
}

// own makes the store of a kind of which keep gives what matters; changed is told,
// with the lock held, that there are others.
func own[T any](s *Source, kind string, keep func(*T) *T, changed func()) *store[*T] {
	read := func(o runtime.Object) (*made[*T], error) {
		in, ok := any(o).(*T)
		if !ok {
			return nil, fmt.Errorf("%T came where one of kind %s was awaited", o, kind)
		}
		m := any(in).(metav1.Object)
		return &made[*T]{id: service.ID{Namespace: m.GetNamespace(), Name: m.GetName()}, value: keep(in)}, nil
	}
	tell := func(_ service.ID, was, now *T) (*T, bool) {
		now = settle(was, now, func(*T) { changed() }, changed)
		return now, now != nil
	}
	return newStore(s, kind, read, tell)
}

// followRouting gives those that fill these stores.
func (s *Source) followRouting() []func(context.Context) {
	r := &s.routing
	peers := resource{client: s.client.own, name: bgpPeers, own: func() runtime.Object { return &v1alpha1.BGPPeerList{} }}
	announced := resource{client: s.client.own, name: announcements, own: func() runtime.Object { return &v1alpha1.AnnouncementList{} }}
	pools := resource{client: s.client.own, name: addressPools, own: func() runtime.Object { return &v1alpha1.AddressPoolList{} }}
	all := []func(context.Context){follow(s, announced, r.announcements), follow(s, pools, r.pools)}
	if s.config.OnPeers != nil {
		all = append(all, follow(s, peers, r.peers), s.followPeers)
	}
	return all
}

// announces says whether it matters what is announced.
func (s *Source) announces() bool { return s.config.OnPeers != nil || s.config.Announcements }

// rerouted notes, with the lock held, that peers or Announcements may be others.
func (s *Source) rerouted() {
	s.routing.stale = true
	select {
	case s.routing.beyond.again <- struct{}{}:
	default: // it is about to be looked at anyway
	}
	s.wakeUp()
	s.wakePeers()
}

func (s *Source) wakePeers() {
	select {
	case s.routing.wake <- struct{}{}:
	default: // it is about to be looked at anyway
	}
}

// setLabels takes, with the lock held, this node's labels.
func (s *Source) setLabels(now map[string]string) {
	if !maps.Equal(s.routing.labels, now) {
		s.routing.labels = now
		s.rerouted()
	}
}

// routingRead says, with the lock held, whether it is known what is announced, or
// known to be kept from us: no address is announced before that, as it might be one
// that is not to be.
func (s *Source) routingRead() bool {
	r := &s.routing
	return !s.announces() || s.nodeRead() &&
		(r.announcements.loaded || r.forbidden[announcements]) && (r.pools.loaded || r.forbidden[addressPools])
}

// nodeRead says, with the lock held, that this node is known, or known to be none.
func (s *Source) nodeRead() bool { return s.nodes.loaded || s.config.Node == "" }

// awaitResource notes that one of our own resources is not there, which is told
// once.
func (s *Source) awaitResource(resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.routing.awaited[resource] {
		s.routing.awaited[resource] = true
		s.config.Log.Info("the cluster does not define this resource; it is awaited", "resource", resource)
	}
}

// setForbidden notes, with the lock held, whether we may not read a resource.
func (s *Source) setForbidden(resource string, now bool) {
	if s.routing.forbidden[resource] != now {
		s.routing.forbidden[resource] = now
		s.rerouted()
	}
}

// announcedNow gives, with the lock held, what Announcements say to this node.
func (s *Source) announcedNow() source.Announcements {
	r := &s.routing
	if r.stale {
		r.announced, r.stale = s.announce(), false
	}
	return r.announced
}

func (s *Source) announce() source.Announcements {
	r := &s.routing
	for _, unread := range []struct {
		resource string
		is       bool
	}{
		{announcements, s.announces() && !r.announcements.loaded},
		{addressPools, s.announces() && !r.pools.loaded && len(r.announcements.held) > 0},
	} {
		if unread.is {
			return &nothing{unread.resource + " cannot be read, which say what is announced: let this agent get, list and watch them (ClusterRole)"}
		}
	}
	said, wrong := crd.AnnouncedBy(
		slices.Collect(maps.Values(r.announcements.held)), slices.Collect(maps.Values(r.pools.held)), r.labels)
	s.problems.put(s.problems.kinds, object.Key{Kind: kindAnnouncement}, problemsOf(wrong))
	if said == nil {
		return nil
	}
	return said
}

// nothing is announced, and why.
type nothing struct{ why string }

// Offers gives none.
func (n *nothing) Offers(*service.Service, netip.Addr) ([]route.Offer, string) { return nil, n.why }

func problemsOf(wrong []crd.Wrong) (all []problem.Problem) {
	for _, w := range wrong {
		all = append(all, problem.Problem{Object: w.Object, Message: w.Err.Error() + "; it is left out"})
	}
	return all
}
