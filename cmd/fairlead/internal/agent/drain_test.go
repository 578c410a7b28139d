package agent

import (
	"fmt"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/event"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/reconciler"
)

// Events report the start, progress and end of a drain. Abnormal ones are warnings.
func TestDrainEvents(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		stage plan.Stage
		flows int
		want  string
	}{
		{plan.GracefulShutdown, 3, "DrainStarted: routes are advertised with the lowest preference before they are withdrawn: Node a is cordoned"},
		{plan.Withdrawn, 3, "RoutesWithdrawn: routes are withdrawn, 3 flows are left: Node a is cordoned"},
		{plan.Drained, 0, "DrainCompleted: drained after 2s: Node a is cordoned"},
		{plan.Drained, 3, "DrainTimedOut: 3 flows were left at the end of --drain-timeout, drained after 2s: Node a is cordoned (warning)"},
		{plan.Deferred, 0, "DrainDeferred: this is the last active load balancer: Node a is cordoned (warning)"},
		{plan.Serving, 0, "DrainEnded: the load balancer is in service again: no reason to drain is left"},
	} {
		e := drainEvent("a", reconciler.Drain{Stage: c.stage, Why: []string{"Node a is cordoned"}, Since: began, Entered: began.Add(2 * time.Second), Flows: c.flows})
		got := fmt.Sprintf("%s: %s", e.Type, e.Cause)
		about, _ := event.Describe(e.Type)
		if about.Severity == event.Warning {
			got += " (warning)"
		}
		if got != c.want || about.Action != "Drain" || e.Object.String() != "Node a" {
			t.Errorf("%s: %s, want %s", c.stage, got, c.want)
		}
	}
}
