package controller

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"

	"github.com/fairlead/fairlead/api/v1alpha1"
	"github.com/fairlead/fairlead/core/addresspool"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/sleep"
	"github.com/fairlead/fairlead/source/crd"
)

// workers are how many Services are written at a time. Addresses are assigned
// one after the other all the same.
const workers = 8

// retryPause lets what becomes free together be given away together.
const retryPause = 100 * time.Millisecond

// term is all that a leader knows, from winning the Lease to losing it.
type term struct {
	*Controller
	// leading says why nothing may be written any more, or nil.
	leading                     func() error
	end                         func()
	services, namespaces, pools cache.SharedIndexInformer
	nodes                       cache.SharedIndexInformer
	queue                       workqueue.TypedRateLimitingInterface[service.ID]
	gateways                    *gatewayTerm // nil where there is no Gateway API
	// poolsChanged (pools or nodes), used and freed have room for one: that something has to be
	// done, however often that was told.
	poolsChanged, used, freed chan struct{}
	// complaints keeps what is wrong with all Services from being logged of each.
	complaints flowcontrol.RateLimiter

	mu    sync.Mutex // of what follows
	alloc *addresspool.Allocator
	// poolsOf are the generations of the pools that were set last.
	poolsOf map[types.UID]int64
	// nodesOf are the nodes' addresses then, each with a node's name.
	nodesOf map[netip.Addr]string
	// known are the pools that are valid, refused what is wrong with the others.
	known   map[string]crd.Pool
	refused map[string]error
	// waiting are Services that lack an address which may become free.
	waiting map[service.ID]bool
	// behind are the Services that Gateways lead to, whose servers' ages are kept,
	// too; lookAt, once there is somebody who keeps them, says that one came or went.
	behind map[service.ID]bool
	lookAt func(service.ID)
}

// lead does the work of a leader until the context ends.
func (k *Controller) lead(ctx context.Context, leading func() error) {
	t := &term{
		Controller: k, leading: leading,
		queue: newQueue(),

		poolsChanged: make(chan struct{}, 1), used: make(chan struct{}, 1), freed: make(chan struct{}, 1),
		complaints: flowcontrol.NewTokenBucketRateLimiter(0.2, 5),
		alloc:      addresspool.New(), known: map[string]crd.Pool{}, waiting: map[service.ID]bool{},
	}
	var running sync.WaitGroup
	defer running.Wait()
	ctx, t.end = context.WithCancel(ctx)
	defer t.end()
	began := time.Now()
	if !t.load(ctx, &running) {
		return
	}
	if !t.loadGateways(ctx, &running) {
		return
	}
	n := t.restore() + t.restoreGateways()
	k.Log.Info("loaded", "services", len(t.services.GetStore().ListKeys()), "withAddress", n, "pools", len(t.pools.GetStore().ListKeys()), "took", time.Since(began))
	t.setPools()
	t.listen()
	for range workers {
		running.Go(func() { drainQueue(ctx, t.queue, t.reconcile) })
	}
	running.Go(func() { t.follow(ctx) })
	running.Go(func() { t.countUse(ctx) })
	running.Go(func() { t.keepAges(ctx) })
	if t.Cloud != nil {
		running.Go(func() { t.carry(ctx) })
	}
	running.Go(func() { t.keepGateways(ctx) })
	<-ctx.Done()
	t.queue.ShutDown()
}

// load waits until everything has been read.
func (t *term) load(ctx context.Context, running *sync.WaitGroup) bool {
	services, namespaces, pools, nodes := t.kinds()
	var synced []cache.InformerSynced
	for _, d := range []struct {
		kind
		into *cache.SharedIndexInformer
	}{{services, &t.services}, {namespaces, &t.namespaces}, {pools, &t.pools}, {nodes, &t.nodes}} {
		if !t.await(ctx, d.kind) {
			return false
		}
		informer := t.informer(d.kind)
		*d.into = informer
		running.Go(func() { informer.RunWithContext(ctx) })
		synced = append(synced, informer.HasSynced)
	}
	return cache.WaitForCacheSync(ctx.Done(), synced...)
}

// restore learns who has which address from the status of the Services, of two
// that have the same from the older.
func (t *term) restore() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.services.GetStore().List()
	for _, s := range t.ours(all) {
		if r, _ := t.request(s); len(r.Current) > 0 {
			t.alloc.Restore(idOf(s), r)
			n++
		}
	}
	for _, o := range all { // what a leader before us gave and has not taken back
		if s, ok := o.(*corev1.Service); ok && !t.isOurs(s) && conditionOf(s) != nil {
			r, _ := t.request(s)
			t.alloc.Restore(idOf(s), r)
		}
	}
	return n
}

