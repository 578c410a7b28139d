package endpoints

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/kube"
	"github.com/fairlead/fairlead/lab/testkit"
)

func TestMain(m *testing.M) { kube.Main(m, "kube-controller-manager") }

// TestSmall runs the smallest configuration of each experiment.
func TestSmall(t *testing.T) {
	o := DefaultOptions()
	o.Binary = filepath.Join(t.TempDir(), "fairlead")
	if err := testkit.Build(o.Binary); err != nil {
		t.Fatal(err)
	}
	o.Services, o.Pods, o.Rounds, o.Period, o.Limits = []int{3}, 4, 1, 200*time.Millisecond, []int{0, 50}
	o.Sizes, o.Changes, o.Nodes, o.Known, o.Requests, o.Progress = []int{110}, 2, []int{1, 3}, 20, 20, os.Stderr
	for name, c := range map[string]struct {
		run  func(context.Context, Options) (*bench.Report, error)
		want map[string]float64 // 0 means anything
	}{
		"batching": {Batching, map[string]float64{
			"endpoints, 3 Services, period 0s: requests": 0, "endpointslices, 3 Services, 50 requests/s at most, period 200ms: requests": 0,
			"endpointslices, 3 Services, period 200ms: all known": 0,
		}},
		"partition": {Partition, map[string]float64{
			"endpoints, 110 pods: objects": 1, "endpointslices, 110 pods: objects": 2, "endpointslices, 110 pods: bytes of one change": 0,
			"endpoints, 110 pods: requests of one change": 1, "endpointslices, 110 pods: requests of one change": 1, "endpoints, 110 pods: requests until all are ready": 0,
		}},
		"central": {func(ctx context.Context, o Options) (*bench.Report, error) {
			o.Rounds = 3 // the watches of a round must not be counted in the next one
			return Central(ctx, o)
		}, map[string]float64{
			"3 nodes: connections": 3, "one load balancer: watches": 3, "3 nodes: watches": 9, "3 nodes: requests until all is read": 0, "3 nodes: a change is known": 0,
			"request by the node's proxy": 0, "request by a central load balancer": 0,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := c.run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			for want, value := range c.want {
				i := slices.IndexFunc(r.Rows, func(row bench.Row) bool { return row.Case == want })
				if i < 0 || r.Rows[i].Min <= 0 || value > 0 && r.Rows[i].Measured != value {
					t.Errorf("%q is not %g (0: anything positive): %+v", want, value, r.Rows)
				}
			}
		})
	}
	testkit.NoLeftovers(t)
}
