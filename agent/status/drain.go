package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/reconciler"
)

// Drain is the drain state of a load balancer.
type Drain struct {
	// Stage is "deferred" if no other active load balancer would be left.
	Stage plan.Stage `json:"stage"`
	// Reasons are the causes of the drain.
	Reasons []string `json:"reasons"`
	// Since is when the drain began.
	Since time.Time `json:"since"`
	// Entered is when the Stage began.
	Entered time.Time `json:"entered"`
	// Flows is the number of tracked flows at the latest count.
	Flows int `json:"flows"`
}

// Drained is the last Stage.
const Drained = plan.Drained

func drainOf(v *reconciler.View) *Drain {
	d := v.Drain
	if d == nil {
		return nil
	}
	return &Drain{Stage: d.Stage, Reasons: slices.Clone(d.Why), Since: d.Since, Entered: d.Entered, Flows: d.Flows}
}

// DrainWords describes the drain state.
func (s Status) DrainWords() string {
	d := s.Drain
	if d == nil {
		return "serving"
	}
	why := strings.Join(d.Reasons, "; ")
	switch d.Stage {
	case plan.Deferred:
		return "drain deferred: this is the last active load balancer (" + why + ")"
	case plan.Drained:
		return fmt.Sprintf("drained for %s, after %s: %s", Age(d.Entered, s.Time), Age(d.Since, d.Entered), why)
	}
	stage := "routes are in graceful shutdown"
	if d.Stage == plan.Withdrawn {
		stage = "routes are withdrawn"
		if words := s.withdrawingWords(); words != "" {
			stage = "waiting for confirmation that the routes are withdrawn (" + words + ")"
		}
	}
	return fmt.Sprintf("draining for %s, %d flows left, %s: %s", Age(d.Since, s.Time), d.Flows, stage, why)
}