// ours gives those of some Services that are ours, the oldest first.
func (t *term) ours(objects []any) (all []*corev1.Service) {
	for _, o := range objects {
		if s, ok := o.(*corev1.Service); ok && t.isOurs(s) {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *corev1.Service) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), idOf(a).Compare(idOf(b)))
	})
	return all
}

// listen takes what changes from the informers; it is also told of all that
// there is already.
func (t *term) listen() {
	// Adding handlers fails only where an informer has ended.
	_, _ = t.services.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { t.enqueue(o, false) },
		UpdateFunc: func(old, o any) { t.enqueue(o, t.isOursAny(old)) },
		DeleteFunc: func(o any) { t.enqueue(o, true) },
	})
	_, _ = t.pools.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { poke(t.poolsChanged) },
		UpdateFunc: func(old, o any) {
			if old.(*v1alpha1.AddressPool).Generation != o.(*v1alpha1.AddressPool).Generation {
				poke(t.poolsChanged)
			}
		},
		DeleteFunc: func(any) { poke(t.poolsChanged) },
	})
	_, _ = t.nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { poke(t.poolsChanged) },
		UpdateFunc: func(old, o any) {
			if !slices.Equal(old.(*corev1.Node).Status.Addresses, o.(*corev1.Node).Status.Addresses) {
				poke(t.poolsChanged)
			}
		},
		DeleteFunc: func(any) { poke(t.poolsChanged) },
	})
	_, _ = t.namespaces.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(o any, initial bool) {
			if !initial {
				t.enqueueNamespace(o)
			}
		},
		UpdateFunc: func(old, o any) {
			if !maps.Equal(old.(*corev1.Namespace).Labels, o.(*corev1.Namespace).Labels) {
				t.enqueueNamespace(o)
			}
		},
	})
	poke(t.used)
}

// enqueue puts a Service on the queue where it is ours, was or may have been.
func (t *term) enqueue(o any, was bool) {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	if s, ok := o.(*corev1.Service); ok && (was || t.isOurs(s) || conditionOf(s) != nil) {
		t.queue.Add(idOf(s))
	}
}

func (t *term) isOursAny(o any) bool {
	s, ok := o.(*corev1.Service)
	return ok && t.isOurs(s)
}

// enqueueNamespace puts a namespace's Services on the queue.
func (t *term) enqueueNamespace(o any) {
	n, ok := o.(*corev1.Namespace)
	if !ok {
		return
	}
	found, err := t.services.GetIndexer().ByIndex(byNamespace, n.Name)
	if err != nil {
		t.Log.Error("no index of namespaces", "error", err)
	}
	for _, s := range t.ours(found) {
		t.queue.Add(idOf(s))
	}
}

// poke says that there is something to do.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// follow sets pools anew when they have changed, and tries again those who lack
// an address when one becomes free.
func (t *term) follow(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.poolsChanged:
			if !t.setPools() {
				continue
			}
			for _, s := range t.ours(t.services.GetStore().List()) {
				t.queue.Add(idOf(s))
			}
			poke(t.used)
			t.pokeGateways()
		case <-t.freed:
			t.retryWaiting()
			t.pokeGateways()
		}
		sleep.For(ctx, retryPause)
	}
}

// retryWaiting puts those who wait on the queue, the oldest first.
func (t *term) retryWaiting() {
	t.mu.Lock()
	var objects []any
	for id := range t.waiting {
		if o, ok, _ := t.services.GetStore().GetByKey(id.String()); ok {
			objects = append(objects, o)
		}
	}
	t.mu.Unlock()
	for _, s := range t.ours(objects) {
		t.queue.Add(idOf(s))
	}
}

func newQueue() workqueue.TypedRateLimitingInterface[service.ID] {
	return workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[service.ID](20*time.Millisecond, 30*time.Second))
}

// drainQueue does what is to be done about the Services of a queue until it is
// shut down, and again, later, where do says that it is not done.
func drainQueue(ctx context.Context, queue workqueue.TypedRateLimitingInterface[service.ID], do func(context.Context, service.ID) bool) {
	for {
		id, over := queue.Get()
		if over {
			return
		}
		if ctx.Err() == nil && !do(ctx, id) {
			queue.AddRateLimited(id)
		} else {
			queue.Forget(id)
		}
		queue.Done(id)
	}
}

func idOf(s *corev1.Service) service.ID { return service.ID{Namespace: s.Namespace, Name: s.Name} }
