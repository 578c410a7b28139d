// Package kube represents a domain's networks as Kubernetes resources: it stores the
// networks that VirtualNetworks define (networks.go), shows leases as NetworkLeases
// next to their pods (attachments.go), and releases the leases of deleted pods (gone.go).
// All of it is level-triggered: the store and the cluster are compared in full after a
// change of either and every minute.
package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/fairlead/fairlead/api/v1alpha1"
	"github.com/fairlead/fairlead/internal/kubeclient"
	"github.com/fairlead/fairlead/internal/sleep"
	"github.com/fairlead/fairlead/internal/wake"
	"github.com/fairlead/fairlead/vdn/store"
)

// Defaults of Config, and intervals.
const (
	// DefaultGoneAfter is how long a pod must be gone before its leases are released.
	DefaultGoneAfter = 5 * time.Minute
	// DefaultPace is how long changes are batched.
	DefaultPace = 500 * time.Millisecond
	// relook is the interval of a full comparison without a change, so that missed or
	// failed changes are corrected.
	relook = time.Minute
	retry  = 5 * time.Second
)

// Config configures a Sync.
type Config struct {
	// Client configures the connection to the API server. Its rate limit is not used.
	Client *rest.Config
	// Store holds the networks; nothing else may add any.
	Store *store.Store
	// GoneAfter is how long a pod must be gone before its leases are released.
	GoneAfter time.Duration
	// Pace is how long changes are batched before they are processed.
	Pace time.Duration
	Log  *slog.Logger
}

// Sync makes the store match the VirtualNetworks, and the cluster match the store.
type Sync struct {
	Config
	core, events rest.Interface
	own          rest.Interface // Fairlead's resources

	networks, attachments, pods cache.SharedIndexInformer
	// wake has one element if the cluster may have changed.
	wake chan struct{}
	// gone has the time since which the pod of a lease is missing, by lease ID.
	gone map[string]time.Time
	// due requests another comparison soon, even without a change.
	due bool
}

// New creates a Sync without connecting.
func New(c Config) (*Sync, error) {
	c.GoneAfter, c.Pace = cmp.Or(c.GoneAfter, DefaultGoneAfter), cmp.Or(c.Pace, DefaultPace)
	c.Log = cmp.Or(c.Log, slog.Default())
	s := &Sync{Config: c, wake: make(chan struct{}, 1), gone: map[string]time.Time{}}
	if err := s.dial(); err != nil {
		return nil, fmt.Errorf("vdn: the API server's client: %w", err)
	}
	return s, nil
}

func (s *Sync) dial() (err error) {
	config := rest.CopyConfig(s.Client)
	config.UserAgent = "fairlead-vdn"
	scheme, err := kubeclient.Scheme(corev1.AddToScheme, eventsv1.AddToScheme, v1alpha1.AddToScheme)
	if err != nil {
		return err
	}
	c, err := kubeclient.Connect(config, scheme, corev1.SchemeGroupVersion, eventsv1.SchemeGroupVersion, v1alpha1.GroupVersion)
	if err != nil {
		return err
	}
	s.core, s.events, s.own = c[corev1.SchemeGroupVersion], c[eventsv1.SchemeGroupVersion], c[v1alpha1.GroupVersion]
	config.QPS = -1
	pods, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	s.networks = s.follow(listOwn(s.own, networksResource, func() runtime.Object { return &v1alpha1.VirtualNetworkList{} }), &v1alpha1.VirtualNetwork{})
	s.attachments = s.follow(listOwn(s.own, leasesResource, func() runtime.Object { return &v1alpha1.NetworkLeaseList{} }), &v1alpha1.NetworkLease{})
	s.pods = s.follow(listPods(pods), &metav1.PartialObjectMetadata{})
	return nil
}

// follow returns an informer that wakes the Sync.
func (s *Sync) follow(lw *cache.ListWatch, of runtime.Object) cache.SharedIndexInformer {
	i := cache.NewSharedIndexInformer(lw, of, 0, cache.Indexers{})
	changed := func() { wake.Up(s.wake) }
	_, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { changed() }, UpdateFunc: func(any, any) { changed() }, DeleteFunc: func(any) { changed() },
	})
	err = errors.Join(err, i.SetTransform(slim), i.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		s.Log.Warn("failed to watch a resource, using the last state, will retry", "resource", fmt.Sprintf("%T", of), "error", err)
	}))
	if err != nil {
		panic("vdn/kube: " + err.Error()) // only if the informer is already running
	}
	return i
}

// slim strips a pod's metadata to what is used.
func slim(o any) (any, error) {
	if p, ok := o.(*metav1.PartialObjectMetadata); ok {
		slim := &metav1.PartialObjectMetadata{TypeMeta: p.TypeMeta, ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Name, UID: p.UID, CreationTimestamp: p.CreationTimestamp, ResourceVersion: p.ResourceVersion,
		}}
		if of, is := p.Annotations[corev1.MirrorPodAnnotationKey]; is {
			slim.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: of}
		}
		return slim, nil
	}
	return o, nil
}

// Run synchronizes the store and the cluster until ctx ends. It changes nothing before all
// resources have been read.
func (s *Sync) Run(ctx context.Context) error {
	informers := []cache.SharedIndexInformer{s.networks, s.attachments, s.pods}
	var read []cache.InformerSynced
	ended := make(chan struct{}, len(informers))
	for _, i := range informers {
		read = append(read, i.HasSynced)
		go func() {
			i.RunWithContext(ctx)
			ended <- struct{}{}
		}()
	}
	defer func() {
		for range informers {
			<-ended
		}
	}()
	if !cache.WaitForCacheSync(ctx.Done(), read...) {
		return nil
	}
	s.Log.Info("networks are defined by the cluster's VirtualNetworks")
	changed := s.watchStore(ctx)
	for {
		err := s.reconcile(ctx)
		if ctx.Err() != nil {
			return nil
		}
		wait := relook
		if err != nil {
			s.Log.Warn("failed to synchronize cluster and store, will retry", "retryIn", retry, "error", err)
		}
		if err != nil || s.due {
			wait = retry
		}
		s.await(ctx, changed, wait)
	}
}

// watchStore returns a channel that has an element if the store has changed.
func (s *Sync) watchStore(ctx context.Context) <-chan struct{} {
	changed := make(chan struct{}, 1)
	go func() {
		for revision := s.Store.Revision(); ctx.Err() == nil; {
			revision = s.Store.Wait(ctx, revision)
			wake.Up(changed)
		}
	}()
	return changed
}

// await waits for a change, and then for Pace, so that changes are processed in batches.
func (s *Sync) await(ctx context.Context, store <-chan struct{}, longest time.Duration) {
	select {
	case <-ctx.Done():
		return
	case <-s.wake:
	case <-store:
	case <-time.After(longest):
		return
	}
	sleep.For(ctx, s.Pace)
}

// reconcile compares everything once.
func (s *Sync) reconcile(ctx context.Context) error {
	s.due = false
	err := s.putNetworks(ctx)
	return errors.Join(err, s.showAttachments(ctx), s.releaseGone(ctx))
}
