package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead/fairlead/api/v1alpha1"
	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/internal/kubeclient"
	"github.com/fairlead/fairlead/source/gateway"
	"github.com/fairlead/fairlead/source/kube/listing"
	"github.com/fairlead/fairlead/source/object"
)

const contentType = "application/vnd.kubernetes.protobuf"

// retry is the backoff while the API server is unreachable, so that thousands of agents do
// not prevent its recovery.
var retry = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 7, Cap: 10 * time.Second}

// Connection returns the configuration of a kubeconfig file or, without one, of the pod's
// service account.
func Connection(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("no kubeconfig is given, and this is no pod with a service account: %w", err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	return config, nil
}

// client has the REST clients. It only knows the kinds that are read here.
type client struct{ core, discovery, events, own, gateway, olderRoutes, grants rest.Interface }

func newClient(config *rest.Config) (*client, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = "fairlead"
	config.WarningHandlerWithContext = rest.NoWarnings{}
	scheme, err := kubeclient.Scheme(metav1.AddMetaToScheme, corev1.AddToScheme, discoveryv1.AddToScheme, eventsv1.AddToScheme, v1alpha1.AddToScheme, gateway.AddToScheme)
	if err != nil {
		return nil, err
	}
	c, err := kubeclient.Connect(config, scheme, corev1.SchemeGroupVersion, discoveryv1.SchemeGroupVersion, eventsv1.SchemeGroupVersion,
		v1alpha1.GroupVersion, gateway.V1, gateway.V1Alpha2, gateway.V1Beta1)
	if err != nil {
		return nil, err
	}
	return &client{
		core: c[corev1.SchemeGroupVersion], discovery: c[discoveryv1.SchemeGroupVersion], events: c[eventsv1.SchemeGroupVersion],
		own: c[v1alpha1.GroupVersion], gateway: c[gateway.V1], olderRoutes: c[gateway.V1Alpha2], grants: c[gateway.V1Beta1],
	}, nil
}

// resource is a resource to list and watch.
type resource struct {
	client         rest.Interface
	name           string
	fields, labels string
	// namespace limits it to one namespace; empty for all.
	namespace string
	blank     func() message
	// accept is the media type of lists, acceptWatch that of watches; empty for complete
	// objects.
	accept, acceptWatch string
	// own, if set, creates a list of a custom resource, Fairlead's or the Gateway API's,
	// which may be absent from the cluster. blank is not used then.
	own func() runtime.Object
	// older, if set, is used if client does not have the resource.
	older rest.Interface
}

// message is a protobuf object.
type message interface {
	runtime.Object
	Unmarshal([]byte) error
}

// reflectors returns the functions that fill the stores. Irrelevant objects are not
// requested: headless Services have no address, and ExternalName Services only concern DNS.
func (s *Source) reflectors() []func(context.Context) {
	services := resource{
		client: s.client.core, name: "services", fields: "spec.clusterIP!=None,spec.type!=ExternalName",
		blank: func() message { return &corev1.Service{} },
	}
	if !s.balance {
		services.labels = "!" + labelProxyName // balancers serve these
	}
	slices := resource{
		client: s.client.discovery, name: "endpointslices", labels: discoveryv1.LabelServiceName,
		blank: func() message { return &discoveryv1.EndpointSlice{} },
	}
	if s.config.Balancers.Name == "" {
		slices.labels += ",!" + corev1.IsHeadlessService // the balancers' own Service may be headless
	}
	all := []func(context.Context){s.followBeyond(follow(s, services, s.services)), follow(s, slices, s.slices)}
	if s.config.Node != "" {
		node := resource{
			client: s.client.core, name: "nodes", fields: "metadata.name=" + s.config.Node,
			blank: func() message { return &corev1.Node{} },
		}
		all = append(all, follow(s, node, s.nodes))
	}
	if s.followsDrains() {
		every := resource{client: s.client.core, name: "nodes", blank: func() message { return &corev1.Node{} }}
		all = append(all, follow(s, every, s.drains))
	}
	if s.balance {
		all = append(all, s.followPods, s.followQuarantines())
		all = append(all, s.followSenders()...)
	}
	if s.announces() {
		all = append(all, s.followRouting()...)
	}
	if s.config.GatewayAPI {
		all = append(all, s.followGateways()...)
	}
	return all
}

// listWatch requests lists instead of streaming lists: the API server takes three times as
// long to stream 100,000 objects, and listing.Read buffers no more of a list than a stream
// would.
type listWatch struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is a name that client-go defines.
func (listWatch) IsWatchListSemanticsUnSupported() bool { return true }

// follow returns a function that keeps a store in sync with a resource until its context
// ends.
func follow[V any](s *Source, r resource, into *store[V]) func(context.Context) {
	lw := listWatch{&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := readAll(ctx, r, o, into.read)
			if r.absent(err) && r.older != nil {
				r.client, r.older = r.older, r.client
				list, err = readAll(ctx, r, o, into.read)
			}
			if r.absent(err) {
				s.awaitResource(r.name)
				_ = into.Replace(nil, "") // without the resource there are no objects
			}
			return list, s.asked(ctx, r, err)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := r.watch(ctx, o)
			return w, s.asked(ctx, r, err)
		},
	}}
	// What a Reflector would log is reported as a Problem.
	silent := logr.FromSlogHandler(slog.DiscardHandler)
	backoff := retry
	if r.own != nil {
		backoff = ownRetry
	}
	reflector := cache.NewReflectorWithOptions(lw, nil, into, cache.ReflectorOptions{
		Name: "fairlead", TypeDescription: r.name, Backoff: &backoff, Logger: &silent,
	})
	return func(ctx context.Context) { reflector.RunWithContext(logr.NewContext(ctx, silent)) }
}

