package kubeclient

import (
	"context"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// Object is a pointer to the struct of a kind.
type Object interface {
	runtime.Object
	metav1.Object
}

// Resource has the verbs for the objects of one kind: T is a pointer to the struct of an
// object, L to that of a list. (client-go/gentype has the same, but includes its fake for
// tests, which is larger than everything else.)
type Resource[T Object, L runtime.Object] struct {
	client          rest.Interface
	name, namespace string
}

// Of returns the verbs for a resource. The namespace is empty for cluster-scoped resources,
// and for all namespaces.
func Of[T Object, L runtime.Object](client rest.Interface, name, namespace string) *Resource[T, L] {
	return &Resource[T, L]{client, name, namespace}
}

// Get reads an object.
func (r *Resource[T, L]) Get(ctx context.Context, name string, o metav1.GetOptions) (T, error) {
	return into[T](ctx, r.to(r.client.Get(), &o).Name(name))
}

// List reads all objects that the options select.
func (r *Resource[T, L]) List(ctx context.Context, o metav1.ListOptions) (L, error) {
	return into[L](ctx, r.to(r.client.Get(), &o))
}

// Watch follows the objects that the options select.
func (r *Resource[T, L]) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	return r.to(r.client.Get(), &o).Watch(ctx)
}

// Create creates an object, and returns the created object.
func (r *Resource[T, L]) Create(ctx context.Context, object T, o metav1.CreateOptions) (T, error) {
	return into[T](ctx, r.to(r.client.Post(), &o).Body(object))
}

// Update writes an object, unless it has changed since it was read.
func (r *Resource[T, L]) Update(ctx context.Context, object T, o metav1.UpdateOptions) (T, error) {
	return into[T](ctx, r.to(r.client.Put(), &o).Name(object.GetName()).Body(object))
}

// UpdateStatus writes the status of an object, unless the object has changed since
// it was read.
func (r *Resource[T, L]) UpdateStatus(ctx context.Context, object T, o metav1.UpdateOptions) (T, error) {
	return into[T](ctx, r.to(r.client.Put(), &o).Name(object.GetName()).SubResource("status").Body(object))
}

// Patch changes an object, or a subresource of it.
func (r *Resource[T, L]) Patch(ctx context.Context, name string, kind types.PatchType, patch []byte, o metav1.PatchOptions, sub ...string) (T, error) {
	return into[T](ctx, r.to(r.client.Patch(kind), &o).Name(name).SubResource(sub...).Body(patch))
}

// Delete deletes an object.
func (r *Resource[T, L]) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	return r.to(r.client.Delete(), nil).Name(name).Body(&o).Do(ctx).Error()
}

// to addresses a request; options may be nil.
func (r *Resource[T, L]) to(q *rest.Request, options runtime.Object) *rest.Request {
	q = q.NamespaceIfScoped(r.namespace, r.namespace != "").Resource(r.name)
	if options != nil {
		q = q.VersionedParams(options, metav1.ParameterCodec)
	}
	return q
}

// into sends a request and decodes its response into a new struct, to which V is a pointer.
func into[V runtime.Object](ctx context.Context, r *rest.Request) (V, error) {
	answer := reflect.New(reflect.TypeFor[V]().Elem()).Interface().(V)
	return answer, r.Do(ctx).Into(answer)
}
