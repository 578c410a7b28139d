package controller_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/controller"
)

// line is a controller's connection to the API server that can be cut, and on which writes
// to Services can be delayed.
type line struct {
	http.RoundTripper
	cut, slow atomic.Bool
	held      atomic.Int32
	on        chan struct{} // closed to release delayed writes
}

func newLine() *line { return &line{on: make(chan struct{})} }

func (l *line) lay(c *controller.Config) {
	c.Client.Wrap(func(to http.RoundTripper) http.RoundTripper { l.RoundTripper = to; return l })
}

func (l *line) RoundTrip(r *http.Request) (*http.Response, error) {
	switch {
	case l.cut.Load(), l.slow.Load() && r.Method == http.MethodPut:
		return nil, errors.New("the line is cut")
	case l.slow.Load() && r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/status"):
		l.held.Add(1)
		<-l.on
		r = r.WithContext(context.WithoutCancel(r.Context())) // it is in flight
	}
	return l.RoundTripper.RoundTrip(r)
}

// wantUnique waits until this many Services have an address, and fails if two have the
// same.
func (w *world) wantUnique(t *testing.T, n int) {
	t.Helper()
	eventually(t, "addresses", func() string {
		all, err := w.core.CoreV1().Services("default").List(context.Background(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		owner := map[string]string{}
		for _, s := range all.Items {
			for _, in := range s.Status.LoadBalancer.Ingress {
				if other := owner[in.IP]; other != "" {
					return fmt.Sprintf("%s and %s have %s", other, s.Name, in.IP)
				}
				owner[in.IP] = s.Name
			}
		}
		if len(owner) != n {
			return fmt.Sprintf("%d Services have one, want %d", len(owner), n)
		}
		return ""
	})
}

func named(name string) func(*controller.Config) {
	return func(c *controller.Config) { c.Identity = name }
}

// twoControllers checks that one of two controllers works, and that the other takes over
// when it exits or is cut off.
func twoControllers(t *testing.T, w *world) {
	w.pool(t, "p", "{addresses: [10.1.1.0/24]}")
	way := newLine()
	one, stopOne := w.control(t, named("one"), way.lay, brief)
	defer stopOne()
	one.wants(t, "loaded")
	two, stopTwo := w.control(t, named("two"), brief)
	defer stopTwo()
	two.wants(t, "another controller is the leader")
	for i := range 10 {
		w.serve(t, fmt.Sprint("a", i))
	}
	w.wantUnique(t, 10)
	way.cut.Store(true)
	for i := range 10 {
		w.serve(t, fmt.Sprint("b", i))
	}
	w.wantUnique(t, 20)
	one.wants(t, "lost leadership")
	way.cut.Store(false)
	stopTwo()
	for i := range 10 {
		w.serve(t, fmt.Sprint("c", i))
	}
	w.wantUnique(t, 30)
	w.wantPool(t, "p", "4=256/30/226")
}

// lateLeader checks that a leader whose writes reach the server after another leads takes
// nobody's address.
func lateLeader(t *testing.T, w *world) {
	w.pool(t, "p", "{addresses: [10.1.1.0/24]}")
	way := newLine()
	one, stopOne := w.control(t, named("one"), way.lay, brief)
	defer stopOne()
	one.wants(t, "loaded")
	way.slow.Store(true)
	for i := range 5 {
		w.serve(t, fmt.Sprint("a", i))
	}
	eventually(t, "writes on their way", func() string {
		if n := way.held.Load(); n < 5 {
			return fmt.Sprint(n)
		}
		return ""
	})
	_, stopTwo := w.control(t, named("two"), brief)
	defer stopTwo()
	w.wantUnique(t, 5)
	for i := range 5 {
		w.serve(t, fmt.Sprint("b", i))
	}
	w.wantUnique(t, 10)
	before := w.versions(t)
	way.slow.Store(false)
	close(way.on)
	one.wants(t, "lost leadership")
	for name, version := range w.versions(t) {
		if before[name] != version {
			t.Errorf("%s has been written by who leads no more", name)
		}
	}
	w.wantUnique(t, 10)
	w.wantPool(t, "p", "4=256/10/246")
}

// wrongClocks has leaders whose clocks are a year ahead or behind. A Lease is judged by
// when it changes, by the local monotonic clock, and not by the times in it.
func wrongClocks(t *testing.T, w *world) {
	leases := w.core.CoordinationV1().Leases(controller.DefaultNamespace)
	const lease, year = controller.DefaultLease, 365 * 24 * time.Hour
	err := leases.Delete(t.Context(), lease, metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) {
		w.must(t, err)
	}
	_, err = leases.Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: lease},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("other"), LeaseDurationSeconds: new(int32(4)), RenewTime: &metav1.MicroTime{Time: time.Now().Add(year)},
		},
	}, metav1.CreateOptions{})
	w.must(t, err)
	patient := func(c *controller.Config) { c.LeaseDuration = 4 * time.Second }

	// Dead, and ahead: others wait no longer than usual.
	log, stop := w.control(t, named("one"), patient)
	log.wants(t, "leading")
	stop()

	// Alive, and behind: nobody else leads while it renews.
	other := &behind{w: w, past: time.Now().Add(-year)}
	for held := false; !held; {
		other.renew(t)
		log, stop = w.control(t, named("two"), patient)
		log.wants(t, "another controller is the leader")
		var seen string
		if seen, held = other.hold(t, log); !held {
			stop()
		} else if strings.Contains(seen, "msg=leading ") {
			t.Errorf("\"two\" leads while another leader, whose clock is behind, holds the Lease:\n%s", seen)
		}
	}
	defer stop()
	log.wants(t, "msg=leading ")
}

// behind is a leader whose clock is far behind.
type behind struct {
	w          *world
	past, last time.Time
}

// renew renews its Lease, and reports whether that was in time.
func (b *behind) renew(t *testing.T) (inTime bool) {
	t.Helper()
	leases := b.w.core.CoordinationV1().Leases(controller.DefaultNamespace)
	l, err := leases.Get(t.Context(), controller.DefaultLease, metav1.GetOptions{})
	b.w.must(t, err)
	b.past = b.past.Add(300 * time.Millisecond)
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds, l.Spec.RenewTime = new("other"), new(int32(4)), &metav1.MicroTime{Time: b.past}
	began := time.Now()
	_, err = leases.Update(t.Context(), l, metav1.UpdateOptions{})
	if inTime = time.Since(b.last) < 4*time.Second; inTime {
		b.w.must(t, err)
	}
	b.last = began
	return inTime
}

// hold renews for twice the Lease's duration, and returns what another has logged
// meanwhile. held is false if a renewal came too late, so that the Lease was free.
func (b *behind) hold(t *testing.T, other *journal) (log string, held bool) {
	t.Helper()
	for range 30 {
		time.Sleep(300 * time.Millisecond)
		log = other.String()
		if !b.renew(t) {
			return log, false
		}
	}
	return log, true
}