func (r resource) get(o *metav1.ListOptions) *rest.Request {
	o.FieldSelector, o.LabelSelector = r.fields, r.labels
	return r.client.Get().NamespaceIfScoped(r.namespace, r.namespace != "").Resource(r.name).VersionedParams(o, metav1.ParameterCodec)
}

// away is a connection error, not an error response. A Reflector treats it as a refused
// connection and resumes the same watch; for other errors it would list everything again.
type away struct{ error }

// As makes it a refused connection to client-go.
func (away) As(target any) bool {
	errno, ok := target.(*syscall.Errno)
	if ok {
		*errno = syscall.ECONNREFUSED
	}
	return ok
}

func (r resource) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	get := r.get(&o).MaxRetries(0)
	if r.acceptWatch != "" {
		get = get.SetHeader("Accept", r.acceptWatch)
	}
	w, err := get.Watch(ctx)
	// client-go returns a watch that has ended if a connection was lost.
	if err == nil && reflect.TypeOf(w) == reflect.TypeOf(watch.NewEmptyWatch()) {
		return nil, away{errors.New("the connection ended before the server's answer")}
	}
	var answer apierrors.APIStatus
	if err != nil && !errors.As(err, &answer) {
		return nil, away{err}
	}
	return w, err
}

// readAll lists a resource and converts each object as it arrives.
func readAll[V any](ctx context.Context, r resource, o metav1.ListOptions, read func(runtime.Object) (*made[V], error)) (runtime.Object, error) {
	list := &metainternal.List{}
	add := func(o runtime.Object) error {
		m, err := read(o)
		list.Items = append(list.Items, m)
		return err
	}
	if r.own != nil {
		all := r.own()
		if err := r.get(&o).Do(ctx).Into(all); err != nil {
			return nil, err
		}
		of := all.(metav1.ListInterface)
		list.ResourceVersion, list.Continue = of.GetResourceVersion(), of.GetContinue()
		return list, meta.EachListItem(all, add)
	}
	body, err := r.get(&o).SetHeader("Accept", cmp.Or(r.accept, contentType)).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	list.ListMeta, err = listing.Read(body, func(text []byte) error {
		object := r.blank()
		if err := object.Unmarshal(text); err != nil {
			return err
		}
		return add(object)
	})
	return list, err
}

// asked records whether a resource can be read at present.
func (s *Source) asked(ctx context.Context, r resource, err error) error {
	if ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return err // ctx has ended, or the resource is listed again immediately
	}
	var now []problem.Problem
	forbidden := apierrors.IsForbidden(err)
	switch {
	case r.absent(err):
	case forbidden || apierrors.IsUnauthorized(err):
		now = []problem.Problem{{Object: r.name, Message: fmt.Sprintf(
			"cannot be read: %v; let this agent get, list and watch %s (ClusterRole); what was read last stays, and it is tried again", err, r.name)}}
	case err != nil:
		now = []problem.Problem{{Object: r.name, Message: fmt.Sprintf(
			"cannot be read: %v; what was read last is served on, and it is tried again", err)}}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.problems.put(s.problems.kinds, object.Key{Kind: r.name}, now)
	if s.setForbidden(r.name, forbidden); now != nil {
		s.unread[r.name] = true
	} else {
		delete(s.unread, r.name)
	}
	s.wakeUp()
	return err
}

// absent reports whether the cluster lacks an optional resource.
func (r resource) absent(err error) bool { return r.own != nil && apierrors.IsNotFound(err) }
