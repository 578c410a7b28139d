package reconciler

import (
	"errors"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/fake"
	"github.com/fairlead/fairlead/internal/keyed"
	"github.com/fairlead/fairlead/source"
)

// stateful is a data plane that tracks a configurable number of flows.
type stateful struct {
	dataplane.DataPlane
	w *world

	mu    sync.Mutex
	flows int
	fail  bool
}

func (s *stateful) set(flows int, fail bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flows, s.fail = flows, fail
}

func (s *stateful) Remembered() (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail {
		return 0, errors.New("no")
	}
	return s.flows, nil
}

func (s *stateful) SetBalancers(all, draining []netip.Addr) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail {
		return errors.New("no")
	}
	s.w.note("balancers %v draining %v", all, draining)
	return nil
}

func (s *stateful) Prepare() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail {
		return errors.New("no")
	}
	s.w.note("prepared")
	return nil
}

// newStateful returns a world whose data plane tracks flows.
func newStateful(t *testing.T, timeout time.Duration) (*world, *stateful) {
	var plane *stateful
	w := newWorld(t, fake.New(), func(w *world, c *Config) {
		plane = &stateful{DataPlane: c.DataPlane, w: w}
		c.DataPlane, c.DrainTimeout = plane, timeout
		c.Own, c.Balancers = []netip.Addr{netip.MustParseAddr("172.16.1.2"), {}}, true
	})
	w.loop.open = true // TestAnnouncesWhenOthersKnowIt covers the state before
	return w, plane
}

// serveDraining publishes Services and that this load balancer is draining.
func (w *world) serveDraining(services ...*service.Service) {
	w.publish(source.Snapshot{Services: services, Draining: w.loop.Own[:1]})
}

// end stops the loop and returns how long that took.
func end(w *world) <-chan time.Duration {
	took := make(chan time.Duration, 1)
	go func() {
		began := time.Now()
		w.stop()
		took <- time.Since(began)
	}()
	return took
}

func TestDrainsUntilNothingIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, plane := newStateful(t, time.Minute)
		s := web(1, 2)
		w.serveDraining(s)
		w.expect("balancers [] draining []", "prepared", "upsert 10.1.1.1 2", "announce 1")
		plane.set(3, false)
		took := end(w)
		time.Sleep(noticeSpread + noticePace)
		w.expect("announce 0")
		time.Sleep(10 * time.Second)
		// A backend that dies in the meantime is still removed from the data plane.
		w.setHealth(s, 0, health.Removed)
		w.expect("upsert 10.1.1.1 1")
		plane.set(0, false)
		if d := <-took; d < 10*time.Second || d > 12*time.Second {
			t.Errorf("it ended after %v, want it when the flows had ended, after 10 s", d)
		}
		w.expect()
	})
}

func TestDrainsNoLongerThanAllowed(t *testing.T) {
	for name, c := range map[string]struct {
		timeout time.Duration
		flows   int
		fail    bool
		hurry   bool
		want    time.Duration // including a Linger of one second
	}{
		"flows that do not end":         {timeout: 20 * time.Second, flows: 1, want: 21 * time.Second},
		"flows that cannot be counted":  {timeout: 20 * time.Second, fail: true, want: 21 * time.Second},
		"no flows":                      {timeout: 20 * time.Second, want: time.Second},
		"no time":                       {flows: 1, want: time.Second},
		"somebody is in a hurry":        {timeout: 20 * time.Second, flows: 1, hurry: true, want: 6 * time.Second},
		"a hurry where nothing is kept": {timeout: 20 * time.Second, hurry: true, want: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, plane := newStateful(t, c.timeout)
				hurry := make(chan struct{})
				w.loop.Hurry = hurry
				w.serveDraining(web(1, 2))
				synctest.Wait()
				plane.set(c.flows, c.fail)
				took := end(w)
				if c.hurry {
					time.AfterFunc(6*time.Second, func() { close(hurry) })
				}
				if d := <-took; d < c.want || d > c.want+drainPace {
					t.Errorf("it ended after %v, want %v", d, c.want)
				}
			})
		})
	}
}

