package controller_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/core/service"
	labkube "github.com/fairlead/fairlead/lab/kube"
	"github.com/fairlead/fairlead/source"
	sourcekube "github.com/fairlead/fairlead/source/kube"
	"github.com/fairlead/fairlead/source/object"
)

// balancer is a balancer that reads the cluster.
type balancer struct {
	mu   sync.Mutex
	last source.Snapshot
	stop func()
}

func (w *world) balancer(t *testing.T, change ...func(*sourcekube.Config)) *balancer {
	t.Helper()
	c := sourcekube.Config{Kubeconfig: w.cluster.Kubeconfig, Log: slog.New(slog.DiscardHandler)}
	for _, f := range change {
		f(&c)
	}
	s, err := sourcekube.New(c)
	w.must(t, err)
	b := &balancer{}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- s.Run(ctx, func(now source.Snapshot) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.last = now
		})
	}()
	b.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(b.stop)
	return b
}

// sees returns the backends of a Service as the balancer has them.
func (b *balancer) sees(name string) map[string]service.Backend {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := map[string]service.Backend{}
	for _, s := range b.last.Services {
		for _, f := range s.Frontends {
			for _, be := range f.Backends {
				if s.ID.Name == name {
					all[be.Addr.Addr().String()] = be
				}
			}
		}
	}
	return all
}

// await waits until a check of a Service's backends succeeds.
func (b *balancer) await(t *testing.T, what, name string, check func(map[string]service.Backend) bool) map[string]service.Backend {
	t.Helper()
	var seen map[string]service.Backend
	eventually(t, what, func() string {
		if seen = b.sees(name); check(seen) {
			return ""
		}
		return fmt.Sprint(seen)
	})
	return seen
}

// slice creates an EndpointSlice of a Service with ready endpoints.
func (w *world) slice(t *testing.T, name, of, manager string, addrs ...string) {
	t.Helper()
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: of, discoveryv1.LabelManagedBy: manager}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}},
		Endpoints:   endpointsOf(addrs...),
	}
	_, err := w.core.DiscoveryV1().EndpointSlices("default").Create(context.Background(), s, metav1.CreateOptions{})
	w.must(t, err)
}

// endpointsOf returns endpoints; one with a "-" after its address is terminating.
func endpointsOf(addrs ...string) (all []discoveryv1.Endpoint) {
	for _, a := range addrs {
		a, leaving := strings.CutSuffix(a, "-")
		all = append(all, discoveryv1.Endpoint{Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{
			Ready: new(!leaving), Serving: new(true), Terminating: &leaving,
		}})
	}
	return all
}

