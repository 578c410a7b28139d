package status

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/reconciler"
)

// RuleWithdrawing is the rule of a route that is withdrawn but that some peer may still
// have: packets may still arrive, so its frontends stay programmed.
const RuleWithdrawing plan.Rule = "withdrawing"

// Leaving is a frontend that is no longer desired but stays programmed until the
// withdrawal of its route is confirmed, and for --withdraw-grace-period after that.
type Leaving struct {
	// Frontend is "TCP 10.1.1.1:80".
	Frontend string `json:"frontend"`
	// Since is when it was no longer desired.
	Since time.Time `json:"since"`
	// Reason is what it waits for.
	Reason string `json:"reason"`
}

func leaving(v *reconciler.View) (all []Leaving) {
	for k, f := range v.Leaving {
		reason := "packets may still be on their way (--withdraw-grace-period)"
		if len(f.Waits) > 0 {
			reason = waits(f.Waits)
		}
		all = append(all, Leaving{Frontend: k.String(), Since: f.Since, Reason: reason})
	}
	slices.SortFunc(all, func(a, b Leaving) int { return strings.Compare(a.Frontend, b.Frontend) })
	return all
}

// waits lists the pending confirmations.
func waits(all []advertise.Withdrawal) string {
	words := make([]string, len(all))
	for i, w := range all {
		words[i] = w.String()
	}
	return strings.Join(words, "; ")
}

// perPrefix calls each with the withdrawals of every prefix; they must be sorted.
func perPrefix(all []advertise.Withdrawal, each func(p netip.Prefix, of []advertise.Withdrawal)) {
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].Prefix == all[0].Prefix {
			n++
		}
		each(all[0].Prefix, all[:n])
		all = all[n:]
	}
}

// withWithdrawing adds the routes that some peer may still have, and marks those already
// listed for another reason.
func withWithdrawing(routes []Route, all []advertise.Withdrawal) []Route {
	at := make(map[netip.Prefix]int, len(routes))
	for i, r := range routes {
		at[r.Prefix] = i
	}
	perPrefix(all, func(p netip.Prefix, of []advertise.Withdrawal) {
		i, known := at[p]
		switch {
		case !known:
			routes = append(routes, Route{Prefix: p, Rule: RuleWithdrawing, Reason: waits(of)})
		case routes[i].Reason == "":
			routes[i].Rule, routes[i].Reason = RuleWithdrawing, waits(of)
		default:
			routes[i].Reason += "; " + waits(of)
		}
	})
	return routes
}

// patient is how long a withdrawal may take before it is a problem: all peers except
// stuck ones confirm it within that time.
const patient = 5 * time.Second

// overdue returns a problem for each withdrawal that takes too long.
func (s Status) overdue() (problems []problem.Problem) {
	more := 0
	perPrefix(s.Withdrawing, func(p netip.Prefix, of []advertise.Withdrawal) {
		switch {
		case s.Time.Sub(of[0].Since) <= patient:
		case len(problems) == namedRefusals:
			more++
		default:
			problems = append(problems, problem.Failed("route "+p.String(), "its frontends stay programmed: "+waits(of)))
		}
	})
	if more > 0 {
		problems = append(problems, problem.Failed("routes", fmt.Sprintf("the withdrawal of %d more routes is not confirmed", more)))
	}
	return problems
}

// WithdrawingPrefixes counts the prefixes with an unconfirmed withdrawal.
func (s Status) WithdrawingPrefixes() (n int) {
	perPrefix(s.Withdrawing, func(netip.Prefix, []advertise.Withdrawal) { n++ })
	return n
}

// withdrawingWords summarizes the pending withdrawals; empty without any.
func (s Status) withdrawingWords() string {
	if len(s.Withdrawing) == 0 {
		return ""
	}
	first := slices.MinFunc(s.Withdrawing, func(a, b advertise.Withdrawal) int { return a.Since.Compare(b.Since) })
	return fmt.Sprintf("%d routes, %d frontends still programmed; %s: %s", s.WithdrawingPrefixes(), len(s.Leaving), first.Prefix, first)
}
