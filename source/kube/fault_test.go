package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/core/service"
	labkube "github.com/fairlead/fairlead/lab/kube"
)

// relay is a proxy between an agent and its API server that can be cut.
type relay struct {
	to string
	net.Listener

	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

// newRelay returns a relay to a server, and a configuration to connect through it.
func newRelay(t *testing.T, config *rest.Config) (*relay, *rest.Config) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	must(t, err)
	r := &relay{Listener: l, to: strings.TrimPrefix(config.Host, "https://")}
	go r.serve()
	t.Cleanup(func() {
		l.Close()
		r.set(true)
	})
	config = rest.CopyConfig(config)
	config.Host = "https://" + l.Addr().String()
	return r, config
}

func (r *relay) serve() {
	for {
		a, err := r.Accept()
		if err != nil {
			return
		}
		b, err := net.Dial("tcp4", r.to)
		r.mu.Lock()
		if err != nil || r.cut {
			a.Close()
			if err == nil {
				b.Close()
			}
		} else {
			r.conns = append(r.conns, a, b)
			go pipe(a, b)
			go pipe(b, a)
		}
		r.mu.Unlock()
	}
}

func pipe(a, b net.Conn) {
	_, _ = io.Copy(a, b)
	a.Close()
	b.Close()
}

// set cuts all connections and accepts no more, or accepts them again.
func (r *relay) set(cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cut = cut; cut {
		for _, c := range r.conns {
			c.Close()
		}
		r.conns = nil
	}
}

// TestFaults has one agent survive all faults of its API server. It must receive each
// change once, and nothing else.
func TestFaults(t *testing.T) {
	t.Parallel()
	c := labkube.Start(t, labkube.Options{Seed: &labkube.Seed{Services: 5, Endpoints: 2}})
	w := world{t, clientFor(t, c.Config)}
	for i := range 4 {
		w.service(fmt.Sprintf("web-%d", i), fmt.Sprintf("10.96.0.%d", 50+i), nil)
		w.slice(sliceOf(fmt.Sprintf("web-%d-1", i), fmt.Sprintf("web-%d", i), "10.200.0.1"))
	}
	way, config := newRelay(t, c.Config)
	f := newFollower(t, config, Config{}, true)
	f.awaitLoaded()
	f.await(func() error { // what only load balancers need may be read later
		if f.snapshot == nil {
			return errors.New("there is no snapshot yet")
		}
		return nil
	})
	f.mu.Lock()
	if f.calls = nil; len(f.services) != 10 || len(f.slices) != 9 {
		t.Errorf("%d services and %d slices, want 10 and 9", len(f.services), len(f.slices))
	}
	f.mu.Unlock()
	port := func(n int32) func(*corev1.Service) { return func(s *corev1.Service) { s.Spec.Ports[0].Port = n } }

	// Dropped watches: changes made meanwhile are delivered afterwards, and only those.
	way.set(true)
	f.awaitProblem(true, "services: cannot be read")
	w.deleteService("web-0")
	w.deleteSlice("web-0-1")
	w.editService("web-1", port(81))
	f.await(func() error {
		if len(f.calls) > 0 || f.snapshot == nil || len(f.snapshot.Problems) == 0 {
			return fmt.Errorf("while the API server is unreachable: got calls %q and snapshot %+v", f.calls, f.snapshot)
		}
		return nil
	})
	way.set(false)
	f.awaitCalls("delete service default/web-0", "delete slice default/web-0-1", "set service default/web-1")
	f.awaitProblem(false, "cannot be read")

	// Compacted history: everything is listed again, and differences are delivered.
	way.set(true)
	w.deleteService("web-1")
	w.service("new", "10.96.0.60", nil)
	w.editSlice("web-2-1", func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses[0] = "10.200.0.2" })
	must(t, c.APIServer.Stop())
	must(t, c.Compact(t.Context()))
	must(t, c.APIServer.Start(t.Context()))
	way.set(false)
	f.awaitCalls("delete service default/web-1", "set service default/new", "set slice default/web-2-1")

	// API server down, and etcd slow or stopped.
	must(t, c.APIServer.Stop())
	f.awaitProblem(true, "endpointslices: cannot be read")
	must(t, c.APIServer.Start(t.Context()))
	f.awaitProblem(false, "cannot be read")
	must(t, c.Etcd.Pause())
	must(t, c.Etcd.Resume())
	w.editService("web-2", port(81))
	f.awaitCalls("set service default/web-2")

	// Written past the API server, as a restore of etcd does.
	must(t, c.Seed(t.Context(), labkube.Seed{Services: 6, Endpoints: 2}))
	calls := []string{"set slice ns-5/svc-5-0"} // the others are unchanged
	for i := range 6 {
		calls = append(calls, fmt.Sprintf("set service ns-%d/svc-%d", i, i)) // created at another time
	}
	f.awaitCalls(calls...)
	f.awaitLoaded()
}

