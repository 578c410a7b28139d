package controller

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/source/object"
)

// lookPause gathers what changes together: all that comes within it is of one
// age, and costs one patch.
const lookPause = 100 * time.Millisecond

// Every patch goes to all who watch EndpointSlices, on every node. What waits
// for its turn keeps its times, and further changes of the same slice join it.
const (
	patchesPerSecond = 50
	patchesBurst     = 100
)

// ages keeps the annotation fairlead.io/backend-timestamps on the EndpointSlices of Services
// that are ours, or that Gateways lead to.
type ages struct {
	*term
	slices cache.SharedIndexInformer
	// looks are Services of whose slices something has changed, writes those of
	// whose slices some do not say what they should.
	looks, writes workqueue.TypedRateLimitingInterface[service.ID]
	limit         flowcontrol.RateLimiter

	mu    sync.Mutex
	known map[service.ID]object.Ages
}

// slice is what is kept of an EndpointSlice.
type slice struct {
	metav1.ObjectMeta
	service service.ID // none for a slice that is to be left alone
	times   *object.Times
}

// mirroring writes slices of what people say in Endpoints, and takes away all
// annotations that do not stand there
// (kubernetes pkg/controller/endpointslicemirroring/reconciler.go).
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

// serviceOf gives the Service that a slice, which may be gone, belongs to, or says
// no.
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

// keepAges does so until the context ends. Nothing else waits for it.
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
		term: t, slices: t.informer(d), looks: newQueue(), writes: newQueue(),
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
		a.Log.Info("ages are known", "slices", len(a.slices.GetStore().ListKeys()))
		a.listen()
		running.Go(func() { drainQueue(ctx, a.looks, a.look) })
		for range workers {
			running.Go(func() { drainQueue(ctx, a.writes, a.write) })
		}
	}
	<-ctx.Done()
	a.looks.ShutDown()
	a.writes.ShutDown()
}

// behindNow gives the Services that Gateways lead to; look is told of others that
// come or go from now on.
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

// listen takes what changes; it is also told of all that there is already.
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
	// Adding handlers fails only where an informer has ended.
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

// look brings a Service's ages up to date, and has them written where need be.
func (a *ages) look(_ context.Context, id service.ID) bool {
	if len(a.due(id)) > 0 {
		a.writes.Add(id)
	}
	return true
}

// due brings a Service's ages up to date and gives the slices that do not say
// what they should, with what that is.
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
		a.Log.Error("no index of EndpointSlices", "error", err)
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

// write writes what is due of a Service, and says whether that is done.
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

// annotate writes a slice's annotation, unless the slice has changed meanwhile,
// and says whether that is done. The EndpointSlice controller leaves annotations
// alone that are not its own, and what it knows of a slice's generation holds.
func (a *ages) annotate(ctx context.Context, s *slice, text string) bool {
	var value any // null takes it away
	if text != "" {
		value = text
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": s.ResourceVersion, "uid": s.UID, "annotations": map[string]any{object.AnnotationBackendTimestamps: value},
	}})
	if err == nil {
		err = a.leading()
	}
	ctx, cancel := context.WithTimeout(ctx, a.LeaseDuration)
	defer cancel()
	if err == nil {
		err = a.patch(ctx, a.api[discoveryv1.SchemeGroupVersion], "endpointslices", &s.ObjectMeta, "", patch)
	}
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return true
	case apierrors.IsConflict(err): // the change comes by the informer
	case ctx.Err() == nil && a.complaints.TryAccept():
		a.Log.Warn("since when servers take flows cannot be written; trying on", "slice", s.Namespace+"/"+s.Name, "why", words(err, "patch", "endpointslices", ""))
	}
	return false
}
