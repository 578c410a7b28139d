package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/fairlead/fairlead/internal/kubeclient"
	"github.com/fairlead/fairlead/vdn"
)

// skew is how far the clocks of the API server and of who leases may be apart: a
// lease that much older than its pod is that of another pod by the same name. It
// counts for leases that do not tell their pod's UID.
const skew = time.Minute

// listPods lists and watches nothing of pods but their metadata.
func listPods(client metadata.Interface) *cache.ListWatch {
	pods := client.Resource(corev1.SchemeGroupVersion.WithResource("pods"))
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return pods.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return pods.Watch(ctx, o)
		},
	}
}

// isPodOf says that a pod is the one that an attachment was leased for, and no other
// of its name. What a kubelet runs of its own files it knows by another UID than the
// API server, whose object bears that as an annotation.
func isPodOf(pod metav1.Object, a vdn.Attachment) bool {
	if a.OwnerUID == "" {
		return pod.GetCreationTimestamp().Unix() <= a.Since+int64(skew/time.Second)
	}
	return string(pod.GetUID()) == a.OwnerUID || pod.GetAnnotations()[corev1.MirrorPodAnnotationKey] == a.OwnerUID
}

// releaseGone releases attachments whose pods have been gone for long: their node
// died, or could not say so.
func (s *Sync) releaseGone(ctx context.Context) (wrong error) {
	missed := map[string]time.Time{}
	now := time.Now()
	for _, a := range s.Store.Attachments("", "") {
		namespace, name, ok := podOf(a)
		if !ok {
			continue // nobody knows whose it is
		}
		if pod := s.pod(namespace, name); pod != nil && isPodOf(pod, a) {
			continue
		}
		since, known := s.gone[a.ID]
		if !known {
			since = now
		}
		if s.due = true; now.Sub(since) < s.GoneAfter {
			missed[a.ID] = since
			continue
		}
		if err := s.release(ctx, a, namespace, name); err != nil {
			missed[a.ID] = since
			wrong = errors.Join(wrong, err)
		}
	}
	s.gone = missed
	return wrong
}

// release releases an attachment, if the API server itself says that its pod is
// gone: what was read last may be old.
func (s *Sync) release(ctx context.Context, a vdn.Attachment, namespace, name string) error {
	pod := &corev1.Pod{}
	err := s.core.Get().Namespace(namespace).Resource("pods").Name(name).Do(ctx).Into(pod)
	if err == nil && isPodOf(pod, a) {
		return nil
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("attachment %s, pod %s/%s: whether it is gone is not known: %w", a.ID, namespace, name, err)
	}
	if err := s.Store.Detach(ctx, a.ID); err != nil {
		return err
	}
	note := fmt.Sprintf("pod %s/%s is gone for %s, and nobody has released its %s on network %s: %v are free again",
		namespace, name, s.GoneAfter, a.Interface, a.Network, a.Addresses)
	s.Log.Warn("attachment released", "attachment", a.ID, "node", a.Node, "why", note)
	s.tell(ctx, a, namespace, name, note)
	return nil
}

// tell makes an Event of a pod that is gone, in its namespace. Where that is gone,
// too, there is none.
func (s *Sync) tell(ctx context.Context, a vdn.Attachment, namespace, name, note string) {
	_, err := kubeclient.PostEvent(ctx, s.events, kubeclient.Event{
		About:      corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: name},
		Controller: "fairlead.io/vdn", Instance: a.Node, Reason: "AttachmentReleased", Action: "Release", Note: note, Warn: true,
	})
	if err != nil && !apierrors.IsNotFound(err) {
		s.Log.Warn("an Event could not be made", "note", note, "error", err)
	}
}
