package main

import (
	"fmt"
	"testing"
	"time"

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
		{plan.Asking, 3, "BalancerDraining: its routes ask routers to avoid the balancer, and are withdrawn then: Node a is cordoned"},
		{plan.Withdrawn, 3, "BalancerWithdrawn: the balancer's routes are withdrawn, 3 flows are left: Node a is cordoned"},
		{plan.Drained, 0, "BalancerDrained: after 2s: Node a is cordoned"},
		{plan.Drained, 3, "BalancerDrainTimeout: 3 flows are left that needed the balancer (--drain-timeout), after 2s: Node a is cordoned (warning)"},
		{plan.Kept, 0, "BalancerKept: the balancer does not drain, as no other would be left: Node a is cordoned (warning)"},
		{plan.Serving, 0, "BalancerServing: the balancer serves again: no reason to drain is left"},
	} {
		e := drainEvent(reconciler.Drain{Stage: c.stage, Why: []string{"Node a is cordoned"}, Since: began, Entered: began.Add(2 * time.Second), Flows: c.flows})
		got := fmt.Sprintf("%s: %s", e.Reason, e.Note)
		if e.Warn {
			got += " (warning)"
		}
		if got != c.want || e.Action != "Drain" {
			t.Errorf("%s: %s, want %s", c.stage, got, c.want)
		}
	}
}
