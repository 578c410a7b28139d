package bgp

import (
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/osrg/gobgp/v4/api"
	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"

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

// marks returns the marks of a route.
func (e *engine) marks(r route.Attributes) (marks []*pkt.LargeCommunity) {
	if r.Peers == "" {
		marks = append(marks, mark(markPeer, 0))
	}
	for _, name := range r.Peers.List() {
		marks = append(marks, mark(markPeer, e.number(name)))
	}
	if r.ASPathPrepend > 0 {
		marks = append(marks, mark(markPrepend, r.ASPathPrepend))
	}
	return marks
}

// number returns the number of a peer's name, from 1.
func (e *engine) number(name string) uint32 {
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
func (e *engine) exportTo(g *group) error {
	err := e.server.AddDefinedSet(e.ctx, &api.AddDefinedSetRequest{DefinedSet: g.neighbors()})
	if err != nil {
		return fmt.Errorf("routing policy: %w", err)
	}
	policy := &api.Policy{Name: g.name}
	add := func(what string, marks *api.MatchSet, actions *api.Actions) {
		policy.Statements = append(policy.Statements, &api.Statement{
			Name: g.name + " " + what, Actions: actions,
			Conditions: &api.Conditions{LargeCommunitySet: marks, NeighborSet: &api.MatchSet{Type: api.MatchSet_TYPE_ANY, Name: g.name}},
		})
	}
	mine := &api.MatchSet{Type: api.MatchSet_TYPE_INVERT, Name: g.name}
	err = e.markSet(g.name, mark(markPeer, 0), mark(markPeer, e.number(g.peer)))
	add("other peers", mine, &api.Actions{RouteAction: api.RouteAction_ROUTE_ACTION_REJECT})
	for n := uint32(1); n <= route.MaxASPathPrepend && e.external(g) && err == nil; n++ {
		name := fmt.Sprintf("prepend %d", n)
		err = e.markSet(name, mark(markPrepend, n))
		add(name, &api.MatchSet{Type: api.MatchSet_TYPE_ANY, Name: name}, &api.Actions{AsPrepend: &api.AsPrependAction{Asn: e.as, Repeat: n}})
	}
	if err != nil {
		return fmt.Errorf("routing policy: %w", err)
	}
	tidy := &api.Actions{LargeCommunity: &api.CommunityAction{
		Type: api.CommunityAction_TYPE_REMOVE, Communities: []string{fmt.Sprintf("^%d:.*$", uint32(reservedAS))}}}
	if e.external(g) {
		// Removing any of them also removes the non-transitive ones (RFC 4360).
		tidy.ExtCommunity = &api.CommunityAction{Type: api.CommunityAction_TYPE_REMOVE, Communities: []string{"lb:^$"}}
	}
	if g.linkLocal() {
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
func (e *engine) endExport(g *group) {
	policy := &api.Policy{Name: g.name}
	_ = e.server.DeletePolicyAssignment(e.ctx, &api.DeletePolicyAssignmentRequest{Assignment: exports(policy)})
	_ = e.server.DeletePolicy(e.ctx, &api.DeletePolicyRequest{Policy: policy, All: true})
	_ = e.server.DeleteDefinedSet(e.ctx, &api.DeleteDefinedSetRequest{DefinedSet: g.neighbors(), All: true})
}

func exports(p *api.Policy) *api.PolicyAssignment {
	return &api.PolicyAssignment{Name: "global", Direction: api.PolicyDirection_POLICY_DIRECTION_EXPORT,
		Policies: []*api.Policy{p}, DefaultAction: api.RouteAction_ROUTE_ACTION_ACCEPT}
}

// neighbors returns the set of a group's addresses.
func (g *group) neighbors() *api.DefinedSet {
	set := &api.DefinedSet{DefinedType: api.DefinedType_DEFINED_TYPE_NEIGHBOR, Name: g.name}
	for _, p := range g.prefixes {
		set.List = append(set.List, p.String())
	}
	return set
}

// markSet creates or replaces a set of marks.
func (e *engine) markSet(name string, marks ...*pkt.LargeCommunity) error {
	set := &api.DefinedSet{DefinedType: api.DefinedType_DEFINED_TYPE_LARGE_COMMUNITY, Name: name}
	for _, m := range marks {
		set.List = append(set.List, "^"+m.String()+"$")
	}
	return e.server.AddDefinedSet(e.ctx, &api.AddDefinedSetRequest{DefinedSet: set, Replace: true})
}

func (e *engine) external(g *group) bool { return g.as != e.as }

// linkLocal reports whether a neighbor is identified only by its link. It is sent our
// address on that link as next hop.
func (g *group) linkLocal() bool { return g.prefixes[0].Addr().IsLinkLocalUnicast() }

// nextHopFor returns the next hop that a session is sent.
func (t *tap) nextHopFor(nextHop netip.Addr) netip.Addr {
	if t.group.linkLocal() {
		return t.local.WithZone("")
	}
	return nextHop
}

// exported returns the attributes with which a path is sent to a neighbor, or false if it is
// not sent at all. It mirrors what exportTo and gobgp do.
func (e *engine) exported(g *group, attrs []pkt.PathAttributeInterface) (out []pkt.PathAttributeInterface, is bool) {
	prepend, preferred := uint32(1), false
	for _, a := range attrs {
		switch a := a.(type) {
		case *pkt.PathAttributeLargeCommunities:
			var rest []*pkt.LargeCommunity
			for _, c := range a.Values {
				switch {
				case c.ASN != reservedAS:
					rest = append(rest, c)
				case c.LocalData1 == markPrepend:
					prepend += c.LocalData2
				case c.LocalData2 == 0 || c.LocalData2 == e.number(g.peer):
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
		path := pkt.NewAs4PathParam(pkt.BGP_ASPATH_ATTR_TYPE_SEQ, slices.Repeat([]uint32{e.as}, int(min(prepend, math.MaxUint8))))
		out = append(out, pkt.NewPathAttributeAsPath([]pkt.AsPathParamInterface{path}))
	} else if !preferred {
		out = append(out, pkt.NewPathAttributeLocalPref(defaultLocalPref))
	}
	return out, is || !e.sendOnly
}

// transitive reports whether an extended community is transitive (RFC 4360, the T bit of
// its type).
func transitive(c pkt.ExtendedCommunityInterface) bool {
	typ, _ := c.GetTypes()
	return typ&0x40 == 0
}
