// Package elect elects a leader among several processes with a Lease. It follows the rules
// of client-go's leaderelection, and uses the same Lease, but without its clientset and
// informers. The caller defines what a leader does and what is logged.
package elect

import (
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/internal/sleep"
)

// Leases accesses the Leases of one namespace.
type Leases interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error)
	Create(ctx context.Context, l *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error)
	Update(ctx context.Context, l *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error)
}

// Candidate is a process that can become the leader.
type Candidate struct {
	Leases    Leases
	Namespace string
	Name      string // of the Lease
	Identity  string // unique among candidates
	// Duration is how long a Lease that is not renewed keeps others from leading. A leader
	// renews it every eighth of it, and stops leading after two thirds without success: the
	// last third is for writes that are still in flight.
	Duration time.Duration
	// Asked is called after each request with its verb and error; a Lease that does not
	// exist is not an error. May be nil.
	Asked func(verb string, err error)
	// Elected is called when another holder is seen in the Lease. May be nil.
	Elected func(identity string)

	// seen is the Lease as last read or written, changed is when it last differed, by this
	// machine's clock: those of others may be wrong.
	seen    *coordinationv1.Lease
	changed time.Time
	holder  string // last reported

	mu      sync.Mutex
	renewed time.Time // when the last successful renewal began; zero if not leading
}

// ErrNotLeading means that a process must not write: it does not hold the Lease, or could
// not renew it for too long.
var ErrNotLeading = errors.New("not the leader: another holder has the Lease, or it could not be renewed in time")

// Run waits for the Lease, leads once, and returns when lead has returned and the Lease has
// been released. It returns without leading if ctx ends first. The context of lead ends
// with ctx, or when the Lease is lost. Before each write, lead must call leading, which
// returns an error if nothing may be written any more.
func (c *Candidate) Run(ctx context.Context, lead func(ctx context.Context, leading func() error)) {
	if !c.acquire(ctx) {
		return
	}
	term, lost := context.WithCancel(ctx)
	defer lost()
	// The Lease is renewed until lead has returned, even after ctx has ended: nobody else
	// may start before.
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer lost()
		c.renew(renewing)
	}()
	lead(term, c.leading)
	stop()
	<-ended
	c.release(context.WithoutCancel(ctx))
}

// leading returns an error unless the Lease was renewed recently enough.
func (c *Candidate) leading() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.renewed.IsZero() || time.Since(c.renewed) > c.patience() {
		return ErrNotLeading
	}
	return nil
}

// patience is how long a leader leads without a renewal.
func (c *Candidate) patience() time.Duration { return c.Duration * 2 / 3 }

func (c *Candidate) period() time.Duration { return c.Duration / 8 }

// acquire tries to acquire the Lease until it succeeds or ctx ends.
func (c *Candidate) acquire(ctx context.Context) bool {
	for ctx.Err() == nil {
		began := time.Now()
		try, cancel := context.WithTimeout(ctx, c.patience())
		ok := c.read(try) && !c.isHeld() && c.write(try)
		cancel()
		if ok {
			if c.set(began); c.leading() == nil {
				return true
			}
			c.set(time.Time{}) // the response came so late that the Lease may have expired
		}
		// The jitter desynchronizes candidates that were started together.
		sleep.For(ctx, c.period()+time.Duration(rand.Float64()*1.2*float64(c.period())))
	}
	return false
}

// renew renews the Lease until ctx ends, renewals have failed for too long, or another
// process holds it.
func (c *Candidate) renew(ctx context.Context) {
	for sleep.For(ctx, c.period()); ctx.Err() == nil; sleep.For(ctx, c.period()) {
		c.mu.Lock()
		until := c.renewed.Add(c.patience())
		c.mu.Unlock()
		began := time.Now() // the server may record the renewal any time from now on
		try, cancel := context.WithDeadline(ctx, until)
		ok := c.write(try) || c.read(try) && c.isOurs() && c.write(try)
		cancel()
		switch {
		case ok:
			c.set(began)
		case ctx.Err() == nil && (!c.isOurs() || !time.Now().Before(until)):
			c.set(time.Time{})
			return // even if it is free again: another may have led meanwhile
		}
	}
}

