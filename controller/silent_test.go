package controller

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/api/v1alpha1"
)

// TestSilent follows heartbeats that are valid for 150 seconds. The clocks of the nodes, of the
// API server and of the controller differ.
func TestSilent(t *testing.T) {
	local, server := time.Now(), time.Unix(1_000_000, 0)
	said := map[string]time.Duration{"n1": -20 * time.Second, "n2": -3 * time.Minute, "n2/web-1": 0}
	known := beats{}
	for _, step := range []struct {
		after  time.Duration
		renew  []string
		silent string
	}{
		{0, nil, "[n2]"}, // as found at first: it is long before the others
		{time.Minute, []string{"n1", "n2", "n2/web-1"}, "[]"},
		{2 * time.Minute, []string{"n1"}, "[]"},
		{3 * time.Minute, []string{"n1"}, "[]"},
		{3*time.Minute + 31*time.Second, nil, "[n2 n2/web-1]"},
		{6 * time.Minute, []string{"n1", "n2"}, "[n2/web-1]"},
		{8*time.Minute + 29*time.Second, []string{"n3"}, "[n2/web-1]"},
		{8*time.Minute + 31*time.Second, []string{"n2/web-1"}, "[n1 n2]"},
		{9 * time.Minute, []string{"n1", "n2"}, "[]"},
	} {
		for _, node := range step.renew {
			said[node] = step.after
		}
		old := metav1.NewTime(server.Add(-time.Hour)) // left in another namespace
		all := []*v1alpha1.NodeHeartbeat{{
			ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{Time: &old}}},
			Status:     v1alpha1.NodeHeartbeatStatus{Node: "n1", DurationSeconds: 150},
		}}
		for node, at := range said {
			h := &v1alpha1.NodeHeartbeat{Status: v1alpha1.NodeHeartbeatStatus{Node: node, DurationSeconds: 150, RenewTime: metav1.Unix(int64(len(node)), 0)}}
			time := metav1.NewTime(server.Add(at))
			h.ManagedFields = []metav1.ManagedFieldsEntry{{Time: &time}}
			all = append(all, h)
		}
		got := []string{}
		for node, since := range known.update(all, local.Add(step.after)) {
			if since.IsZero() {
				continue
			}
			if got = append(got, node); !since.Equal(server.Add(said[node])) {
				t.Errorf("after %s, %s is silent since %s", step.after, node, since)
			}
		}
		slices.Sort(got)
		if text := fmt.Sprint(got); text != step.silent {
			t.Errorf("after %s: %s, want %s", step.after, text, step.silent)
		}
	}
}