// TestNoRights has an agent that may read nothing, then everything except nodes, then
// everything.
func TestNoRights(t *testing.T) {
	t.Parallel()
	c := labkube.Start(t, labkube.Options{})
	config, err := c.ConfigFor("agent")
	must(t, err)
	f := newFollower(t, config, Config{}, false)
	for _, what := range []string{"services", "endpointslices", "nodes"} {
		f.awaitProblem(true, what+": cannot be read")
		f.awaitProblem(true, `User "agent" cannot list resource "`+what+`"`)
	}
	api := clientFor(t, c.Config).RbacV1()
	read := func(name, group, resource string) {
		t.Helper()
		_, err := api.ClusterRoles().Create(context.Background(), &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{"get", "list", "watch"}}},
		}, metav1.CreateOptions{})
		must(t, err)
		_, err = api.ClusterRoleBindings().Create(context.Background(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "agent"}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		}, metav1.CreateOptions{})
		must(t, err)
	}
	read("a", "", "services")
	read("b", "discovery.k8s.io", "endpointslices")
	f.awaitProblem(false, "services: cannot be read")
	f.awaitProblem(false, "endpointslices: cannot be read")
	f.mu.Lock()
	if f.loaded != 0 {
		t.Error("loaded, and yet the node is not known")
	}
	f.mu.Unlock()
	read("c", "", "nodes")
	f.awaitLoaded()
}

// TestNonsense has objects in etcd that no current API server would accept.
func TestNonsense(t *testing.T) {
	t.Parallel()
	c := labkube.Start(t, labkube.Options{Seed: &labkube.Seed{Services: 4, Endpoints: 2, Namespaces: 1,
		Each: func(i int, s *corev1.Service, slices []*discoveryv1.EndpointSlice) {
			e := slices[0].Endpoints
			switch i {
			case 1:
				s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "zero"}, corev1.ServicePort{Name: "odd", Port: 7, Protocol: "ICMP"},
					corev1.ServicePort{Name: "big", Port: 70000}, corev1.ServicePort{Name: "node", Port: 81, NodePort: -1})
				s.Spec.ExternalIPs = []string{"nowhere", "010.1.0.9", "::ffff:10.1.0.8"}
				s.Spec.LoadBalancerSourceRanges = []string{"10.1/16", "010.2.0.0/16"}
				s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "1.2.3"}}
			case 2:
				slices[0].Ports = append(slices[0].Ports, discoveryv1.EndpointPort{Name: new("none")},
					discoveryv1.EndpointPort{Name: new("odd"), Port: new(int32(7)), Protocol: new(corev1.Protocol("ICMP"))})
				e[0].Addresses = nil
				e[1].Addresses = []string{"10.200.0.1", "not looked at"}
				slices[0].Endpoints = append(e, discoveryv1.Endpoint{Addresses: []string{"2001:db8::1"}}, discoveryv1.Endpoint{Addresses: []string{"x"}}, e[1])
			case 3:
				slices[0].Labels[discoveryv1.LabelServiceName] = "nobody"
			}
		}}})
	f := newFollower(t, c.Config, Config{}, false)
	f.awaitLoaded()
	for _, want := range []string{
		"Service ns-0/svc-1: spec.ports[1].port: 0 is no port", "Service ns-0/svc-1: spec.ports[2].protocol: unknown protocol \"ICMP\"",
		"spec.ports[3].port: 70000 is no port", "spec.ports[4].nodePort: -1 is no port", "spec.externalIPs[0]: \"nowhere\" is not an IP address",
		"spec.loadBalancerSourceRanges[0]: \"10.1/16\" is not a prefix", "status.loadBalancer.ingress[0].ip: \"1.2.3\" is not",
		"EndpointSlice ns-0/svc-2-0: ports[1].port: 0 is no port", "ports[2].protocol: unknown protocol",
		"endpoints[0].addresses: is empty", "endpoints[2].addresses[0]: \"2001:db8::1\" is no address of type IPv4", "endpoints[3].addresses[0]: \"x\"",
	} {
		f.awaitProblem(true, want)
	}
	f.mu.Lock()
	for id, want := range map[string]string{
		"svc-0": "Ports:[{Name:http Protocol:TCP Port:80 NodePort:0}]",
		"svc-1": "ExternalIPs:[10.1.0.9 10.1.0.8] LoadBalancerIPs:[] Ports:[{Name:http Protocol:TCP Port:80 NodePort:0} " +
			"{Name:node Protocol:TCP Port:81 NodePort:0}]",
	} {
		if got := f.services[service.ID{Namespace: "ns-0", Name: id}]; !strings.Contains(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if got := f.state(); !strings.Contains(got, "SourceRanges:[::/128 10.2.0.0/16]") ||
		!strings.Contains(got, "Endpoints:[{Addr:10.200.0.1 Node:node-5 Ready:true Serving:true Terminating:false ForZones:[] ForNodes:[]} {Addr:10.200.0.1 ") ||
		!strings.Contains(got, "Service:nobody") {
		t.Errorf("got:\n%s", got)
	}
	f.mu.Unlock()

	// Once fixed, the problems disappear.
	api := clientFor(t, c.Config)
	must(t, api.DiscoveryV1().EndpointSlices("ns-0").Delete(context.Background(), "svc-2-0", metav1.DeleteOptions{}))
	f.awaitProblem(false, "EndpointSlice")
	must(t, api.CoreV1().Services("ns-0").Delete(context.Background(), "svc-1", metav1.DeleteOptions{}))
	f.awaitProblem(false, "Service")
}
