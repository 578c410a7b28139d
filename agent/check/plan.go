package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/ipvs"
	"github.com/fairlead/fairlead/dataplane/xdp/entry"
	"github.com/fairlead/fairlead/source"
	"github.com/fairlead/fairlead/source/object"
)

// own4 and own6 stand in for the addresses of a load balancer (RFC 5737, RFC 3849).
var own4, own6 = netip.MustParseAddr("192.0.2.254"), netip.MustParseAddr("2001:db8::fe")

// plan reports what a node that advertises this does not program. A nil list of
// Advertisements advertises everything.
func (k *checker) plan(advertises source.Advertisements, dataPlanes []string) {
	in := plan.Input{
		Services: shared(k.read.Services),
		Health:   func(health.Target) health.State { return health.Up },
		Node:     plan.Node{NextHop4: own4, NextHop6: own6},
	}
	if advertises != nil {
		in.Announce = anywhere(advertises)
	}
	p := plan.Build(in)
	for i := range p.Frontends {
		k.frontend(&p.Frontends[i], dataPlanes)
	}
	k.plans = append(k.plans, p)
}

// shared returns the Services as if no load balancer were dedicated, so that all of them
// are planned.
func shared(all []*service.Service) []*service.Service {
	all = slices.Clone(all)
	for i, s := range all {
		if s.Dedicated {
			c := *s
			c.Dedicated = false
			all[i] = &c
		}
	}
	return all
}

// anywhere leaves out the conditions that depend on which backends a node has.
func anywhere(a source.Advertisements) func(*service.Service, netip.Addr) ([]route.Offer, string) {
	return func(s *service.Service, vip netip.Addr) ([]route.Offer, string) {
		offers, why := a.Offers(s, vip)
		offers = slices.Clone(offers)
		for i := range offers {
			offers[i].Local = false
			if offers[i].WeightBy == route.WeightByEndpoints {
				offers[i].WeightBy = route.WeightByNone
			}
		}
		return offers, why
	}
}

func (k *checker) frontend(f *plan.Frontend, dataPlanes []string) {
	p := problem.Problem{Object: objectOf(f.Service), Where: f.Service.Origin, Message: f.Reason}
	switch f.State {
	case plan.Conflict:
		k.add(Error, RuleConflict, p)
	case plan.NoEndpoints, plan.Draining:
		if k.explained(f.Service.ID) {
			break
		}
		p.Message = fmt.Sprintf("%s: %s", f.Key, f.Reason)
		k.add(Warning, Rule(f.State), p)
	}
	if f.Want == nil {
		return
	}
	for _, name := range dataPlanes {
		if err := supports(name, *f.Want); err != nil {
			p.Message = fmt.Sprintf("data plane %s: %s", name, err)
			k.add(Error, RuleUnsupported, p)
		}
	}
}

// explained reports whether an error about the Service, or about an EndpointSlice that has
// its name, is a likely reason for missing backends.
func (k *checker) explained(id service.ID) bool {
	_, rejected := slices.BinarySearch(k.rejected, object.KindService+" "+id.String())
	slice := object.KindSlice + " " + id.String()
	at, _ := slices.BinarySearch(k.rejected, slice)
	return rejected || at < len(k.rejected) && strings.HasPrefix(k.rejected[at], slice)
}

func objectOf(s *service.Service) string { return "Service " + s.ID.String() }

// supports returns why a data plane rejects a frontend, or nil.
func supports(dataPlane string, f desired.Frontend) error {
	if dataPlane == "ipvs" {
		return ipvs.Check(f)
	}
	if what := entry.Unsupported(f, own4, own6); what != "" {
		return dataplane.Unsupported(f.Key, what)
	}
	return nil
}

// refusals reports the routes that are not advertised as requested: by no node, or by one
// that ignores one of two contradicting Advertisements.
func (k *checker) refusals() {
	nodes := map[netip.Prefix]int{}
	for _, p := range k.plans {
		for prefix := range p.Prefixes() {
			nodes[prefix]++
		}
	}
	for _, p := range k.plans {
		for _, r := range p.Refusals {
			switch {
			case r.Rule == plan.RuleAttributeConflict:
				k.refusal(Error, p, r)
			case nodes[r.Prefix] == 0:
				k.refusal(Warning, p, r)
			}
		}
	}
}

// refusal reports a route for the first Service that it leads to.
func (k *checker) refusal(severity Severity, p *plan.Plan, r plan.Refusal) {
	for i := p.AtLeast(r.Prefix.Masked().Addr()); i < len(p.Frontends) && r.Prefix.Contains(p.Frontends[i].Key.VIP); i++ {
		if f := &p.Frontends[i]; f.Want != nil {
			k.add(severity, Rule(r.Rule), problem.Problem{Object: objectOf(f.Service), Where: f.Service.Origin,
				Message: fmt.Sprintf("%s is not advertised as requested: %s", r.Prefix, r.Reason)})
			return
		}
	}
}
