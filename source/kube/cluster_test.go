package kube

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/core/service"
	labkube "github.com/fairlead/fairlead/lab/kube"
	"github.com/fairlead/fairlead/source"
	"github.com/fairlead/fairlead/source/object"
)

// TestCluster shares a cluster among tests that do not harm it. Each removes what it
// created.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := labkube.Start(t, labkube.Options{})
	for _, one := range []struct {
		name string
		test func(t *testing.T, c *labkube.Cluster, w world)
	}{
		{"Proxy", testProxy}, {"Selected", testSelected}, {"Node", testNode}, {"NoNode", testNoNode},
		{"Balancer", testBalancer}, {"Drain", testDrain}, {"Both", testBoth}, {"Kubeconfig", testKubeconfig},
		{"Strange", testStrange}, {"Many", testMany}, {"Renamed", testRenamed}, {"Networks", testNetworks}, {"Senders", testSenders},
	} {
		t.Run(one.name, func(t *testing.T) { one.test(t, c, world{t, clientFor(t, c.Config)}) })
	}
}

// kubernetesService is the Service that every cluster has, as the Sink receives it.
const kubernetesService = "service {ID:default/kubernetes ClusterIPs:[10.96.0.1] ExternalIPs:[] LoadBalancerIPs:[] " +
	"Ports:[{Name:https Protocol:TCP Port:443 NodePort:0}] Affinity:0s InternalLocal:false ExternalLocal:false " +
	"HealthCheckNodePort:0 SourceRanges:[]}"

func testProxy(t *testing.T, c *labkube.Cluster, w world) {
	w.service("web", "10.96.0.50", func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		s.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		s.Spec.ExternalIPs = []string{"192.0.2.9"}
		s.Spec.LoadBalancerSourceRanges = []string{"10.1.0.0/16 "}
		s.Spec.Ports[0].NodePort, s.Spec.HealthCheckNodePort = 30080, 30081
	})
	w.slice(sliceOf("web-1", "web", "10.200.0.1", "10.200.0.2"))
	f := newFollower(t, c.Config, Config{}, false)
	f.awaitLoaded()
	web := "service {ID:default/web ClusterIPs:[10.96.0.50] ExternalIPs:[192.0.2.9] LoadBalancerIPs:[%s] " +
		"Ports:[{Name:http Protocol:TCP Port:80 NodePort:30080}] Affinity:3h0m0s InternalLocal:true ExternalLocal:true " +
		"HealthCheckNodePort:30081 SourceRanges:[10.1.0.0/16]}"
	slice := "slice {ID:{Namespace:default Name:web-1} Service:web IPv6:false Ports:[{Name:http Protocol:TCP Port:8080}] " +
		"Endpoints:[{Addr:10.200.0.1 Node:node-a Ready:%v Serving:true Terminating:%v ForZones:[%s] ForNodes:[]} " +
		"{Addr:10.200.0.2 Node:node-a Ready:true Serving:true Terminating:false ForZones:[] ForNodes:[]}]}"
	f.awaitState(strings.Join([]string{kubernetesService, fmt.Sprintf(web, ""), fmt.Sprintf(slice, true, false, "")}, "\n"))

	// The Sink does not receive irrelevant changes.
	w.editService("web", func(s *corev1.Service) { s.Labels = map[string]string{"a": "b"} })
	w.editService("web", func(s *corev1.Service) {
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{
			{IP: "192.0.2.1"}, {IP: "192.0.2.2", IPMode: new(corev1.LoadBalancerIPModeVIP)},
			{IP: "192.0.2.3", IPMode: new(corev1.LoadBalancerIPModeProxy)}, {Hostname: "a.example.com"},
		}
	})
	f.awaitCalls("set service default/web")
	w.editSlice("web-1", func(s *discoveryv1.EndpointSlice) {
		s.Endpoints[0].Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)}
		s.Endpoints[0].Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "z1"}}}
	})
	f.awaitCalls("set slice default/web-1")
	f.awaitState(strings.Join([]string{
		kubernetesService, fmt.Sprintf(web, "192.0.2.1 192.0.2.2"), fmt.Sprintf(slice, false, true, "z1")}, "\n"))

	w.deleteSlice("web-1")
	w.deleteService("web")
	f.awaitCalls("delete slice default/web-1", "delete service default/web")
	f.awaitLoaded()
	if p := f.source.Problems(); len(p) != 1 || !strings.Contains(p[0].Message, "is not in the cluster") {
		t.Errorf("got problems %q, want the Node's alone", p)
	}
}

