package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	labkube "github.com/fairlead/fairlead/lab/kube"
)

// TestRecordEvent checks that Events of the node are found as kubectl describe node finds them.
func TestRecordEvent(t *testing.T) {
	c := labkube.Start(t, labkube.Options{})
	w := world{t, clientFor(t, c.Config)}
	f := newFollower(t, c.Config, Config{}, false)
	f.source.RecordEvent(Event{Reason: "TooSoon", Action: "Drain", Note: "of a node that is not known"})
	w.node("node-a", func(n *corev1.Node) { n.Labels = map[string]string{} })
	f.await(func() error {
		if _, ok := f.source.Node(); !ok {
			return fmt.Errorf("the node is not known")
		}
		return nil
	})
	f.source.RecordEvent(Event{Reason: "DrainStarted", Action: "Drain", Note: "Node node-a is cordoned"})
	f.source.RecordEvent(Event{Reason: "DrainDeferred", Action: "Drain", Note: strings.Repeat("→", 400), Warn: true})
	f.source.FlushEvents()
	node, err := w.api.CoreV1().Nodes().Get(context.Background(), "node-a", metav1.GetOptions{})
	must(t, err)
	all, err := w.api.CoreV1().Events("").List(context.Background(), metav1.ListOptions{
		FieldSelector: "involvedObject.kind=Node,involvedObject.name=node-a,involvedObject.uid=" + string(node.UID)})
	must(t, err)
	var got []string
	for _, e := range all.Items {
		got = append(got, fmt.Sprintf("%s %s %s %.40s", e.Type, e.Reason, e.ReportingController, e.Message))
	}
	slices.Sort(got)
	want := []string{
		"Normal DrainStarted fairlead.io/agent Node node-a is cordoned",
		"Warning DrainDeferred fairlead.io/agent " + strings.Repeat("→", 40),
	}
	if !slices.Equal(got, want) {
		t.Errorf("Events %q, want %q", got, want)
	}
}
