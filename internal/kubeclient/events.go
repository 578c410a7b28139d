package kubeclient

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/internal/shorten"
)

// Event is a Kubernetes Event about an object (kubectl describe).
type Event struct {
	// About is the object. If it has no namespace, the Event is in "default".
	About corev1.ObjectReference
	// Controller is the reporting program, Instance the reporting instance.
	Controller, Instance string
	// Reason is a machine-readable word, Action the action in progress.
	Reason, Action string
	// Note is the message; it is truncated to 1 kB.
	Note string
	Warn bool
}

// PostEvent creates an Event and returns its name. The client is for events.k8s.io/v1.
// Errors are not retried.
func PostEvent(ctx context.Context, client rest.Interface, e Event) (name string, err error) {
	now := time.Now()
	o := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.About.Namespace, Name: fmt.Sprintf("%s.%x", e.About.Name, now.UnixNano())},
		EventTime:  metav1.NewMicroTime(now), ReportingController: e.Controller, ReportingInstance: e.Instance,
		Regarding: e.About, Reason: e.Reason, Action: e.Action, Note: shorten.Text(e.Note, shorten.EventNote), Type: corev1.EventTypeNormal,
	}
	o.Namespace = e.namespace()
	if e.Warn {
		o.Type = corev1.EventTypeWarning
	}
	return o.Name, client.Post().Namespace(o.Namespace).Resource("events").Body(o).Do(ctx).Error()
}

func (e Event) namespace() string { return cmp.Or(e.About.Namespace, metav1.NamespaceDefault) }
