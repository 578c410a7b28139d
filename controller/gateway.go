package controller

import (
	"context"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/shorten"
	"github.com/fairlead/fairlead/internal/sleep"
	"github.com/fairlead/fairlead/internal/wake"
	"github.com/fairlead/fairlead/source/gateway"
)

// awaitGatewayAPI is the interval of checks whether the cluster has the Gateway API.
const awaitGatewayAPI = 15 * time.Second

// gatewayTerm is a leader's state of the Gateway API. All of it is evaluated again when
// anything changes: it is small, and its parts depend on each other.
type gatewayTerm struct {
	classes, gateways, tcp, udp, grants cache.SharedIndexInformer
	routes                              rest.Interface // of their version
	// changed has capacity for one element.
	changed chan struct{}
	// held are the Gateways that have addresses, or may be published with some.
	held map[service.ID]bool
}

// loadGateways reads the objects of the Gateway API, and reports whether the term
// continues. It is not an error if the cluster does not have it; if it does, its Gateways'
// addresses must be known before any is assigned to others.
func (t *term) loadGateways(ctx context.Context, running *sync.WaitGroup) bool {
	if !t.GatewayAPI {
		return true
	}
	g := &gatewayTerm{changed: make(chan struct{}, 1), held: map[service.ID]bool{}}
	kinds, has := t.gatewayKinds(ctx, g)
	if !has {
		t.Log.Info("the cluster does not have the Gateway API with TCPRoute and UDPRoute, waiting for it")
		return true
	}
	var synced []cache.InformerSynced
	for _, k := range kinds {
		if !t.await(ctx, k.kind) {
			return false
		}
		informer := t.informer(k.kind)
		*k.into = informer
		running.Go(func() { informer.RunWithContext(ctx) })
		synced = append(synced, informer.HasSynced)
	}
	t.gateways = g
	return cache.WaitForCacheSync(ctx.Done(), synced...)
}

// gatewayKind is one of those kinds, with its informer.
type gatewayKind struct {
	kind
	into *cache.SharedIndexInformer
}

// gatewayKinds returns the kinds to read, or false if the cluster lacks any of them. If
// that cannot be determined, it counts as having them.
func (t *term) gatewayKinds(ctx context.Context, g *gatewayTerm) ([]gatewayKind, bool) {
	v1 := t.api[gateway.V1]
	routes := func() runtime.Object { return &gateway.RouteList{} }
	kinds := []gatewayKind{
		{kind{"gatewayclasses", v1, &gateway.Class{}, func() runtime.Object { return &gateway.ClassList{} }, nil, nil}, &g.classes},
		{kind{"gateways", v1, &gateway.Gateway{}, func() runtime.Object { return &gateway.GatewayList{} }, nil, nil}, &g.gateways},
		{kind{"referencegrants", t.api[gateway.V1Beta1], &gateway.Grant{}, func() runtime.Object { return &gateway.GrantList{} }, nil, nil}, &g.grants},
		{kind{"tcproutes", v1, &gateway.Route{}, routes, nil, nil}, &g.tcp},
		{kind{"udproutes", v1, &gateway.Route{}, routes, nil, nil}, &g.udp},
	}
	for i := range kinds {
		k := &kinds[i]
		has := func() bool {
			_, err := k.get(ctx, metav1.ListOptions{Limit: 1})
			return !apierrors.IsNotFound(err)
		}
		if has() {
			continue
		}
		if k.client = t.api[gateway.V1Alpha2]; k.into != &g.tcp && k.into != &g.udp || !has() {
			return nil, false
		}
	}
	g.routes = kinds[3].client
	return kinds, true
}

