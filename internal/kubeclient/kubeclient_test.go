package kubeclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/api/v1alpha1"
	labkube "github.com/fairlead/fairlead/lab/kube"
)

func TestMain(m *testing.M) { labkube.Main(m) }

// wire records what a client requests, and can be cut.
type wire struct {
	http.RoundTripper
	mu   sync.Mutex
	seen []string
	cut  bool
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		return nil, errors.New("the line is cut")
	}
	short := func(name string) string {
		return strings.NewReplacer(runtime.ContentTypeProtobuf, "protobuf", runtime.ContentTypeJSON, "JSON", "application/merge-patch+json", "merge").Replace(r.Header.Get(name))
	}
	w.seen = append(w.seen, fmt.Sprintf("%s %s %s accept %s", r.Method, r.URL.Path, short("Content-Type"), short("Accept")))
	return w.RoundTripper.RoundTrip(r)
}

func (w *wire) setCut(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// connect returns clients of a new API server, through a wire.
func connect(t *testing.T) (Clients, *wire, *labkube.Cluster) {
	t.Helper()
	cluster := labkube.Start(t, labkube.Options{})
	scheme, err := Scheme(corev1.AddToScheme, coordinationv1.AddToScheme, eventsv1.AddToScheme, v1alpha1.AddToScheme)
	must(t, err)
	w := &wire{}
	config := rest.CopyConfig(cluster.Config)
	config.ContentType, config.AcceptContentTypes = "", ""
	config.Wrap(func(to http.RoundTripper) http.RoundTripper { w.RoundTripper = to; return w })
	clients, err := Connect(config, scheme, corev1.SchemeGroupVersion, coordinationv1.SchemeGroupVersion, eventsv1.SchemeGroupVersion, v1alpha1.GroupVersion)
	must(t, err)
	return clients, w, cluster
}

// TestVerbs checks that every verb works, with protobuf for Kubernetes' own kinds.
func TestVerbs(t *testing.T) {
	clients, wire, _ := connect(t)
	ctx := t.Context()
	services := Of[*corev1.Service, *corev1.ServiceList](clients[corev1.SchemeGroupVersion], "services", "default")
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	s.Spec.Type, s.Spec.Ports = corev1.ServiceTypeLoadBalancer, []corev1.ServicePort{{Port: 80}}
	s, err := services.Create(ctx, s, metav1.CreateOptions{})
	must(t, err)
	changes, err := services.Watch(ctx, metav1.ListOptions{ResourceVersion: s.ResourceVersion, FieldSelector: "metadata.name=web"})
	must(t, err)
	defer changes.Stop()
	s.Labels = map[string]string{"app": "web"}
	s, err = services.Update(ctx, s, metav1.UpdateOptions{})
	must(t, err)
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "10.1.1.1"}}
	_, err = services.UpdateStatus(ctx, s, metav1.UpdateOptions{})
	must(t, err)
	if _, err = services.Update(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", ResourceVersion: "1"}, Spec: s.Spec}, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an old version is written: %v", err)
	}
	_, err = services.Patch(ctx, "web", types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"}}}`), metav1.PatchOptions{FieldManager: "test"})
	must(t, err)
	got, err := services.Get(ctx, "web", metav1.GetOptions{})
	must(t, err)
	if got.Labels["app"] != "web" || got.Annotations["a"] != "b" || len(got.Status.LoadBalancer.Ingress) != 1 {
		t.Errorf("%+v", got)
	}
	list, err := services.List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
	if must(t, err); len(list.Items) != 1 || list.Items[0].Name != "web" {
		t.Errorf("%+v", list)
	}
	must(t, services.Delete(ctx, "web", metav1.DeleteOptions{}))
	if _, err := services.Get(ctx, "web", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after Delete: %v", err)
	}
	var seen []string
	for range 4 {
		select {
		case e := <-changes.ResultChan():
			seen = append(seen, string(e.Type))
		case <-time.After(time.Minute):
			t.Fatalf("changes %q, then none", seen)
		}
	}
	if want := []string{"MODIFIED", "MODIFIED", "MODIFIED", "DELETED"}; !slices.Equal(seen, want) {
		t.Errorf("changes %q, want %q", seen, want)
	}
	wire.mu.Lock()
	defer wire.mu.Unlock()
	for i, line := range wire.seen {
		if !strings.HasSuffix(line, "accept protobuf,JSON") {
			t.Errorf("request %d: %s", i, line)
		}
	}
	if want := "POST /api/v1/namespaces/default/services protobuf accept protobuf,JSON"; wire.seen[0] != want {
		t.Errorf("%q, want %q", wire.seen[0], want)
	}
}

