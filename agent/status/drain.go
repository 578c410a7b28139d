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
	// Stage is "kept" if it should drain but no other load balancer would be left;
	// otherwise "asking", "withdrawn" or "drained".
	Stage plan.Stage `json:"stage"`
	Why   []string   `json:"why"`
	// Since is when the drain began, Entered when its Stage did.
	Since   time.Time `json:"since"`
	Entered time.Time `json:"entered"`
	// Flows is the number of tracked flows as of the last count.
	Flows int `json:"flows"`
}

// Drained is the last Stage.
const Drained = plan.Drained

func drainOf(v *reconciler.View) *Drain {
	d := v.Drain
	if d == nil {
		return nil
	}
	return &Drain{Stage: d.Stage, Why: slices.Clone(d.Why), Since: d.Since, Entered: d.Entered, Flows: d.Flows}
}

// DrainWords describes the drain state.
func (s Status) DrainWords() string {
	d := s.Drain
	if d == nil {
		return "serving"
	}
	why := strings.Join(d.Why, "; ")
	switch d.Stage {
	case plan.Kept:
		return "serving on, as no other balancer would be left, though " + why
	case plan.Drained:
		return fmt.Sprintf("drained for %s, after %s: %s", age(d.Entered, s.Time), age(d.Since, d.Entered), why)
	}
	stage := "routes ask to be avoided"
	if d.Stage == plan.Withdrawn {
		stage = "routes are withdrawn"
		if words := s.withdrawingWords(); words != "" {
			stage = "not all have confirmed that the routes are withdrawn (" + words + ")"
		}
	}
	return fmt.Sprintf("draining for %s, %d flows left, %s: %s", age(d.Since, s.Time), d.Flows, stage, why)
}