// restoreGateways records which addresses Gateways have.
func (t *term) restoreGateways() (n int) {
	if t.gateways == nil {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, one := range gateway.Judge(t.gatewayObjects()).Gateways {
		id := gateway.ID(one.Gateway)
		if r, _ := t.request(one.AsService()); len(r.Current) > 0 {
			t.alloc.Restore(id, r)
			t.gateways.held[id] = true
			n++
		}
	}
	return n
}

func (t *term) notifyGateways() {
	if t.gateways != nil {
		wake.Up(t.gateways.changed)
	}
}

// keepGateways keeps the objects of the Gateway API up to date. If the API is installed
// later, the term ends, and the next one begins with it.
func (t *term) keepGateways(ctx context.Context) {
	if t.gateways == nil {
		t.awaitGateways(ctx)
		return
	}
	g := t.gateways
	notifying := cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { t.notifyGateways() }, UpdateFunc: func(any, any) { t.notifyGateways() }, DeleteFunc: func(any) { t.notifyGateways() },
	}
	for _, i := range []cache.SharedIndexInformer{g.classes, g.gateways, g.tcp, g.udp, g.grants, t.namespaces} {
		_, _ = i.AddEventHandler(notifying)
	}
	_, _ = t.services.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { t.notifyGateways() }, DeleteFunc: func(any) { t.notifyGateways() },
		UpdateFunc: func(was, now any) {
			a, ok := was.(*corev1.Service)
			b, ok2 := now.(*corev1.Service)
			if ok && ok2 && !slices.Equal(gateway.PortsOf(a), gateway.PortsOf(b)) {
				t.notifyGateways()
			}
		},
	})
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.changed:
		}
		pause := retryPause
		end := t.rounds.Begin("gateways")
		done := t.judgeGateways(ctx)
		if end(); !done {
			pause = patience[0]
			wake.Up(g.changed)
		}
		sleep.For(ctx, pause)
	}
}

// awaitGateways ends the term when the cluster has the Gateway API.
func (t *term) awaitGateways(ctx context.Context) {
	for t.GatewayAPI {
		if !sleep.For(ctx, awaitGatewayAPI) {
			return
		}
		if _, has := t.gatewayKinds(ctx, &gatewayTerm{}); has {
			t.Log.Info("the Gateway API is now available, restarting")
			t.end()
		}
	}
}

// gatewayObjects returns all current objects.
func (t *term) gatewayObjects() gateway.Objects {
	g := t.gateways
	return gateway.Objects{
		Classes: listed[gateway.Class](g.classes), Gateways: listed[gateway.Gateway](g.gateways),
		TCPRoutes: listed[gateway.Route](g.tcp), UDPRoutes: listed[gateway.Route](g.udp), Grants: listed[gateway.Grant](g.grants),
		Namespace: func(name string) map[string]string {
			if o, ok, _ := t.namespaces.GetStore().GetByKey(name); ok {
				return o.(*corev1.Namespace).Labels
			}
			return nil
		},
		Service: func(id service.ID) ([]gateway.Port, bool) {
			o, ok, _ := t.services.GetStore().GetByKey(id.String())
			if !ok {
				return nil, false
			}
			ports := gateway.PortsOf(o.(*corev1.Service))
			return ports, ports != nil
		},
	}
}

func listed[T any](i cache.SharedIndexInformer) (all []*T) {
	for _, o := range i.GetStore().List() {
		if one, ok := o.(*T); ok {
			all = append(all, one)
		}
	}
	return all
}

// judgeGateways assigns addresses to Gateways and writes what differs, and reports whether
// all is done.
func (t *term) judgeGateways(ctx context.Context) (done bool) {
	all := t.gatewayObjects()
	v := gateway.Judge(all)
	t.setBehind(v.Behind())
	done = true
	for _, c := range v.Classes {
		status := c.Status
		status.Conditions = with(status.Conditions, metav1.Condition{
			Type: "Accepted", Status: metav1.ConditionTrue, Reason: "Accepted", Message: "Fairlead serves Gateways of this class", ObservedGeneration: c.Generation,
		})
		done = t.writeStatus(ctx, t.api[gateway.V1], "gatewayclasses", &c.ObjectMeta, c.Status, status, map[string]any{"conditions": status.Conditions}) && done
	}
	there := map[service.ID]bool{}
	for _, one := range v.Gateways {
		there[gateway.ID(one.Gateway)] = true
		done = t.judgeGateway(ctx, one) && done
	}
	done = t.partGateways(ctx, all.Gateways, there) && done
	for _, r := range v.Routes {
		done = t.judgeRoute(ctx, r) && done
	}
	return t.leaveRoutes(ctx, all, v) && done
}

