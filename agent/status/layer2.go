package status

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/core/problem"
)

// Layer2 is who answers for an address on the segments of a load balancer.
type Layer2 struct {
	// State is "owner" if this node answers, "standby" if another node does, otherwise why
	// no node answers.
	State string `json:"state"`
	// Owner is the member that answers, if known.
	Owner netip.Addr `json:"owner,omitzero"`
	// Reason explains the State.
	Reason string `json:"reason"`
	// Since is when the State began.
	Since time.Time `json:"since,omitzero"`
}

// segment provides the layer-2 state.
type segment interface {
	Answered() []advertise.Answered
	Peers() []advertise.Peer
}

// answered returns who answers for what, and the problems to fix.
func (a Agent) answered() (by map[netip.Prefix]advertise.Answered, problems []problem.Problem) {
	if a.Layer2 == nil {
		return nil, nil
	}
	by = map[netip.Prefix]advertise.Answered{}
	for _, s := range a.Layer2.Answered() {
		by[s.Prefix] = s
		if s.Problem {
			problems = append(problems, problem.Failed("layer 2, "+s.Prefix.String(), s.Reason))
		}
	}
	return by, problems
}

// setLayer2 records who answers for a route. If the route is advertised in no other way,
// that decides whether it is advertised.
func (r *Route) setLayer2(s advertise.Answered, alone bool) {
	r.Layer2 = &Layer2{State: s.State, Owner: s.Owner, Reason: s.Reason, Since: s.Since}
	if alone && r.Advertised && s.State != "owner" && !s.Owner.IsValid() {
		r.Advertised, r.Since, r.Rule, r.Reason = false, time.Time{}, RuleNoL2Owner, s.Reason
	}
}

// layer2States returns "2 owner, 1 standby", or "" without layer 2.
func (s Status) layer2States() string {
	count := map[string]uint64{}
	for _, r := range s.Routes {
		if r.Layer2 != nil {
			count[r.Layer2.State]++
		}
	}
	if len(count) == 0 {
		return ""
	}
	return tally(count)
}

// answers writes the table of who answers.
func (v routes) answers(t *table) {
	if !slices.ContainsFunc(v.list, func(r Route) bool { return r.Layer2 != nil }) {
		return
	}
	t.line("")
	t.head("ADDRESS", "OWNER", "STATE", "SINCE", "REASON")
	for _, r := range v.list {
		if l := r.Layer2; l != nil {
			t.row(fmt.Sprint(r.Prefix.Addr()), address(l.Owner), l.State, Age(l.Since, v.status.Time), l.Reason)
		}
	}
}
