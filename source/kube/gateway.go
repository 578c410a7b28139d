package kube

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/source/gateway"
	"github.com/fairlead/fairlead/source/object"
)

// gateways has the objects of the Gateway API, and what is served for them. It is empty
// without Config.GatewayAPI.
type gateways struct {
	classes    *store[*gateway.Class]
	gateways   *store[*gateway.Gateway]
	tcp, udp   *store[*gateway.Route]
	grants     *store[*gateway.Grant]
	namespaces *store[*corev1.Namespace]
	// stale means that the objects have changed since the verdict.
	stale   bool
	verdict *gateway.Verdict
	// behind are the Services that listeners route to.
	behind map[service.ID]bool
	served map[service.ID]gateway.Served
	// services is the sorted list of what is served.
	services []*service.Service
}

func newGateways(s *Source) gateways {
	changed := func() { s.gateways.stale = true }
	return gateways{
		classes: own(s, gateway.KindClass, func(in *gateway.Class) *gateway.Class { return lean(in) }, changed),
		gateways: own(s, gateway.KindGateway, func(in *gateway.Gateway) *gateway.Gateway {
			kept := lean(in)
			kept.Annotations, kept.Labels = in.Annotations, in.Labels
			kept.Status = gateway.Status{Addresses: in.Status.Addresses}
			return kept
		}, changed),
		tcp:    own(s, gateway.KindTCPRoute, leanRoute, changed),
		udp:    own(s, gateway.KindUDPRoute, leanRoute, changed),
		grants: own(s, gateway.KindGrant, func(in *gateway.Grant) *gateway.Grant { return lean(in) }, changed),
		namespaces: own(s, "Namespace", func(in *corev1.Namespace) *corev1.Namespace {
			kept := &corev1.Namespace{}
			kept.Name, kept.Labels = in.Name, in.Labels
			return kept
		}, changed),
		served: map[service.ID]gateway.Served{}, stale: true,
	}
}

// lean keeps an object's spec and the required part of its metadata.
func lean[S, T any](in *gateway.Object[S, T]) *gateway.Object[S, T] {
	kept := &gateway.Object[S, T]{Spec: in.Spec}
	kept.Namespace, kept.Name, kept.CreationTimestamp = in.Namespace, in.Name, in.CreationTimestamp
	return kept
}

func leanRoute(in *gateway.Route) *gateway.Route { return lean(in) }

// followGateways returns the functions that fill these stores.
func (s *Source) followGateways() []func(context.Context) {
	g, c := &s.gateways, s.client
	classes := resource{client: c.gateway, name: "gatewayclasses", own: func() runtime.Object { return &gateway.ClassList{} }}
	all := resource{client: c.gateway, name: "gateways", own: func() runtime.Object { return &gateway.GatewayList{} }}
	tcp := resource{client: c.gateway, older: c.olderRoutes, name: "tcproutes", own: func() runtime.Object { return &gateway.RouteList{} }}
	udp := tcp
	udp.name = "udproutes"
	grants := resource{client: c.grants, name: "referencegrants", own: func() runtime.Object { return &gateway.GrantList{} }}
	namespaces := resource{client: c.core, name: "namespaces", blank: func() message { return &corev1.Namespace{} }}
	return []func(context.Context){
		follow(s, classes, g.classes), follow(s, all, g.gateways), follow(s, tcp, g.tcp), follow(s, udp, g.udp),
		follow(s, grants, g.grants), follow(s, namespaces, g.namespaces),
	}
}

// gatewaysRead reports whether everything that Gateways require is known, or known to be
// forbidden. The caller holds the lock.
func (s *Source) gatewaysRead() bool {
	g, kept := &s.gateways, s.routing.forbidden
	return !s.config.GatewayAPI || (g.classes.loaded || kept["gatewayclasses"]) && (g.gateways.loaded || kept["gateways"]) &&
		(g.tcp.loaded || kept["tcproutes"]) && (g.udp.loaded || kept["udproutes"]) &&
		(g.grants.loaded || kept["referencegrants"]) && (g.namespaces.loaded || kept["namespaces"])
}

// withGateways adds what Gateways serve to the sorted list of Services. changed are the
// Services that have changed. The caller holds the lock.
func (s *Source) withGateways(services []*service.Service, changed []service.ID) []*service.Service {
	if !s.config.GatewayAPI {
		return services
	}
	g := &s.gateways
	if g.stale {
		g.verdict = gateway.Judge(s.gatewayObjects())
		g.behind = g.verdict.Behind()
	}
	if g.stale || slices.ContainsFunc(changed, func(id service.ID) bool { return g.behind[id] }) {
		s.serveGateways()
		g.stale = false
	}
	if len(g.services) == 0 {
		return services
	}
	return slices.SortedFunc(slices.Values(slices.Concat(services, g.services)), func(a, b *service.Service) int { return a.ID.Compare(b.ID) })
}

func (s *Source) gatewayObjects() gateway.Objects {
	g := &s.gateways
	return gateway.Objects{
		Classes: slices.Collect(maps.Values(g.classes.held)), Gateways: slices.Collect(maps.Values(g.gateways.held)),
		TCPRoutes: slices.Collect(maps.Values(g.tcp.held)), UDPRoutes: slices.Collect(maps.Values(g.udp.held)),
		Grants: slices.Collect(maps.Values(g.grants.held)),
		Namespace: func(name string) map[string]string {
			if n := g.namespaces.held[service.ID{Name: name}]; n != nil {
				return n.Labels
			}
			return nil
		},
		Service: func(id service.ID) ([]gateway.Port, bool) {
			e, ok := s.services.held[id]
			return e.ports, ok && e.ports != nil
		},
	}
}

// serveGateways computes again what Gateways serve.
func (s *Source) serveGateways() {
	g := &s.gateways
	served := map[service.ID]gateway.Served{}
	g.services = nil
	var problems []problem.Problem
	for _, one := range g.verdict.Gateways {
		id := gateway.ID(one.Gateway)
		made := one.Serve(g.served[id], func(of service.ID) []*object.Object { return s.balancer.slices[of] })
		served[id] = made
		if made.Service != nil {
			g.services = append(g.services, made.Service)
		}
		for _, f := range made.Faults {
			k := object.Key{Kind: gateway.KindGateway, Namespace: one.Namespace, Name: one.Name}
			problems = append(problems, problem.Problem{Object: k.String(), Field: f.Field, Message: f.Message})
		}
	}
	g.served = served
	s.problems.put(s.problems.kinds, object.Key{Kind: gateway.KindGateway}, problems)
}
