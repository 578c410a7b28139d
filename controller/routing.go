package controller

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/fairlead/fairlead/api/v1alpha1"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/source/crd"
)

// Reasons of the conditions of BGPPeers and Advertisements, besides ReasonInvalid.
const (
	ReasonAccepted   = "Accepted"
	ReasonAllNodes   = "AllNodes"
	ReasonSomeNodes  = "SomeNodes"
	ReasonNotOnNodes = "NotOnAnyNode"
	ReasonNoNode     = "NoNodeReports"
)

// gather is how long reports of several nodes are gathered before the conditions are
// written.
const gather = time.Second

// shownNodes limits the nodes that a condition names.
const shownNodes = 3

// routingKind is a kind with a RoutingStatus.
type routingKind struct {
	kind
	// condition is about its nodes.
	condition string
	open      func(o any) (*metav1.ObjectMeta, *v1alpha1.RoutingStatus, error)
}

// keepRouting maintains the conditions of BGPPeers and Advertisements until ctx ends.
func (t *term) keepRouting(ctx context.Context) {
	own := t.api[v1alpha1.GroupVersion]
	var running sync.WaitGroup
	for _, k := range []routingKind{{
		kind{"bgppeers", own, &v1alpha1.BGPPeer{}, func() runtime.Object { return &v1alpha1.BGPPeerList{} }, nil, nil}, v1alpha1.ConditionEstablished,
		func(o any) (*metav1.ObjectMeta, *v1alpha1.RoutingStatus, error) {
			p := o.(*v1alpha1.BGPPeer)
			return &p.ObjectMeta, &p.Status, crd.ValidatePeer(p)
		},
	}, {
		kind{"advertisements", own, &v1alpha1.Advertisement{}, func() runtime.Object { return &v1alpha1.AdvertisementList{} }, nil, nil}, v1alpha1.ConditionAdvertised,
		func(o any) (*metav1.ObjectMeta, *v1alpha1.RoutingStatus, error) {
			a := o.(*v1alpha1.Advertisement)
			return &a.ObjectMeta, &a.Status, crd.ValidateAdvertisement(a)
		},
	}} {
		running.Go(func() { t.keepRoutingKind(ctx, k) })
	}
	running.Wait()
}

func (t *term) keepRoutingKind(ctx context.Context, k routingKind) {
	if !t.awaitHeartbeats(ctx) || !t.await(ctx, k.kind) {
		return
	}
	informer, queue := t.informer(k.kind), newQueue()
	look := func(o any) {
		if m, _, _ := k.open(o); m.DeletionTimestamp == nil {
			queue.AddAfter(service.ID{Name: m.Name}, gather)
		}
	}
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: look, UpdateFunc: func(_, o any) { look(o) }})
	t.onLoss(func() {
		for _, o := range informer.GetStore().List() {
			look(o)
		}
	})
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { informer.RunWithContext(ctx) })
	running.Go(func() {
		t.drainQueue(ctx, k.resource, queue, func(ctx context.Context, id service.ID) bool {
			o, exists, _ := informer.GetStore().GetByKey(id.Name)
			return !exists || t.judgeRouting(ctx, k, o)
		})
	})
	<-ctx.Done()
	queue.ShutDown()
}

// judgeRouting writes the conditions of an object if they have changed, and reports whether
// that is done.
func (t *term) judgeRouting(ctx context.Context, k routingKind, o any) bool {
	of, status, invalid := k.open(o)
	accepted := metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: ReasonAccepted, ObservedGeneration: of.Generation}
	if invalid != nil {
		accepted.Status, accepted.Reason, accepted.Message = metav1.ConditionFalse, ReasonInvalid, strings.ReplaceAll(invalid.Error(), "\n", "; ")
	}
	var nodes []v1alpha1.NodeState
	for _, n := range status.Nodes {
		if !t.isGone(n.Node) {
			nodes = append(nodes, unlessSilent(n, t.silentSince(n.Node)))
		}
	}
	summary, onNodes := judgeNodes(nodes)
	onNodes.Type, onNodes.ObservedGeneration = k.condition, of.Generation
	now := v1alpha1.RoutingStatus{Summary: summary, Conditions: with(status.Conditions, accepted, onNodes), Nodes: status.Nodes}
	return t.writeStatus(ctx, k.client, k.resource, of, *status, now, map[string]any{"summary": now.Summary, "conditions": now.Conditions})
}

// judgeNodes returns the condition of an object that has this state on nodes.
func judgeNodes(nodes []v1alpha1.NodeState) (summary string, c metav1.Condition) {
	ready := 0
	var why []string
	for _, n := range nodes {
		if n.Ready {
			ready++
		} else if len(why) < shownNodes {
			why = append(why, n.Node+": "+n.Message)
		}
	}
	if more := len(nodes) - ready - len(why); more > 0 {
		why = append(why, fmt.Sprintf("and %d more", more))
	}
	summary = fmt.Sprintf("%d/%d", ready, len(nodes))
	c.Status, c.Reason, c.Message = metav1.ConditionFalse, ReasonSomeNodes, strings.Join(append([]string{summary + " nodes"}, why...), "; ")
	switch {
	case len(nodes) == 0:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, ReasonNoNode, "no load balancer reports it"
	case ready == len(nodes):
		c.Status, c.Reason = metav1.ConditionTrue, ReasonAllNodes
	case ready == 0:
		c.Reason = ReasonNotOnNodes
	}
	return summary, c
}
