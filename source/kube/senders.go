package kube

import (
	"context"
	"fmt"
	"net/netip"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/source"
	"github.com/fairlead/fairlead/source/object"
)

// senders are the load balancers from which this node's backends accept packets, from the
// EndpointSlices of Config.AcceptFrom. Each selector has its own watch, so that no other
// headless Service of the cluster is read.
type senders struct {
	stores []*store[senderEntry]
	all    []netip.Addr
	// stale means that all must be computed again, began that a snapshot was made with all
	// of them.
	stale, began bool
}

// senderEntry is an EndpointSlice of load balancers. A rejected change keeps the previous
// version.
type senderEntry struct {
	object  *object.Object
	refused bool
}

func newSenders(s *Source, by []source.Selector) senders {
	all := senders{stale: true}
	for _, selector := range by {
		its := newStore(s, fmt.Sprintf("EndpointSlice of load balancers (%s)", selector), readSender,
			func(id service.ID, was, now senderEntry) (senderEntry, bool) {
				return s.changeSender(selector, id, was, now)
			})
		its.namespace = selector.Namespace
		all.stores = append(all.stores, its)
	}
	return all
}

// followSenders returns the functions that fill these stores.
func (s *Source) followSenders() (all []func(context.Context)) {
	for i, its := range s.senders.stores {
		by := s.config.AcceptFrom[i]
		all = append(all, follow(s, resource{
			client: s.client.discovery, name: "endpointslices", namespace: by.Namespace, labels: by.Label + "=" + by.Value,
			blank: func() message { return &discoveryv1.EndpointSlice{} },
		}, its))
	}
	return all
}

func readSender(o runtime.Object) (*made[senderEntry], error) {
	in, ok := o.(*discoveryv1.EndpointSlice)
	if !ok {
		return nil, fmt.Errorf("%T came where an EndpointSlice was awaited", o)
	}
	m := &made[senderEntry]{id: service.ID{Namespace: in.Namespace, Name: in.Name}}
	slice, faults := object.ReadSlice(in, object.Origin{Assigned: true})
	if m.refused = faults; len(faults) > 0 {
		m.value.refused = true
	} else {
		m.value.object = slice
	}
	return m, nil
}

func (s *Source) changeSender(by source.Selector, id service.ID, was, now senderEntry) (senderEntry, bool) {
	if now.refused {
		now = was
	}
	stale := func() { s.senders.stale = true }
	now.object = settle(was.object, now.object, func(*object.Object) { stale() }, stale)
	s.pods.use(service.ID{Namespace: id.Namespace, Name: "EndpointSlice " + id.Name + " of " + by.String()}, now.object.HasNetwork())
	return now, now.object != nil
}

// sendersRead reports whether all load balancers are known, including the Pods that some
// are identified by. After the first snapshot, changes may arrive later. The caller holds
// the lock.
func (s *Source) sendersRead() bool {
	if s.senders.began {
		return true
	}
	for _, its := range s.senders.stores {
		if !its.loaded {
			return false
		}
		for id, slice := range its.held {
			if slice.object.HasNetwork() && !s.podsLoaded(id.Namespace) {
				return false
			}
		}
	}
	s.senders.began = true
	return true
}

// sendersNow returns the load balancers. The caller holds the lock.
func (s *Source) sendersNow() []netip.Addr {
	if !s.senders.stale {
		return s.senders.all
	}
	s.senders.stale = false
	var selected []*object.Object
	for _, its := range s.senders.stores {
		for _, slice := range its.held {
			selected = append(selected, slice.object)
		}
	}
	all, wrong := object.Senders(selected, s.config.AcceptFrom, s.pods.get)
	s.problems.put(s.problems.joined, object.Key{Kind: "load balancers"}, wrong)
	s.senders.all = all
	return all
}
