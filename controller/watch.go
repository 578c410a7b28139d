package controller

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/fairlead/fairlead/api/v1alpha1"
	"github.com/fairlead/fairlead/internal/sleep"
	"github.com/fairlead/fairlead/source/crd"
	"github.com/fairlead/fairlead/source/object"
)

// byNamespace is the index of Services by namespace, byFingerprint that of those that are ours
// by what NodeReports call them, byService that of EndpointSlices by Service.
const (
	byNamespace   = "namespace"
	byFingerprint = "fingerprint"
	byService     = "service"
)

// kind is a watched resource.
type kind struct {
	resource string
	client   rest.Interface
	object   runtime.Object
	list     func() runtime.Object
	slim     cache.TransformFunc
	indexers cache.Indexers
}

func (k *Controller) kinds() (services, namespaces, pools, nodes kind) {
	core, own := k.api[corev1.SchemeGroupVersion], k.api[v1alpha1.GroupVersion]
	services = kind{
		"services", core, &corev1.Service{}, func() runtime.Object { return &corev1.ServiceList{} }, k.slimService,
		cache.Indexers{byNamespace: cache.MetaNamespaceIndexFunc, byFingerprint: k.fingerprints},
	}
	namespaces = kind{"namespaces", core, &corev1.Namespace{}, func() runtime.Object { return &corev1.NamespaceList{} }, slimNamespace, nil}
	pools = kind{"addresspools", own, &v1alpha1.AddressPool{}, func() runtime.Object { return &v1alpha1.AddressPoolList{} }, nil, nil}
	nodes = kind{"nodes", core, &corev1.Node{}, func() runtime.Object { return &corev1.NodeList{} }, slimNode, nil}
	return services, namespaces, pools, nodes
}

// fingerprints returns what NodeReports call a Service, if it is ours.
func (k *Controller) fingerprints(o any) ([]string, error) {
	if s, ok := o.(*corev1.Service); ok && k.isOurs(s) {
		f := crd.FingerprintOf(idOf(s), s.CreationTimestamp.Time)
		return []string{string(f[:])}, nil
	}
	return nil, nil
}

func (d kind) get(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	into := d.list()
	return into, d.client.Get().Resource(d.resource).VersionedParams(&options, metav1.ParameterCodec).Do(ctx).Into(into)
}

// patch merges annotations or a status into an object, unless the object has changed
// meanwhile, and reports whether that is done.
func (t *term) patch(ctx context.Context, client rest.Interface, resource string, of *metav1.ObjectMeta, annotations, status map[string]any) bool {
	if status != nil {
		return t.merge(ctx, client, resource, "status", of, annotations, status)
	}
	return t.merge(ctx, client, resource, "", of, annotations, nil)
}

// merge does the same through a subresource, or through none.
func (t *term) merge(ctx context.Context, client rest.Interface, resource, subresource string, of *metav1.ObjectMeta, annotations, status map[string]any) bool {
	metadata := map[string]any{"resourceVersion": of.ResourceVersion, "uid": of.UID}
	if annotations != nil {
		metadata["annotations"] = annotations
	}
	change := map[string]any{"metadata": metadata}
	if status != nil {
		change["status"] = status
	}
	body, err := json.Marshal(change)
	if err == nil {
		err = t.leading()
	}
	// A permission to write is valid for at least another third of the Lease, and another
	// process leads only after that.
	ctx, cancel := context.WithTimeout(ctx, t.LeaseDuration/3)
	defer cancel()
	if err == nil {
		err = client.Patch(types.MergePatchType).Resource(resource).SubResource(subresource).NamespaceIfScoped(of.Namespace, of.Namespace != "").Name(of.Name).
			VersionedParams(&metav1.PatchOptions{FieldManager: component}, metav1.ParameterCodec).Body(body).Do(ctx).Error()
	}
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return true
	case apierrors.IsConflict(err): // the informer will deliver the change
	case ctx.Err() == nil && t.complaints.TryAccept():
		written := strings.Trim(resource+"/"+subresource, "/")
		t.Log.Warn("failed to write to the API server, will retry", "resource", written, "namespace", of.Namespace, "name", of.Name, "error", words(err, "patch", written, ""))
	}
	return false
}

