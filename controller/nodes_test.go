package controller_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/source/object"
)

// node creates a Node with these addresses, or changes one.
func (w *world) node(t *testing.T, name string, addrs ...string) {
	t.Helper()
	ctx, nodes := context.Background(), w.core.CoreV1().Nodes()
	n, err := nodes.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		n, err = nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		w.must(t, err)
		t.Cleanup(func() { _ = nodes.Delete(ctx, name, metav1.DeleteOptions{}) })
	}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}}
	for _, a := range addrs {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	_, err = nodes.UpdateStatus(ctx, n, metav1.UpdateOptions{})
	w.must(t, err)
}

// nodesInPools has nodes with addresses in a pool: none of these is assigned to a Service,
// and the pool reports their nodes, as they are added and removed.
func nodesInPools(t *testing.T, w *world) {
	w.node(t, "n1", "10.1.1.1", "2001:db8::1")
	_, stop := w.control(t)
	w.pool(t, "p", "{addresses: [10.1.1.0-10.1.1.5, \"2001:db8::/127\"], reserved: [10.1.1.0]}")
	w.wantPool(t, "p", "4=4/0/4 6=1/0/1 True OverlapsNodeAddress: its addresses are assigned, except those of nodes: "+
		"10.1.1.1 of node n1; 2001:db8::1 of node n1; reserve them (spec.reserved), or change the addresses of the nodes")
	w.wantEvent(t, "p", "OverlapsNodeAddress", "10.1.1.1 of node n1")
	w.serve(t, "any")
	w.want(t, "any", "10.1.1.2 True Assigned")
	w.serve(t, "asks", annotated(object.AnnotationAddresses, "10.1.1.1"))
	w.want(t, "asks", " False NotInPool: it requests 10.1.1.1, which is the address of node n1")

	// A node that is added later: the owner of its address keeps it, and is informed.
	w.node(t, "n2", "10.1.1.2")
	w.wantPool(t, "p", "4=3/0/3 6=1/0/1 True OverlapsNodeAddress: its addresses are assigned, except those of nodes: 10.1.1.1 of node n1; 10.1.1.2 of node n2; ")
	w.want(t, "any", "10.1.1.2 True AddressOutsidePools: it keeps 10.1.1.2, which is the address of node n2; it has 10.1.1.2")
	stop()
	_, stop = w.control(t) // the next leader reports the same
	defer stop()
	w.serve(t, "next")
	w.want(t, "next", "10.1.1.3 True Assigned")
	w.want(t, "any", "10.1.1.2 True AddressOutsidePools: it keeps 10.1.1.2, which is the address of node n2")

	// Nodes change their addresses, and are deleted.
	w.node(t, "n1", "10.9.9.9")
	w.want(t, "asks", "10.1.1.1 True Assigned")
	w.must(t, w.core.CoreV1().Nodes().Delete(context.Background(), "n2", metav1.DeleteOptions{}))
	w.want(t, "any", "10.1.1.2 True Assigned")
	w.wantPool(t, "p", "4=5/3/2 6=2/0/2 True Ready: its addresses are assigned")
}
