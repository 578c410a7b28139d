package status

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/source"
)

// Outcomes returns what this load balancer has done with the addresses that its Services
// have as load balancers, sorted by Service. It does not read the kernel.
func (a Agent) Outcomes() []source.Outcome {
	g := gatherer{Agent: a, view: a.View()}
	s := Status{Peers: g.allPeers(), DataPlane: &dataplane.Description{}}
	g.answered, _ = a.answered()
	s.Routes, s.Withdrawing = g.routes(), g.view.Withdrawing
	e := newExplainer(s)

	frontends, made := map[service.ID][]Frontend{}, map[service.ID]*source.Outcome{}
	for i := range g.view.Plan.Frontends {
		f := &g.view.Plan.Frontends[i]
		if f.State == plan.DedicatedElsewhere || f.Kind != service.LoadBalancerAddress {
			continue
		}
		out := Frontend{VIP: f.Key.VIP, Port: f.Key.Port, LastPort: f.Key.Last, Protocol: f.Key.Protocol.String()}
		out.State, out.Reason = g.state(f, nil)
		frontends[f.Service.ID] = append(frontends[f.Service.ID], out)
		one := made[f.Service.ID]
		if one == nil {
			one = &source.Outcome{ID: f.Service.ID, Created: f.Service.Created}
			made[f.Service.ID] = one
		}
		if one.NotProgrammed == "" && !out.State.Programmed() {
			one.NotProgrammed = camelCase(string(out.State))
		}
	}
	all := make([]source.Outcome, 0, len(made))
	for _, id := range slices.SortedFunc(maps.Keys(made), service.ID.Compare) {
		made[id].NotAdvertised = e.notAdvertised(Service{Frontends: frontends[id]})
		all = append(all, *made[id])
	}
	return all
}

// notAdvertised returns why an address of a Service is not advertised, or "".
func (s *explainer) notAdvertised(svc Service) string {
	var last netip.Addr // frontends are sorted by address
	for _, f := range svc.Frontends {
		if f.VIP == last {
			continue
		}
		last = f.VIP
		v := Verdict{VIP: f.VIP}
		if s.judge(&v, svc); !v.Advertised {
			return camelCase(string(v.Rule))
		}
	}
	return ""
}

// camelCase turns "no-endpoints" into "NoEndpoints".
func camelCase(name string) string {
	var b strings.Builder
	for word := range strings.SplitSeq(name, "-") {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String()
}