// testSelected has Services that kube-proxy ignores, and changes that make them relevant or
// not.
func testSelected(t *testing.T, c *labkube.Cluster, w world) {
	w.service("headless", "None", nil)
	s := sliceOf("headless-1", "headless", "10.200.0.1")
	s.Labels[corev1.IsHeadlessService] = ""
	w.slice(s)
	unrelated := sliceOf("unrelated", "", "10.200.0.1")
	unrelated.Labels = nil
	w.slice(unrelated)
	w.service("name", "", func(s *corev1.Service) {
		s.Spec.Type, s.Spec.ExternalName, s.Spec.Ports = corev1.ServiceTypeExternalName, "example.com", nil
	})
	w.service("other", "10.96.0.51", func(s *corev1.Service) { s.Labels = map[string]string{labelProxyName: "other"} })
	names := sliceOf("names", "name", "a.example.com")
	names.AddressType = discoveryv1.AddressTypeFQDN
	w.slice(names)

	for _, balance := range []bool{false, true} {
		f := newFollower(t, c.Config, Config{Balancers: service.ID{Name: "headless"}}, balance)
		f.awaitLoaded()
		f.awaitState(kubernetesService)
		w.editService("other", func(s *corev1.Service) { s.Labels = nil })
		f.awaitCalls("set service default/other")
		w.editService("other", func(s *corev1.Service) { s.Labels = map[string]string{labelProxyName: "other"} })
		f.awaitCalls("delete service default/other")
	}
	w.deleteService("headless")
	w.deleteService("name")
	w.deleteService("other")
	for _, name := range []string{"headless-1", "unrelated", "names"} {
		w.deleteSlice(name)
	}
}

func testNode(t *testing.T, c *labkube.Cluster, w world) {
	w.node("node-a", func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = "z1" })
	w.node("node-b", func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = "z2" })
	f := newFollower(t, c.Config, Config{}, false)
	f.awaitLoaded()
	f.awaitNode(Node{Name: "node-a", Zone: "z1"}, proxy.Node{Name: "node-a", Zone: "z1"})
	w.node("node-a", func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = "z3" })
	f.awaitNode(Node{Name: "node-a", Zone: "z3"}, proxy.Node{Name: "node-a", Zone: "z3"})

	n, err := w.api.CoreV1().Nodes().Get(context.Background(), "node-a", metav1.GetOptions{})
	must(t, err)
	n.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: "192.0.2.7"}, {Type: corev1.NodeExternalIP, Address: "192.0.2.8"},
		{Type: corev1.NodeInternalIP, Address: "2001:db8::7"}, {Type: corev1.NodeHostName, Address: "node-a"},
	}
	_, err = w.api.CoreV1().Nodes().UpdateStatus(context.Background(), n, metav1.UpdateOptions{})
	must(t, err)
	ips := []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")}
	f.awaitNode(Node{Name: "node-a", Zone: "z3", InternalIPs: ips}, f.node)
	w.node("node-a", func(n *corev1.Node) {
		n.Labels[corev1.LabelNodeExcludeBalancers] = ""
		n.Spec.Taints = []corev1.Taint{{Key: taintDeleted, Effect: corev1.TaintEffectNoSchedule}}
	})
	f.awaitNode(Node{Name: "node-a", Zone: "z3", InternalIPs: ips, Excluded: true, Leaving: true}, f.node)

	// A deleted Node is remembered and may return.
	must(t, w.api.CoreV1().Nodes().Delete(context.Background(), "node-a", metav1.DeleteOptions{}))
	f.awaitProblem(true, "Node node-a: is gone from the cluster")
	f.awaitNode(Node{Name: "node-a", Zone: "z3", InternalIPs: ips, Excluded: true, Leaving: true}, proxy.Node{Name: "node-a", Zone: "z3"})
	w.node("node-a", func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = "z4" })
	f.awaitNode(Node{Name: "node-a", Zone: "z4"}, proxy.Node{Name: "node-a", Zone: "z4"})
	f.awaitProblem(false, "Node")
	for _, name := range []string{"node-a", "node-b"} {
		must(t, w.api.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}))
	}
}

func (f *follower) awaitNode(want Node, its proxy.Node) {
	f.t.Helper()
	said := func(n Node) string {
		n.uid = "" // assigned by the API server
		return fmt.Sprint(n)
	}
	f.await(func() error {
		got, ok := Node{}, false
		if len(f.nodes) > 0 {
			got, ok = f.nodes[len(f.nodes)-1], true
		}
		if !ok || said(got) != said(want) || f.node != its {
			return fmt.Errorf("the node is %+v, to the proxy %+v; want %+v, %+v", got, f.node, want, its)
		}
		return nil
	})
	if got, ok := f.source.Node(); !ok || said(got) != said(want) {
		f.t.Errorf("Node gives %+v (%v), want %+v", got, ok, want)
	}
}