// setBehind records which Services Gateways route to.
func (t *term) setBehind(now map[service.ID]bool) {
	t.mu.Lock()
	was, look := t.behind, t.lookAt
	t.behind = now
	t.mu.Unlock()
	for _, pair := range [][2]map[service.ID]bool{{was, now}, {now, was}} {
		for id := range pair[0] {
			if !pair[1][id] && look != nil {
				look(id)
			}
		}
	}
}

// lackingBackends are reasons of routes, not of their Gateway.
var lackingBackends = []string{"NoEndpoints", "NoHealthyBackend", "AwaitingHealth"}

// judgeGateway assigns a Gateway's addresses and sets its conditions.
func (t *term) judgeGateway(ctx context.Context, one *gateway.Judged) bool {
	id := gateway.ID(one.Gateway)
	programmed, addrs, leaving := t.addressGateway(one)
	onNodes, advertised := t.reported(id, &one.ObjectMeta, func(reason string) bool { return slices.Contains(lackingBackends, reason) })
	programmed = t.programmedOn(one, programmed, onNodes)
	conditions := with(one.Status.Conditions, one.Accepted, programmed)
	if advertised.ObservedGeneration = one.Generation; t.reports.Load() != nil {
		conditions = withKnown(conditions, advertised)
	}
	status := gateway.Status{Conditions: conditions, Addresses: addresses(addrs), Listeners: []gateway.ListenerStatus{}}
	for _, l := range one.Listeners {
		status.Listeners = append(status.Listeners, listenerStatus(one, l, programmed))
	}
	t.gateways.held[id] = len(addrs) > 0 || leaving
	var before any = one.Status
	if leaving {
		before = nil // only a write confirms the release
	}
	if !t.writeStatus(ctx, t.api[gateway.V1], "gateways", &one.ObjectMeta, before, status,
		map[string]any{"addresses": status.Addresses, "conditions": status.Conditions, "listeners": status.Listeners}) {
		return false
	}
	t.settle(id)
	return true
}

// programmedOn adds what load balancers report to the condition Programmed of a Gateway. Until
// that is known, what the previous leader has added stays.
func (t *term) programmedOn(one *gateway.Judged, c, onNodes metav1.Condition) metav1.Condition {
	const on = "; programmed on "
	before := meta.FindStatusCondition(one.Status.Conditions, c.Type)
	switch {
	case t.reports.Load() == nil && before != nil && strings.HasPrefix(before.Message, c.Message+on):
		c.Status, c.Reason, c.Message = before.Status, before.Reason, before.Message
		return c
	case onNodes.Status != metav1.ConditionUnknown:
		c.Message += on + onNodes.Message
	}
	if c.Status == metav1.ConditionTrue && onNodes.Status == metav1.ConditionFalse {
		c.Status, c.Reason = metav1.ConditionFalse, "Pending"
	}
	return c
}

// addressGateway assigns a Gateway's addresses, and returns the condition Programmed as far
// as it depends on them. leaving means that it may still be published with others.
func (t *term) addressGateway(one *gateway.Judged) (programmed metav1.Condition, addrs []netip.Addr, leaving bool) {
	id, like := gateway.ID(one.Gateway), one.AsService()
	programmed = metav1.Condition{Type: "Programmed", Status: metav1.ConditionFalse, Reason: "Invalid", ObservedGeneration: one.Generation}
	if one.Accepted.Status == metav1.ConditionFalse {
		programmed.Message = one.Accepted.Message
		addrs, leaving = t.held(id)
		return programmed, addrs, leaving
	}
	res, leaving, invalid := t.assign(id, like)
	c := t.judge(like, res, invalid)
	programmed.Status, programmed.Reason, programmed.Message = c.Status, "Programmed", c.Message
	if c.Status == metav1.ConditionFalse {
		programmed.Reason = "AddressNotAssigned"
		if len(one.Spec.Addresses) > 0 {
			programmed.Reason = "AddressNotUsable"
		}
	}
	return programmed, res.Addrs, leaving
}

func (t *term) held(id service.ID) (addrs []netip.Addr, leaving bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.alloc.Held(id), len(t.alloc.Leaving(id)) > 0
}

func addresses(addrs []netip.Addr) (all []gateway.Address) {
	kind := gateway.TypeIPAddress
	for _, a := range addrs {
		all = append(all, gateway.Address{Type: &kind, Value: a.String()})
	}
	return all
}

