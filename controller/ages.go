package controller

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/source/object"
)

// lookPause batches changes: all changes within it get the same time, and cost one patch.
const lookPause = 100 * time.Millisecond

// Every patch is sent to all watchers of EndpointSlices, on every node. Waiting patches
// keep their times, and further changes of the same slice are merged.
const (
	patchesPerSecond = 50
	patchesBurst     = 100
)

// ages maintains the annotation fairlead.io/backend-timestamps on the EndpointSlices of
// Services that are ours, or that Gateways route to.
type ages struct {
	*term
	slices cache.SharedIndexInformer
	// looks has Services whose slices have changed, writes those with slices whose
	// annotation is outdated.
	looks, writes serviceQueue
	limit         flowcontrol.RateLimiter

	mu    sync.Mutex
	known map[service.ID]object.Ages
}

// slice is the cached part of an EndpointSlice.
type slice struct {
	metav1.ObjectMeta
	service service.ID // zero for a slice to ignore
	times   *object.Times
}

// mirroring creates slices from Endpoints, and removes all annotations that the Endpoints
// do not have (kubernetes pkg/controller/endpointslicemirroring/reconciler.go).
const mirroring = "endpointslicemirroring-controller.k8s.io"

func slimSlice(o any) (any, error) {
	s, ok := o.(*discoveryv1.EndpointSlice)
	if !ok {
		return o, nil
	}
	kept := &slice{ObjectMeta: slimMeta(&s.ObjectMeta), times: object.ReadTimes(s)}
	if s.Labels[discoveryv1.LabelManagedBy] != mirroring {
		kept.service = service.ID{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}
	}
	return kept, nil
}

// serviceOf returns the Service that a slice, possibly a deleted one, belongs to; false if
// it belongs to no Service.
func serviceOf(o any) (id service.ID, ok bool) {
	if gone, is := o.(cache.DeletedFinalStateUnknown); is {
		o = gone.Obj
	}
	s, ok := o.(*slice)
	if ok {
		id = s.service
	}
	return id, ok && id.Name != ""
}

// keepAges maintains the ages until the context ends. Nothing else waits for it.
func (t *term) keepAges(ctx context.Context) {
	d := kind{
		"endpointslices", t.api[discoveryv1.SchemeGroupVersion], &discoveryv1.EndpointSlice{},
		func() runtime.Object { return &discoveryv1.EndpointSliceList{} }, slimSlice,
		cache.Indexers{byService: func(o any) ([]string, error) {
			id, _ := serviceOf(o)
			return []string{id.String()}, nil
		}},
	}
	if !t.await(ctx, d) {
		return
	}
	a := &ages{
		term: t, slices: t.informer(d), looks: newQueue(), writes: t.stamps,
		limit: flowcontrol.NewTokenBucketRateLimiter(patchesPerSecond, patchesBurst), known: map[service.ID]object.Ages{},
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { a.slices.RunWithContext(ctx) })
	if cache.WaitForCacheSync(ctx.Done(), a.slices.HasSynced) {
		for _, s := range a.ours(a.services.GetStore().List()) {
			a.look(ctx, idOf(s))
		}
		for _, id := range a.behindNow(func(id service.ID) { a.looks.AddAfter(id, lookPause) }) {
			a.look(ctx, id)
		}
		a.Log.Info("backend timestamps read", "slices", len(a.slices.GetStore().ListKeys()))
		a.listen()
		running.Go(func() { a.drainQueue(ctx, "backend timestamps", a.looks, a.look) })
		for range workers {
			running.Go(func() { a.drainQueue(ctx, "backend timestamps", a.writes, a.write) })
		}
	}
	<-ctx.Done()
	a.looks.ShutDown()
	a.writes.ShutDown()
}

// behindNow returns the Services that Gateways route to; from now on, look is called with
// those that are added or removed.
func (t *term) behindNow(look func(service.ID)) []service.ID {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lookAt = look
	return slices.Collect(maps.Keys(t.behind))
}

func (t *term) isBehind(id service.ID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.behind[id]
}

// listen subscribes to changes; existing objects are delivered too.
func (a *ages) listen() {
	slice := func(o any) {
		if id, ok := serviceOf(o); ok {
			a.looks.AddAfter(id, lookPause)
		}
	}
	of := func(o any) {
		if gone, is := o.(cache.DeletedFinalStateUnknown); is {
			o = gone.Obj
		}
		if s, ok := o.(*corev1.Service); ok {
			a.looks.AddAfter(idOf(s), lookPause)
		}
	}
	// AddEventHandler fails only if the informer has stopped.
	_, _ = a.slices.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: slice, DeleteFunc: slice, UpdateFunc: func(old, o any) { slice(old); slice(o) },
	})
	_, _ = a.services.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: of, DeleteFunc: of, UpdateFunc: func(old, o any) {
			if a.isOursAny(old) != a.isOursAny(o) {
				of(o)
			}
		},
	})
}

// look updates a Service's ages, and schedules a write if needed.
func (a *ages) look(_ context.Context, id service.ID) bool {
	if len(a.due(id)) > 0 {
		a.writes.Add(id)
	}
	return true
}

// due updates a Service's ages and returns the slices with an outdated annotation, with the
// new value.
func (a *ages) due(id service.ID) map[*slice]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	o, _, _ := a.services.GetStore().GetByKey(id.String())
	if !a.isOursAny(o) && !a.isBehind(id) {
		delete(a.known, id)
		return nil
	}
	found, err := a.slices.GetIndexer().ByIndex(byService, id.String())
	if err != nil {
		a.Log.Error("failed to index EndpointSlices", "error", err)
	}
	var times []*object.Times
	for _, o := range found {
		times = append(times, o.(*slice).times)
	}
	next := a.known[id].Next(times, time.Now())
	a.known[id] = next
	due := map[*slice]string{}
	for _, o := range found {
		s := o.(*slice)
		if text, change := next.Annotation(s.times); change {
			due[s] = text
		}
	}
	return due
}

// write writes the outdated annotations of a Service, and reports whether all are written.
func (a *ages) write(ctx context.Context, id service.ID) bool {
	if a.limit.Wait(ctx) != nil {
		return false
	}
	done, first := true, true
	for s, text := range a.due(id) {
		if !first && a.limit.Wait(ctx) != nil {
			return false
		}
		first = false
		done = a.annotate(ctx, s, text) && done
	}
	return done
}

// annotate writes a slice's annotation, unless the slice has changed meanwhile, and reports
// whether that succeeded. The EndpointSlice controller ignores foreign annotations, and its
// cached generation of the slice stays valid.
func (a *ages) annotate(ctx context.Context, s *slice, text string) bool {
	var value any // null removes it
	if text != "" {
		value = text
	}
	return a.patch(ctx, a.api[discoveryv1.SchemeGroupVersion], "endpointslices", &s.ObjectMeta,
		map[string]any{object.AnnotationBackendTimestamps: value}, nil)
}
