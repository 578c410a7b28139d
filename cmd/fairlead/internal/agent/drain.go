package agent

import (
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/core/event"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/reconciler"
)

// drainEvent returns the event for a change of stage.
func drainEvent(node string, d reconciler.Drain) event.Event {
	why := strings.Join(d.Why, "; ")
	e := event.Event{Object: event.Object{Kind: "Node", Name: node}, To: string(d.Stage)}
	switch d.Stage {
	case plan.Deferred:
		e.Type, e.Cause = event.DrainDeferred, "this is the last active load balancer: "+why
	case plan.Notifying:
		e.Type, e.Cause = event.DrainStarted, "the other load balancers are notified before the routes change: "+why
	case plan.GracefulShutdown:
		e.Type, e.Cause = event.DrainStarted, "routes are advertised with the lowest preference before they are withdrawn: "+why
	case plan.Withdrawn:
		e.Type, e.Cause = event.RoutesWithdrawn, fmt.Sprintf("routes are withdrawn, %d flows are left: %s", d.Flows, why)
	case plan.Drained:
		e.Type, e.Cause = event.DrainCompleted, fmt.Sprintf("drained after %s: %s", d.Entered.Sub(d.Since).Round(time.Millisecond), why)
		if d.Flows > 0 {
			e.Type, e.Cause = event.DrainTimedOut, fmt.Sprintf("%d flows were left at the end of --drain-timeout, %s", d.Flows, e.Cause)
		}
	default:
		e.Type, e.Cause = event.DrainEnded, "the load balancer is in service again: no reason to drain is left"
	}
	return e
}
