package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/lab/conformance/networkstore"
	"github.com/fairlead/fairlead/lab/kube"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/store"
	"github.com/fairlead/fairlead/vdn/store/kv"
)

func TestMain(m *testing.M) {
	if err := kube.Prepare("etcd"); err != nil {
		panic(err)
	}
	testkit.Main(m)
}

// fresh returns an Open for a new, empty state below its own prefix.
func fresh(m *kube.Members) func(*testing.T) networkstore.Open {
	var count atomic.Int64
	return func(t *testing.T) networkstore.Open {
		prefix := fmt.Sprintf("/fairlead/vdn/here%d", count.Add(1))
		return func(t *testing.T) *store.Store { return openStore(t, m, prefix) }
	}
}

// openStore opens a store, and retries while etcd is unreachable.
func openStore(t *testing.T, m *kube.Members, prefix string) (s *store.Store) {
	t.Helper()
	testkit.Eventually(t, time.Minute, func() error {
		b, err := Open(t.Context(), Config{Endpoints: m.URLs, Prefix: prefix})
		if err == nil {
			s, err = store.New(t.Context(), store.Options{Backend: b, Domain: "here"})
		}
		return err
	})
	t.Cleanup(func() { _ = s.Close() }) // a test may have closed it
	return s
}

// TestConformance runs the suite on a real single-member etcd, with all states in it.
func TestConformance(t *testing.T) {
	m := kube.StartEtcd(t, 1, nil)
	states := fresh(m)
	networkstore.Run(t, states)
	networkstore.Several(t, states)
}

// TestMembersFail stops, pauses and restarts the members of three one at a time, and
// compacts the history, while stores share a state.
func TestMembersFail(t *testing.T) {
	m := kube.StartEtcd(t, 3, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- harass(ctx, m) }()
	networkstore.Several(t, fresh(m))
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// harass makes one member after the other fail in some way until ctx ends; then all run.
func harass(ctx context.Context, m *kube.Members) error {
	for i := 0; ctx.Err() == nil; i++ {
		p := m.Programs[i%3]
		fail, heal := p.Stop, func() error { return p.Start(context.Background()) }
		if i%2 == 1 {
			fail, heal = p.Pause, p.Resume
		}
		if err := fail(); err != nil {
			return err
		}
		wait(ctx, 700*time.Millisecond)
		if err := heal(); err != nil {
			return err
		}
		wait(ctx, 300*time.Millisecond)
		_ = m.Compact(ctx) // this member may be down
	}
	return nil
}

func wait(ctx context.Context, long time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(long):
	}
}

// TestWithoutMost stops two of three members: changes are rejected with a message and in
// time, and the state stays readable. It recovers when they return.
func TestWithoutMost(t *testing.T) {
	m := kube.StartEtcd(t, 3, nil)
	s := openStore(t, m, "/a")
	if _, err := s.PutNetwork(t.Context(), network("a"), nil); err != nil {
		t.Fatal(err)
	}
	for _, p := range m.Programs[:2] {
		if err := p.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	_, _, err := s.Attach(t.Context(), request("c1"), 1)
	if !errors.Is(err, kv.ErrUnavailable) || !strings.Contains(err.Error(), "the store cannot be reached") {
		t.Errorf("without most of etcd: %v", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("that took %v", took) // about 4 s, more on a busy machine
	}
	if err := s.Sync(t.Context()); !errors.Is(err, kv.ErrUnavailable) {
		t.Errorf("Sync without most of etcd: %v", err)
	}
	if s.Err() == nil || len(s.Networks()) != 1 {
		t.Errorf("Err is %v, and %d networks can be read", s.Err(), len(s.Networks()))
	}
	for _, p := range m.Programs[:2] {
		go func() { _ = p.Start(context.Background()) }()
	}
	testkit.Eventually(t, time.Minute, func() error {
		_, _, err := s.Attach(t.Context(), request("c1"), 1)
		return errors.Join(err, s.Err())
	})
	for _, p := range m.Programs {
		testkit.Eventually(t, time.Minute, func() error { return p.Ready(t.Context()) })
	}
}

// TestWhatIsNotOursIsRefused covers a state with the format of a newer program, and an
// absent etcd.
func TestWhatIsNotOursIsRefused(t *testing.T) {
	m := kube.StartEtcd(t, 1, nil)
	b, err := Open(t.Context(), Config{Endpoints: m.URLs, Prefix: "/a/"})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.ask(t.Context(), kvTxn, txn(nil, []message{opPut("/a/meta/format", "2", 0)}, nil), &decided{}); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Config{Endpoints: m.URLs, Prefix: "/a"}); err == nil || !strings.Contains(err.Error(), "/a/ has format 2, this program supports 1") {
		t.Errorf("a newer format: %v", err)
	}
	if err := m.Programs[0].Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Config{Endpoints: m.URLs, Prefix: "/a"}); !errors.Is(err, kv.ErrUnavailable) || !strings.Contains(err.Error(), m.URLs[0]) {
		t.Errorf("no etcd: %v", err)
	}
}

func network(name string) vdn.Network { return networkstore.Network(name, "10.1.0.0/24") }

func request(container string) vdn.AttachmentRequest { return networkstore.Request("a", container) }