// keeps is a data plane that tracks flows, but supports no handover.
type keeps struct{ dataplane.DataPlane }

func (keeps) Remembered() (int, error) { return 1, nil }

func TestWaitsForNoFlowsThatNobodyHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newStateful(t, time.Minute)
		w.loop.DataPlane = keeps{w.faulty}
		w.serveDraining(web(1, 2))
		synctest.Wait()
		if d := <-end(w); d > time.Second {
			t.Errorf("it ended after %v, want its Linger of a second", d)
		}
	})
}

// A load balancer with tracked flows that leaves keeps its routes until the source lists
// it as draining and the others have had time to read that.
func TestGivesNotice(t *testing.T) {
	own := netip.MustParseAddr("172.16.1.2")
	for name, c := range map[string]struct {
		flows int
		named time.Duration // after it was asked to stop; 0: never
		want  time.Duration // until the routes are withdrawn
	}{
		"named soon":        {flows: 3, named: time.Second, want: time.Second + noticeSpread},
		"never named":       {flows: 3, want: noticeLimit},
		"nothing to notice": {want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, plane := newStateful(t, time.Minute)
				services := []*service.Service{web(1, 2)}
				w.serve(services...)
				w.took()
				plane.set(c.flows, false)
				began := time.Now()
				took := end(w)
				if c.named > 0 {
					time.AfterFunc(c.named, func() { w.publish(source.Snapshot{Services: services, Draining: []netip.Addr{own}}) })
				}
				for !slices.Contains(w.took(), "announce 0") {
					time.Sleep(10 * time.Millisecond)
				}
				if d := time.Since(began); d < c.want || d > c.want+100*time.Millisecond {
					t.Errorf("the routes went after %v, want %v", d, c.want)
				}
				plane.set(0, false)
				<-took
			})
		})
	}
}

// Routers send its flows elsewhere as soon as its routes are the least preferred ones, so
// the other load balancers have to know before that.
func TestGivesNoticeBeforeItAsksToBeAvoided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const named, notice = time.Second, 2 * time.Second
		w, plane := newStateful(t, time.Minute)
		w.loop.DrainNotice, w.loop.Avoid = notice, plan.Avoid{Communities: route.CommunitiesOf(route.GracefulShutdown)}
		services := []*service.Service{web(1, 2)}
		w.serve(services...)
		w.took()
		plane.set(3, false)
		began := time.Now()
		took := end(w)
		time.AfterFunc(named, func() { w.serveDraining(services...) })
		var avoided time.Duration
		for !slices.Contains(w.took(), "announce 0") {
			w.mu.Lock()
			if avoided == 0 && w.announced[0].Communities != "" {
				avoided = time.Since(began)
			}
			w.mu.Unlock()
			time.Sleep(10 * time.Millisecond)
		}
		withdrawn := time.Since(began)
		near := func(d, want time.Duration) bool { return d >= want && d <= want+100*time.Millisecond }
		if !near(avoided, named+noticeSpread) || !near(withdrawn, avoided+notice) {
			t.Errorf("avoided after %v and withdrawn after %v, want %v and %v", avoided, withdrawn, named+noticeSpread, named+noticeSpread+notice)
		}
		plane.set(0, false)
		<-took
	})
}

func TestReportsDrainingBackends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, plane := newStateful(t, 0)
		defer w.stop()
		services := []*service.Service{web(1, 2)}
		var all []netip.Addr
		say := func(addrs ...string) {
			var draining []netip.Addr
			for _, a := range addrs {
				draining = append(draining, netip.MustParseAddr(a))
			}
			w.publish(source.Snapshot{Services: services, Balancers: all, Draining: draining})
		}
		say("172.16.1.2", "172.16.2.2")
		w.expect("balancers [] draining [172.16.2.2]", "prepared", "upsert 10.1.1.1 2", "announce 1") // without this one
		say("172.16.2.2")
		w.expect()
		say("172.16.2.2", "172.16.3.2")
		w.expect("balancers [] draining [172.16.2.2 172.16.3.2]")
		plane.set(0, true)
		say()
		w.expect()
		plane.set(0, false)
		time.Sleep(time.Minute)
		w.expect("balancers [] draining []") // repeated until it succeeded
		all = []netip.Addr{netip.MustParseAddr("172.16.1.2"), netip.MustParseAddr("172.16.4.2")}
		say()
		w.expect("balancers [172.16.4.2] draining []") // which may hand packets over
	})
}