// testNoNode has a node that registers late.
func testNoNode(t *testing.T, c *labkube.Cluster, w world) {
	f := newFollower(t, c.Config, Config{Node: "late"}, false)
	f.awaitLoaded()
	f.awaitProblem(true, "Node late: is not in the cluster")
	if f.node != (proxy.Node{Name: "late"}) {
		t.Errorf("the Sink's node is %+v", f.node)
	}
	w.node("late", func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = "z1" })
	f.awaitNode(Node{Name: "late", Zone: "z1"}, proxy.Node{Name: "late", Zone: "z1"})
	f.awaitProblem(false, "Node")
	must(t, w.api.CoreV1().Nodes().Delete(context.Background(), "late", metav1.DeleteOptions{}))
}

// balanced prints a snapshot: each Service with its VIPs and backends.
func balanced(s *source.Snapshot) string {
	if s == nil {
		return "nothing published"
	}
	var b strings.Builder
	for _, svc := range s.Services {
		fmt.Fprintf(&b, "%s:", svc.ID)
		for _, f := range svc.Frontends {
			fmt.Fprintf(&b, " %s ->", f.Key)
			for _, be := range f.Backends {
				fmt.Fprintf(&b, " %s*%d", be.Addr, be.Weight)
			}
		}
		b.WriteString("; ")
	}
	return strings.TrimSuffix(b.String(), "; ")
}

func (f *follower) awaitBalanced(want string) {
	f.t.Helper()
	f.await(func() error {
		if got := balanced(f.snapshot); got != want {
			return errors.New(got)
		}
		return nil
	})
}

// awaitStale waits until exactly these Services are served in an older version.
func (f *follower) awaitStale(want string) {
	f.t.Helper()
	f.await(func() error {
		var stale []string
		for _, o := range f.snapshot.Stale {
			if o.Since.IsZero() || o.Object != "Service "+o.Service {
				return fmt.Errorf("stale: %+v", o)
			}
			stale = append(stale, o.Service)
		}
		if got := strings.Join(stale, " "); got != want {
			return fmt.Errorf("stale: %q, want %q", got, want)
		}
		return nil
	})
}

