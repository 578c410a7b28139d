package reconciler

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/source"
)

// mayBegin decides whether routes may be advertised. A load balancer that starts waits
// until the source names it, and a little longer, so that backend nodes that check
// senders, and other load balancers, can know it before its first packet reaches them. It
// returns the maximum wait until the next check.
func (l *Loop) mayBegin(s *source.Snapshot) (wait time.Duration) {
	if l.open || !l.Balancers || l.Announcer == nil {
		l.open = true
		return 0
	}
	now := time.Now()
	if l.known.IsZero() && (l.isMember(s) || l.isNamed(s)) {
		l.known = now
	}
	left := noticeLimit - now.Sub(l.began)
	if !l.known.IsZero() {
		left = min(left, noticeSpread-now.Sub(l.known))
	}
	l.open = left <= 0
	return max(0, left)
}

// isMember reports whether the source lists an address of this node among the load
// balancers.
func (l *Loop) isMember(s *source.Snapshot) bool {
	return slices.ContainsFunc(s.Balancers, func(a netip.Addr) bool { return slices.Contains(l.Own, a) })
}

// unnamed returns the Problem of a load balancer that sends from an address that the
// source does not list, so that others drop its packets.
func (l *Loop) unnamed(s *source.Snapshot, p *plan.Plan) []problem.Problem {
	var missing []string
	for _, own := range l.Own {
		if own.IsValid() && !slices.Contains(s.Balancers, own) && sendsTo(p, own.Is4()) {
			missing = append(missing, own.String())
		}
	}
	if !l.Balancers || l.DataPlane == nil || len(missing) == 0 {
		return nil
	}
	return []problem.Problem{{Object: "load balancer", Field: "--balancers", Message: fmt.Sprintf(
		"packets are sent from %s, which is not an endpoint of that Service (endpoints: %s): load balancers, and backend nodes that check senders, drop them; "+
			"give --interface the interface with the address that the endpoint has, or the Service both families (ipFamilyPolicy: PreferDualStack)",
		strings.Join(missing, " and "), orNone(s.Balancers))}}
}

// sendsTo reports whether packets are tunneled to a backend of a family.
func sendsTo(p *plan.Plan, v4 bool) bool {
	return slices.ContainsFunc(p.Frontends, func(f plan.Frontend) bool {
		return f.Want != nil && f.Want.Method == service.Tunnel &&
			slices.ContainsFunc(f.Want.Backends, func(b service.Backend) bool { return b.Addr.Addr().Unmap().Is4() == v4 })
	})
}

func orNone(addrs []netip.Addr) string {
	if len(addrs) == 0 {
		return "none"
	}
	var texts []string
	for _, a := range addrs {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, ", ")
}

// unusedQuarantines returns a Problem for each order to drain a backend that does not exist,
// such as a deleted pod.
func unusedQuarantines(s *source.Snapshot, p *plan.Plan) (problems []problem.Problem) {
	for _, q := range s.Quarantines {
		if p.Quarantines[q] == nil {
			problems = append(problems, problem.Problem{Object: "Quarantine " + q.Name, Field: "spec",
				Message: strings.TrimSpace("drains no backend: "+q.Addr.String()+" "+q.Where()) + "; fairlead undrain --backend " + q.Flags() + " removes it"})
		}
	}
	return problems
}