// Work that a start does not need is done a while after it, or as soon as others may hand
// over packets.
func TestPreparesForPacketsOfOthers(t *testing.T) {
	own := netip.MustParseAddr("172.16.1.2")
	for name, c := range map[string]struct {
		alone bool
		do    func(w *world, p *stateful)
		want  time.Duration // after the start; 0: never
		late  time.Duration // tolerance
	}{
		"nothing happens":            {want: prepareAfter, do: func(*world, *stateful) {}},
		"nobody else is known":       {alone: true, do: func(*world, *stateful) {}},
		"it is to drain":             {want: time.Second, do: func(w *world, _ *stateful) { w.loop.OrderDrain(true) }},
		"it is named as draining":    {want: time.Second, do: func(w *world, _ *stateful) { w.publish(source.Snapshot{Draining: []netip.Addr{own}}) }},
		"it fails for half a minute": {want: 30 * time.Second, late: keyed.Last, do: func(_ *world, p *stateful) { p.set(0, true) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, plane := newStateful(t, time.Minute)
				defer w.stop()
				w.loop.Balancers = !c.alone
				began := time.Now()
				w.serve(web(1, 2))
				time.Sleep(time.Second)
				c.do(w, plane)
				prepared := time.Duration(0)
				for time.Since(began) < 2*time.Minute {
					if time.Since(began) == 30*time.Second {
						plane.set(0, false)
					}
					if slices.Contains(w.took(), "prepared") {
						if prepared != 0 {
							t.Error("prepared twice")
						}
						prepared = time.Since(began)
					}
					time.Sleep(100 * time.Millisecond)
				}
				if prepared < c.want || prepared > c.want+c.late+200*time.Millisecond {
					t.Errorf("prepared after %v, want %v", prepared, c.want)
				}
			})
		})
	}
}

// A load balancer that is asked to stop first advertises its routes as least preferred
// for the configured time, and then withdraws them.
func TestAsksToBeAvoided(t *testing.T) {
	avoid := plan.Avoid{Communities: route.CommunitiesOf(route.GracefulShutdown)}
	for name, c := range map[string]struct {
		avoid  plan.Avoid
		notice time.Duration
		want   time.Duration // until the routes are withdrawn
	}{
		"asks":              {avoid, 2 * time.Second, 2 * time.Second},
		"no time":           {avoid, 0, 0},
		"nothing to ask by": {plan.Avoid{}, 2 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, fake.New(), func(_ *world, config *Config) { config.DrainNotice, config.Avoid = c.notice, c.avoid })
				w.serve(web(1, 2))
				w.took()
				began := time.Now()
				took := end(w)
				asked := false
				for !slices.Contains(w.took(), "announce 0") {
					w.mu.Lock()
					asked = asked || w.announced[0].Communities == avoid.Communities
					w.mu.Unlock()
					time.Sleep(10 * time.Millisecond)
				}
				if d := time.Since(began); d < c.want || d > c.want+20*time.Millisecond || asked != (c.want > 0) {
					t.Errorf("the routes went after %v, want %v; asked: %v", d, c.want, asked)
				}
				if d := <-took; d != c.want+w.loop.Linger {
					t.Errorf("it ended after %v, want %v", d, c.want+w.loop.Linger)
				}
			})
		})
	}
}

// Routes are withdrawn even if the data plane cannot be read.
func TestWithdrawsWhateverTheDataPlaneSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fake.New())
		w.serve(web(1, 2))
		w.took()
		w.faulty.SetRate(1)
		time.Sleep(time.Minute) // until it is read again
		took := end(w)
		w.expect("announce 0")
		<-took
	})
}
