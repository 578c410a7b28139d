package networkstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/store"
)

// Several runs the test cases with several stores that share a state. fresh returns an
// Open for a new, empty state that allows several open stores.
func Several(t *testing.T, fresh func(t *testing.T) Open) {
	t.Run("a store sees changes of other stores", func(t *testing.T) { seesOtherStores(t, fresh(t)) })
	t.Run("a canceled request has no late effect", func(t *testing.T) { canceledRequest(t, fresh(t)) })
	t.Run("addresses stay unique while stores restart", func(t *testing.T) { storesRestart(t, fresh(t)) })
	t.Run("a single leader is elected", func(t *testing.T) { leaderElection(t, fresh(t)) })
}

// seesOtherStores checks that a store sees, and takes into account, what another one has just
// done.
func seesOtherStores(t *testing.T, open Open) {
	one, two := open(t), open(t)
	for i := range 50 {
		name := fmt.Sprint("n", i)
		must(t, one, Network(name, fmt.Sprintf("10.1.%d.0/24", i)))
		a := attach(t, two, Request(name, "c"+name))
		if _, err := one.Up(t.Context(), a.ID, vdn.UpReport{Device: "eth1", MAC: "02:00:00:00:00:01", NetNS: "/x"}); err != nil {
			t.Fatal(err)
		}
		rejected(t, two.DeleteNetwork(t.Context(), name, nil), vdn.Conflict, "it has attachments")
		if err := two.Detach(t.Context(), a.ID); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() error { return one.Sync(t.Context()) })
		if left := one.Attachments(name, ""); len(left) > 0 {
			t.Fatalf("after Sync %+v still exists, although another store released it", left)
		}
	}
	before := one.Revision()
	if err := two.PutNode(t.Context(), vdn.Node{Name: "n1", Means: "kernel", Uplinks: []vdn.Uplink{}}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, time.Minute, func() error {
		if one.Revision() == before {
			return errors.New("a store does not see the change of another store")
		}
		return nil
	})
}

// canceledRequest lets a client give up its request, and release through another store what it
// may have got.
func canceledRequest(t *testing.T, open Open) {
	one, two := open(t), open(t)
	must(t, one, Network("a", "10.1.0.0/24"))
	for i := range 100 {
		id := fmt.Sprint("c", i)
		r := Request("a", id)
		go func() { _, _, _ = one.Attach(t.Context(), r, 1) }() // the result does not matter
		if i%2 == 0 {
			time.Sleep(time.Duration(i) * 10 * time.Microsecond)
		}
		_ = two.Detach(t.Context(), r.ID())
	}
	// A lease granted after its release is a normal race between requests. It must be
	// complete, and it must be possible to release it.
	for _, a := range two.Attachments("a", "") {
		eventually(t, func() error { return two.Detach(t.Context(), a.ID) })
	}
}

// eventually retries until it succeeds, with any store.
func eventually(t *testing.T, do func() error) {
	t.Helper()
	testkit.Eventually(t, time.Minute, do)
}

// stores contains stores on one state. Any of them can be closed and reopened at any time.
type stores struct {
	t    *testing.T
	open Open
	mu   sync.Mutex
	all  []*store.Store
}

func (g *stores) one(r *rand.Rand) *store.Store {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.all[r.IntN(len(g.all))]
}

// end closes and reopens one store after the other, until done.
func (g *stores) end(done <-chan struct{}) {
	for i := 0; ; i = (i + 1) % len(g.all) {
		select {
		case <-done:
			return
		case <-time.After(20 * time.Millisecond):
		}
		g.mu.Lock()
		old := g.all[i]
		g.mu.Unlock()
		if err := old.Close(); err != nil {
			g.t.Error(err)
		}
		next := g.open(g.t)
		g.mu.Lock()
		g.all[i] = next
		g.mu.Unlock()
	}
}

// storesRestart lets many clients attach and detach concurrently, through any available
// store, while the stores are closed one after the other.
func storesRestart(t *testing.T, open Open) {
	g := &stores{t: t, open: open, all: []*store.Store{open(t), open(t), open(t)}}
	eventually(t, func() error {
		_, err := g.all[0].PutNetwork(t.Context(), Network("a", "10.1.0.0/26"), nil)
		return err
	})
	w := &model{has: map[string]netip.Addr{}}
	done := make(chan struct{})
	var ender, workers sync.WaitGroup
	ender.Go(func() { g.end(done) })
	for worker := range 8 {
		workers.Go(func() { g.work(w, worker, rand.New(rand.NewPCG(7, uint64(worker)))) })
	}
	workers.Wait()
	close(done)
	ender.Wait()
	for i, s := range g.all {
		eventually(t, func() error { return s.Sync(t.Context()) })
		got := map[string]netip.Addr{}
		for _, a := range s.Attachments("a", "n1") {
			got[a.ID] = a.Addresses[0].Addr()
		}
		if d := cmp.Diff(w.has, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
			t.Errorf("store %d, -want +got:\n%s", i, d)
		}
	}
	if w.seen < 100 {
		t.Errorf("only %d attachments were created", w.seen)
	}
}

// work is one client. It retries, each time with a random store, until it gets a definite
// answer.
func (g *stores) work(w *model, worker int, r *rand.Rand) {
	for range 40 {
		container := fmt.Sprintf("w%d-%d", worker, r.IntN(10))
		if r.IntN(2) == 0 {
			w.mu.Lock()
			delete(w.has, container+".net1")
			w.mu.Unlock()
			eventually(g.t, func() error { return g.one(r).Detach(g.t.Context(), container+".net1") })
			continue
		}
		var lease vdn.Lease
		full := false
		eventually(g.t, func() (err error) {
			lease, _, err = g.one(r).Attach(g.t.Context(), Request("a", container), 1)
			if kind, no := vdn.KindOf(err); no && kind == vdn.Conflict && strings.Contains(err.Error(), "is empty") {
				full, err = true, nil
			}
			return err
		})
		if !full {
			w.attached(g.t, lease.Attachment)
		}
	}
}

// leaderElection lets three stores compete for leadership. When the leader ends, another one
// takes over.
func leaderElection(t *testing.T, open Open) {
	leads := make(chan int, 10)
	type member struct {
		s    *store.Store
		stop func()
		done chan struct{}
	}
	var all []member
	for i := range 3 {
		m := member{s: open(t), done: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		m.stop = cancel
		go func() {
			defer close(m.done)
			m.s.Lead(ctx, fmt.Sprint("c", i), func(ctx context.Context) {
				leads <- i
				<-ctx.Done()
			})
		}()
		all = append(all, m)
	}
	seen := map[int]bool{}
	for range 3 {
		select {
		case i := <-leads:
			if seen[i] {
				t.Fatalf("store %d leads twice", i)
			}
			seen[i] = true
			select {
			case other := <-leads:
				t.Errorf("store %d leads while store %d does", other, i)
			case <-time.After(100 * time.Millisecond):
			}
			all[i].stop()
			<-all[i].done
		case <-time.After(time.Minute):
			t.Fatal("no store becomes leader")
		}
	}
}
