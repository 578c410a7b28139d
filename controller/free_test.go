package controller_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/source/object"
)

// sentry follows every state of the Services in the order of the server's history, and
// fails if two have the same address at any time.
func (w *world) sentry(t *testing.T) {
	t.Helper()
	services := w.core.CoreV1().Services("default")
	all, err := services.List(context.Background(), metav1.ListOptions{})
	w.must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	changes, err := services.Watch(ctx, metav1.ListOptions{ResourceVersion: all.ResourceVersion})
	w.must(t, err)
	owner, last := map[string]string{}, map[string][]string{}
	see := func(s *corev1.Service, gone bool) {
		for _, ip := range last[s.Name] {
			delete(owner, ip)
		}
		delete(last, s.Name)
		for _, in := range s.Status.LoadBalancer.Ingress {
			if other := owner[in.IP]; other != "" && !gone {
				t.Errorf("%s has %s while %s has it", s.Name, in.IP, other)
			} else if !gone {
				owner[in.IP] = s.Name
				last[s.Name] = append(last[s.Name], in.IP)
			}
		}
	}
	for i := range all.Items {
		see(&all.Items[i], false)
	}
	var ended sync.WaitGroup
	ended.Go(func() {
		for e := range changes.ResultChan() {
			if s, ok := e.Object.(*corev1.Service); ok {
				see(s, e.Type == watch.Deleted)
			} else if ctx.Err() == nil {
				t.Errorf("the watch of Services: %+v", e)
			}
		}
	})
	t.Cleanup(func() { cancel(); changes.Stop(); ended.Wait() })
}

// faulty is a controller's connection to the API server on which writes to Services' status
// meet faults.
type faulty struct {
	http.RoundTripper
	// dead cuts everything. refuse is the suffix of paths for which writes are rejected.
	dead    atomic.Bool
	refuse  atomic.Pointer[string]
	refused atomic.Int32
	// meddle, if set, is called before every write of a status, and returns its fault.
	meddle func(service string) fault
}

type fault int

const (
	passes  fault = iota
	lost          // before it reaches the server
	unheard       // the response: the write takes effect
)

func (f *faulty) lay(c *controller.Config) {
	c.Client.Wrap(func(to http.RoundTripper) http.RoundTripper { f.RoundTripper = to; return f })
}

func (f *faulty) RoundTrip(r *http.Request) (*http.Response, error) {
	if f.dead.Load() {
		return nil, errors.New("the line is dead")
	}
	if end := f.refuse.Load(); end != nil && r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, *end) {
		f.refused.Add(1)
		return nil, errors.New("the line is cut")
	}
	name, ok := strings.CutSuffix(r.URL.Path, "/status")
	name, ours := strings.CutPrefix(name, "/api/v1/namespaces/default/services/")
	if !ok || !ours || r.Method != http.MethodPatch {
		return f.RoundTripper.RoundTrip(r)
	}
	what := passes
	if f.meddle != nil {
		what = f.meddle(name)
	}
	if what == lost {
		return nil, errors.New("the line is cut")
	}
	answer, err := f.RoundTripper.RoundTrip(r)
	if err == nil && what == unheard {
		_, _ = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		return nil, errors.New("the line was cut")
	}
	return answer, err
}

// diesBetween checks that an address is reused only once the status of its previous owner
// no longer has it: while that status cannot be written, when the leader dies, and when the
// Service is deleted.
func diesBetween(t *testing.T, w *world) {
	w.pool(t, "p", "{addresses: [10.1.1.0/24]}")
	way := &faulty{}
	way.refuse.Store(new("/services/first/status"))
	_, stop := w.control(t, func(c *controller.Config) { c.Identity = "before" })
	w.serve(t, "first", annotated(object.AnnotationAddresses, "10.1.1.7"))
	w.want(t, "first", "10.1.1.7 True")
	stop()
	w.sentry(t)
	one, stopOne := w.control(t, named("one"), way.lay, brief)
	defer stopOne()
	w.serve(t, "next", annotated(object.AnnotationAddresses, "10.1.1.7"))
	w.want(t, "next", " False AddressConflict: it requests 10.1.1.7, which default/first has")
	w.change(t, "first", annotated(object.AnnotationAddresses, "10.1.1.8"))
	one.wants(t, "failed to write to the API server")
	w.serve(t, "third", annotated(object.AnnotationAddresses, "10.1.1.8"))
	w.want(t, "third", " False AddressConflict: it requests 10.1.1.8, which default/first has")
	tries := way.refused.Load()
	eventually(t, "tries", func() string {
		if n := way.refused.Load(); n < tries+2 {
			return fmt.Sprint(n)
		}
		return ""
	})
	w.want(t, "first", "10.1.1.7 True")
	w.want(t, "next", " False AddressConflict: it requests 10.1.1.7, which is still in the status of default/first")
	w.drop(t, "third")

	// It dies silently, and another finds its unfinished work.
	way.dead.Store(true)
	_, stopTwo := w.control(t, named("two"), brief)
	defer stopTwo()
	w.want(t, "first", "10.1.1.8 True")
	w.want(t, "next", "10.1.1.7 True")
	w.serve(t, "third", annotated(object.AnnotationAddresses, "10.1.1.8"))
	w.want(t, "third", " False AddressConflict")
	w.drop(t, "first")
	w.want(t, "third", "10.1.1.8 True")
}

// failingWrites changes the requests of Services while writes are lost, take effect without
// a response, or conflict: no two ever have the same address, and in the end all have what
// they request.
func failingWrites(t *testing.T, w *world) {
	w.pool(t, "p", "{addresses: [10.1.1.0/28]}")
	var n atomic.Int32
	way := &faulty{}
	way.meddle = func(service string) fault {
		switch n.Add(1) % 5 {
		case 1:
			return lost
		case 2:
			return unheard
		case 3: // another write comes first
			_, err := w.core.CoreV1().Services("default").Patch(context.Background(), service, "application/merge-patch+json",
				fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/note":"%d"}}}`, n.Load()), metav1.PatchOptions{})
			if err != nil {
				t.Log(err) // deleted
			}
		}
		return passes
	}
	_, stop := w.control(t, way.lay)
	defer stop()
	w.sentry(t)
	const services = 6
	for i := range services {
		w.serve(t, fmt.Sprint("s", i))
	}
	w.wantUnique(t, services)
	for round := range 8 {
		for i := range services {
			name := fmt.Sprint("s", i)
			if (round+i)%4 == 0 {
				w.drop(t, name)
				w.serve(t, name)
				continue
			}
			w.change(t, name, annotated(object.AnnotationAddresses, fmt.Sprintf("10.1.1.%d", (round*3+i)%8)))
		}
		time.Sleep(50 * time.Millisecond) // some of it completes meanwhile
	}
	for i := range services {
		w.change(t, fmt.Sprint("s", i), annotated(object.AnnotationAddresses, fmt.Sprintf("10.1.1.%d", 8+i)))
	}
	for i := range services {
		w.want(t, fmt.Sprint("s", i), fmt.Sprintf("10.1.1.%d True Assigned", 8+i))
	}
	w.wantUnique(t, services)
}