// isOurs reports whether this candidate holds the Lease.
func (c *Candidate) isOurs() bool { return c.seen != nil && holderOf(c.seen) == c.Identity }

func (c *Candidate) set(renewed time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.renewed = renewed
}

// read reads the Lease, and reports whether that succeeded.
func (c *Candidate) read(ctx context.Context) bool {
	l, err := c.Leases.Get(ctx, c.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		l, err = nil, nil
	}
	if c.asked("get", err); err != nil {
		return false
	}
	c.saw(l)
	return true
}

// saw records the current Lease; nil if it does not exist.
func (c *Candidate) saw(l *coordinationv1.Lease) {
	if c.seen == nil || l == nil || l.UID != c.seen.UID || !reflect.DeepEqual(l.Spec, c.seen.Spec) {
		c.changed = time.Now()
	}
	c.seen = l
	if l == nil {
		return
	}
	if h := holderOf(l); h != c.holder {
		c.holder = h
		if c.Elected != nil && h != "" && h != c.Identity {
			c.Elected(h)
		}
	}
}

// isHeld reports whether another candidate, which may be alive, holds the Lease.
func (c *Candidate) isHeld() bool {
	if c.seen == nil || holderOf(c.seen) == "" || c.isOurs() {
		return false
	}
	d := c.Duration
	if s := c.seen.Spec.LeaseDurationSeconds; s != nil {
		d = time.Duration(*s) * time.Second
	}
	return time.Since(c.changed) < d
}

// write makes this candidate the holder, unless the Lease has changed since it was seen.
func (c *Candidate) write(ctx context.Context) bool {
	now := metav1.NowMicro()
	next := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name}}
	var changes int32
	acquired := &now
	if c.seen != nil {
		next = c.seen.DeepCopy()
		if t := c.seen.Spec.LeaseTransitions; t != nil {
			changes = *t
		}
		if c.isOurs() && c.seen.Spec.AcquireTime != nil {
			acquired = c.seen.Spec.AcquireTime
		} else {
			changes++
		}
	}
	return c.put(ctx, next, c.Identity, c.Duration, acquired, &now, changes)
}

// put creates or updates the Lease.
func (c *Candidate) put(ctx context.Context, l *coordinationv1.Lease, holder string, d time.Duration, acquired, renewed *metav1.MicroTime, changes int32) bool {
	seconds := int32(d / time.Second)
	s := &l.Spec
	s.HolderIdentity, s.LeaseDurationSeconds, s.AcquireTime, s.RenewTime, s.LeaseTransitions = &holder, &seconds, acquired, renewed, &changes
	verb := "update"
	var got *coordinationv1.Lease
	var err error
	if l.ResourceVersion == "" {
		verb = "create"
		got, err = c.Leases.Create(ctx, l, metav1.CreateOptions{})
	} else {
		got, err = c.Leases.Update(ctx, l, metav1.UpdateOptions{})
	}
	if c.asked(verb, err); err != nil {
		return false
	}
	c.saw(got)
	return true
}

// release releases the Lease, so that the next candidate need not wait.
func (c *Candidate) release(ctx context.Context) {
	c.set(time.Time{})
	if !c.isOurs() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, c.patience())
	defer cancel()
	now := metav1.NowMicro()
	changes := int32(0)
	if t := c.seen.Spec.LeaseTransitions; t != nil {
		changes = *t
	}
	c.put(ctx, c.seen.DeepCopy(), "", time.Second, &now, &now, changes)
}

func (c *Candidate) asked(verb string, err error) {
	if c.Asked != nil && !errors.Is(err, context.Canceled) {
		c.Asked(verb, err)
	}
}

func holderOf(l *coordinationv1.Lease) string {
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}
