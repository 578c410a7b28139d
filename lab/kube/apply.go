package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// servedWithin is how long a kind may take to be served once it is defined.
const servedWithin = time.Minute

// Apply makes the objects of a text in YAML, as kubectl apply --server-side does:
// those that are there already are changed. A kind that is not served yet is
// waited for, as its definition may be new.
func (c *Cluster) Apply(ctx context.Context, text string) error {
	config := rest.CopyConfig(c.Config)
	config.ContentType, config.AcceptContentTypes = "", "" // of a resource by definition there is JSON alone
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, servedWithin)
	defer cancel()
	for dec := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096); ; {
		var o unstructured.Unstructured
		if err := dec.Decode(&o.Object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if len(o.Object) == 0 {
			continue
		}
		if err := apply(ctx, kinds, objects, &o); err != nil {
			return fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
}

func apply(ctx context.Context, kinds discovery.DiscoveryInterface, objects dynamic.Interface, o *unstructured.Unstructured) error {
	for {
		r, err := resourceOf(kinds, o.GroupVersionKind())
		if err == nil {
			to := objects.Resource(o.GroupVersionKind().GroupVersion().WithResource(r.Name))
			options := metav1.ApplyOptions{FieldManager: "lab", Force: true}
			if r.Namespaced {
				_, err = to.Namespace(cmp.Or(o.GetNamespace(), metav1.NamespaceDefault)).Apply(ctx, o.GetName(), o, options)
			} else {
				_, err = to.Apply(ctx, o.GetName(), o, options)
			}
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// resourceOf gives the resource that objects of a kind are.
func resourceOf(kinds discovery.DiscoveryInterface, k schema.GroupVersionKind) (metav1.APIResource, error) {
	all, err := kinds.ServerResourcesForGroupVersion(k.GroupVersion().String())
	if err != nil {
		return metav1.APIResource{}, err
	}
	for _, r := range all.APIResources {
		if r.Kind == k.Kind && !strings.Contains(r.Name, "/") {
			return r, nil
		}
	}
	return metav1.APIResource{}, apierrors.NewNotFound(schema.GroupResource{Group: k.Group}, k.Kind)
}
