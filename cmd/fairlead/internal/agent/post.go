package agent

import (
	"github.com/fairlead/fairlead/core/event"
	"github.com/fairlead/fairlead/source/kube"
)

// postEvent creates an Event of the Node, in a cluster.
func (a *agent) postEvent(e event.Event) {
	if about, _ := event.Describe(e.Type); a.cluster != nil && about.Action != "" {
		a.cluster.RecordEvent(kube.Event{Reason: string(e.Type), Action: about.Action, Note: e.Cause, Warn: e.Severity == event.Warning})
	}
}
