package kube

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/internal/kubeclient"
)

// Event is an Event of this node (kubectl describe node).
type Event struct {
	// Reason is a machine-readable word, Action the action in progress.
	Reason, Action string
	// Note is the message; it is truncated to 1 kB.
	Note string
	Warn bool
}

// The reporting component of Events, and the timeout for creating one. Events are
// informational and are not retried.
const (
	component    = "fairlead.io/agent"
	eventTimeout = 5 * time.Second
)

// RecordEvent creates an Event of this node in the background. Without such a node, or if the API
// server is unreachable, it creates none.
func (s *Source) RecordEvent(e Event) {
	n, ok := s.Node()
	if !ok {
		return
	}
	s.events.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), eventTimeout)
		defer cancel()
		_, err := kubeclient.PostEvent(ctx, s.client.events, kubeclient.Event{
			About:      corev1.ObjectReference{APIVersion: "v1", Kind: kindNode, Name: n.Name, UID: n.uid},
			Controller: component, Instance: n.Name, Reason: e.Reason, Action: e.Action, Note: e.Note, Warn: e.Warn,
		})
		if err != nil {
			s.config.Log.Warn("failed to create an Event", "reason", e.Reason, "note", e.Note, "error", err)
		}
	})
}

// FlushEvents waits until all pending Events have been created or have failed.
func (s *Source) FlushEvents() { s.events.Wait() }
