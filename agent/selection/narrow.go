package selection

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/reconciler"
)

// MaxOrigins limits how many frontends of a prefix are selected: one prefix may lead to
// all Services.
const MaxOrigins = 20

// Narrow returns a view with what is selected. What it holds by key is shared with v.
func (s Selection) Narrow(v *reconciler.View) *reconciler.View {
	if s.All() {
		return v
	}
	n := *v
	n.Plan = &plan.Plan{Frontends: s.frontends(v.Plan)}
	vips, names := map[netip.Addr]bool{}, map[string]bool{}
	for i := range n.Plan.Frontends {
		f := &n.Plan.Frontends[i]
		vips[f.Key.VIP], names[f.Service.ID.String()] = true, true
	}
	for _, a := range s.Addresses {
		vips[a] = true
	}
	covers := s.covers(vips)
	for _, r := range v.Plan.Routes {
		if covers(r.Prefix) {
			n.Plan.Routes = append(n.Plan.Routes, r)
		}
	}
	for _, r := range v.Plan.Refusals {
		if covers(r.Prefix) {
			n.Plan.Refusals = append(n.Plan.Refusals, r)
		}
	}
	if !s.Node {
		n.Withdrawing = slices.DeleteFunc(slices.Clone(v.Withdrawing), func(w advertise.Withdrawal) bool {
			return !s.Problems && !covers(w.Prefix)
		})
		n.Leaving = maps.Clone(v.Leaving)
		maps.DeleteFunc(n.Leaving, func(k service.Key, _ reconciler.Leaving) bool { return !vips[k.VIP] })
	}
	if s.Problems {
		n.Problems = append(slices.Clip(v.Problems), plan.Conflicts(v.Plan.Frontends)...)
	} else {
		s.narrowProblems(&n, names, covers)
	}
	return &n
}

// frontends returns the selected frontends.
func (s Selection) frontends(p *plan.Plan) (all []plan.Frontend) {
	picked := map[int]bool{}
	if backends := matchersOf(s.Backends); len(s.Services)+len(backends) > 0 {
		for i := range p.Frontends {
			if f := &p.Frontends[i]; s.takesService(f.Service.ID) || has(f, backends) {
				picked[i] = true
			}
		}
	}
	for _, a := range s.Addresses {
		for i := p.AtLeast(a); i < len(p.Frontends) && p.Frontends[i].Key.VIP == a; i++ {
			picked[i] = true
		}
	}
	for _, prefix := range s.Prefixes {
		first := p.AtLeast(prefix.Addr())
		for i := first; i < min(len(p.Frontends), first+MaxOrigins) && prefix.Contains(p.Frontends[i].Key.VIP); i++ {
			picked[i] = true
		}
	}
	for _, i := range slices.Sorted(maps.Keys(picked)) {
		all = append(all, p.Frontends[i])
	}
	return all
}

// covers returns whether a prefix is selected itself, or contains one of the addresses.
func (s Selection) covers(addresses map[netip.Addr]bool) func(netip.Prefix) bool {
	sorted := make([]netip.Addr, 0, len(addresses))
	for a := range addresses {
		sorted = append(sorted, a)
	}
	slices.SortFunc(sorted, netip.Addr.Compare)
	return func(p netip.Prefix) bool {
		if slices.Contains(s.Prefixes, p) {
			return true
		}
		i, _ := slices.BinarySearchFunc(sorted, p.Masked().Addr(), netip.Addr.Compare)
		return i < len(sorted) && p.Contains(sorted[i])
	}
}

// narrowProblems removes the problems of other Services, frontends and routes. If anything
// is wrong with all Services, there are very many.
func (s Selection) narrowProblems(v *reconciler.View, names map[string]bool, covers func(netip.Prefix) bool) {
	stale, problems, failures := v.Stale, v.Problems, v.Failures
	v.Stale, v.Problems, v.Failures = nil, nil, map[string]error{}
	objects := map[string]bool{}
	for _, o := range stale {
		if names[o.Service] || s.named(o.Service) {
			v.Stale = append(v.Stale, o)
			names[o.Service], objects[o.Object] = true, true
		}
	}
	for i := range problems {
		if p := &problems[i]; objects[p.Object] || s.concerns(p.Object, names, covers) {
			v.Problems = append(v.Problems, *p)
		}
	}
	keys := map[string]bool{}
	for i := range v.Plan.Frontends {
		keys[v.Plan.Frontends[i].Key.String()] = true
	}
	for what, err := range failures {
		if kind, _, _ := strings.Cut(what, " "); keys[what] || !isFrontend(kind) && s.concerns(what, names, covers) {
			v.Failures[what] = err
		}
	}
}

// concerns reports whether an object is selected, or is none of those that a Status has
// very many of.
func (s Selection) concerns(object string, names map[string]bool, covers func(netip.Prefix) bool) bool {
	kind, name, _ := strings.Cut(object, " ")
	switch kind {
	case "Service":
		return names[name] || s.named(name)
	case "EndpointSlice":
		return belongs(name, names)
	case "route":
		prefix, err := netip.ParsePrefix(name)
		return err != nil || covers(prefix)
	}
	return true
}

// named reports whether a Service, "namespace/name", is named in the selection.
func (s Selection) named(id string) bool {
	if len(s.Services) == 0 {
		return false
	}
	namespace, name, _ := strings.Cut(id, "/")
	return s.takesService(service.ID{Namespace: namespace, Name: name})
}

// belongs reports whether an EndpointSlice, "namespace/name", is named after one of the
// Services, as Kubernetes does.
func belongs(slice string, names map[string]bool) bool {
	for at := len(slice); at > 0; at = strings.LastIndexByte(slice[:at], '-') {
		if names[slice[:at]] {
			return true
		}
	}
	return false
}

// isFrontend reports whether an object's first word is the protocol of a frontend.
func isFrontend(kind string) bool {
	switch kind {
	case service.TCP.String(), service.UDP.String(), service.SCTP.String(), service.AnyProtocol.String():
		return true
	}
	return false
}
