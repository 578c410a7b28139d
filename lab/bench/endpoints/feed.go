package endpoints

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// kinds are the resources that contain endpoints.
var kinds = []string{"endpoints", "endpointslices"}

// feed follows one of the kinds in a namespace. Its methods are safe for concurrent use.
type feed struct {
	body io.Closer
	done chan struct{}

	mu      sync.Mutex
	objects map[string]int // ready endpoints of each
	changed time.Time
	err     error
}

// event is the part of a watch event that counts endpoints, of either kind. (The Go type
// of Endpoints is deprecated.)
type event struct {
	Type   string
	Object struct {
		Metadata  struct{ Name string }
		Subsets   []struct{ Addresses []struct{} }
		Endpoints []struct{ Conditions struct{ Ready bool } }
	}
}

func (e *event) ready() (n int) {
	for _, s := range e.Object.Subsets {
		n += len(s.Addresses)
	}
	for _, one := range e.Object.Endpoints {
		if one.Conditions.Ready {
			n++
		}
	}
	return n
}

// client returns the client for a kind.
func (c *controlPlane) client(kind string) rest.Interface {
	if kind == "endpoints" {
		return c.core
	}
	return c.discovery
}

// watch opens a watch in a format.
func (r *run) watch(ctx context.Context, kind, format string) (io.ReadCloser, error) {
	return r.client(kind).Get().Namespace(r.namespace).Resource(kind).Param("watch", "true").SetHeader("Accept", format).Stream(ctx)
}

// follow starts a feed, which has what exists already as its first events.
func (r *run) follow(ctx context.Context, kind string) (*feed, error) {
	body, err := r.watch(ctx, kind, "application/json")
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", kind, err)
	}
	f := &feed{body: body, done: make(chan struct{}), objects: map[string]int{}}
	go func() {
		defer close(f.done)
		for in := json.NewDecoder(body); ; {
			var e event
			err := in.Decode(&e)
			if err == nil && e.Type != "ADDED" && e.Type != "MODIFIED" {
				err = fmt.Errorf("%s is %s", e.Object.Metadata.Name, e.Type)
			}
			f.mu.Lock()
			if f.err = err; err == nil {
				f.objects[e.Object.Metadata.Name], f.changed = e.ready(), time.Now()
			}
			f.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return f, nil
}

func (f *feed) close() {
	f.body.Close()
	<-f.done
}

// await waits until there are at least so many objects with so many ready endpoints, and
// returns the time of the last change.
func (f *feed) await(ctx context.Context, objects, ready int) (at time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	for {
		f.mu.Lock()
		sum, n := 0, len(f.objects)
		for _, r := range f.objects {
			sum += r
		}
		at, err = f.changed, f.err
		f.mu.Unlock()
		if err != nil || n >= objects && sum == ready {
			return at, err
		}
		select {
		case <-ctx.Done():
			return at, fmt.Errorf("%d objects with %d endpoints instead of %d with %d: %w", n, sum, objects, ready, ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
}

// settleLimit is the time limit for the controllers to become idle.
const settleLimit = 2 * time.Minute

// meter counts the bytes of a watch as the nodes' programs request it.
type meter struct {
	body io.ReadCloser
	done chan struct{}

	mu    sync.Mutex
	bytes int
}

func (r *run) meter(ctx context.Context, kind string) (*meter, error) {
	body, err := r.watch(ctx, kind, "application/vnd.kubernetes.protobuf;stream=watch")
	if err != nil {
		return nil, err
	}
	m := &meter{body: body, done: make(chan struct{})}
	go func() {
		defer close(m.done)
		_, _ = io.Copy(m, body)
	}()
	return m, nil
}

// Write implements io.Writer.
func (m *meter) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bytes += len(p)
	return len(p), nil
}

func (m *meter) read() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return float64(m.bytes)
}

func (m *meter) close() {
	m.body.Close()
	<-m.done
}

// settledWrites returns the write requests for each kind, as soon as there were none for a
// while.
func (c *controlPlane) settledWrites(ctx context.Context, quiet time.Duration) (map[string]float64, error) {
	last, since := map[string]float64{}, time.Now()
	for end := time.Now().Add(settleLimit); time.Now().Before(end); {
		all, err := c.counts(ctx)
		if err != nil {
			return nil, err
		}
		now := map[string]float64{}
		for _, kind := range kinds {
			now[kind] = all.writes(kind)
			if now[kind] != last[kind] {
				since = time.Now()
			}
		}
		if last = now; time.Since(since) > quiet {
			return now, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(quiet / 4):
		}
	}
	return nil, errors.New("the controllers do not stop writing")
}