// fill replaces the endpoints of a slice.
func (w *world) fill(t *testing.T, name string, addrs ...string) {
	t.Helper()
	eventually(t, name+" is filled", func() string {
		s := w.sliceOf(t, name)
		s.Endpoints = endpointsOf(addrs...)
		if _, err := w.core.DiscoveryV1().EndpointSlices("default").Update(context.Background(), s, metav1.UpdateOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
}

func (w *world) sliceOf(t *testing.T, name string) *discoveryv1.EndpointSlice {
	t.Helper()
	s, err := w.core.DiscoveryV1().EndpointSlices("default").Get(context.Background(), name, metav1.GetOptions{})
	w.must(t, err)
	return s
}

// looked waits until the controller has processed a slice, by adding an invalid annotation
// that it removes.
func (w *world) looked(t *testing.T, name string) {
	t.Helper()
	unread := fmt.Sprintf(`{"metadata": {"annotations": {%q: "10.0.0.1=2026-99-99"}}}`, object.AnnotationBackendTimestamps)
	_, err := w.core.DiscoveryV1().EndpointSlices("default").Patch(context.Background(), name, types.MergePatchType, []byte(unread), metav1.PatchOptions{})
	w.must(t, err)
	eventually(t, name+" is looked at", func() string { return w.sliceOf(t, name).Annotations[object.AnnotationBackendTimestamps] })
}

// slicesOf returns all slices of a Service.
func (w *world) slicesOf(t *testing.T, service string) []discoveryv1.EndpointSlice {
	t.Helper()
	all, err := w.core.DiscoveryV1().EndpointSlices("default").List(context.Background(), metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
	w.must(t, err)
	return all.Items
}

func (w *world) dropSlices(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		w.must(t, w.core.DiscoveryV1().EndpointSlices("default").Delete(context.Background(), name, metav1.DeleteOptions{}))
	}
}

// between reports whether a time lies between two others, with a tolerance of milliseconds.
func between(at, from, to time.Time) bool {
	return !at.Before(from.Truncate(time.Millisecond)) && !at.After(to.Add(10*time.Millisecond))
}

// agesOf checks that balancers read when backends began to serve and to drain, across a change of
// the leader and a move to another slice, and that foreign slices are left alone.
func agesOf(t *testing.T, w *world) {
	log, stop := w.control(t)
	defer func() { stop() }()
	log.wants(t, "backend timestamps read")
	w.pool(t, "p", "{addresses: [10.1.1.0/24]}")
	w.serve(t, "web")
	w.serve(t, "foreign", class("example.com/other"))
	w.want(t, "web", "10.1.1.0 True")
	w.slice(t, "web-1", "web", "test", "10.200.0.1", "10.200.0.2")
	w.slice(t, "foreign-1", "foreign", "test", "10.200.0.1")
	w.looked(t, "web-1") // otherwise its endpoints count as there from the start
	b := w.balancer(t)
	defer b.stop()
	created := w.sliceOf(t, "web-1").CreationTimestamp.UTC()
	old := func(be service.Backend) bool { return be.Since.Equal(created) }
	b.await(t, "the first two", "web", func(s map[string]service.Backend) bool { return len(s) == 2 && old(s["10.200.0.1"]) })
	time.Sleep(time.Second) // so that a slice's time, in seconds, differs

	began := time.Now()
	w.fill(t, "web-1", "10.200.0.1", "10.200.0.2", "10.200.0.3")
	w.fill(t, "foreign-1", "10.200.0.1", "10.200.0.2")
	third := b.await(t, "one who came later", "web", func(s map[string]service.Backend) bool {
		return between(s["10.200.0.3"].Since, began, time.Now()) && old(s["10.200.0.1"]) && old(s["10.200.0.2"])
	})["10.200.0.3"].Since
	began = time.Now()
	w.fill(t, "web-1", "10.200.0.1-", "10.200.0.2", "10.200.0.3")
	drained := b.await(t, "one who drains", "web", func(s map[string]service.Backend) bool {
		return between(s["10.200.0.1"].Drained, began, time.Now()) && old(s["10.200.0.1"])
	})["10.200.0.1"].Drained

	stop()
	log, stop = w.control(t)
	log.wants(t, "backend timestamps read")
	w.slice(t, "web-2", "web", "test", "10.200.0.2", "10.200.0.3", "10.200.0.4")
	w.fill(t, "web-1", "10.200.0.1-")
	b.await(t, "who moved", "web", func(s map[string]service.Backend) bool {
		return s["10.200.0.3"].Since.Equal(third) && s["10.200.0.1"].Drained.Equal(drained) && old(s["10.200.0.2"]) && s["10.200.0.4"].Since.After(third)
	})
	eventually(t, "who has moved away is named no more on the slice that it was in", func() string {
		if text := w.sliceOf(t, "web-1").Annotations[object.AnnotationBackendTimestamps]; text == "" || strings.Contains(text, "10.200.0.3") {
			return fmt.Sprintf("it says %q", text)
		}
		return ""
	})
	if s := w.sliceOf(t, "foreign-1"); len(s.Annotations) > 0 {
		t.Errorf("a slice of a Service that is not ours says %v", s.Annotations)
	}
	w.dropSlices(t, "web-1", "web-2", "foreign-1")
}

// agesOfMany checks that simultaneous changes of many Services are written once per slice,
// and that nothing is written without a change.
func agesOfMany(t *testing.T, w *world) {
	const many = 200
	log, stop := w.control(t)
	defer stop()
	log.wants(t, "backend timestamps read")
	name := func(i int) string { return fmt.Sprint("many-", i) }
	for i := range many {
		w.serve(t, name(i))
		w.slice(t, name(i), name(i), "test", "10.200.0.1")
	}
	w.slice(t, "mirrored", name(0), "endpointslicemirroring-controller.k8s.io")
	w.fill(t, "mirrored", "10.200.0.7")
	w.slice(t, "last", name(0), "test")
	w.fill(t, "last", "10.200.0.9")
	written := func(name string) bool {
		return w.sliceOf(t, name).Annotations[object.AnnotationBackendTimestamps] != ""
	}
	eventually(t, "all have been looked at", func() string {
		if !written("last") {
			return "the last one has not"
		}
		return ""
	})
	versions := map[string]string{}
	for i := range many {
		if s := w.sliceOf(t, name(i)); s.Generation == 1 && len(s.Annotations) > 0 {
			t.Errorf("%s is written, though nobody came later: %v", s.Name, s.Annotations)
		}
		w.fill(t, name(i), "10.200.0.1", "10.200.0.2")
	}
	for i := range many {
		eventually(t, name(i), func() string {
			if !written(name(i)) {
				return "is not written"
			}
			return ""
		})
		s := w.sliceOf(t, name(i))
		versions[s.Name] = s.ResourceVersion
		if got := s.Annotations[object.AnnotationBackendTimestamps]; strings.Contains(got, "10.200.0.1=") || !strings.Contains(got, "10.200.0.2=") {
			t.Errorf("%s says %s", s.Name, got)
		}
	}
	w.fill(t, "last", "10.200.0.9", "10.200.0.8") // processed last
	eventually(t, "the last one", func() string {
		if got := w.sliceOf(t, "last").Annotations[object.AnnotationBackendTimestamps]; !strings.Contains(got, "10.200.0.8=") {
			return got + " is all that it says"
		}
		return ""
	})
	for name, version := range versions {
		if w.sliceOf(t, name).ResourceVersion != version {
			t.Errorf("%s has been written again", name)
		}
		w.dropSlices(t, name)
	}
	if s := w.sliceOf(t, "mirrored"); len(s.Annotations) > 0 {
		t.Errorf("a slice whose annotations are another's says %v", s.Annotations)
	}
	w.dropSlices(t, "last", "mirrored")
}

// TestManagedAges checks that the EndpointSlice controller of Kubernetes and this one do
// not overwrite each other's fields.
func TestManagedAges(t *testing.T) {
	t.Parallel()
	w := newWorld(t, labkube.Options{})
	w.deploy(t, "manifests/rbac.yaml")
	w.install(t)
	w.manage(t, "endpointslice-controller")
	_, err := w.core.CoreV1().Nodes().Create(context.Background(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}, metav1.CreateOptions{})
	w.must(t, err)
	log, _ := w.control(t)
	log.wants(t, "backend timestamps read")
	w.pool(t, "p", "{addresses: [10.1.1.0/24]}")
	w.serve(t, "web", func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "web"} })
	// It creates a slice first and fills it afterwards: every pod is later than the slice,
	// and the controller must record the pods that it sees added.
	eventually(t, "the slice of web", func() string {
		if len(w.slicesOf(t, "web")) == 0 {
			return "is not there"
		}
		return ""
	})
	w.looked(t, w.slicesOf(t, "web")[0].Name)
	b := w.balancer(t)
	since := map[string]time.Time{}
	for i := 1; i <= 3; i++ {
		ip := fmt.Sprint("10.200.0.", i)
		began := time.Now()
		w.pod(t, fmt.Sprint("pod-", i), "node-a", ip)
		seen := b.await(t, ip+" comes", "web", func(s map[string]service.Backend) bool { return between(s[ip].Since, began, time.Now()) })
		since[ip] = seen[ip].Since
		for was, at := range since {
			if !seen[was].Since.Equal(at) {
				t.Errorf("%s served since %s, and does since %s", was, at, seen[was].Since)
			}
		}
	}
	began := time.Now()
	w.must(t, w.core.CoreV1().Pods("default").Delete(context.Background(), "pod-2", metav1.DeleteOptions{GracePeriodSeconds: new(int64(600))}))
	b.await(t, "one drains", "web", func(s map[string]service.Backend) bool {
		return between(s["10.200.0.2"].Drained, began, time.Now()) && s["10.200.0.2"].Since.Equal(since["10.200.0.2"]) && s["10.200.0.2"].Weight == 0
	})
	w.must(t, w.core.CoreV1().Pods("default").Delete(context.Background(), "pod-2", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	b.await(t, "it goes", "web", func(s map[string]service.Backend) bool {
		return len(s) == 2 && s["10.200.0.1"].Since.Equal(since["10.200.0.1"]) && s["10.200.0.3"].Since.Equal(since["10.200.0.3"])
	})
	eventually(t, "the annotation has no entry of the deleted Pod", func() string {
		all := w.slicesOf(t, "web")
		if text := fmt.Sprint(all[0].Annotations); len(all) != 1 || strings.Contains(text, "10.200.0.2") {
			return text
		}
		return ""
	})
}

// managers counts the running controllers, each with its own port.
var managers atomic.Int32

// manage runs a controller of Kubernetes.
func (w *world) manage(t *testing.T, controller string) {
	t.Helper()
	port := 10256 + managers.Add(1)
	page := fmt.Sprintf("https://127.0.0.1:%d/healthz", port)
	p := w.cluster.Program(os.Getenv(labkube.BinariesEnv), "kube-controller-manager", labkube.Page(w.cluster.Dial, page),
		"--kubeconfig", w.cluster.Kubeconfig, "--bind-address", "127.0.0.1", "--secure-port", fmt.Sprint(port), "--leader-elect=false", "--controllers="+controller)
	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	t.Cleanup(func() { w.must(t, p.Stop()) })
	w.must(t, p.Start(ctx))
}

// pod creates a pod that is ready at an address, as its kubelet would report.
func (w *world) pod(t *testing.T, name, node, ip string) {
	t.Helper()
	pods := w.core.CoreV1().Pods("default")
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web"}}}
	p.Spec.NodeName = node
	p.Spec.Containers = []corev1.Container{{Name: "a", Image: "a", Ports: []corev1.ContainerPort{{ContainerPort: 80}}}}
	_, err := pods.Create(context.Background(), p, metav1.CreateOptions{})
	w.must(t, err)
	ip = netip.MustParseAddr(ip).String()
	status := fmt.Sprintf(`{"status": {"phase": "Running", "podIP": %q, "podIPs": [{"ip": %[1]q}], "conditions": [{"type": "Ready", "status": "True"}]}}`, ip)
	_, err = pods.Patch(context.Background(), name, types.StrategicMergePatchType, []byte(status), metav1.PatchOptions{}, "status")
	w.must(t, err)
}