func testBalancer(t *testing.T, c *labkube.Cluster, w world) {
	balancer := func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeLoadBalancer }
	w.service("web", "", balancer)
	w.service("inner", "", nil)
	w.service("foreign", "", func(s *corev1.Service) { balancer(s); s.Spec.LoadBalancerClass = new("example.com/theirs") })
	w.service("claims", "", func(s *corev1.Service) { // an address in the spec that nobody assigned is ignored
		s.Annotations = map[string]string{"fairlead.io/addresses": "192.0.2.66"}
		s.Spec.ExternalIPs = []string{"192.0.2.67"}
	})
	w.slice(sliceOf("web-1", "web", "10.200.0.1", "10.200.0.2"))
	f := newFollower(t, c.Config, Config{Balancers: service.ID{Namespace: "default", Name: "us"}}, true)
	f.awaitBalanced("")
	f.awaitProblem(true, "Service default/web: status.loadBalancer.ingress: the Service waits for an address; fairlead controller")
	w.editService("web", func(s *corev1.Service) {
		s.Status.Conditions = []metav1.Condition{{Type: object.ConditionAssigned, Status: metav1.ConditionFalse, Reason: "NoMatchingPool", Message: "no pool is named front", LastTransitionTime: metav1.Now()}}
	})
	f.awaitProblem(true, "Service default/web: status.loadBalancer.ingress: the Service waits for an address: NoMatchingPool: no pool is named front")

	give := func(ips ...string) func(*corev1.Service) {
		return func(s *corev1.Service) {
			s.Status.LoadBalancer.Ingress = nil
			for _, ip := range ips {
				s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
			}
		}
	}
	w.editService("foreign", give("192.0.2.2"))
	w.editService("web", give("192.0.2.1"))
	const both = "default/web: TCP 192.0.2.1:80 -> 10.200.0.1:8080*1 10.200.0.2:8080*1"
	f.awaitBalanced(both)
	f.awaitProblem(false, "Service default/web")

	// A second Service does not change the first.
	before := f.snapshot.Services[0]
	if before.Frontends[0].Backends[0].Since.IsZero() {
		t.Error("the time since which the backends take flows is unknown")
	}
	w.service("app", "", balancer)
	w.editService("app", give("192.0.2.3"))
	f.awaitBalanced("default/app: TCP 192.0.2.3:80 ->; " + both)
	if f.snapshot.Services[1] != before {
		t.Error("a Service that did not change is another pointer")
	}
	w.deleteService("app")
	f.awaitBalanced(both)

	// A rejected change keeps the previous version; a terminating endpoint drains.
	w.editService("web", func(s *corev1.Service) { s.Annotations = map[string]string{"fairlead.io/forwarding-mode": "magic"} })
	f.awaitProblem(true, "Service default/web: metadata.annotations[fairlead.io/forwarding-mode]: unknown forwarding mode")
	f.awaitBalanced(both)
	f.awaitStale("default/web")
	w.editService("web", give("192.0.2.5")) // the former address may belong to another Service now
	f.awaitBalanced("")
	f.awaitStale("")
	w.editService("web", give("192.0.2.1"))
	w.editService("web", func(s *corev1.Service) { s.Annotations = nil })
	f.awaitBalanced(both)
	f.awaitProblem(false, "Service default/web")
	w.editSlice("web-1", func(s *discoveryv1.EndpointSlice) {
		s.Annotations = map[string]string{"fairlead.io/weights": "10.200.0.2=3"}
		s.Endpoints[0].Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)}
	})
	f.awaitBalanced("default/web: TCP 192.0.2.1:80 -> 10.200.0.1:8080*0 10.200.0.2:8080*3")
	w.slice(sliceOf("web-2", "web", "10.200.0.3"))
	f.awaitBalanced("default/web: TCP 192.0.2.1:80 -> 10.200.0.1:8080*0 10.200.0.2:8080*3 10.200.0.3:8080*1")
	w.deleteSlice("web-2")
	f.awaitBalanced("default/web: TCP 192.0.2.1:80 -> 10.200.0.1:8080*0 10.200.0.2:8080*3")

	// An agent that requires a class ignores Services without one.
	w.service("classed", "", func(s *corev1.Service) { balancer(s); s.Spec.LoadBalancerClass = new(object.LoadBalancerClass) })
	w.editService("classed", give("192.0.2.4"))
	strict := newFollower(t, c.Config, Config{RequireClass: true}, true)
	strict.awaitBalanced("default/classed: TCP 192.0.2.4:80 ->")
	w.deleteService("classed")

	// The balancers themselves, in a headless Service.
	us := sliceOf("us-1", "us", "10.200.0.9", "10.200.0.8")
	us.Labels[corev1.IsHeadlessService] = ""
	us.Endpoints[0].Conditions.Terminating = new(true)
	w.slice(us)
	f.await(func() error {
		if got := fmt.Sprint(f.snapshot.Draining); got != "[10.200.0.9]" {
			return fmt.Errorf("draining balancers: %s", got)
		}
		return nil
	})

	// An address that is removed is no longer served.
	w.editService("web", give())
	f.awaitBalanced("")
	for _, name := range []string{"web", "inner", "foreign", "claims"} {
		w.deleteService(name)
	}
	w.deleteSlice("web-1")
	w.deleteSlice("us-1")
	f.awaitProblem(false, "Service default/web")
}

// testBoth serves a Service to the proxy and to the balancer through one watch.
func testBoth(t *testing.T, c *labkube.Cluster, w world) {
	f := newFollower(t, c.Config, Config{}, true)
	f.awaitLoaded()
	f.awaitState(kubernetesService)
	w.slice(sliceOf("web-1", "web", "10.200.0.1"))
	w.service("web", "10.96.0.50", nil)
	f.awaitCalls("set slice default/web-1", "set service default/web")
	f.awaitBalanced("")
	w.editService("web", func(s *corev1.Service) {
		s.Spec.Type, s.Spec.AllocateLoadBalancerNodePorts = corev1.ServiceTypeLoadBalancer, new(false)
	})
	w.editService("web", func(s *corev1.Service) {
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	})
	f.awaitCalls("set service default/web")
	f.awaitBalanced("default/web: TCP 192.0.2.1:80 -> 10.200.0.1:8080*1")
	w.editService("web", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP })
	f.awaitCalls("set service default/web")
	f.awaitBalanced("")
	w.deleteService("web")
	w.deleteSlice("web-1")
	f.awaitCalls("delete service default/web", "delete slice default/web-1")
}

func testKubeconfig(t *testing.T, c *labkube.Cluster, w world) {
	s, err := New(Config{Kubeconfig: c.Kubeconfig})
	must(t, err)
	if _, err := s.client.core.Get().Resource("services").Do(t.Context()).Raw(); err != nil {
		t.Error(err)
	}
	for _, c := range []Config{{}, {Kubeconfig: t.TempDir() + "/none"}, {Kubeconfig: c.Kubeconfig, Sink: &follower{}}} {
		if _, err := New(c); err == nil {
			t.Errorf("%+v is taken", c)
		} else {
			t.Log(err)
		}
	}
}
