package kube

import (
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/source/object"
)

// made is what an object was made into. It passes for an object, so that lists
// of it go through a Reflector.
type made[V any] struct {
	id    service.ID
	value V
	// refused is what of the object does not count, and why.
	refused []object.Fault
}

// GetObjectKind is an object's; here it says nothing.
func (m *made[V]) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject is an object's; this one is never changed.
func (m *made[V]) DeepCopyObject() runtime.Object { return m }

// store is what a Reflector fills. It keeps what the objects of one kind were
// made into, and tells only what differs, also after a new list.
type store[V any] struct {
	source *Source
	kind   string
	// read makes an object into what is kept of it. It is called without the
	// lock, by one goroutine at a time.
	read func(o runtime.Object) (*made[V], error)
	// tell is called with the lock held where an object may differ from what is
	// held. now may be the zero value, for one that is not there; it gives what
	// to hold, and whether there is anything to hold.
	tell   func(id service.ID, was, now V) (hold V, ok bool)
	held   map[service.ID]V
	names  names
	loaded bool
	listed func() // is told with the lock held that all there are have been told of; may be nil
	// namespace is the only one whose objects are kept here; empty: all of the kind.
	namespace string
}

func newStore[V any](
	s *Source, kind string, read func(runtime.Object) (*made[V], error), tell func(id service.ID, was, now V) (V, bool),
) *store[V] {
	return &store[V]{source: s, kind: kind, read: read, tell: tell, held: map[service.ID]V{}, names: names{}}
}

// Add is told of a new object; a Reflector's word.
func (s *store[V]) Add(o any) error { return s.Update(o) }

// Update is told of an object that may be another.
func (s *store[V]) Update(o any) error {
	m, err := s.made(o)
	if err != nil {
		return err
	}
	s.source.mu.Lock()
	defer s.source.mu.Unlock()
	s.set(m)
	s.source.wakeUp()
	return nil
}

// Delete is told of an object that is gone.
func (s *store[V]) Delete(o any) error {
	m, err := s.made(o)
	if err != nil {
		return err
	}
	s.source.mu.Lock()
	defer s.source.mu.Unlock()
	s.source.problems.set(s.name(m.id), nil)
	s.drop(m.id)
	s.source.wakeUp()
	return nil
}

// Replace is told of all objects that there are.
func (s *store[V]) Replace(all []any, _ string) error {
	s.source.mu.Lock()
	defer s.source.mu.Unlock()
	there := make(map[service.ID]bool, len(all))
	for _, o := range all {
		m, err := s.made(o)
		if err != nil {
			return err
		}
		there[m.id] = true
		s.set(m)
	}
	s.source.problems.forget(func(k object.Key) bool {
		return k.Kind == s.kind && (s.namespace == "" || s.namespace == k.Namespace) && !there[service.ID{Namespace: k.Namespace, Name: k.Name}]
	})
	for id := range s.held {
		if !there[id] {
			s.drop(id)
		}
	}
	if s.listed != nil {
		s.listed()
	}
	if !s.loaded {
		s.loaded = true
		s.source.loaded()
	}
	s.source.wakeUp()
	return nil
}

// Resync does nothing: nothing is told twice.
func (s *store[V]) Resync() error { return nil }

func (s *store[V]) made(o any) (*made[V], error) {
	switch o := o.(type) {
	case *made[V]:
		return o, nil
	case runtime.Object:
		return s.read(o)
	}
	return nil, fmt.Errorf("%T is no object of an API", o)
}

func (s *store[V]) name(id service.ID) object.Key {
	return object.Key{Kind: s.kind, Namespace: id.Namespace, Name: id.Name}
}

func (s *store[V]) set(m *made[V]) {
	s.source.problems.set(s.name(m.id), m.refused)
	s.put(m.id, m.value)
}

// drop lets an object go. What was never held was never told of.
func (s *store[V]) drop(id service.ID) {
	if _, ok := s.held[id]; ok {
		var none V
		s.put(id, none)
	}
}

func (s *store[V]) put(id service.ID, now V) {
	if hold, ok := s.tell(id, s.held[id], now); ok {
		s.held[id] = hold
	} else {
		delete(s.held, id)
	}
}

// settle compares what an object was with what it is now, nil for not there,
// tells of a difference, and gives what to hold.
func settle[T any](was, now *T, set func(*T), gone func()) *T {
	switch {
	case now == nil && was != nil:
		gone()
	case now == nil:
	case was != nil && reflect.DeepEqual(was, now):
		return was
	default:
		set(now)
	}
	return now
}
