package kube

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/core/service"
	labkube "github.com/fairlead/fairlead/lab/kube"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/source"
)

func TestMain(m *testing.M) {
	if what := os.Getenv(loaderEnv); what != "" {
		os.Exit(runLoader(what))
	}
	labkube.Main(m)
}

// patience limits any wait, even on a busy machine.
const patience = time.Minute

// follower is a Source that follows a cluster, with what it has delivered.
type follower struct {
	t      *testing.T
	source *Source

	mu       sync.Mutex
	services map[service.ID]string
	slices   map[proxy.SliceID]string
	// delivered has the delivered values.
	delivered struct {
		services map[service.ID]*proxy.Service
		slices   map[proxy.SliceID]*proxy.Slice
	}
	node     proxy.Node
	nodes    []Node
	loaded   int
	calls    []string         // delivered since the last check
	snapshot *source.Snapshot // the latest
	first    *source.Snapshot
}

// newFollower runs a Source until the test ends. It fills in unset fields of c.
func newFollower(t *testing.T, config *rest.Config, c Config, balance bool) *follower {
	t.Helper()
	f := &follower{t: t, services: map[service.ID]string{}, slices: map[proxy.SliceID]string{}}
	f.delivered.services, f.delivered.slices = map[service.ID]*proxy.Service{}, map[proxy.SliceID]*proxy.Slice{}
	c.Sink, c.OnNode, c.Log = f, f.onNode, slog.New(slog.DiscardHandler)
	if c.Node == "" {
		c.Node = "node-a"
	}
	var err error
	if f.source, err = newFor(config, c); err != nil {
		t.Fatal(err)
	}
	var publish func(source.Snapshot)
	if balance {
		publish = f.publish
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- f.source.Run(ctx, publish) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *follower) note(format string, args ...any) {
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
}

func (f *follower) SetService(s *proxy.Service) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.services[s.ID], f.delivered.services[s.ID] = showService(s), s
	f.note("set service %s", s.ID)
}

func (f *follower) DeleteService(id service.ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.services[id]; !ok {
		f.t.Errorf("%s is deleted, and was never there", id)
	}
	delete(f.services, id)
	delete(f.delivered.services, id)
	f.note("delete service %s", id)
}

func (f *follower) SetSlice(s *proxy.Slice) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.slices[s.ID], f.delivered.slices[s.ID] = showSlice(s), s
	f.note("set slice %s/%s", s.ID.Namespace, s.ID.Name)
}

func (f *follower) DeleteSlice(id proxy.SliceID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.slices[id]; !ok {
		f.t.Errorf("slice %v is deleted, and was never there", id)
	}
	delete(f.slices, id)
	delete(f.delivered.slices, id)
	f.note("delete slice %s/%s", id.Namespace, id.Name)
}

func (f *follower) SetNode(n proxy.Node) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.node = n
	f.note("set node %s in %q", n.Name, n.Zone)
}

func (f *follower) Loaded() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.node.Name == "" {
		f.t.Error("Loaded was called before SetNode")
	}
	f.loaded++
}

func (f *follower) onNode(n Node) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nodes = append(f.nodes, n)
}

func (f *follower) publish(s source.Snapshot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.snapshot = &s
	if f.first == nil {
		f.first = &s
	}
}

// await waits until cond, which may inspect f, returns nil.
func (f *follower) await(cond func() error) {
	f.t.Helper()
	testkit.Eventually(f.t, patience, func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		return cond()
	})
}

func (f *follower) awaitLoaded() {
	f.t.Helper()
	f.await(func() error {
		if f.loaded != 1 {
			return fmt.Errorf("it has loaded %d times; want once", f.loaded)
		}
		return nil
	})
}

// awaitCalls waits until exactly these calls were made since the last time, in any order.
func (f *follower) awaitCalls(want ...string) {
	f.t.Helper()
	slices.Sort(want)
	f.await(func() error {
		if got := slices.Sorted(slices.Values(f.calls)); !slices.Equal(got, want) {
			return fmt.Errorf("got calls %q, want %q", got, want)
		}
		f.calls = nil
		return nil
	})
}

