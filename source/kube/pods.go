package kube

import (
	"context"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/wake"
	"github.com/fairlead/fairlead/source/object"
)

// Media types that request only the metadata of Pods, for watches and for lists.
const (
	podContentType  = contentType + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	podsContentType = contentType + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// pods tracks the Pods on secondary networks, in those namespaces that have a Service or
// load balancers on one. Pods of other namespaces are not requested.
type pods struct {
	// users are the Services on a network, and EndpointSlices of load balancers on one
	// (under a name that no Service can have), by namespace. No map is empty.
	users map[string]map[service.ID]bool
	// stores are those of the followed namespaces.
	stores map[string]*store[*object.Object]
	// began is true once a snapshot was made; until then, snapshots wait for all Pods.
	began bool
	// again has one element if the followed namespaces may have to change.
	again chan struct{}
}

func newPods() pods {
	return pods{users: map[string]map[service.ID]bool{}, stores: map[string]*store[*object.Object]{}, again: make(chan struct{}, 1)}
}

// use records whether a user is on a network. The caller holds the lock.
func (p *pods) use(id service.ID, uses bool) {
	its := p.users[id.Namespace]
	switch {
	case uses == its[id]:
		return
	case !uses:
		if delete(its, id); len(its) == 0 {
			delete(p.users, id.Namespace)
		}
	case its == nil:
		p.users[id.Namespace] = map[service.ID]bool{id: true}
	default:
		its[id] = true
	}
	wake.Up(p.again)
}

// get returns a Pod, or nil for an unknown one. The caller holds the lock.
func (p *pods) get(id service.ID) *object.Object {
	if s := p.stores[id.Namespace]; s != nil {
		return s.held[id]
	}
	return nil
}

// awaitsPods reports whether a Service is on a network and its Pods have not been read yet,
// although they may be. The caller holds the lock.
func (s *Source) awaitsPods(o *object.Object) bool {
	return o.Network() != "" && !s.podsLoaded(o.Key.Namespace)
}

// podsLoaded reports whether the Pods of a namespace with a user have been read, or reading
// them is forbidden. The caller holds the lock.
func (s *Source) podsLoaded(namespace string) bool {
	its := s.pods.stores[namespace]
	return s.routing.forbidden["pods"] || its != nil && its.loaded
}

// podsRead reports whether a snapshot has all Pods that it needs. After the first snapshot,
// a Service whose Pods are missing stays unchanged. The caller holds the lock.
func (s *Source) podsRead() bool {
	p := &s.pods
	if p.began {
		return true
	}
	for _, its := range p.users {
		for id := range its {
			if s.awaitsPods(s.services.held[id].object) {
				return false
			}
		}
	}
	p.began = true
	return true
}

// followPods follows the Pods of the namespaces that have a Service on a network.
func (s *Source) followPods(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	running := map[string]context.CancelFunc{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.pods.again:
		}
		s.mu.Lock()
		for namespace, stop := range running {
			if s.pods.users[namespace] == nil {
				stop()
				delete(running, namespace)
				delete(s.pods.stores, namespace)
				s.problems.forget(func(k object.Key) bool { return k.Kind == object.KindPod && k.Namespace == namespace })
			}
		}
		for namespace := range s.pods.users {
			if running[namespace] == nil {
				its := s.podStore(namespace)
				s.pods.stores[namespace] = its
				of, stop := context.WithCancel(ctx)
				running[namespace] = stop
				all.Go(func() { follow(s, s.podsOf(namespace), its)(of) })
			}
		}
		s.mu.Unlock()
	}
}

// podsOf returns the resource of a namespace's Pods that have not finished.
func (s *Source) podsOf(namespace string) resource {
	return resource{
		client: s.client.core, name: "pods", namespace: namespace, accept: podsContentType, acceptWatch: podContentType,
		fields: "status.phase!=Succeeded,status.phase!=Failed",
		blank:  func() message { return &metav1.PartialObjectMetadata{} },
	}
}

// podStore creates the store of a namespace, which is ignored once the namespace is no
// longer followed.
func (s *Source) podStore(namespace string) *store[*object.Object] {
	var its *store[*object.Object]
	its = newStore(s, object.KindPod, readPod, func(id service.ID, was, now *object.Object) (*object.Object, bool) {
		if s.pods.stores[namespace] != its {
			return nil, false
		}
		if now != nil && !now.Attached() {
			now = was // the new version is rejected
		}
		changed := func() { s.podsChanged(namespace) }
		now = settle(was, now, func(*object.Object) { changed() }, changed)
		return now, now != nil
	})
	its.namespace = namespace
	its.listed = func() { s.podsChanged(namespace) } // including those that wait for Pods that do not exist
	return its
}

// podsChanged marks the users of a namespace's Pods as changed. The caller holds the lock.
func (s *Source) podsChanged(namespace string) {
	s.senders.stale = true
	for user := range s.pods.users[namespace] {
		s.balancer.changed[user] = true
	}
}

func readPod(o runtime.Object) (*made[*object.Object], error) {
	in, ok := o.(*metav1.PartialObjectMetadata)
	if !ok {
		return nil, fmt.Errorf("%T came where a Pod was awaited", o)
	}
	m := &made[*object.Object]{id: service.ID{Namespace: in.Namespace, Name: in.Name}}
	p, faults := object.ReadPod(&in.ObjectMeta, object.Origin{})
	if m.refused = faults; len(faults) > 0 || p.Attached() {
		m.value = p
	}
	return m, nil
}
