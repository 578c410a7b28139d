package kube

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/source/object"
)

const (
	kindNode = "Node"
	// taintDeleted is the cluster autoscaler's taint of a node that is about to be deleted
	// (KEP-3836).
	taintDeleted = "ToBeDeletedByClusterAutoscaler"
)

// Node is this node.
type Node struct {
	Name, Zone string
	// InternalIPs are its cluster-internal addresses, from its status.
	InternalIPs []netip.Addr
	// Excluded means that its label excludes it from external load balancers, Leaving that
	// it is deleted or about to be. In both cases external traffic is better served
	// elsewhere.
	Excluded, Leaving bool
	drain             []string          // why its balancer must drain
	labels            map[string]string // on their way to routing; not stored
	uid               types.UID
}

func (s *Source) readNode(o runtime.Object) (*made[Node], error) {
	in, ok := o.(*corev1.Node)
	if !ok {
		return nil, fmt.Errorf("%T came where a Node was awaited", o)
	}
	_, excluded := in.Labels[corev1.LabelNodeExcludeBalancers]
	tainted := slices.ContainsFunc(in.Spec.Taints, func(t corev1.Taint) bool { return t.Key == taintDeleted })
	m := &made[Node]{id: service.ID{Name: in.Name}, value: Node{
		Name: in.Name, Zone: in.Labels[corev1.LabelTopologyZone], Excluded: excluded,
		Leaving: tainted || in.DeletionTimestamp != nil, labels: in.Labels, drain: s.drainOf(in), uid: in.UID,
	}}
	for i, a := range in.Status.Addresses {
		if a.Type != corev1.NodeInternalIP {
			continue
		}
		if ip, ok := addr(a.Address); ok {
			m.value.InternalIPs = append(m.value.InternalIPs, ip)
		} else {
			m.refused = append(m.refused, object.Fault{
				Field: fmt.Sprintf("status.addresses[%d].address", i), Message: fmt.Sprintf("%q is not an IP address; it is left out", a.Address)})
		}
	}
	return m, nil
}

// changeNode delivers the node. A Node that was deleted from the cluster may still run
// workloads.
func (s *Source) changeNode(id service.ID, was, now Node) (Node, bool) {
	if now.Name == "" {
		now = was
		now.Leaving = true
		s.nodeProblem("is gone from the cluster; what was known of it is taken for true; if it has another name now, start the agent with that (--node)")
	} else {
		s.nodeProblem("")
		s.setLabels(now.labels)
		now.labels = nil
	}
	settle(&was, &now, func(n *Node) {
		if was.Name != n.Name || was.Zone != n.Zone {
			s.setProxyNode(proxy.Node{Name: n.Name, Zone: n.Zone})
		}
		if s.config.OnNode != nil {
			s.config.OnNode(*n)
		}
	}, nil)
	return now, true
}

// noNode reports that the cluster has no such node, and had none since the start.
func (s *Source) noNode() {
	s.nodeProblem("is not in the cluster: no endpoint is local, and the zone is not known; set --node to the name of the Node")
	s.setProxyNode(proxy.Node{Name: s.config.Node})
}

func (s *Source) nodeProblem(message string) {
	k := object.Key{Kind: kindNode, Name: s.config.Node}
	var now []problem.Problem
	if message != "" {
		now = []problem.Problem{{Object: kindNode + " " + k.Name, Message: message}}
	}
	s.problems.put(s.problems.kinds, k, now)
}

func (s *Source) setProxyNode(n proxy.Node) {
	if s.config.Sink != nil {
		s.config.Sink.SetNode(n)
	}
}
