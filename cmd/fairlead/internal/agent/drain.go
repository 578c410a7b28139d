package agent

import (
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/reconciler"
	"github.com/fairlead/fairlead/source/kube"
)

// reportDrains reports a loop's drains as Events, in a cluster.
func (a *agent) reportDrains(loop *reconciler.Config) {
	if a.cluster != nil {
		loop.OnDrain = func(d reconciler.Drain) { a.cluster.RecordEvent(drainEvent(d)) }
	}
}

// drainEvent returns the Event for a change of stage.
func drainEvent(d reconciler.Drain) kube.Event {
	why := strings.Join(d.Why, "; ")
	e := kube.Event{Action: "Drain"}
	switch d.Stage {
	case plan.Deferred:
		e.Reason, e.Note, e.Warn = "DrainDeferred", "this is the last active load balancer: "+why, true
	case plan.Notifying:
		e.Reason, e.Note = "DrainStarted", "the other load balancers are notified before the routes change: "+why
	case plan.GracefulShutdown:
		e.Reason, e.Note = "DrainStarted", "routes are advertised with the lowest preference before they are withdrawn: "+why
	case plan.Withdrawn:
		e.Reason, e.Note = "RoutesWithdrawn", fmt.Sprintf("routes are withdrawn, %d flows are left: %s", d.Flows, why)
	case plan.Drained:
		e.Reason, e.Note = "DrainCompleted", fmt.Sprintf("drained after %s: %s", d.Entered.Sub(d.Since).Round(time.Millisecond), why)
		if d.Flows > 0 {
			e.Warn = true
			e.Reason, e.Note = "DrainTimedOut", fmt.Sprintf("%d flows were left at the end of --drain-timeout, %s", d.Flows, e.Note)
		}
	default:
		e.Reason, e.Note = "DrainEnded", "the load balancer is in service again: no reason to drain is left"
	}
	return e
}
