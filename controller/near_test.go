package controller_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/core/service"
	labkube "github.com/fairlead/fairlead/lab/kube"
	sourcekube "github.com/fairlead/fairlead/source/kube"
)

// nodeProxy is the service proxy of a node, limited to its decisions.
type nodeProxy struct {
	mu     sync.Mutex
	web    *proxy.Service
	slices map[proxy.SliceID]*proxy.Slice
	node   proxy.Node
}

func (p *nodeProxy) do(f func()) { p.mu.Lock(); defer p.mu.Unlock(); f() }

func (p *nodeProxy) SetService(s *proxy.Service) {
	if s.ID.Name == "web" {
		p.do(func() { p.web = s })
	}
}
func (p *nodeProxy) DeleteService(service.ID) {}
func (p *nodeProxy) SetSlice(s *proxy.Slice) {
	if s.Service == "web" {
		p.do(func() { p.slices[s.ID] = s })
	}
}
func (p *nodeProxy) DeleteSlice(id proxy.SliceID) { p.do(func() { delete(p.slices, id) }) }
func (p *nodeProxy) SetNode(n proxy.Node)         { p.do(func() { p.node = n }) }
func (p *nodeProxy) Loaded()                      {}

// targets returns the endpoints for a client on the node.
func (p *nodeProxy) targets() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []*proxy.Slice
	for _, s := range p.slices {
		all = append(all, s)
	}
	frontends, _ := proxy.Build(p.web, all, p.node)
	var targets []string
	for _, f := range frontends {
		for _, to := range f.Inside.Targets {
			targets = append(targets, to.Addr.Addr().String())
		}
	}
	slices.Sort(targets)
	return strings.Join(targets, " ")
}

// TestManagedTrafficDistribution checks that spec.trafficDistribution, through Kubernetes'
// hints, decides which pods the clients of each node get.
func TestManagedTrafficDistribution(t *testing.T) {
	t.Parallel()
	w := newWorld(t, labkube.Options{})
	w.manage(t, "endpointslice-controller")
	nodes := map[string]*nodeProxy{}
	for i, name := range []string{"node-a", "node-b", "node-c"} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: []string{"z1", "z1", "z2"}[i]}}}
		_, err := w.core.CoreV1().Nodes().Create(context.Background(), n, metav1.CreateOptions{})
		w.must(t, err)
		p := &nodeProxy{slices: map[proxy.SliceID]*proxy.Slice{}}
		s, err := sourcekube.New(sourcekube.Config{Kubeconfig: w.cluster.Kubeconfig, Node: name, Sink: p, Log: slog.New(slog.DiscardHandler)})
		w.must(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx, nil) }()
		t.Cleanup(func() { cancel(); w.must(t, <-ended) })
		nodes[name] = p
	}
	want := func(what, a, b, c string) {
		t.Helper()
		eventually(t, what, func() string {
			got := [3]string{nodes["node-a"].targets(), nodes["node-b"].targets(), nodes["node-c"].targets()}
			if got != [3]string{a, b, c} {
				return fmt.Sprintf("clients get %q", got)
			}
			return ""
		})
	}
	prefer := func(how string) {
		t.Helper()
		w.change(t, "web", func(s *corev1.Service) {
			if s.Spec.TrafficDistribution = &how; how == "" {
				s.Spec.TrafficDistribution = nil
			}
		})
	}
	w.serve(t, "web", func(s *corev1.Service) {
		s.Spec.Type, s.Spec.Selector = corev1.ServiceTypeClusterIP, map[string]string{"app": "web"}
	})
	w.pod(t, "a", "node-a", "10.200.0.1")
	w.pod(t, "b", "node-b", "10.200.0.2")
	w.pod(t, "c", "node-c", "10.200.0.3")
	const all = "10.200.0.1 10.200.0.2 10.200.0.3"
	want("without", all, all, all)
	prefer(corev1.ServiceTrafficDistributionPreferSameZone)
	want("zone", "10.200.0.1 10.200.0.2", "10.200.0.1 10.200.0.2", "10.200.0.3")
	prefer(corev1.ServiceTrafficDistributionPreferSameNode)
	want("node", "10.200.0.1", "10.200.0.2", "10.200.0.3")
	w.must(t, w.core.CoreV1().Pods("default").Delete(context.Background(), "b", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	want("no pod on a node", "10.200.0.1", "10.200.0.1", "10.200.0.3") // its zone's
	prefer(corev1.ServiceTrafficDistributionPreferClose)
	want("close", "10.200.0.1", "10.200.0.1", "10.200.0.3")
	w.must(t, w.core.CoreV1().Pods("default").Delete(context.Background(), "c", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	want("no pod in a zone", "10.200.0.1", "10.200.0.1", "10.200.0.1")
	prefer("")
	w.pod(t, "c2", "node-c", "10.200.0.4")
	want("without again", "10.200.0.1 10.200.0.4", "10.200.0.1 10.200.0.4", "10.200.0.1 10.200.0.4")
}
