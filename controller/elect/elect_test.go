package elect

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const duration = 15 * time.Second

// server stores one Lease like an API server, with optimistic concurrency.
type server struct {
	mu      sync.Mutex
	lease   *coordinationv1.Lease
	version int
}

func (s *server) get() (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == nil {
		return nil, apierrors.NewNotFound(coordinationv1.Resource("leases"), "x")
	}
	return s.lease.DeepCopy(), nil
}

func (s *server) write(l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.lease == nil && l.ResourceVersion != "":
		return nil, apierrors.NewNotFound(coordinationv1.Resource("leases"), "x")
	case s.lease != nil && l.ResourceVersion == "":
		return nil, apierrors.NewAlreadyExists(coordinationv1.Resource("leases"), "x")
	case s.lease != nil && l.ResourceVersion != s.lease.ResourceVersion:
		return nil, apierrors.NewConflict(coordinationv1.Resource("leases"), "x", errors.New("it has changed"))
	}
	s.version++
	s.lease = l.DeepCopy()
	s.lease.ResourceVersion, s.lease.UID = fmt.Sprint(s.version), types.UID("one")
	return s.lease.DeepCopy(), nil
}

var errLine = errors.New("the line is cut")

// line is a candidate's connection to the server. Each request and each response may be
// lost or late.
type line struct {
	*server
	rand *rand.Rand
	// faults is the probability of each fault.
	faults float64
	cut    bool
}

func (l *line) do(ctx context.Context, what func() (*coordinationv1.Lease, error)) (*coordinationv1.Lease, error) {
	wait := func() error {
		d := time.Duration(l.rand.Int64N(int64(50 * time.Millisecond)))
		if l.rand.Float64() < l.faults {
			d = time.Duration(l.rand.Int64N(int64(2 * duration)))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(d):
		}
		if l.cut || l.rand.Float64() < l.faults {
			return errLine
		}
		return nil
	}
	if err := wait(); err != nil {
		return nil, err
	}
	got, err := what()
	return got, errors.Join(err, wait())
}

func (l *line) Get(ctx context.Context, _ string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	return l.do(ctx, l.get)
}

func (l *line) Create(ctx context.Context, lease *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return l.do(ctx, func() (*coordinationv1.Lease, error) { return l.write(lease) })
}

func (l *line) Update(ctx context.Context, lease *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return l.do(ctx, func() (*coordinationv1.Lease, error) { return l.write(lease) })
}

// terms records who led when, by the moments at which a leader was permitted to write.
type terms struct {
	mu    sync.Mutex
	began map[string]time.Time
	wrote map[string]time.Time // last permitted
	count map[string]int
	wrong []string
}

func newTerms() *terms {
	return &terms{began: map[string]time.Time{}, wrote: map[string]time.Time{}, count: map[string]int{}}
}

// begin records the beginning of a term. A previous leader that has not ended its term must
// have been denied writes for a third of the Lease's duration.
func (ts *terms) begin(name string) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for other := range ts.began {
		if since := time.Since(ts.wrote[other]); since < duration/3 {
			ts.wrong = append(ts.wrong, fmt.Sprintf("%s begins %s after %s was allowed to write", name, since, other))
		}
	}
	ts.began[name] = time.Now()
	ts.count[name]++
}

func (ts *terms) note(name string) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.wrote[name] = time.Now()
}

func (ts *terms) end(name string) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	delete(ts.began, name)
}

// lead writes every 100 ms while that is permitted.
func (ts *terms) lead(name string) func(context.Context, func() error) {
	return func(ctx context.Context, leading func() error) {
		ts.begin(name)
		defer ts.end(name)
		for ctx.Err() == nil {
			if leading() == nil {
				ts.note(name)
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
}

func (s *server) candidate(name string, l *line) *Candidate {
	l.server = s
	return &Candidate{Leases: l, Namespace: "fairlead", Name: "x", Identity: name, Duration: duration}
}

// TestNeverTwo checks that whatever is lost or late, no two lead at the same time, and that
// somebody leads once nothing is lost any more.
func TestNeverTwo(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			s, ts := &server{}, newTerms()
			ctx, stop := context.WithCancel(t.Context())
			var all sync.WaitGroup
			var lines []*line
			for i, name := range []string{"one", "two", "three"} {
				l := &line{rand: rand.New(rand.NewPCG(seed, uint64(i))), faults: 0.15}
				lines = append(lines, l)
				c := s.candidate(name, l)
				all.Go(func() {
					for ctx.Err() == nil {
						c.Run(ctx, ts.lead(name))
					}
				})
			}
			time.Sleep(20 * time.Minute)
			synctest.Wait()
			for _, l := range lines {
				l.faults = 0
			}
			time.Sleep(10 * duration) // delays are up to twice that
			synctest.Wait()
			if len(ts.began) != 1 {
				t.Errorf("seed %d: %v lead", seed, ts.began)
			}
			stop()
			all.Wait()
			for _, w := range ts.wrong {
				t.Errorf("seed %d: %s", seed, w)
			}
			if n := ts.count["one"] + ts.count["two"] + ts.count["three"]; n < 2 {
				t.Errorf("seed %d: %d terms: the faults changed nothing", seed, n)
			}
		})
	}
}

