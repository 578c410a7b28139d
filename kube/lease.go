package kube

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// stand waits for the Lease, leads, and returns when it has lost it and nothing
// of its term is left.
func (k *Controller) stand(ctx context.Context) error {
	// The Lease is given back only after the last write: the election ends by
	// itself where the context ends before it is won, else after the term.
	election, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	over := make(chan struct{})
	l := k.lock()
	var elector *leaderelection.LeaderElector
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            l,
		LeaseDuration:   k.LeaseDuration,
		RenewDeadline:   k.LeaseDuration * 2 / 3,
		RetryPeriod:     k.LeaseDuration / 8,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(term context.Context) {
				defer close(over)
				term, cancel := context.WithCancel(term)
				defer cancel()
				defer context.AfterFunc(ctx, cancel)()
				k.Log.Info("leading", "lease", l.Describe(), "identity", k.Identity)
				k.lead(term, func() error {
					// Check has nothing against who leads no more.
					if !elector.IsLeader() {
						cancel()
						return errors.New("another leads")
					}
					return elector.Check(0)
				})
				end() // a term that is over is not resumed: what it knows may be old
			},
			OnStoppedLeading: func() {},
			OnNewLeader: func(identity string) {
				if identity != k.Identity && identity != "" {
					k.Log.Info("another leads", "identity", identity)
				}
			},
		},
		Name: k.Lease,
	})
	if err != nil {
		return fmt.Errorf("kube: the Lease: %w", err)
	}
	defer context.AfterFunc(ctx, func() {
		if !elector.IsLeader() {
			end()
		}
	})()
	elector.Run(election)
	if l.won {
		<-over
		k.Log.Info("leading no more", "lease", l.Describe())
	}
	return nil
}

func (k *Controller) lock() *lock {
	return &lock{c: k, LeaseLock: &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Lease},
		Client:     k.core.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: k.Identity},
	}}
}

// lock is a Lease that says why it cannot be had, and knows whether it was.
type lock struct {
	*resourcelock.LeaseLock
	c   *Controller
	won bool
	why string // last told
}

// RecordEvent is told of elections won and terms ended, by the goroutine that
// runs the election.
func (l *lock) RecordEvent(what string) {
	l.won = true
	l.LeaseLock.RecordEvent(what)
}

// Get reads the Lease.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	r, raw, err := l.LeaseLock.Get(ctx)
	if !apierrors.IsNotFound(err) {
		l.tell("get", err)
	}
	return r, raw, err
}

// Create makes the Lease.
func (l *lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.tell("create", l.LeaseLock.Create(ctx, r))
}

// Update writes the Lease.
func (l *lock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.tell("update", l.LeaseLock.Update(ctx, r))
}

// tell logs an error where it is another than the last one.
func (l *lock) tell(verb string, err error) error {
	why := ""
	if err != nil && !apierrors.IsConflict(err) {
		why = words(err, verb, "leases", l.c.Namespace)
	}
	if why != l.why && why != "" {
		l.c.Log.Warn("the Lease cannot be had; trying on", "lease", l.Describe(), "why", why)
	}
	l.why = why
	return err
}

// words says what an error of the API server means here, with the mend.
func words(err error, verb, resource, namespace string) string {
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("no right to %s %s: bind the ClusterRole fairlead-controller (deploy/manifests/rbac.yaml): %v", verb, resource, err)
	case apierrors.IsNotFound(err) && namespace != "":
		return fmt.Sprintf("namespace %s does not exist: make it, or name another: %v", namespace, err)
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("the resource %s does not exist: kubectl apply -f deploy/crds: %v", resource, err)
	}
	return err.Error()
}
