package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/core/service"
	labkube "github.com/fairlead/fairlead/lab/kube"
)

// Objects that pass the API server's validation but make little or no sense.

// targets returns what the node's proxy does with its input: the endpoints of each frontend
// for the node's own clients, local ones with a star.
func (f *follower) targets(name string) string {
	var its []*proxy.Slice
	for _, s := range f.delivered.slices {
		if s.Service == name && s.ID.Namespace == "default" {
			its = append(its, s)
		}
	}
	slices.SortFunc(its, func(a, b *proxy.Slice) int { return a.ID.Compare(b.ID) })
	frontends, _ := proxy.Build(f.delivered.services[service.ID{Namespace: "default", Name: name}], its, f.node)
	var parts []string
	for _, fr := range frontends {
		text := fr.Key.String() + " ->"
		for _, to := range fr.Inside.Targets {
			text += " " + to.Addr.String() + map[bool]string{true: "*"}[to.Local]
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

func (f *follower) awaitTargets(name, want string) {
	f.t.Helper()
	f.await(func() error {
		if got := f.targets(name); got != want {
			return fmt.Errorf("%s: the proxy has %q, want %q", name, got, want)
		}
		return nil
	})
}

// balance makes a Service one of type LoadBalancer with an address.
func (w world) balance(name, ip string) {
	w.t.Helper()
	w.editService(name, func(s *corev1.Service) {
		s.Spec.Type, s.Spec.AllocateLoadBalancerNodePorts = corev1.ServiceTypeLoadBalancer, new(false)
	})
	w.editService(name, func(s *corev1.Service) { s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: ip}} })
}

// testStrange has endpoints that are a node's own address, the Service's own VIP,
// duplicated in two slices, and in a slice labeled for another Service. No Service here has
// a selector.
func testStrange(t *testing.T, c *labkube.Cluster, w world) {
	w.node("node-a", func(n *corev1.Node) {})
	n, err := w.api.CoreV1().Nodes().Get(context.Background(), "node-a", metav1.GetOptions{})
	must(t, err)
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.7"}}
	_, err = w.api.CoreV1().Nodes().UpdateStatus(context.Background(), n, metav1.UpdateOptions{})
	must(t, err)
	f := newFollower(t, c.Config, Config{}, true)
	f.awaitLoaded()

	w.service("web", "10.96.0.50", nil)
	w.balance("web", "10.1.1.1")
	f.awaitTargets("web", "10.1.1.1:80/TCP ->; 10.96.0.50:80/TCP ->") // no endpoint exists without a selector and slices
	f.awaitBalanced("default/web: TCP 10.1.1.1:80 ->")
	w.slice(sliceOf("web-1", "web", "192.0.2.7", "10.200.0.1"))
	w.slice(sliceOf("web-2", "web", "10.200.0.1", "10.200.0.2", "10.1.1.1"))
	const both = "10.1.1.1:8080* 10.200.0.1:8080* 10.200.0.2:8080* 192.0.2.7:8080*"
	f.awaitTargets("web", "10.1.1.1:80/TCP -> "+both+"; 10.96.0.50:80/TCP -> "+both)
	f.awaitBalanced("default/web: TCP 10.1.1.1:80 -> 10.200.0.1:8080*1 10.200.0.2:8080*1 192.0.2.7:8080*1")
	f.awaitProblem(true, "10.1.1.1 is a VIP of Service default/web and cannot be its own server; it is left out")

	// Of duplicates, the one that does not terminate wins.
	w.editSlice("web-2", func(s *discoveryv1.EndpointSlice) {
		s.Endpoints = s.Endpoints[:1]
		s.Endpoints[0].Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)}
	})
	f.awaitBalanced("default/web: TCP 10.1.1.1:80 -> 10.200.0.1:8080*1 192.0.2.7:8080*1")
	f.awaitTargets("web", "10.1.1.1:80/TCP -> 10.200.0.1:8080* 192.0.2.7:8080*; 10.96.0.50:80/TCP -> 10.200.0.1:8080* 192.0.2.7:8080*")

	// A slice belongs to the Service of its label, whatever its name, and moves with the
	// label.
	w.service("app", "10.96.0.51", nil)
	w.editSlice("web-1", func(s *discoveryv1.EndpointSlice) { s.Labels[discoveryv1.LabelServiceName] = "app" })
	f.awaitTargets("app", "10.96.0.51:80/TCP -> 10.200.0.1:8080* 192.0.2.7:8080*")
	f.awaitTargets("web", "10.1.1.1:80/TCP -> 10.200.0.1:8080*; 10.96.0.50:80/TCP -> 10.200.0.1:8080*") // a terminating one, because there is no other
	f.awaitBalanced("default/web: TCP 10.1.1.1:80 -> 10.200.0.1:8080*1")

	// An endpoint equal to the frontend, including the port, would loop.
	own := sliceOf("app-1", "app", "10.96.0.51")
	own.Ports[0].Port = new(int32(80))
	w.slice(own)
	f.await(func() error {
		if len(f.delivered.slices) < 3 {
			return errors.New("the slice was not delivered yet")
		}
		return nil
	})
	f.awaitTargets("app", "10.96.0.51:80/TCP -> 10.200.0.1:8080* 192.0.2.7:8080*")
	// No port, which the API accepts, means all ports to Kubernetes. No proxy serves that.
	w.editSlice("app-1", func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port = nil })
	f.awaitProblem(true, "EndpointSlice default/app-1: ports[0].port: ")
	f.awaitTargets("app", "10.96.0.51:80/TCP -> 10.200.0.1:8080* 192.0.2.7:8080*")

	for _, name := range []string{"web-1", "web-2", "app-1"} {
		w.deleteSlice(name)
	}
	w.deleteService("web")
	w.deleteService("app")
	f.awaitProblem(false, "default/")
	must(t, w.api.CoreV1().Nodes().Delete(context.Background(), "node-a", metav1.DeleteOptions{}))
}