// TestCutOff checks that a leader that is cut off stops before another begins, and that the
// other begins when the Lease has expired.
func TestCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ts := &server{}, newTerms()
		lines := map[string]*line{}
		ended := map[string]time.Time{}
		var all sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		for _, name := range []string{"one", "two"} {
			lines[name] = &line{rand: rand.New(rand.NewPCG(1, 1))}
			c := s.candidate(name, lines[name])
			all.Go(func() {
				c.Run(ctx, ts.lead(name))
				ended[name] = time.Now()
			})
			time.Sleep(time.Second)
		}
		cut := time.Now()
		lines["one"].cut = true
		time.Sleep(2 * duration)
		synctest.Wait()
		if at := ended["one"].Sub(cut); at <= 0 || at > duration {
			t.Errorf("the leader that is cut off ends its term after %s", at)
		}
		if at := ts.began["two"].Sub(cut); at < duration/2 || at > duration*3/2 {
			t.Errorf("the other begins after %s", at)
		}
		stop()
		all.Wait()
		if len(ts.wrong) > 0 {
			t.Error(ts.wrong)
		}
	})
}

// TestHandsOver checks that a regular exit releases the Lease only after its work has
// ended, and that the next candidate does not wait for it to expire.
func TestHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		var mu sync.Mutex
		var order []string
		say := func(what string) { mu.Lock(); order = append(order, what); mu.Unlock() }
		first, endFirst := context.WithCancel(t.Context())
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			s.candidate("one", &line{rand: rand.New(rand.NewPCG(1, 1))}).Run(first, func(ctx context.Context, leading func() error) {
				<-ctx.Done()
				time.Sleep(2 * duration) // work that cannot be interrupted
				if err := leading(); err != nil {
					t.Errorf("the Lease is not renewed until the work has ended: %v", err)
				}
				say("one ends")
			})
		})
		time.Sleep(time.Second)
		all.Go(func() {
			c := s.candidate("two", &line{rand: rand.New(rand.NewPCG(2, 2))})
			c.Elected = func(identity string) { say("two sees " + identity) }
			c.Run(ctx, func(ctx context.Context, _ func() error) {
				say("two begins")
				<-ctx.Done()
			})
		})
		time.Sleep(duration)
		endFirst()
		time.Sleep(2*duration + duration/2)
		synctest.Wait()
		mu.Lock()
		if want := []string{"two sees one", "one ends", "two begins"}; !slices.Equal(order, want) {
			t.Errorf("%q, want %q", order, want)
		}
		mu.Unlock()
		if l, err := s.get(); err != nil || *l.Spec.LeaseTransitions != 1 || *l.Spec.LeaseDurationSeconds != 15 {
			t.Errorf("%+v, %v", l.Spec, err)
		}
		stop()
		all.Wait()
		if l, _ := s.get(); holderOf(l) != "" {
			t.Errorf("%s still holds the Lease", holderOf(l))
		}
	})
}

// TestLostIsNotResumed checks that a Lease that others have taken, deleted or released
// meanwhile ends the term: the leader's state may be stale.
func TestLostIsNotResumed(t *testing.T) {
	for name, change := range map[string]func(*server){
		"taken":   func(s *server) { other := "other"; s.lease.Spec.HolderIdentity = &other },
		"freed":   func(s *server) { none := ""; s.lease.Spec.HolderIdentity = &none },
		"deleted": func(s *server) { s.lease = nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{}
				c := s.candidate("one", &line{rand: rand.New(rand.NewPCG(1, 1))})
				began, ended := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(ended)
					c.Run(t.Context(), func(ctx context.Context, _ func() error) { close(began); <-ctx.Done() })
				}()
				<-began
				s.mu.Lock()
				if change(s); s.lease != nil {
					s.version++
					s.lease.ResourceVersion = fmt.Sprint(s.version)
				}
				s.mu.Unlock()
				select {
				case <-ended:
				case <-time.After(duration / 2):
					t.Error("the term has not ended")
				}
				if err := c.leading(); !errors.Is(err, ErrNotLeading) {
					t.Errorf("leading: %v", err)
				}
			})
		})
	}
}