func listenerStatus(g *gateway.Judged, l *gateway.Listening, ofGateway metav1.Condition) gateway.ListenerStatus {
	s := gateway.ListenerStatus{Name: l.Name, SupportedKinds: l.Kinds}
	for _, was := range g.Status.Listeners {
		if was.Name == l.Name {
			s.Conditions = was.Conditions
		}
	}
	programmed := ofGateway
	if l.Transport == 0 {
		programmed.Status, programmed.Reason, programmed.Message = metav1.ConditionFalse, "Invalid", "it is not served"
	} else if programmed.Status == metav1.ConditionFalse {
		programmed.Reason = "Pending"
	}
	s.Conditions = with(s.Conditions, append(slices.Clone(l.Conditions), programmed)...)
	if l.Route != nil {
		s.AttachedRoutes = 1
	}
	return s
}

// partGateways releases the addresses of Gateways that are deleted, or not ours any more.
func (t *term) partGateways(ctx context.Context, all []*gateway.Gateway, there map[service.ID]bool) (done bool) {
	done = true
	for _, g := range all {
		id := gateway.ID(g)
		if there[id] || !t.gateways.held[id] {
			continue
		}
		there[id] = true
		if t.writeStatus(ctx, t.api[gateway.V1], "gateways", &g.ObjectMeta, g.Status.Addresses, nil, map[string]any{"addresses": nil}) {
			t.release(id)
			delete(t.gateways.held, id)
		} else {
			done = false
		}
	}
	for id := range t.gateways.held {
		if !there[id] { // deleted, and so no longer published
			t.release(id)
			delete(t.gateways.held, id)
		}
	}
	return done
}

// judgeRoute writes a route's conditions at our Gateways; those at others stay.
func (t *term) judgeRoute(ctx context.Context, r *gateway.Routed) bool {
	parents := []gateway.ParentStatus{} // null is not a list
	for _, p := range r.Status.Parents {
		if p.ControllerName != gateway.ControllerName {
			parents = append(parents, p)
		}
	}
	for _, p := range r.Parents {
		var before []metav1.Condition
		for _, was := range r.Status.Parents {
			if was.ControllerName == gateway.ControllerName && reflect.DeepEqual(was.ParentRef, p.ParentRef) {
				before = was.Conditions
			}
		}
		p.Conditions = with(before, p.Conditions...)
		parents = append(parents, p)
	}
	resource := map[string]string{gateway.KindTCPRoute: "tcproutes", gateway.KindUDPRoute: "udproutes"}[r.Kind]
	return t.writeStatus(ctx, t.gateways.routes, resource, &r.ObjectMeta, r.Status.Parents, parents, map[string]any{"parents": parents})
}

// leaveRoutes removes our status from routes that are not attached to any of our Gateways
// any more.
func (t *term) leaveRoutes(ctx context.Context, all gateway.Objects, v *gateway.Verdict) (done bool) {
	done = true
	still := map[*gateway.Route]bool{}
	for _, r := range v.Routes {
		still[r.Route] = true
	}
	for kind, routes := range map[string][]*gateway.Route{gateway.KindTCPRoute: all.TCPRoutes, gateway.KindUDPRoute: all.UDPRoutes} {
		for _, r := range routes {
			ours := func(p gateway.ParentStatus) bool { return p.ControllerName == gateway.ControllerName }
			if slices.ContainsFunc(r.Status.Parents, ours) && !still[r] {
				done = t.judgeRoute(ctx, &gateway.Routed{Route: r, Kind: kind}) && done
			}
		}
	}
	return done
}

// with sets conditions among the existing ones.
func with(before []metav1.Condition, now ...metav1.Condition) []metav1.Condition {
	all := slices.Clone(before)
	for _, c := range now {
		c.Message = shorten.Text(c.Message, shorten.EventNote)
		meta.SetStatusCondition(&all, c)
	}
	return all
}

// writeStatus writes a status if it differs from the previous one, unless the object has
// changed meanwhile, and reports whether that is done.
func (t *term) writeStatus(ctx context.Context, client rest.Interface, resource string, of *metav1.ObjectMeta, was, now any, status map[string]any) bool {
	if reflect.DeepEqual(was, now) {
		return true
	}
	return t.patch(ctx, client, resource, of, nil, status)
}
