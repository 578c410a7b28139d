package reconciler

import (
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/fake"
	"github.com/fairlead/fairlead/source"
)

// TestPreviewAppliesNothing plans for another snapshot: the plan is what follows when it is
// published, and until then nothing changes.
func TestPreviewAppliesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fake.New())
		defer w.stop()
		w.serve(web(1, 2))
		w.took()
		now := web(1, 3)
		w.setHealth(now, 2, health.Unknown) // a backend that is not probed yet
		next := source.Snapshot{Services: []*service.Service{now, web(2, 1)}}
		p, err := w.loop.Preview(t.Context(), next)
		if err != nil {
			t.Fatal(err)
		}
		if !p.Advertises || len(p.View.Held) != 1 || len(p.Plan.Frontends) != 2 || len(p.Plan.Routes) != 2 {
			t.Errorf("%+v", p)
		}
		for _, f := range p.Plan.Frontends {
			if f.State != plan.Active || len(f.Want.Backends) != len(f.Backends) {
				t.Errorf("%+v", f)
			}
		}
		w.expect()
	})
}
