package engine

import (
	"fmt"
	"math"
	"slices"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/fairlead/fairlead/advertise/bgp/internal/paths"
	"github.com/fairlead/fairlead/advertise/bgp/internal/session"
	"github.com/fairlead/fairlead/core/route"
)

// gobgp has one path per prefix and sends the same to every peer. What is not for all
// peers is added to the path as internal marks, which a policy per peer evaluates and
// removes. Any change of it is thus one change of one path, and one UPDATE to each
// affected peer.
const (
	// markPeer contains the number of a peer that is sent the route; 0: all are.
	markPeer = 1
	// markPrepend contains how often our AS is prepended to the path.
	markPrepend = 2
)

// defaultLocalPref applies within an AS to a route without a local preference.
const defaultLocalPref = 100

// Announce adds or replaces a route of ours.
func (e *Engine) Announce(r route.Route) error {
	_, err := e.server.AddPath(apiutil.AddPathRequest{Paths: []*apiutil.Path{e.path(r)}})
	return err
}

// Withdraw removes a route of ours.
func (e *Engine) Withdraw(r route.Route) error {
	return e.server.DeletePath(apiutil.DeletePathRequest{Paths: []*apiutil.Path{e.path(r)}})
}

func (e *Engine) path(r route.Route) *apiutil.Path {
	return paths.Local(r, e.AS, e.marks(r.Attributes))
}

// marks returns the marks of a route.
func (e *Engine) marks(r route.Attributes) (marks []*pkt.LargeCommunity) {
	if r.Peers == "" {
		marks = append(marks, paths.Mark(markPeer, 0))
	}
	for _, name := range r.Peers.List() {
		marks = append(marks, paths.Mark(markPeer, e.number(name)))
	}
	if r.ASPathPrepend > 0 {
		marks = append(marks, paths.Mark(markPrepend, r.ASPathPrepend))
	}
	return marks
}

// number returns the number of a peer's name, from 1.
func (e *Engine) number(name string) uint32 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.numbers == nil {
		e.numbers = map[string]uint32{}
	}
	if e.numbers[name] == 0 {
		e.numbers[name] = uint32(len(e.numbers) + 1)
	}
	return e.numbers[name]
}

// exportTo configures the policy of a speaker's peer: which routes it receives, and in
// what form.
func (e *Engine) exportTo(g *session.Group) error {
	err := e.server.AddDefinedSet(e.ctx, &api.AddDefinedSetRequest{DefinedSet: neighbors(g)})
	if err != nil {
		return fmt.Errorf("routing policy: %w", err)
	}
	policy := &api.Policy{Name: g.Name}
	add := func(what string, marks *api.MatchSet, actions *api.Actions) {
		policy.Statements = append(policy.Statements, &api.Statement{
			Name: g.Name + " " + what, Actions: actions,
			Conditions: &api.Conditions{LargeCommunitySet: marks, NeighborSet: &api.MatchSet{Type: api.MatchSet_TYPE_ANY, Name: g.Name}},
		})
	}
	mine := &api.MatchSet{Type: api.MatchSet_TYPE_INVERT, Name: g.Name}
	err = e.markSet(g.Name, paths.Mark(markPeer, 0), paths.Mark(markPeer, e.number(g.Peer)))
	add("other peers", mine, &api.Actions{RouteAction: api.RouteAction_ROUTE_ACTION_REJECT})
	for n := uint32(1); n <= route.MaxASPathPrepend && e.external(g) && err == nil; n++ {
		name := fmt.Sprintf("prepend %d", n)
		err = e.markSet(name, paths.Mark(markPrepend, n))
		add(name, &api.MatchSet{Type: api.MatchSet_TYPE_ANY, Name: name}, &api.Actions{AsPrepend: &api.AsPrependAction{Asn: e.AS, Repeat: n}})
	}
	if err != nil {
		return fmt.Errorf("routing policy: %w", err)
	}
	tidy := &api.Actions{LargeCommunity: &api.CommunityAction{
		Type: api.CommunityAction_TYPE_REMOVE, Communities: []string{fmt.Sprintf("^%d:.*$", uint32(paths.ReservedAS))}}}
	if e.external(g) {
		// Removing any of them also removes the non-transitive ones (RFC 4360).
		tidy.ExtCommunity = &api.CommunityAction{Type: api.CommunityAction_TYPE_REMOVE, Communities: []string{"lb:^$"}}
	}
	if g.LinkLocal() {
		tidy.Nexthop = &api.NexthopAction{Self: true}
	}
	add("export", nil, tidy)
	if err := e.server.AddPolicy(e.ctx, &api.AddPolicyRequest{Policy: policy}); err != nil {
		return fmt.Errorf("routing policy: %w", err)
	}
	if err := e.server.AddPolicyAssignment(e.ctx, &api.AddPolicyAssignmentRequest{Assignment: exports(policy)}); err != nil {
		return fmt.Errorf("routing policy: %w", err)
	}
	return nil
}

