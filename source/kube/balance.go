package kube

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/source"
	"github.com/fairlead/fairlead/source/object"
)

// balancer joins the balanced Services with their slices. A change costs only that Service,
// and a copy of the list of all.
type balancer struct {
	// slices are those of each Service, sorted by name. A list is immutable, because join
	// results refer to it.
	slices map[service.ID][]*object.Object
	joined map[service.ID]*object.Joined
	// services is the sorted list of join results; also immutable.
	services []*service.Service
	// changed are the Services to join again.
	changed map[service.ID]bool
	// stale has the objects whose current version is rejected, so that an older one is in
	// use.
	stale map[object.Key]source.Stale
}

func newBalancer() balancer {
	return balancer{
		slices: map[service.ID][]*object.Object{}, joined: map[service.ID]*object.Joined{}, changed: map[service.ID]bool{},
		stale: map[object.Key]source.Stale{},
	}
}

// setSlice replaces a slice; either may be nil.
func (b *balancer) setSlice(was, now *object.Object) {
	if was != nil {
		its := slices.DeleteFunc(slices.Clone(b.slices[was.Service()]), func(o *object.Object) bool { return o == was })
		b.put(was.Service(), its)
	}
	if now != nil {
		its := b.slices[now.Service()]
		i, _ := slices.BinarySearchFunc(its, now, func(a, b *object.Object) int { return strings.Compare(a.Key.Name, b.Key.Name) })
		b.put(now.Service(), slices.Insert(slices.Clone(its), i, now))
	}
}

func (b *balancer) put(id service.ID, its []*object.Object) {
	b.changed[id] = true
	if b.slices[id] = its; len(its) == 0 {
		delete(b.slices, id)
	}
}

// snapshot returns the current snapshot, or false before everything has loaded.
func (s *Source) snapshot() (source.Snapshot, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.services.loaded || !s.slices.loaded || !s.routingRead() || !s.beyondRead() || !s.podsRead() || !s.gatewaysRead() || !s.sendersRead() || !s.quarantinesRead() {
		return source.Snapshot{}, false
	}
	b := &s.balancer
	ids := slices.SortedFunc(maps.Keys(b.changed), service.ID.Compare)
	clear(b.changed)
	for _, id := range ids {
		if s.awaitsPods(s.services.held[id].object) {
			continue // notified again when its Pods have been read
		}
		k := object.Key{Kind: object.KindService, Namespace: id.Namespace, Name: id.Name}
		if o := s.services.held[id].object; o != nil && o.Ours() {
			b.joined[id] = object.Join(b.joined[id], o, b.slices[id], s.pods.get)
			s.problems.put(s.problems.joined, k, b.joined[id].Problems)
		} else {
			delete(b.joined, id)
			s.problems.put(s.problems.joined, k, nil)
		}
	}
	b.merge(ids)
	advertisements, services := s.announcedNow(), s.withGateways(b.services, ids) // may find problems
	members := object.Members(b.slices[s.config.Balancers], s.config.Balancers, s.pods.get)
	balancers, _ := object.Balancers(members)
	senders, quarantines := s.sendersNow(), s.quarantinesNow()
	drain, last, leaving := s.drainNow(members)
	return source.Snapshot{
		Services: services, Advertisements: advertisements, Balancers: balancers, Draining: leaving, Senders: senders, Drain: drain, Last: last, Quarantines: quarantines,
		Names: object.Names(members), Problems: s.problems.all(), Stale: b.staleNow(),
	}, true
}

// setStale records whether an older version of an object is in use.
func (b *balancer) setStale(k object.Key, kept *object.Object) {
	if _, already := b.stale[k]; kept == nil {
		delete(b.stale, k)
	} else if !already {
		b.stale[k] = source.Stale{Object: k.String(), Service: kept.Belongs(), Since: time.Now().UTC().Round(0)}
	}
}

func (b *balancer) staleNow() (all []source.Stale) {
	for _, k := range slices.SortedFunc(maps.Keys(b.stale), object.Key.Compare) {
		all = append(all, b.stale[k])
	}
	return all
}

// merge updates the list of Services with those of ids, which are sorted.
func (b *balancer) merge(ids []service.ID) {
	if len(ids) == 0 {
		return
	}
	merged := make([]*service.Service, 0, len(b.joined))
	rest := b.services
	for _, id := range ids {
		i, found := slices.BinarySearchFunc(rest, id, func(s *service.Service, id service.ID) int { return s.ID.Compare(id) })
		merged = append(merged, rest[:i]...)
		if rest = rest[i:]; found {
			rest = rest[1:]
		}
		if j := b.joined[id]; j != nil {
			merged = append(merged, j.Service)
		}
	}
	b.services = append(merged, rest...)
}

// changeService updates a Service, changeSlice a slice of the balancer.
func (b *balancer) changeService(id service.ID, was, now *object.Object) *object.Object {
	return settle(was, now, func(*object.Object) { b.changed[id] = true }, func() { b.changed[id] = true })
}

func (b *balancer) changeSlice(was, now *object.Object) *object.Object {
	return settle(was, now, func(o *object.Object) { b.setSlice(was, o) }, func() { b.setSlice(was, nil) })
}

// waiting is the Problem of a Service without an address yet.
func waiting(s *corev1.Service) object.Fault {
	const field = "status.loadBalancer.ingress"
	if c := meta.FindStatusCondition(s.Status.Conditions, object.ConditionAssigned); c != nil && c.Status == metav1.ConditionFalse {
		return object.Fault{Field: field, Message: "the Service waits for an address: " + c.Reason + ": " + c.Message}
	}
	return object.Fault{Field: field, Message: "the Service waits for an address; " +
		"fairlead controller assigns one from an AddressPool, or reports the reason in an Event of the Service"}
}
