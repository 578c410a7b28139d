package controller

import (
	"context"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/api/v1alpha1"
	"github.com/fairlead/fairlead/internal/wake"
	"github.com/fairlead/fairlead/source/crd"
)

// markSessions marks the BGPSessions of silent load balancers as unknown until ctx ends, because
// nobody keeps them true. An agent that returns writes its own again.
func (t *term) markSessions(ctx context.Context) {
	if !t.awaitHeartbeats(ctx) {
		return
	}
	changed, marked := make(chan struct{}, 1), map[string]time.Time{}
	t.onLoss(func() { wake.Up(changed) })
	for {
		silent, again := *t.silent.Load(), (<-chan time.Time)(nil)
		for balancer, since := range silent {
			if since.IsZero() || marked[balancer].Equal(since) {
				continue
			}
			if t.markSessionsOf(ctx, balancer, since) {
				marked[balancer] = since
			} else {
				again = time.After(t.StatusInterval)
			}
		}
		maps.DeleteFunc(marked, func(balancer string, _ time.Time) bool { return silent[balancer].IsZero() })
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-again:
		}
	}
}

// markSessionsOf marks those of a load balancer that is silent since a time, and reports whether
// that is done.
func (t *term) markSessionsOf(ctx context.Context, balancer string, since time.Time) bool {
	const resource = "bgpsessions"
	var all v1alpha1.BGPSessionList
	client := t.api[v1alpha1.GroupVersion]
	err := client.Get().Resource(resource).VersionedParams(&metav1.ListOptions{LabelSelector: crd.SessionsOn(balancer)}, metav1.ParameterCodec).Do(ctx).Into(&all)
	if err != nil {
		if !apierrors.IsNotFound(err) && ctx.Err() == nil && t.complaints.TryAccept() {
			t.Log.Warn("failed to list, will retry", "resource", resource, "error", words(err, "list", resource, ""))
		}
		return apierrors.IsNotFound(err)
	}
	done := true
	for i := range all.Items {
		o := &all.Items[i]
		if o.Status.Node != balancer || o.Status.State == v1alpha1.SessionUnknown {
			continue
		}
		done = t.merge(ctx, client, resource, "", &o.ObjectMeta, nil, map[string]any{
			"state": v1alpha1.SessionUnknown, "since": metav1.NewTime(since), "lastError": "the load balancer " + silentWords(since), "bfd": nil,
		}) && done
	}
	return done
}
