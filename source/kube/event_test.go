package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/core/event"
	labkube "github.com/fairlead/fairlead/lab/kube"
)

// TestRecordEvent checks that Events are found as kubectl describe finds them, by the UID of their
// object, and counted if they recur.
func TestRecordEvent(t *testing.T) {
	c := labkube.Start(t, labkube.Options{})
	w := world{t, clientFor(t, c.Config)}
	f := newFollower(t, c.Config, Config{}, false)
	about := func(kind, namespace, name string) event.Object {
		return event.Object{Kind: kind, Namespace: namespace, Name: name}
	}
	w.node("node-a", func(n *corev1.Node) { n.Labels = map[string]string{} })
	w.service("web", "10.96.0.20", func(*corev1.Service) {})
	f.source.RecordEvent(Event{About: about("Node", "", "none"), Reason: "Degraded", Action: "Load", Note: "of a node that does not exist"})
	f.source.RecordEvent(Event{About: about("Advertisement", "", "none"), Reason: "ConfigRejected", Action: "Read", Note: "of a resource that does not exist"})
	f.source.RecordEvent(Event{About: about("Node", "", "node-a"), Reason: "DrainStarted", Action: "Drain", Note: "Node node-a is cordoned"})
	for range 2 {
		f.source.RecordEvent(Event{About: about("Node", "", "node-a"), Reason: "DrainDeferred", Action: "Drain", Note: strings.Repeat("→", 400), Warn: true})
	}
	f.source.RecordEvent(Event{About: about("Service", "default", "web"), Reason: "BackendUnhealthy", Action: "Probe", Note: "connection refused", Warn: true})
	f.source.FlushEvents()
	node, err := w.api.CoreV1().Nodes().Get(context.Background(), "node-a", metav1.GetOptions{})
	must(t, err)
	svc, err := w.api.CoreV1().Services("default").Get(context.Background(), "web", metav1.GetOptions{})
	must(t, err)
	var got []string
	for kind, uid := range map[string]types.UID{"Node": node.UID, "Service": svc.UID} {
		all, err := w.api.EventsV1().Events("").List(context.Background(), metav1.ListOptions{
			FieldSelector: "regarding.kind=" + kind + ",regarding.uid=" + string(uid)})
		must(t, err)
		for _, e := range all.Items {
			if e.ReportingController != component { // the API server's own, such as ClusterIPNotAllocated
				continue
			}
			count := 1
			if e.Series != nil {
				count = int(e.Series.Count)
			}
			got = append(got, fmt.Sprintf("%s %s %s x%d %s %.40s", e.Regarding.APIVersion, e.Regarding.Name, e.Type, count, e.Reason, e.Note))
		}
	}
	slices.Sort(got)
	want := []string{
		"v1 node-a Normal x1 DrainStarted Node node-a is cordoned",
		"v1 node-a Warning x2 DrainDeferred " + strings.Repeat("→", 40),
		"v1 web Warning x1 BackendUnhealthy connection refused",
	}
	if !slices.Equal(got, want) {
		t.Errorf("Events %q, want %q", got, want)
	}
}
