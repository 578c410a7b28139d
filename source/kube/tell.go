package kube

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/internal/kubeclient"
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
)

// Tell makes an Event of this node, in the background. Where there is no such node,
// or the API server is away, there is none.
func (s *Source) Tell(e Event) {
	n, ok := s.Node()
	if !ok {
		return
	}
	s.telling.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), tellTimeout)
		defer cancel()
		_, err := kubeclient.PostEvent(ctx, s.client.events, kubeclient.Event{
			About:      corev1.ObjectReference{APIVersion: "v1", Kind: kindNode, Name: n.Name, UID: n.uid},
			Controller: component, Instance: n.Name, Reason: e.Reason, Action: e.Action, Note: e.Note, Warn: e.Warn,
		})
		if err != nil {
			s.config.Log.Warn("an Event could not be made", "reason", e.Reason, "note", e.Note, "error", err)
		}
	})
}

// Told waits until all Events have been made, or could not be.
func (s *Source) Told() { s.telling.Wait() }
