package kube

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/source/object"
)

// kindDrain is the kind of these objects for problems; it never has any.
const kindDrain = "Node's drain"

// nodeDrain is true if the balancer of a Node must drain; other Nodes are not stored.
type nodeDrain bool

// drainOf returns why the balancer of a Node must drain.
func (s *Source) drainOf(n *corev1.Node) (why []string) {
	if n.Spec.Unschedulable && s.config.DrainOnCordon {
		why = append(why, fmt.Sprintf("Node %s is cordoned (kubectl uncordon %s)", n.Name, n.Name))
	}
	for _, t := range n.Spec.Taints {
		if slices.Contains(s.config.DrainTaints, t.Key) {
			why = append(why, fmt.Sprintf("Node %s has the taint %s", n.Name, t.Key))
		}
	}
	slices.Sort(why)
	return slices.Compact(why)
}

// followsDrains reports whether the drains of other Nodes' balancers are relevant.
func (s *Source) followsDrains() bool {
	return s.balance && s.config.Balancers.Name != "" && (s.config.DrainOnCordon || len(s.config.DrainTaints) > 0)
}

func (s *Source) readDrain(o runtime.Object) (*made[nodeDrain], error) {
	in, ok := o.(*corev1.Node)
	if !ok {
		return nil, fmt.Errorf("%T came where a Node was awaited", o)
	}
	return &made[nodeDrain]{id: service.ID{Name: in.Name}, value: len(s.drainOf(in)) > 0}, nil
}

func changeDrain(_ service.ID, _, now nodeDrain) (nodeDrain, bool) { return now, bool(now) }

// drainNow returns why this node's balancer must drain, whether it stays active
// nevertheless because no other would be left, and which members leave. Every balancer with
// the same information decides the same: if none would be left, none leaves because of its
// Node, nor does any before the members are known. The caller holds the lock.
func (s *Source) drainNow(members []object.Member) (why []string, last bool, leaving []netip.Addr) {
	var others []netip.Addr
	serving := 0
	for _, m := range members {
		switch {
		case m.Terminating:
			leaving = append(leaving, m.Addr)
		case bool(s.drains.held[service.ID{Name: m.Node}]):
			others = append(others, m.Addr)
		case m.Serving:
			serving++
		}
	}
	last = s.followsDrains() && (!s.drains.loaded || serving == 0)
	if !last {
		leaving = append(leaving, others...)
	}
	slices.SortFunc(leaving, netip.Addr.Compare)
	return s.nodes.held[service.ID{Name: s.config.Node}].drain, last, slices.Compact(leaving)
}
