package store

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/store/fake"
	"github.com/fairlead/fairlead/vdn/store/file"
	"github.com/fairlead/fairlead/vdn/store/kv"
)

func open(t *testing.T, folder string) *Store {
	t.Helper()
	s, err := Open(folder, "here")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // a test may have closed it
	return s
}

func network(name, prefix string) vdn.Network {
	return vdn.Network{Name: name, Devices: []string{"eth1", "eth2"}, Subnets: []vdn.Subnet{{CIDR: netip.MustParsePrefix(prefix)}}}
}

func must(t *testing.T, s *Store, all ...vdn.Network) {
	t.Helper()
	for _, n := range all {
		if _, err := s.PutNetwork(t.Context(), n, nil); err != nil {
			t.Fatal(err)
		}
	}
}

func request(network, container string) vdn.AttachmentRequest {
	return vdn.AttachmentRequest{Network: network, Node: "n1", Container: container, Interface: "net1"}
}

func attach(t *testing.T, s *Store, r vdn.AttachmentRequest) vdn.Attachment {
	t.Helper()
	l, _, err := s.Attach(t.Context(), r, 1)
	if err != nil {
		t.Fatal(err)
	}
	return l.Attachment
}

// TestWhoHasGoneGetsNothing: the client asked to release it while its request waited, so
// nobody would release it later.
func TestWhoHasGoneGetsNothing(t *testing.T) {
	s := open(t, t.TempDir())
	must(t, s, network("a", "10.1.0.0/24"))
	ctx, cancel := context.WithCancel(t.Context())
	s.writing <- struct{}{} // simulates a slow disk
	done := make(chan error)
	go func() {
		_, _, err := s.Attach(ctx, request("a", "c1"), 1)
		done <- err
	}()
	cancel()
	<-s.writing
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if left := s.Attachments("", ""); len(left) > 0 {
		t.Errorf("left: %+v", left)
	}
}

// TestOneStoreAtATime: two controllers on one directory would lease addresses twice.
func TestOneStoreAtATime(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the lock")
	}
	folder := t.TempDir()
	open(t, folder)
	if _, err := Open(folder, "here"); err == nil || !strings.Contains(err.Error(), "another controller has it open") {
		t.Errorf("got %v", err)
	}
}

func TestWhatIsNoStoreIsRefused(t *testing.T) {
	folder := t.TempDir()
	s := open(t, folder)
	must(t, s, network("a", "10.1.0.0/24"))
	attach(t, s, request("a", "c1"))
	twice, _ := json.Marshal(vdn.Attachment{ID: "x", Addresses: []netip.Prefix{netip.MustParsePrefix("10.1.0.1/24")}})
	for _, c := range []struct {
		bucket, key, value, want string
	}{
		{kv.Attachments, "x", string(twice), "both have 10.1.0.1"},
		{kv.Networks, "a", "{", "networks, a: "},
		{kv.Meta, kv.FormatKey, "2", "it is of format 2, this program knows 1"},
	} {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		db, err := bbolt.Open(folder+"/"+file.Name, 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		var was []byte
		change := func(value []byte) {
			if err := db.Update(func(tx *bbolt.Tx) error {
				was = append([]byte(nil), tx.Bucket([]byte(c.bucket)).Get([]byte(c.key))...)
				if value == nil {
					return tx.Bucket([]byte(c.bucket)).Delete([]byte(c.key))
				}
				return tx.Bucket([]byte(c.bucket)).Put([]byte(c.key), value)
			}); err != nil {
				t.Fatal(err)
			}
		}
		change([]byte(c.value))
		before := was
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(folder, "here"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
		if db, err = bbolt.Open(folder+"/"+file.Name, 0o600, nil); err != nil {
			t.Fatal(err)
		}
		change(before)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, folder)
	}
}

// TestAClosedStoreSaysSo checks that a rejected change has no effect.
func TestAClosedStoreSaysSo(t *testing.T) {
	folder := t.TempDir()
	s := open(t, folder)
	must(t, s, network("a", "10.1.0.0/24"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, _, err := s.Attach(t.Context(), request("a", "c1"), 1)
	if _, no := vdn.KindOf(err); err == nil || no || s.Err() == nil {
		t.Errorf("got %v", err)
	}
	if left := open(t, folder).Attachments("", ""); len(left) > 0 {
		t.Errorf("what was refused is there: %v", left)
	}
}

// holding is a backend whose next commit is delayed.
type holding struct {
	kv.Backend
	reached, release chan struct{}
}

func (h *holding) Commit(ctx context.Context, b kv.Batch) error {
	if h.reached == nil {
		return h.Backend.Commit(ctx, b)
	}
	close(h.reached)
	h.reached = nil
	go func() { // like a request in flight when its sender gives up
		<-h.release
		_ = h.Backend.Commit(context.Background(), b)
		close(h.release)
	}()
	<-ctx.Done()
	return errors.Join(kv.ErrUnavailable, ctx.Err())
}

// TestWhatIsReleasedDoesNotComeLater has a commit in flight while its client gives up and
// releases, through another controller, what it may have received.
func TestWhatIsReleasedDoesNotComeLater(t *testing.T) {
	state := fake.New(0)
	h := &holding{Backend: state.Open(fake.Faults{}, 1), release: make(chan struct{})}
	open := func(b kv.Backend) *Store {
		s, err := New(t.Context(), Options{Backend: b, Domain: "here"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	one, two := open(h), open(state.Open(fake.Faults{}, 2))
	must(t, one, network("a", "10.1.0.0/24"))
	ctx, giveUp := context.WithCancel(t.Context())
	reached := make(chan struct{})
	h.reached = reached
	done := make(chan error)
	go func() {
		<-reached
		giveUp()
	}()
	go func() {
		_, _, err := one.Attach(ctx, request("a", "c1"), 1)
		done <- err
	}()
	if err := <-done; err == nil {
		t.Fatal("who gave up has a lease")
	}
	if err := two.Detach(t.Context(), "c1.net1"); err != nil {
		t.Fatal(err)
	}
	h.release <- struct{}{}
	<-h.release // it arrived too late
	if err := two.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := two.Attachments("", ""); len(left) > 0 {
		t.Errorf("what was released came later: %+v", left)
	}
}
