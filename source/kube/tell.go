package kube

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Event is something that people are to read of this node (kubectl describe node).
type Event struct {
	// Reason is a word for machines, Action what was being done.
	Reason, Action string
	// Note is it in words; more than 1 kB is cut off.
	Note string
	Warn bool
}

// Who Events come from, and how long an API server may take for one: they matter to
// nobody but people, and are not tried again.
const (
	component   = "fairlead.io/agent"
	tellTimeout = 5 * time.Second
	maxNote     = 1000 // bytes; the API server takes 1024
)

// Tell makes an Event of this node, in the background. Where there is no such node,
// or the API server is away, there is none.
func (s *Source) Tell(e Event) {
	n, ok := s.Node()
	if !ok {
		return
	}
	if len(e.Note) > maxNote {
		e.Note = strings.ToValidUTF8(e.Note[:maxNote], "") + "..."
	}
	now := time.Now()
	about := &eventsv1.Event{
		// A Node is in no namespace, its Events are in this one.
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("%s.%x", n.Name, now.UnixNano())},
		EventTime:  metav1.NewMicroTime(now), ReportingController: component, ReportingInstance: n.Name,
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: kindNode, Name: n.Name, UID: n.uid},
		Reason:    e.Reason, Action: e.Action, Note: e.Note, Type: corev1.EventTypeNormal,
	}
	if e.Warn {
		about.Type = corev1.EventTypeWarning
	}
	s.telling.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), tellTimeout)
		defer cancel()
		if err := s.client.events.Post().Namespace(about.Namespace).Resource("events").Body(about).Do(ctx).Error(); err != nil {
			s.config.Log.Warn("an Event could not be made", "reason", e.Reason, "note", e.Note, "error", err)
		}
	})
}

// Told waits until all Events have been made, or could not be.
func (s *Source) Told() { s.telling.Wait() }
