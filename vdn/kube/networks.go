package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/fairlead/fairlead/api/v1alpha1"
	"github.com/fairlead/fairlead/vdn"
)

// networksResource is the resource of VirtualNetworks.
const networksResource = "virtualnetworks"

// The condition of a VirtualNetwork, and its reasons.
const (
	conditionReady = "Ready"
	reasonReady    = "Ready"
	reasonRefused  = "Refused"
)

// listOwn lists and watches a Fairlead resource.
func listOwn(client rest.Interface, resource string, list func() runtime.Object) *cache.ListWatch {
	get := func(o metav1.ListOptions) *rest.Request {
		return client.Get().Resource(resource).VersionedParams(&o, metav1.ParameterCodec)
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			all := list()
			return all, get(o).Do(ctx).Into(all)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			return get(o).Watch(ctx)
		},
	}
}

// all returns the objects of an informer, sorted by age and name.
func all[T metav1.Object](i cache.SharedIndexInformer) (out []T) {
	for _, o := range i.GetStore().List() {
		out = append(out, o.(T))
	}
	slices.SortFunc(out, func(a, b T) int {
		if x, y := a.GetCreationTimestamp(), b.GetCreationTimestamp(); !x.Equal(&y) {
			return x.Compare(y.Time)
		}
		return strings.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
	})
	return out
}

// putNetworks makes the store match the VirtualNetworks and reports the result in their
// status. A network without a VirtualNetwork is deleted as soon as it has no attachments; a
// rejected change leaves the previous version in place. Deletions come first, because they
// may make room for other networks.
func (s *Sync) putNetworks(ctx context.Context) (wrong error) {
	wanted := all[*v1alpha1.VirtualNetwork](s.networks)
	stands := map[string]vdn.Network{}
	for _, n := range s.Store.Networks() {
		stands[n.Name] = n
		if !slices.ContainsFunc(wanted, func(w *v1alpha1.VirtualNetwork) bool { return w.Name == n.Name }) {
			if err := s.Store.DeleteNetwork(ctx, n.Name, nil); err != nil {
				s.due = true
				s.Log.Info("keeping a network without a VirtualNetwork, because it is in use", "network", n.Name, "reason", err)
			}
		}
	}
	refused := map[string]error{}
	for _, w := range wanted {
		refused[w.Name] = s.put(ctx, w, stands[w.Name])
	}
	used, free := map[string]int64{}, s.Store.Free()
	for _, a := range s.Store.Attachments("", "") {
		used[a.Network]++
	}
	for _, w := range wanted {
		status := statusOf(w, refused[w.Name])
		status.Attachments = used[w.Name]
		if n, err := s.Store.Network(w.Name); err == nil {
			status.Subnets = usage(n, free[w.Name])
		}
		wrong = errors.Join(wrong, s.patchStatus(ctx, w, status))
	}
	return wrong
}

// networkOf converts a VirtualNetwork to a network of the model, without validating it.
func networkOf(w *v1alpha1.VirtualNetwork) (out vdn.Network, err error) {
	text, err := json.Marshal(&w.Spec)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	out.Name = w.Name
	return out, err
}

// put stores the network of one VirtualNetwork.
func (s *Sync) put(ctx context.Context, w *v1alpha1.VirtualNetwork, stands vdn.Network) error {
	n, err := networkOf(w)
	if err != nil {
		return fmt.Errorf("spec: %w", err)
	}
	if reflect.DeepEqual(n, stands) {
		return nil
	}
	_, err = s.Store.PutNetwork(ctx, n, nil)
	if err != nil {
		s.due = true // another network may make room for it
	}
	return err
}

// statusOf returns the status of a VirtualNetwork except for its numbers.
func statusOf(w *v1alpha1.VirtualNetwork, refused error) v1alpha1.VirtualNetworkStatus {
	status := *w.Status.DeepCopy()
	c := metav1.Condition{Type: conditionReady, Status: metav1.ConditionTrue, Reason: reasonReady, ObservedGeneration: w.Generation,
		Message: "the network matches its spec"}
	if refused != nil {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, reasonRefused, refused.Error()
	}
	meta.SetStatusCondition(&status.Conditions, c)
	return status
}

// usage returns the number of free addresses of each subnet.
func usage(n vdn.Network, free []float64) (all []v1alpha1.SubnetUsage) {
	for i, f := range free {
		one := v1alpha1.SubnetUsage{CIDR: v1alpha1.NetworkCIDR(n.Subnets[i].CIDR.String()), Free: math.MaxInt64}
		if f < math.MaxInt64 {
			one.Free = int64(f)
		}
		all = append(all, one)
	}
	return all
}

// patchStatus writes a status if it differs from the one read.
func (s *Sync) patchStatus(ctx context.Context, w *v1alpha1.VirtualNetwork, status v1alpha1.VirtualNetworkStatus) error {
	if equality.Semantic.DeepEqual(w.Status, status) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	err = s.own.Patch(types.MergePatchType).Resource(networksResource).Name(w.Name).SubResource("status").Body(patch).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return nil // deleted meanwhile
	}
	return err
}