// awaitState waits until the Sink has exactly this state.
func (f *follower) awaitState(want string) {
	f.t.Helper()
	f.await(func() error {
		if got := f.state(); got != want {
			return fmt.Errorf("got:\n%s\nwant:\n%s", got, want)
		}
		f.calls = nil
		return nil
	})
}

func (f *follower) state() string {
	lines := slices.Concat(slices.Collect(maps.Values(f.services)), slices.Collect(maps.Values(f.slices)))
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// awaitProblem waits for a Problem with these words, or until no such Problem exists.
func (f *follower) awaitProblem(there bool, words string) {
	f.t.Helper()
	testkit.Eventually(f.t, patience, func() error {
		all := f.source.Problems()
		if slices.ContainsFunc(all, func(p problem.Problem) bool { return strings.Contains(p.String(), words) }) != there {
			return fmt.Errorf("problem %q: want %v; there are %q", words, there, all)
		}
		return nil
	})
}

func showService(s *proxy.Service) string {
	c := *s
	c.Created = time.Time{}
	return strings.ReplaceAll(fmt.Sprintf("service %+v", c), " Created:0001-01-01 00:00:00 +0000 UTC", "")
}

func showSlice(s *proxy.Slice) string { return fmt.Sprintf("slice %+v", *s) }

func clientFor(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	config = rest.CopyConfig(config)
	config.WarningHandlerWithContext = rest.NoWarnings{}
	api, err := kubernetes.NewForConfig(config)
	must(t, err)
	return api
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// world creates and changes objects of the namespace default.
type world struct {
	t   *testing.T
	api *kubernetes.Clientset
}

func (w world) service(name, ip string, change func(*corev1.Service)) {
	w.t.Helper()
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s.Spec.ClusterIP = ip
	s.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80}}
	if change != nil {
		change(s)
	}
	_, err := w.api.CoreV1().Services("default").Create(context.Background(), s, metav1.CreateOptions{})
	must(w.t, err)
}

func (w world) editService(name string, change func(*corev1.Service)) {
	w.t.Helper()
	all := w.api.CoreV1().Services("default")
	s, err := all.Get(context.Background(), name, metav1.GetOptions{})
	must(w.t, err)
	status := s.Status.DeepCopy()
	change(s)
	if !reflect.DeepEqual(*status, s.Status) {
		_, err = all.UpdateStatus(context.Background(), s, metav1.UpdateOptions{})
	} else {
		_, err = all.Update(context.Background(), s, metav1.UpdateOptions{})
	}
	must(w.t, err)
}

func (w world) deleteService(name string) {
	w.t.Helper()
	must(w.t, w.api.CoreV1().Services("default").Delete(context.Background(), name, metav1.DeleteOptions{}))
}

func sliceOf(name, of string, addrs ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: of}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}},
	}
	for _, a := range addrs {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, NodeName: new("node-a")})
	}
	return s
}

func (w world) slice(s *discoveryv1.EndpointSlice) {
	w.t.Helper()
	_, err := w.api.DiscoveryV1().EndpointSlices("default").Create(context.Background(), s, metav1.CreateOptions{})
	must(w.t, err)
}

func (w world) editSlice(name string, change func(*discoveryv1.EndpointSlice)) {
	w.t.Helper()
	all := w.api.DiscoveryV1().EndpointSlices("default")
	s, err := all.Get(context.Background(), name, metav1.GetOptions{})
	must(w.t, err)
	change(s)
	_, err = all.Update(context.Background(), s, metav1.UpdateOptions{})
	must(w.t, err)
}

func (w world) deleteSlice(name string) {
	w.t.Helper()
	must(w.t, w.api.DiscoveryV1().EndpointSlices("default").Delete(context.Background(), name, metav1.DeleteOptions{}))
}

func (w world) node(name string, change func(*corev1.Node)) {
	w.t.Helper()
	all := w.api.CoreV1().Nodes()
	n, err := all.Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		n = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
		change(n)
		_, err = all.Create(context.Background(), n, metav1.CreateOptions{})
	} else {
		change(n)
		_, err = all.Update(context.Background(), n, metav1.UpdateOptions{})
	}
	must(w.t, err)
}
