package kube

import (
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/source/object"
)

// made is the converted form of an object. It implements runtime.Object, so that lists of
// it pass through a Reflector.
type made[V any] struct {
	id    service.ID
	value V
	// refused are the rejected parts of the object, with reasons.
	refused []object.Fault
}

// GetObjectKind implements runtime.Object.
func (m *made[V]) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object. made is immutable.
func (m *made[V]) DeepCopyObject() runtime.Object { return m }

// store is filled by a Reflector. It stores the converted objects of one kind, and reports
// only differences, even after a new list.
type store[V any] struct {
	source *Source
	kind   string
	// read converts an object. It is called without the lock, by one goroutine at a time.
	read func(o runtime.Object) (*made[V], error)
	// change is called with the lock held if an object may differ from the stored one. now is
	// the zero value for a deleted object. change returns what to store, and whether to store
	// anything.
	change func(id service.ID, was, now V) (hold V, ok bool)
	held   map[service.ID]V
	names  names
	loaded bool
	listed func() // called with the lock held after a complete list; may be nil
	// namespace is the only namespace whose objects are stored; empty for all.
	namespace string
}

func newStore[V any](
	s *Source, kind string, read func(runtime.Object) (*made[V], error), change func(id service.ID, was, now V) (V, bool),
) *store[V] {
	return &store[V]{source: s, kind: kind, read: read, change: change, held: map[service.ID]V{}, names: names{}}
}

// Add implements cache.ReflectorStore for a new object.
func (s *store[V]) Add(o any) error { return s.Update(o) }

// Update stores an object that may have changed.
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

// Delete removes an object.
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

// Replace replaces all objects.
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

// Resync does nothing: nothing is reported twice.
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

// drop removes an object. If it was never stored, it was never reported.
func (s *store[V]) drop(id service.ID) {
	if _, ok := s.held[id]; ok {
		var none V
		s.put(id, none)
	}
}

func (s *store[V]) put(id service.ID, now V) {
	if hold, ok := s.change(id, s.held[id], now); ok {
		s.held[id] = hold
	} else {
		delete(s.held, id)
	}
}

// settle compares the previous and current version of an object, nil if absent, reports a
// difference, and returns what to store.
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
