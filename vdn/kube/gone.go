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

// skew is the maximum clock difference between the API server and the machine that leases:
// a lease older than its pod by more than that belongs to an earlier pod of the same name.
// It applies to leases without the UID of their pod.
const skew = time.Minute

// listPods lists and watches only the metadata of pods.
func listPods(client metadata.Interface) *cache.ListWatch {
	pods := client.Resource(corev1.SchemeGroupVersion.WithResource("pods"))
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return pods.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return pods.Watch(ctx, o)
		},
	}
}

// isPodOf reports whether a pod is the one that an attachment was leased for, and not
// another pod of the same name. For a static pod, the kubelet uses a different UID than the
// API server, whose object has it in an annotation.
func isPodOf(pod metav1.Object, a vdn.Attachment) bool {
	if a.OwnerUID == "" {
		return pod.GetCreationTimestamp().Unix() <= a.Since+int64(skew/time.Second)
	}
	return string(pod.GetUID()) == a.OwnerUID || pod.GetAnnotations()[corev1.MirrorPodAnnotationKey] == a.OwnerUID
}

// releaseGone releases attachments whose pods have been gone for long, because their node
// died or could not report the deletion.
func (s *Sync) releaseGone(ctx context.Context) (wrong error) {
	missed := map[string]time.Time{}
	now := time.Now()
	for _, a := range s.Store.Attachments("", "") {
		namespace, name, ok := podOf(a)
		if !ok {
			continue // the owner is unknown
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

// release releases an attachment if the API server confirms that its pod is gone, because
// the cache may be stale.
func (s *Sync) release(ctx context.Context, a vdn.Attachment, namespace, name string) error {
	pod := &corev1.Pod{}
	err := s.core.Get().Namespace(namespace).Resource("pods").Name(name).Do(ctx).Into(pod)
	if err == nil && isPodOf(pod, a) {
		return nil
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("attachment %s, pod %s/%s: cannot determine whether the pod exists: %w", a.ID, namespace, name, err)
	}
	if err := s.Store.Detach(ctx, a.ID); err != nil {
		return err
	}
	note := fmt.Sprintf("pod %s/%s has not existed for %s: released the lease of its interface %s in network %s: %v",
		namespace, name, s.GoneAfter, a.Interface, a.Network, a.Addresses)
	s.Log.Warn("attachment released", "attachment", a.ID, "node", a.Node, "reason", note)
	s.postEvent(ctx, a, namespace, name, note)
	return nil
}

// postEvent creates an Event for a deleted pod in its namespace, unless that is gone too.
func (s *Sync) postEvent(ctx context.Context, a vdn.Attachment, namespace, name, note string) {
	_, err := kubeclient.PostEvent(ctx, s.events, kubeclient.Event{
		About:      corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: name},
		Controller: "fairlead.io/vdn", Instance: a.Node, Reason: "AttachmentReleased", Action: "Release", Note: note, Warn: true,
	})
	if err != nil && !apierrors.IsNotFound(err) {
		s.Log.Warn("failed to create an Event", "reason", note, "error", err)
	}
}
