package controller

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
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
	"github.com/fairlead/fairlead/internal/wake"
	"github.com/fairlead/fairlead/source/crd"
)

// workers is the number of concurrent writers of Services. Addresses are nevertheless
// assigned one at a time.
const workers = 8

// retryPause batches the reassignment of addresses that become free.
const retryPause = 100 * time.Millisecond

// term is the state of a leader, from acquiring the Lease to losing it.
type term struct {
	*Controller
	// leading returns why nothing may be written any more, or nil.
	leading                     func() error
	end                         func()
	services, namespaces, pools cache.SharedIndexInformer
	nodes                       cache.SharedIndexInformer
	queue                       serviceQueue
	stamps                      serviceQueue // see ages.writes
	gateways                    *gatewayTerm // nil without the Gateway API
	// poolsChanged (pools or nodes), used and freed have capacity for one element: a
	// notification that something must be done.
	poolsChanged, used, freed chan struct{}
	// complaints limits the logging of problems that affect all Services.
	complaints flowcontrol.RateLimiter
	// reports are those in use, sorted by load balancer.
	reports atomic.Pointer[[]usedReport]
	// silent has the load balancers with a heartbeat, with the last renewal of those that are
	// silent. heartbeatsRead is closed once they are known.
	silent         atomic.Pointer[map[string]time.Time]
	heartbeatsRead chan struct{}

	mu    sync.Mutex // guards the following
	alloc *addresspool.Allocator
	// poolsOf has the generations of the pools when they were last set.
	poolsOf map[types.UID]int64
	// nodesOf has the nodes' addresses at that time, each with a node's name.
	nodesOf map[netip.Addr]string
	// known are the valid pools, refused the errors of the others.
	known   map[string]crd.Pool
	refused map[string]error
	// waiting are Services that lack an address which may become free.
	waiting map[service.ID]bool
	// behind are the Services that Gateways route to, whose backends' ages are maintained
	// too; lookAt, once set, is called when one is added or removed.
	behind map[service.ID]bool
	lookAt func(service.ID)
	// looks are called when load balancers are lost or return.
	looks []func()
}

// lead does the work of a leader until the context ends.
func (k *Controller) lead(ctx context.Context, leading func() error) {
	t := &term{
		Controller: k, leading: leading,
		queue: newQueue(), stamps: newQueue(),

		poolsChanged: make(chan struct{}, 1), used: make(chan struct{}, 1), freed: make(chan struct{}, 1), heartbeatsRead: make(chan struct{}),
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
	k.term.Store(t)
	defer k.term.Store(nil)
	t.listen()
	for range workers {
		running.Go(func() { t.drainQueue(ctx, "addresses", t.queue, t.reconcile) })
	}
	running.Go(func() { t.follow(ctx) })
	running.Go(func() { t.countUse(ctx) })
	running.Go(func() { t.keepAges(ctx) })
	running.Go(func() { t.keepRouting(ctx) })
	running.Go(func() { t.followReports(ctx) })
	running.Go(func() { t.followHeartbeats(ctx) })
	running.Go(func() { t.markSessions(ctx) })
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

// restore records the addresses in the status of the Services; if two have the same, the
// older one keeps it.
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
	for _, o := range all { // assigned by a previous leader and not yet removed
		if s, ok := o.(*corev1.Service); ok && !t.isOurs(s) && conditionOf(s) != nil {
			r, _ := t.request(s)
			t.alloc.Restore(idOf(s), r)
		}
	}
	return n
}

// ours returns those Services that are ours, oldest first.
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

// listen subscribes to the informers; existing objects are delivered too.
func (t *term) listen() {
	// AddEventHandler fails only if the informer has stopped.
	_, _ = t.services.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { t.enqueue(o, false) },
		UpdateFunc: func(old, o any) { t.enqueue(o, t.isOursAny(old)) },
		DeleteFunc: func(o any) { t.enqueue(o, true) },
	})
	_, _ = t.pools.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { wake.Up(t.poolsChanged) },
		UpdateFunc: func(old, o any) {
			if old.(*v1alpha1.AddressPool).Generation != o.(*v1alpha1.AddressPool).Generation {
				wake.Up(t.poolsChanged)
			}
		},
		DeleteFunc: func(any) { wake.Up(t.poolsChanged) },
	})
	_, _ = t.nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { wake.Up(t.poolsChanged) },
		UpdateFunc: func(old, o any) {
			if !slices.Equal(old.(*corev1.Node).Status.Addresses, o.(*corev1.Node).Status.Addresses) {
				wake.Up(t.poolsChanged)
			}
		},
		DeleteFunc: func(any) {
			wake.Up(t.poolsChanged)
			t.lost()
		},
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
	wake.Up(t.used)
}

// enqueue queues a Service that is, was or may have been ours.
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

// enqueueNamespace queues a namespace's Services.
func (t *term) enqueueNamespace(o any) {
	n, ok := o.(*corev1.Namespace)
	if !ok {
		return
	}
	found, err := t.services.GetIndexer().ByIndex(byNamespace, n.Name)
	if err != nil {
		t.Log.Error("failed to index namespaces", "error", err)
	}
	for _, s := range t.ours(found) {
		t.queue.Add(idOf(s))
	}
}

// follow updates the pools when they have changed, and retries Services that lack an
// address when one becomes free.
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
			wake.Up(t.used)
			t.notifyGateways()
		case <-t.freed:
			t.retryWaiting()
			t.notifyGateways()
		}
		sleep.For(ctx, retryPause)
	}
}

// retryWaiting queues the waiting Services, oldest first.
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

// serviceQueue has Services.
type serviceQueue = workqueue.TypedRateLimitingInterface[service.ID]

func newQueue() serviceQueue {
	return workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[service.ID](20*time.Millisecond, 30*time.Second))
}

// drainQueue processes the Services of a queue until it is shut down, and retries later if
// do returns false.
func (t *term) drainQueue(ctx context.Context, name string, queue serviceQueue, do func(context.Context, service.ID) bool) {
	for {
		id, over := queue.Get()
		if over {
			return
		}
		end := t.rounds.Begin(name)
		if ctx.Err() == nil && !do(ctx, id) {
			queue.AddRateLimited(id)
		} else {
			queue.Forget(id)
		}
		queue.Done(id)
		end()
	}
}

func idOf(s *corev1.Service) service.ID { return service.ID{Namespace: s.Namespace, Name: s.Name} }
