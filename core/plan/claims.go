package plan

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/internal/truefirst"
)

// If several Services claim the same Key, or overlapping port ranges, the first of these
// rules in which two claims differ decides:
//
//  1. An address that is served takes precedence over one that is not advertised here.
//  2. The kind of address: load balancer IP, external IP, cluster IP.
//  3. The Service for which the Key is programmed keeps it (Input.Owner).
//  4. The older Service by creationTimestamp. A Service without one counts as younger.
//  5. The name, so that load balancers that start at the same time choose alike.

// claimRule identifies the rule that decided between two claims.
type claimRule int

const (
	byKind claimRule = iota // rules 1 and 2
	byIncumbency
	byDate // rule 4, if one has no creationTimestamp
	byAge
	byName
)

// before orders two claims and returns the rule that decided.
func (f *Frontend) before(o *Frontend) (order int, rule claimRule) {
	rank := func(f *Frontend) int {
		if f.State == NotAdvertised {
			return math.MaxInt
		}
		return int(f.Kind)
	}
	a, b := f.Service, o.Service
	for rule, order := range []int{
		byKind:       cmp.Compare(rank(f), rank(o)),
		byIncumbency: truefirst.Compare(f.incumbent, o.incumbent),
		byDate:       truefirst.Compare(!a.Created.IsZero(), !b.Created.IsZero()),
		byAge:        a.Created.Compare(b.Created),
		byName:       a.ID.Compare(b.ID),
	} {
		if order != 0 {
			return order, claimRule(rule)
		}
	}
	return 0, byName
}

// compare orders claims.
func (f *Frontend) compare(o *Frontend) int {
	order, _ := f.before(o)
	return order
}

// refuseConflicts sorts the frontends and assigns each Key to its best claim.
func (p *Plan) refuseConflicts(in Input) {
	slices.SortStableFunc(p.Frontends, func(a, b Frontend) int { return a.Key.Compare(b.Key) })
	for first := 0; first < len(p.Frontends); {
		end := first + 1
		for end < len(p.Frontends) && p.Frontends[end].Key == p.Frontends[first].Key {
			end++
		}
		if end > first+1 && !in.isNode(p.Frontends[first].Key.VIP) {
			in.settle(p.Frontends[first:end])
		}
		first = end
	}
	p.refuseOverlaps(in)
}

// settle assigns a Key to the best of several claims.
func (in Input) settle(claims []Frontend) {
	in.findIncumbent(claims)
	slices.SortStableFunc(claims, func(a, b Frontend) int { return a.compare(&b) })
	owner := &claims[0]
	for i := range claims[1:] {
		if f := &claims[1+i]; f.State != NotAdvertised {
			f.lose(owner, "give one of the two another address or port")
		}
	}
}

// findIncumbent marks the claim for which a Key is already programmed: according to the
// load balancer's record or, if that names none of the claims, according to the backends
// in the data plane.
func (in Input) findIncumbent(claims []Frontend) {
	if in.Owner == nil {
		return
	}
	owner, known := in.Owner(claims[0].Key)
	recorded := false
	for i := range claims {
		f := &claims[i]
		f.incumbent = known && f.Service.ID == owner
		recorded = recorded || f.incumbent
	}
	if recorded || in.Held == nil {
		return
	}
	held := in.Held(claims[0].Key)
	for i := range claims {
		claims[i].incumbent = slices.ContainsFunc(claims[i].Backends, func(b Backend) bool { return held[b.Addr] != health.Unknown })
	}
}

// refuseOverlaps assigns each port in overlapping ranges to its best claim.
func (p *Plan) refuseOverlaps(in Input) {
	var ranges []*Frontend
	for i := range p.Frontends {
		if f := &p.Frontends[i]; f.Key.Range() && f.State != Conflict && f.State != NotAdvertised {
			in.findIncumbent(p.Frontends[i : i+1])
			ranges = append(ranges, f)
		}
	}
	slices.SortStableFunc(ranges, (*Frontend).compare)
	had := portRanges{}
	for _, f := range ranges {
		if o := had.overlapping(f.Key); o != nil {
			f.lose(o, "give one of the two other ports")
		} else {
			had.add(f)
		}
	}
}

// lose records that another claim takes precedence, why, and how to fix it.
func (f *Frontend) lose(owner *Frontend, fix string) {
	_, rule := owner.before(f)
	why := map[claimRule]string{
		byKind:       fmt.Sprintf("as its %s, which takes precedence over a %s", owner.Kind, f.Kind),
		byIncumbency: "and was programmed first",
		byDate:       "and has a creationTimestamp, which this one has not",
		byAge:        "and is older",
		byName:       "and comes first by name, as both are equally old",
	}[rule]
	if rule == byName && f.Service.Created.IsZero() {
		why = "and comes first by name, as neither has a creationTimestamp"
	}
	f.State, f.Want = Conflict, nil
	where := ""
	if owner.Service.Origin != "" {
		where = " (" + owner.Service.Origin + ")"
	}
	f.Reason = fmt.Sprintf("Service %s already has %s%s %s: %s", owner.Service.ID, owner.Key, where, why, fix)
}

// isNode reports whether an address belongs to a node.
func (in Input) isNode(a netip.Addr) bool { return in.Nodes[a] != "" }