// testMany has a Service with as many endpoints as a slice may have, and one with an
// additional slice.
func testMany(t *testing.T, c *labkube.Cluster, w world) {
	f := newFollower(t, c.Config, Config{}, true)
	f.awaitLoaded()
	w.service("web", "10.96.0.50", nil)
	w.balance("web", "10.1.1.1")
	addrs := func(of, n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf("10.%d.%d.%d", of, i/250, 1+i%250))
		}
		return all
	}
	w.slice(sliceOf("web-1", "web", addrs(201, 1000)...))
	count := func(want int) {
		t.Helper()
		f.await(func() error {
			proxied, balanced := strings.Count(f.targets("web"), ":8080*"), strings.Count(balanced(f.snapshot), ":8080*")
			if proxied != 2*want || balanced != want {
				return fmt.Errorf("%d targets of two frontends, %d servers; want %d of each", proxied, balanced, want)
			}
			return nil
		})
	}
	count(1000)
	w.slice(sliceOf("web-2", "web", addrs(202, 1000)...))
	count(2000)
	w.editSlice("web-2", func(s *discoveryv1.EndpointSlice) { s.Endpoints = s.Endpoints[:1] })
	count(1001)
	w.deleteSlice("web-1")
	count(1)
	w.deleteSlice("web-2")
	w.deleteService("web")
}

// testRenamed has the node register under another name than the agent is configured with: its
// state stays valid, and it reports what to do.
func testRenamed(t *testing.T, c *labkube.Cluster, w world) {
	w.node("node-a", func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = "z1" })
	w.service("web", "10.96.0.50", nil)
	w.slice(sliceOf("web-1", "web", "10.200.0.1"))
	f := newFollower(t, c.Config, Config{}, true)
	f.awaitTargets("web", "10.96.0.50:80/TCP -> 10.200.0.1:8080*")
	must(t, w.api.CoreV1().Nodes().Delete(context.Background(), "node-a", metav1.DeleteOptions{}))
	w.node("node-z", func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = "z1" })
	w.editSlice("web-1", func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].NodeName = new("node-z") })
	f.awaitProblem(true, "Node node-a: is gone from the cluster; what was known of it is taken for true; if it has another name now, start the agent with that (--node)")
	f.awaitTargets("web", "10.96.0.50:80/TCP -> 10.200.0.1:8080") // served, but not as local
	again := newFollower(t, c.Config, Config{Node: "node-z"}, true)
	again.awaitTargets("web", "10.96.0.50:80/TCP -> 10.200.0.1:8080*")
	again.awaitProblem(false, "Node")
	must(t, w.api.CoreV1().Nodes().Delete(context.Background(), "node-z", metav1.DeleteOptions{}))
	w.deleteSlice("web-1")
	w.deleteService("web")
}
