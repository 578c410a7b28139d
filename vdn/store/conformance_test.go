package store_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead/fairlead/lab/conformance/networkstore"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/vdn/store"
	"github.com/fairlead/fairlead/vdn/store/fake"
	"github.com/fairlead/fairlead/vdn/store/file"
	"github.com/fairlead/fairlead/vdn/store/kv"
)

// TestConformance runs the suite on a file and on a shared state, with and without faults.
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
			networkstore.Run(t, func(t *testing.T) networkstore.Open {
				open := fresh(t)
				return func(t *testing.T) *store.Store { return openOn(t, open) }
			})
		})
	}
}

// TestSeveral runs several stores on one state, with and without faults.
func TestSeveral(t *testing.T) {
	for kind, faults := range map[string]fake.Faults{"well": {}, "faults": {Lost: 5, Unknown: 5, Late: 5, Cut: 5, Away: 5}} {
		t.Run(kind, func(t *testing.T) {
			networkstore.Several(t, func(*testing.T) networkstore.Open {
				open := shared(faults)
				return func(t *testing.T) *store.Store { return openOn(t, open) }
			})
		})
	}
}

// shared returns a function that opens one shared state.
func shared(f fake.Faults) func() (kv.Backend, error) {
	state := fake.New(100)
	var seed atomic.Uint64
	return func() (kv.Backend, error) { return state.Open(f, seed.Add(1)), nil }
}

// openOn opens a store, and retries on injected faults.
func openOn(t *testing.T, open func() (kv.Backend, error)) (s *store.Store) {
	t.Helper()
	testkit.Eventually(t, time.Minute, func() error {
		backend, err := open()
		if err == nil {
			s, err = store.New(t.Context(), store.Options{Backend: backend, Domain: "here"})
		}
		return err
	})
	t.Cleanup(func() { _ = s.Close() }) // a test may have closed it
	return s
}

// TestCopy copies a state from a file to a shared one and back: everything is unchanged,
// including the next address to be chosen.
func TestCopy(t *testing.T) {
	folder := t.TempDir()
	s, err := store.Open(folder, "here")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.PutNetwork(t.Context(), networkstore.Network("a", "10.1.0.0/16"), nil); err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		if _, _, err := s.Attach(t.Context(), networkstore.Request("a", fmt.Sprint("c", i)), 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Detach(t.Context(), "c7.net1"); err != nil {
		t.Fatal(err)
	}
	state, attachments := s.State("")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	same := func(s *store.Store) {
		t.Helper()
		got, all := s.State("")
		got.Revision = state.Revision
		if d := cmp.Diff(fmt.Sprint(state, attachments), fmt.Sprint(got, all)); d != "" {
			t.Error(d)
		}
		l, _, err := s.Attach(t.Context(), networkstore.Request("a", "next"), 1)
		if err != nil || l.Attachment.Addresses[0].String() != "10.1.1.45/16" { // 10.1.0.8, which was released, comes last
			t.Errorf("%v, %v", l.Attachment.Addresses, err)
		}
	}
	old, err := file.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	shared := fake.New(100).Open(fake.Faults{}, 1)
	if n, err := store.Copy(t.Context(), old, shared); err != nil || n < 600 {
		t.Fatalf("%d, %v", n, err)
	}
	if _, err := store.Copy(t.Context(), old, shared); err == nil {
		t.Error("it is copied over another")
	}
	next := t.TempDir()
	back, err := file.Open(next)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Copy(t.Context(), shared, back); err != nil {
		t.Fatal(err)
	}
	if err := back.Close(); err != nil {
		t.Fatal(err)
	}
	for _, open := range []func() (*store.Store, error){
		func() (*store.Store, error) {
			return store.New(t.Context(), store.Options{Backend: shared, Domain: "here"})
		},
		func() (*store.Store, error) { return store.Open(next, "here") },
	} {
		s, err := open()
		if err != nil {
			t.Fatal(err)
		}
		same(s)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
