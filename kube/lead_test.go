package kube_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/kube"
)

// line is a controller's way to the API server, which can be cut, and on which
// what is written to Services can be held up.
type line struct {
	http.RoundTripper
	cut, slow atomic.Bool
	held      atomic.Int32
	on        chan struct{} // closed: what is held goes on
}

func newLine() *line { return &line{on: make(chan struct{})} }

func (l *line) lay(c *kube.Config) {
	c.Client.Wrap(func(to http.RoundTripper) http.RoundTripper { l.RoundTripper = to; return l })
}

func (l *line) RoundTrip(r *http.Request) (*http.Response, error) {
	switch {
	case l.cut.Load(), l.slow.Load() && r.Method == http.MethodPut:
		return nil, errors.New("the line is cut")
	case l.slow.Load() && r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/status"):
		l.held.Add(1)
		<-l.on
		r = r.WithContext(context.WithoutCancel(r.Context())) // it is on its way
	}
	return l.RoundTripper.RoundTrip(r)
}

// wantUnique waits until all of so many Services have an address, and fails
// where two have the same.
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

func named(name string) func(*kube.Config) { return func(c *kube.Config) { c.Identity = name } }

// Of two controllers one works, and when it goes, or is cut off, the other.
func twoControllers(t *testing.T, w *world) {
	w.pool(t, "p", "{addresses: [10.1.1.0/24]}")
	way := newLine()
	one, stopOne := w.control(t, named("one"), way.lay)
	defer stopOne()
	one.wants(t, "loaded")
	two, stopTwo := w.control(t, named("two"))
	defer stopTwo()
	two.wants(t, "another leads")
	for i := range 10 {
		w.serve(t, fmt.Sprint("a", i))
	}
	w.wantUnique(t, 10)
	way.cut.Store(true)
	for i := range 10 {
		w.serve(t, fmt.Sprint("b", i))
	}
	w.wantUnique(t, 20)
	one.wants(t, "leading no more")
	way.cut.Store(false)
	stopTwo()
	for i := range 10 {
		w.serve(t, fmt.Sprint("c", i))
	}
	w.wantUnique(t, 30)
	w.wantPool(t, "p", "4=256/30/226")
}

// A leader whose writes reach the server when another leads already takes
// nobody's address.
func lateLeader(t *testing.T, w *world) {
	w.pool(t, "p", "{addresses: [10.1.1.0/24]}")
	way := newLine()
	one, stopOne := w.control(t, named("one"), way.lay)
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
	_, stopTwo := w.control(t, named("two"))
	defer stopTwo()
	w.wantUnique(t, 5)
	for i := range 5 {
		w.serve(t, fmt.Sprint("b", i))
	}
	w.wantUnique(t, 10)
	before := w.versions(t)
	way.slow.Store(false)
	close(way.on)
	one.wants(t, "leading no more")
	for name, version := range w.versions(t) {
		if before[name] != version {
			t.Errorf("%s has been written by who leads no more", name)
		}
	}
	w.wantUnique(t, 10)
	w.wantPool(t, "p", "4=256/10/246")
}