// patience are the pauses between attempts while something is missing.
var patience = [...]time.Duration{time.Second, 2 * time.Second, 5 * time.Second}

// await waits until a resource can be listed, and logs why it cannot. The informers would
// wait too, but longer and silently.
func (k *Controller) await(ctx context.Context, d kind) bool {
	said := ""
	for try := 0; ; try++ {
		_, err := d.get(ctx, metav1.ListOptions{Limit: 1})
		if err == nil {
			return true
		}
		if why := words(err, "list", d.resource, ""); why != said && ctx.Err() == nil {
			said = why
			k.Log.Warn("failed to list, will retry", "resource", d.resource, "error", why)
		}
		if !sleep.For(ctx, patience[min(try, len(patience)-1)]) {
			return false
		}
	}
}

// informer creates an informer that starts with the current content of the server's
// storage. A cache of the server may lag behind the previous leader, whose addresses would
// be assigned twice.
func (k *Controller) informer(d kind) cache.SharedIndexInformer {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			if options.ResourceVersion == "0" {
				options.ResourceVersion, options.ResourceVersionMatch = "", ""
			}
			return d.get(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.Watch = true
			return d.client.Get().Resource(d.resource).VersionedParams(&options, metav1.ParameterCodec).Watch(ctx)
		},
	}
	made := cache.NewSharedIndexInformer(lw, d.object, 0, d.indexers)
	said := ""
	// These fail only once the informer runs.
	_ = made.SetTransform(d.slim)
	_ = made.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		if why := words(err, "list and watch", d.resource, ""); why != said && ctx.Err() == nil {
			said = why
			k.Log.Warn("watch failed, will list again", "resource", d.resource, "error", why)
		}
	})
	return made
}

// slimService keeps the part of a Service that is used here.
func (k *Controller) slimService(o any) (any, error) {
	s, ok := o.(*corev1.Service)
	if !ok {
		return o, nil
	}
	kept := &corev1.Service{ObjectMeta: slimMeta(&s.ObjectMeta)}
	kept.Spec.Type = s.Spec.Type
	kept.Status.Conditions = s.Status.Conditions
	if k.GatewayAPI { // routes may refer to it
		kept.Spec.ClusterIP, kept.Spec.Ports = s.Spec.ClusterIP, slimPorts(s.Spec.Ports)
	}
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return kept, nil
	}
	kept.Labels = s.Labels
	kept.Status.LoadBalancer = s.Status.LoadBalancer
	kept.Spec.LoadBalancerClass, kept.Spec.LoadBalancerIP = s.Spec.LoadBalancerClass, s.Spec.LoadBalancerIP
	kept.Spec.IPFamilies, kept.Spec.IPFamilyPolicy = s.Spec.IPFamilies, s.Spec.IPFamilyPolicy
	kept.Spec.Ports = slimPorts(s.Spec.Ports)
	for _, name := range []string{
		object.AnnotationAddresses, object.AnnotationAddressPool, object.AnnotationAddressSharingKey, object.AnnotationPortRanges,
		object.AnnotationDedicated,
	} {
		if v, ok := s.Annotations[name]; ok {
			metav1.SetMetaDataAnnotation(&kept.ObjectMeta, name, v)
		}
	}
	return kept, nil
}

func slimPorts(all []corev1.ServicePort) (kept []corev1.ServicePort) {
	for _, p := range all {
		kept = append(kept, corev1.ServicePort{Name: p.Name, Protocol: p.Protocol, Port: p.Port})
	}
	return kept
}

func slimNamespace(o any) (any, error) {
	n, ok := o.(*corev1.Namespace)
	if !ok {
		return o, nil
	}
	kept := &corev1.Namespace{ObjectMeta: slimMeta(&n.ObjectMeta)}
	kept.Labels = n.Labels
	return kept, nil
}

func slimNode(o any) (any, error) {
	n, ok := o.(*corev1.Node)
	if !ok {
		return o, nil
	}
	kept := &corev1.Node{ObjectMeta: slimMeta(&n.ObjectMeta)}
	kept.Status.Addresses = n.Status.Addresses
	return kept, nil
}

func slimMeta(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion, CreationTimestamp: m.CreationTimestamp,
		DeletionTimestamp: m.DeletionTimestamp,
	}
}
