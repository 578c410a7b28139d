package reconciler

import (
	"context"

	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/source"
)

// Preview is what the loop would do if its source published another snapshot.
type Preview struct {
	// View is the current state.
	View *View
	// Plan is the plan of the other snapshot, with backends whose health is not known yet as
	// healthy.
	Plan *plan.Plan
	// Advertises means that the loop advertises routes.
	Advertises bool
}

// Preview plans for a snapshot, and applies nothing. It waits for the current pass to end.
func (l *Loop) Preview(ctx context.Context, s source.Snapshot) (*Preview, error) {
	done := make(chan *Preview, 1)
	select {
	case l.previews <- func() { done <- l.preview(&s) }:
		return <-done, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *Loop) preview(s *source.Snapshot) *Preview {
	node := l.Node
	node.Drain = plan.Drain{Stage: l.drain.stage, Why: l.drain.why, Avoid: l.Avoid}
	in := l.input(s, node)
	in.Health = func(t health.Target) health.State {
		if state := l.health(t); state != health.Unknown {
			return state
		}
		return health.Up
	}
	return &Preview{View: l.View(), Plan: plan.Build(in), Advertises: l.Announcer != nil}
}

// input returns what the plan of a snapshot depends on.
func (l *Loop) input(s *source.Snapshot, node plan.Node) plan.Input {
	in := plan.Input{Services: s.Services, Health: l.health, Held: l.holds, Node: node, Nodes: l.nodes(s), Quarantines: s.Quarantines}
	if a := s.Advertisements; a != nil {
		in.Announce = a.Offers
	}
	if l.Claims != nil {
		in.Owner = l.owner
	}
	return in
}
