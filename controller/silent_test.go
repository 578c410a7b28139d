package controller

import (
	"fmt"
	"maps"
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
		{8 * time.Minute, nil, "[n2/web-1]"},
		{11*time.Minute + time.Second, []string{"n2"}, "[n1 n2/web-1 forgotten]"},
		{12 * time.Minute, []string{"n3"}, "[n1 n2/web-1 forgotten]"},
		{13 * time.Minute, []string{"n1", "n2/web-1"}, "[]"},
		{23*time.Minute + time.Second, nil, "[n1 n2 n2/web-1 forgotten n3]"},
	} {
		for _, node := range step.renew {
			said[node] = step.after
		}
		var all []*v1alpha1.NodeHeartbeat
		for node, at := range said {
			h := &v1alpha1.NodeHeartbeat{Status: v1alpha1.NodeHeartbeatStatus{Node: node, DurationSeconds: 150, RenewTime: metav1.Unix(int64(len(node)), 0)}}
			time := metav1.NewTime(server.Add(at))
			h.ManagedFields = []metav1.ManagedFieldsEntry{{Time: &time}}
			all = append(all, h)
		}
		silent := known.silent(all, local.Add(step.after))
		var got []string
		for _, node := range slices.Sorted(maps.Keys(silent)) {
			if got = append(got, node); silent[node].forgotten {
				got = append(got, "forgotten")
			}
			if want := server.Add(said[node]); !silent[node].since.Equal(want) {
				t.Errorf("after %s, %s is silent since %s, want %s", step.after, node, silent[node].since, want)
			}
		}
		if text := fmt.Sprint(got); text != step.silent {
			t.Errorf("after %s: %s, want %s", step.after, text, step.silent)
		}
	}
}
