package controller

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/fairlead/fairlead/api/v1alpha1"
	"github.com/fairlead/fairlead/internal/sleep"
	"github.com/fairlead/fairlead/source/crd"
)

// beats are the known heartbeats, by the name of their load balancer.
type beats map[string]beat

// beat is a heartbeat. at is when it was renewed, by the local monotonic clock: neither the
// clocks of nodes nor that of the API server need be right.
type beat struct{ said, at time.Time }

// update updates the heartbeats, and returns the last renewal of each load balancer that is
// silent, and zero for the others.
func (b beats) update(all []*v1alpha1.NodeHeartbeat, now time.Time) map[string]time.Time {
	type renewal struct {
		said  time.Time
		valid time.Duration
	}
	var newest time.Time
	latest := map[string]renewal{} // of those in several namespaces
	for _, h := range all {
		said := crd.Renewed(h)
		if before, ok := latest[h.Status.Node]; !ok || said.After(before.said) {
			latest[h.Status.Node] = renewal{said, time.Duration(h.Status.DurationSeconds) * time.Second}
		}
		if said.After(newest) {
			newest = said
		}
	}
	silent := map[string]time.Time{}
	for name, last := range latest {
		said := last.said
		was, ok := b[name]
		switch {
		case !ok: // the age of what is found at first depends on the others
			was = beat{said, now.Add(-newest.Sub(said))}
		case !was.said.Equal(said):
			was = beat{said, now}
		}
		b[name], silent[name] = was, time.Time{}
		if now.Sub(was.at) > last.valid {
			silent[name] = said
		}
	}
	maps.DeleteFunc(b, func(name string, _ beat) bool {
		_, exists := silent[name]
		return !exists
	})
	return silent
}

// isDedicated reports whether a load balancer, "node" or "node/pod", is dedicated to a Service.
func isDedicated(balancer string) bool { return strings.Contains(balancer, "/") }

// followHeartbeats determines which load balancers are silent until ctx ends.
func (t *term) followHeartbeats(ctx context.Context) {
	d := kind{"nodeheartbeats", t.api[v1alpha1.GroupVersion], &v1alpha1.NodeHeartbeat{}, func() runtime.Object { return &v1alpha1.NodeHeartbeatList{} }, nil, nil}
	if !t.await(ctx, d) {
		return
	}
	informer, known := t.informer(d), beats{}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { informer.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return
	}
	update := func(b beats) map[string]time.Time {
		return b.update(listed[v1alpha1.NodeHeartbeat](informer), time.Now())
	}
	for _, since := range update(beats{}) {
		if !since.IsZero() { // or it has not been renewed yet since the API server is back
			sleep.For(ctx, keepReports*t.StatusInterval)
			break
		}
	}
	for first := true; ; first = false {
		now := update(known)
		if was := t.silent.Swap(&now); first {
			close(t.heartbeatsRead)
		} else if !maps.Equal(*was, now) {
			t.lost()
		}
		if !sleep.For(ctx, t.StatusInterval) {
			return
		}
	}
}

// awaitHeartbeats waits until the silent load balancers are known, so that a new leader does not
// take them for live ones, and reports whether they are.
func (t *term) awaitHeartbeats(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-t.heartbeatsRead:
		return true
	}
}

// onLoss has a function called when a Node is deleted, or a load balancer ends, becomes silent or
// returns.
func (t *term) onLoss(look func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.looks = append(t.looks, look)
}

func (t *term) lost() {
	t.mu.Lock()
	looks := slices.Clone(t.looks)
	t.mu.Unlock()
	for _, look := range looks {
		look()
	}
}

// isGone reports whether a load balancer does not exist any more, although its agent could not
// remove what it has written: with the Pod of a dedicated one, Kubernetes deletes its heartbeat.
// Agents of nodes from before there were heartbeats have none.
func (t *term) isGone(balancer string) bool {
	node, _, dedicated := strings.Cut(balancer, "/")
	if _, exists, err := t.nodes.GetStore().GetByKey(node); err == nil && !exists {
		return true
	}
	silent := t.silent.Load()
	if !dedicated || silent == nil {
		return false
	}
	_, exists := (*silent)[balancer]
	return !exists
}

// silentSince returns the last renewal of a load balancer that is silent, and zero for others.
func (t *term) silentSince(balancer string) time.Time {
	if silent := t.silent.Load(); silent != nil {
		return (*silent)[balancer]
	}
	return time.Time{}
}

// unlessSilent returns what a load balancer has reported, unless it has been silent since a time.
func unlessSilent(n v1alpha1.NodeState, since time.Time) v1alpha1.NodeState {
	if !since.IsZero() {
		n.Ready, n.Message = false, silentWords(since)
	}
	return n
}

func silentWords(since time.Time) string {
	return "has not reported since " + since.UTC().Format(time.RFC3339)
}
