package reconciler

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/core/event"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/fake"
	"github.com/fairlead/fairlead/internal/heartbeat"
	"github.com/fairlead/fairlead/source"
)

// TestStuck has a call that does not return: the loop is stuck after some minutes, but not
// while it has nothing to do.
func TestStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rounds heartbeat.Rounds
		w := newWorld(t, fake.New(), func(_ *world, c *Config) { c.Rounds = &rounds })
		defer func() { w.stop() }()
		w.serve(web(1, 1))
		time.Sleep(time.Hour)
		if err := rounds.Stuck(); err != nil {
			t.Errorf("without work: %v", err)
		}
		release := make(chan struct{})
		w.setFail(func() bool { <-release; return false })
		w.serve(web(1, 1), web(2, 1))
		time.Sleep(heartbeat.DefaultLimit)
		if err := rounds.Stuck(); err == nil || err.Error() != "load balancing: no progress for 5m0s" {
			t.Errorf("blocked: %v", err)
		}
		close(release)
		synctest.Wait()
		if err := rounds.Stuck(); err != nil {
			t.Errorf("after that: %v", err)
		}
	})
}

// TestEditedQuarantine: who edits the reason of an order drains no backend again.
func TestEditedQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var recorded []string
		w := newWorld(t, fake.New(), func(_ *world, c *Config) {
			c.Events = func(e event.Event) {
				if e.Type == event.BackendDrained || e.Type == event.BackendUndrained {
					recorded = append(recorded, fmt.Sprintf("%s %s: %s", e.Type, e.Object.Name, e.Cause))
				}
			}
		})
		defer func() { w.stop() }()
		w.serve(web(1, 2))
		synctest.Wait()
		q := service.Quarantine{Name: "q", Addr: netip.MustParseAddr("172.16.1.1"), Reason: "disk"}
		for _, change := range []func(){func() {}, func() { q.Reason, q.By = "disk errors", "alice" }, func() { q.Addr = netip.MustParseAddr("172.16.1.2") }} {
			change()
			w.publish(source.Snapshot{Services: []*service.Service{web(1, 2)}, Quarantines: []service.Quarantine{q}})
			synctest.Wait()
		}
		want := []string{"BackendDrained 172.16.1.1: drained: disk", "BackendUndrained 172.16.1.1: was drained by alice: disk errors", "BackendDrained 172.16.1.2: drained by alice: disk errors"}
		if !slices.Equal(recorded, want) {
			t.Errorf("\n got %q\nwant %q", recorded, want)
		}
	})
}
