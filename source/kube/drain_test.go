package kube

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/core/service"
	labkube "github.com/fairlead/fairlead/lab/kube"
)

// awaitDrain waits until a follower reports this drain state: why, whether it stays as the
// last, and which members leave.
func (f *follower) awaitDrain(want string) {
	f.t.Helper()
	f.await(func() error {
		if f.snapshot == nil {
			return errors.New("nothing is known yet")
		}
		got := fmt.Sprintf("%q last %v, leaving %v", f.snapshot.Drain, f.snapshot.Last, f.snapshot.Draining)
		if got != want {
			return fmt.Errorf("drain: %s, want %s", got, want)
		}
		return nil
	})
}

// testDrain cordons and taints the Nodes of two balancers.
func testDrain(t *testing.T, c *labkube.Cluster, w world) {
	cordon := func(name string, is bool) {
		t.Helper()
		w.node(name, func(n *corev1.Node) { n.Spec.Unschedulable = is })
	}
	taint := func(name string, keys ...string) {
		t.Helper()
		w.node(name, func(n *corev1.Node) {
			n.Spec.Taints = nil
			for _, k := range keys {
				n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: k, Effect: corev1.TaintEffectNoSchedule})
			}
		})
	}
	cordon("node-a", false)
	cordon("node-b", false)
	us := sliceOf("us-1", "us", "10.200.0.8", "10.200.0.9")
	us.Endpoints[1].NodeName = new("node-b")
	w.slice(us)
	defer w.deleteSlice("us-1")
	config := Config{
		Balancers: service.ID{Namespace: "default", Name: "us"}, DrainOnCordon: true,
		DrainTaints: []string{"fairlead.io/drain", "node.kubernetes.io/out-of-service"},
	}
	follow := func(node string, change func(*Config)) *follower {
		one := config
		one.Node = node
		change(&one)
		return newFollower(t, c.Config, one, true)
	}
	a, b := follow("node-a", func(*Config) {}), follow("node-b", func(*Config) {})
	calm := follow("node-a", func(c *Config) { c.DrainOnCordon = false })
	alone := follow("node-a", func(c *Config) { c.Balancers = service.ID{} })
	const (
		serves   = "[] last false, leaving []"
		cordoned = `["Node node-a is cordoned (kubectl uncordon node-a)"]`
	)
	for _, f := range []*follower{a, b, calm, alone} {
		f.awaitDrain(serves)
	}
	cordon("node-a", true)
	a.awaitDrain(cordoned + " last false, leaving [10.200.0.8]")
	b.awaitDrain("[] last false, leaving [10.200.0.8]")
	alone.awaitDrain(cordoned + " last false, leaving []") // it knows of no others
	calm.awaitDrain(serves)

	// All of them: none leaves until another may stay.
	cordon("node-b", true)
	a.awaitDrain(cordoned + " last true, leaving []")
	b.awaitDrain(`["Node node-b is cordoned (kubectl uncordon node-b)"] last true, leaving []`)
	cordon("node-a", false)
	a.awaitDrain("[] last false, leaving [10.200.0.9]")
	b.awaitDrain(`["Node node-b is cordoned (kubectl uncordon node-b)"] last false, leaving [10.200.0.9]`)
	cordon("node-b", false)

	// A taint has the same effect, and two are reported once.
	taint("node-a", "fairlead.io/drain", "example.com/other")
	for _, f := range []*follower{a, calm} {
		f.awaitDrain(`["Node node-a has the taint fairlead.io/drain"] last false, leaving [10.200.0.8]`)
	}
	cordon("node-a", true)
	a.awaitDrain(`["Node node-a has the taint fairlead.io/drain" "Node node-a is cordoned (kubectl uncordon node-a)"] last false, leaving [10.200.0.8]`)
	cordon("node-a", false)

	// A balancer that does not serve, or terminates, does not count.
	w.editSlice("us-1", func(s *discoveryv1.EndpointSlice) { s.Endpoints[1].Conditions.Serving = new(false) })
	a.awaitDrain(`["Node node-a has the taint fairlead.io/drain"] last true, leaving []`)
	w.editSlice("us-1", func(s *discoveryv1.EndpointSlice) {
		s.Endpoints[1].Conditions = discoveryv1.EndpointConditions{Terminating: new(true)}
	})
	a.awaitDrain(`["Node node-a has the taint fairlead.io/drain"] last true, leaving [10.200.0.9]`)
	taint("node-a")
	a.awaitDrain("[] last false, leaving [10.200.0.9]")
	for _, name := range []string{"node-a", "node-b"} {
		must(t, w.api.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}))
	}
}
