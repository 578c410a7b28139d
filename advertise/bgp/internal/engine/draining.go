package engine

import (
	"fmt"

	"github.com/osrg/gobgp/v4/api"
)

// avoidDraining gives paths with the community GRACEFUL_SHUTDOWN (RFC 8326) a local
// preference below all others, so that a draining load balancer gets no packets if there
// is another one. It is 1, because gobgp treats 0 as unset.
func (e *Engine) avoidDraining() error {
	const name = "draining"
	err := e.server.AddDefinedSet(e.ctx, &api.AddDefinedSetRequest{DefinedSet: &api.DefinedSet{
		DefinedType: api.DefinedType_DEFINED_TYPE_COMMUNITY, Name: name, List: []string{"^65535:0$"}}})
	if err != nil {
		return fmt.Errorf("routing policy: %w", err)
	}
	policy := &api.Policy{Name: name, Statements: []*api.Statement{{
		Name:       name,
		Conditions: &api.Conditions{CommunitySet: &api.MatchSet{Type: api.MatchSet_TYPE_ANY, Name: name}},
		Actions:    &api.Actions{LocalPref: &api.LocalPrefAction{Value: 1}},
	}}}
	if err := e.server.AddPolicy(e.ctx, &api.AddPolicyRequest{Policy: policy}); err != nil {
		return fmt.Errorf("routing policy: %w", err)
	}
	err = e.server.AddPolicyAssignment(e.ctx, &api.AddPolicyAssignmentRequest{Assignment: &api.PolicyAssignment{
		Name: "global", Direction: api.PolicyDirection_POLICY_DIRECTION_IMPORT, Policies: []*api.Policy{policy},
		DefaultAction: api.RouteAction_ROUTE_ACTION_ACCEPT}})
	if err != nil {
		return fmt.Errorf("routing policy: %w", err)
	}
	return nil
}
