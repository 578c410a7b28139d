package agent

import (
	"strings"

	"github.com/fairlead/fairlead/core/event"
	"github.com/fairlead/fairlead/source/kube"
)

// maxPosted is the number of Services at which one event is shown.
const maxPosted = 3

// postEvent creates Kubernetes Events of the objects that an event concerns, in a cluster.
func (a *agent) postEvent(e event.Event) {
	if a.cluster == nil {
		return
	}
	for _, k := range kubeEvents(e, a.config.Node, a.config.Balancer) {
		a.cluster.RecordEvent(k)
	}
}

// kubeEvents returns the Kubernetes Events for an event: of the object itself, or of the
// Services that it belongs to, or else of the Node. Only load balancers report on objects
// other than their Node: every node reads the same configuration.
func kubeEvents(e event.Event, node string, balancer bool) (all []kube.Event) {
	about, _ := event.Describe(e.Type)
	if about.Action == "" {
		return nil
	}
	self := event.Object{Kind: "Node", Name: node}
	objects := []event.Object{self}
	switch {
	case e.Object.Kind == "Node":
	case e.Type == event.PeerDown || e.Type == event.PeerEstablished: // the session is this node's
	case e.Object.Name != "" && kube.CanDescribe(e.Object.Kind):
		objects = []event.Object{e.Object}
	case len(e.Services) > 0:
		objects = nil
		for _, id := range e.Services[:min(len(e.Services), maxPosted)] {
			objects = append(objects, event.ParseObject("Service "+id))
		}
	}
	for _, o := range objects {
		if o == self || balancer {
			all = append(all, kube.Event{About: o, Reason: string(e.Type), Action: about.Action, Note: note(e, o), Warn: e.Severity == event.Warning})
		}
	}
	return all
}

// note returns what an Event of an object says.
func note(e event.Event, of event.Object) string {
	var words []string
	if e.Object != of {
		words = append(words, e.Object.String())
	}
	if e.Field != "" && e.Type != event.Degraded { // whose cause begins with the feature
		words = append(words, e.Field)
	}
	change := e.To
	if e.From != "" && e.To != "" {
		change = e.From + " -> " + e.To
	}
	if change != "" && e.Object.Kind != "Node" {
		words = append(words, change)
	}
	if e.Cause != "" {
		words = append(words, e.Cause)
	}
	return strings.Join(words, ": ")
}
