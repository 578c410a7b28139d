package store_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/testkit"
	"github.com/fairlead/fairlead/vdn/store"
	"github.com/fairlead/fairlead/vdn/store/conformance"
	"github.com/fairlead/fairlead/vdn/store/fake"
	"github.com/fairlead/fairlead/vdn/store/file"
	"github.com/fairlead/fairlead/vdn/store/kv"
)

// TestConformance tells all stories by a file, and by a state that could be shared, with
// and without faults.
func TestConformance(t *testing.T) {
	for kind, fresh := range map[string]func(t *testing.T) func() (kv.Backend, error){
		"file": func(t *testing.T) func() (kv.Backend, error) {
			folder := t.TempDir()
			return func() (kv.Backend, error) { return file.Open(folder) }
		},
		"shared": func(*testing.T) func() (kv.Backend, error) { return shared(fake.Faults{}) },
		"faults": func(*testing.T) func() (kv.Backend, error) {
			return shared(fake.Faults{Lost: 5, Unknown: 5, Late: 5, Cut: 5, Away: 5})
		},
	} {
		t.Run(kind, func(t *testing.T) {
			conformance.Run(t, func(t *testing.T) conformance.Open {
				open := fresh(t)
				return func(t *testing.T) *store.Store { return openOn(t, open) }
			})
		})
	}
}

// TestSeveral has stores share a state, with and without faults.
func TestSeveral(t *testing.T) {
	for kind, faults := range map[string]fake.Faults{"well": {}, "faults": {Lost: 5, Unknown: 5, Late: 5, Cut: 5, Away: 5}} {
		t.Run(kind, func(t *testing.T) {
			conformance.Several(t, func(*testing.T) conformance.Open {
				open := shared(faults)
				return func(t *testing.T) *store.Store { return openOn(t, open) }
			})
		})
	}
}

// shared opens one state again and again.
func shared(f fake.Faults) func() (kv.Backend, error) {
	state := fake.New(100)
	var seed atomic.Uint64
	return func() (kv.Backend, error) { return state.Open(f, seed.Add(1)), nil }
}

// openOn opens a store, again where a fault has it.
func openOn(t *testing.T, open func() (kv.Backend, error)) (s *store.Store) {
	t.Helper()
	testkit.Eventually(t, time.Minute, func() error {
		backend, err := open()
		if err == nil {
			s, err = store.New(t.Context(), store.Options{Backend: backend, Domain: "here"})
		}
		return err
	})
	t.Cleanup(func() { _ = s.Close() }) // it may be closed by now
	return s
}