// endExport reverts exportTo, even if that only completed in part.
func (e *Engine) endExport(g *session.Group) {
	policy := &api.Policy{Name: g.Name}
	_ = e.server.DeletePolicyAssignment(e.ctx, &api.DeletePolicyAssignmentRequest{Assignment: exports(policy)})
	_ = e.server.DeletePolicy(e.ctx, &api.DeletePolicyRequest{Policy: policy, All: true})
	_ = e.server.DeleteDefinedSet(e.ctx, &api.DeleteDefinedSetRequest{DefinedSet: neighbors(g), All: true})
}

func exports(p *api.Policy) *api.PolicyAssignment {
	return &api.PolicyAssignment{Name: "global", Direction: api.PolicyDirection_POLICY_DIRECTION_EXPORT,
		Policies: []*api.Policy{p}, DefaultAction: api.RouteAction_ROUTE_ACTION_ACCEPT}
}

// neighbors returns the set of a group's addresses.
func neighbors(g *session.Group) *api.DefinedSet {
	set := &api.DefinedSet{DefinedType: api.DefinedType_DEFINED_TYPE_NEIGHBOR, Name: g.Name}
	for _, p := range g.Prefixes {
		set.List = append(set.List, p.String())
	}
	return set
}

// markSet creates or replaces a set of marks.
func (e *Engine) markSet(name string, marks ...*pkt.LargeCommunity) error {
	set := &api.DefinedSet{DefinedType: api.DefinedType_DEFINED_TYPE_LARGE_COMMUNITY, Name: name}
	for _, m := range marks {
		set.List = append(set.List, "^"+m.String()+"$")
	}
	return e.server.AddDefinedSet(e.ctx, &api.AddDefinedSetRequest{DefinedSet: set, Replace: true})
}

func (e *Engine) external(g *session.Group) bool { return g.AS != e.AS }

// exported returns the attributes with which a path is sent to a neighbor, or false if it is
// not sent at all. It mirrors what exportTo and gobgp do.
func (e *Engine) exported(g *session.Group, attrs []pkt.PathAttributeInterface) (out []pkt.PathAttributeInterface, is bool) {
	prepend, preferred := uint32(1), false
	for _, a := range attrs {
		switch a := a.(type) {
		case *pkt.PathAttributeLargeCommunities:
			var rest []*pkt.LargeCommunity
			for _, c := range a.Values {
				switch {
				case c.ASN != paths.ReservedAS:
					rest = append(rest, c)
				case c.LocalData1 == markPrepend:
					prepend += c.LocalData2
				case c.LocalData2 == 0 || c.LocalData2 == e.number(g.Peer):
					is = true
				}
			}
			out = append(out, pkt.NewPathAttributeLargeCommunities(rest))
		case *pkt.PathAttributeExtendedCommunities:
			out = append(out, pkt.NewPathAttributeExtendedCommunities(slices.DeleteFunc(slices.Clone(a.Value),
				func(c pkt.ExtendedCommunityInterface) bool { return e.external(g) && !transitive(c) })))
		case *pkt.PathAttributeLocalPref:
			preferred = true
			if !e.external(g) {
				out = append(out, a)
			}
		default:
			out = append(out, a)
		}
	}
	if e.external(g) {
		path := pkt.NewAs4PathParam(pkt.BGP_ASPATH_ATTR_TYPE_SEQ, slices.Repeat([]uint32{e.AS}, int(min(prepend, math.MaxUint8))))
		out = append(out, pkt.NewPathAttributeAsPath([]pkt.AsPathParamInterface{path}))
	} else if !preferred {
		out = append(out, pkt.NewPathAttributeLocalPref(defaultLocalPref))
	}
	return out, is || !e.SendOnly
}

// transitive reports whether an extended community is transitive (RFC 4360, the T bit of
// its type).
func transitive(c pkt.ExtendedCommunityInterface) bool {
	typ, _ := c.GetTypes()
	return typ&0x40 == 0
}