// TestResourceByDefinition checks that custom resources use JSON, because they have no
// protobuf encoding.
func TestResourceByDefinition(t *testing.T) {
	clients, wire, cluster := connect(t)
	text, err := os.ReadFile("../../deploy/crds/fairlead.io_addresspools.yaml")
	must(t, err)
	must(t, cluster.Apply(t.Context(), string(text)))
	pools := Of[*v1alpha1.AddressPool, *v1alpha1.AddressPoolList](clients[v1alpha1.GroupVersion], "addresspools", "")
	p := &v1alpha1.AddressPool{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.AddressPoolSpec{Addresses: []v1alpha1.AddressRange{"10.1.1.0/24"}}}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) { // a CRD is served after a delay
		if _, err = pools.Create(t.Context(), p, metav1.CreateOptions{}); !apierrors.IsNotFound(err) || time.Now().After(deadline) {
			break
		}
	}
	must(t, err)
	got, err := pools.List(t.Context(), metav1.ListOptions{})
	if must(t, err); len(got.Items) != 1 || got.Items[0].Spec.Addresses[0] != "10.1.1.0/24" {
		t.Errorf("%+v", got.Items)
	}
	if want := "POST /apis/fairlead.io/v1alpha1/addresspools JSON accept JSON"; wire.seen[0] != want {
		t.Errorf("%q, want %q", wire.seen[0], want)
	}
}

// TestRecorder checks that a Recorder waits for an unreachable API server, counts
// repetitions, and truncates long notes.
func TestRecorder(t *testing.T) {
	clients, wire, _ := connect(t)
	r := NewRecorder(clients[eventsv1.SchemeGroupVersion], slog.New(slog.DiscardHandler), Options{})
	defer r.Close()
	web := Event{
		About:      corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: "default", Name: "web", UID: "1"},
		Controller: "fairlead.io/test", Instance: "a", Reason: "Assigned", Action: "Assign", Note: "it has 10.1.1.1",
	}
	wire.setCut(true)
	r.Record(web)
	web.About.ResourceVersion = "7" // still the same object
	r.Record(web)
	r.Record(web)
	long := Event{About: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "n"}, Controller: "fairlead.io/test", Instance: "a",
		Reason: "Long", Action: "Say", Note: strings.Repeat("ü", 1000), Warn: true}
	r.Record(long)
	wire.setCut(false)
	want := []string{"Normal Assigned default/web 3 15", "Warning Long default/n 0 1003"}
	var got []string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline) && !slices.Equal(got, want); time.Sleep(50 * time.Millisecond) {
		got = nil
		all, err := Of[*eventsv1.Event, *eventsv1.EventList](clients[eventsv1.SchemeGroupVersion], "events", "default").List(context.Background(), metav1.ListOptions{})
		must(t, err)
		for _, e := range all.Items {
			if e.ReportingController == "fairlead.io/test" {
				count := int32(0)
				if e.Series != nil {
					count = e.Series.Count
				}
				got = append(got, fmt.Sprintf("%s %s %s/%s %d %d", e.Type, e.Reason, e.Namespace, e.Regarding.Name, count, len(e.Note)))
			}
		}
		slices.Sort(got)
	}
	if !slices.Equal(got, want) {
		t.Errorf("Events %q, want %q", got, want)
	}
}
