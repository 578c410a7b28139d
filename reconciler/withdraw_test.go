package reconciler

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/fake"
	"github.com/fairlead/fairlead/internal/keyed"
)

// slowly is an announcer whose withdrawals are confirmed after a delay; never if that is
// negative.
type slowly struct {
	advertise.Announcer
	after time.Duration

	mu   sync.Mutex
	out  []advertise.Withdrawal
	have []route.Route
}

func (s *slowly) Set(routes []route.Route) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.Announcer.Set(routes); err != nil {
		return err
	}
	announced := byPrefix(routes)
	s.out = slices.DeleteFunc(s.out, func(w advertise.Withdrawal) bool { return announced[w.Prefix].Prefix.IsValid() })
	for _, r := range s.have {
		if !announced[r.Prefix].Prefix.IsValid() {
			s.out = append(s.out, advertise.Withdrawal{Prefix: r.Prefix, From: "a slow peer", Since: time.Now(), Reason: "it is slow"})
		}
	}
	s.have = slices.Clone(routes)
	return nil
}

func (s *slowly) confirmAfter(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.after = d
}

func (s *slowly) Withdrawing() []advertise.Withdrawal {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out = slices.DeleteFunc(s.out, func(w advertise.Withdrawal) bool { return s.after >= 0 && time.Since(w.Since) >= s.after })
	return slices.Clone(s.out)
}

// behind adds a slow peer to the announcer that a world records.
func behind(s *slowly) func(*world, *Config) {
	return func(_ *world, c *Config) {
		s.Announcer = &advertise.Fake{}
		c.Announcer = advertise.Together{c.Announcer, advertise.Only(route.ModeBGP, s)}
	}
}

// A frontend stays programmed until all peers have confirmed that its route is gone, plus
// Linger. Others are added and removed as usual, and one that is desired again stays.
func TestHeldUntilConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowly{after: 20 * time.Second}
		w := newWorld(t, fake.New(), behind(slow))
		w.serve(web(1, 1), web(2, 1))
		w.expect("upsert 10.1.1.1 1", "upsert 10.1.2.1 1", "announce 2")
		w.serve(web(2, 1))
		w.expect("announce 1")
		began := time.Now()
		time.Sleep(10 * time.Second)
		w.expect()
		v := w.loop.View()
		left := v.Leaving[web(1, 1).Frontends[0].Key]
		if len(v.Withdrawing) != 1 || len(left.Waits) != 1 || !left.Since.Equal(began) ||
			left.Waits[0].String() != "waiting for withdrawal from a slow peer since 2000-01-01T00:00:00Z (it is slow)" {
			t.Errorf("waited for is %v, held is %+v", v.Withdrawing, left)
		}
		w.serve(web(2, 1), web(3, 1))
		w.expect("upsert 10.1.3.1 1", "announce 2")
		w.serve(web(3, 1))
		w.expect("announce 1") // and waits just as long again
		time.Sleep(11*time.Second - confirmPace)
		w.expect()
		time.Sleep(2 * confirmPace)
		w.expect("delete 10.1.1.1")
		w.serve(web(2, 1), web(3, 1))
		w.expect("announce 2")
		time.Sleep(time.Minute)
		w.expect()
		if v := w.loop.View(); len(v.Withdrawing) > 0 || len(v.Leaving) > 0 {
			t.Errorf("waited for is %v, held are %v", v.Withdrawing, v.Leaving)
		}
		slow.confirmAfter(0)
		w.stop()
	})
}

// One of two addresses of a Service is removed: it stays programmed as long as its own
// route is unconfirmed. An address whose route still leads to others is removed
// immediately.
func TestOneAddressOfSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowly{after: -1}
		w := newWorld(t, fake.New(), behind(slow))
		both := web(1, 1)
		other := both.Frontends[0]
		other.VIP = other.VIP.Next()
		both.Frontends = append(both.Frontends, other)
		more := other
		more.Port = 443
		both.Frontends = append(both.Frontends, more)
		w.serve(both)
		w.expect("upsert 10.1.1.1 1", "upsert 10.1.1.2 1", "upsert 10.1.1.2 1", "announce 2")
		one := *both
		one.Frontends = both.Frontends[1:2]
		w.serve(&one)
		w.expect("announce 1", "delete 10.1.1.2") // one of two ports; the address stays
		time.Sleep(time.Hour)
		w.expect()
		slow.confirmAfter(0)
		time.Sleep(2 * time.Second)
		w.expect("delete 10.1.1.1")
		w.stop()
	})
}

// drowsy is a data plane whose deletions take time.
type drowsy struct{ dataplane.DataPlane }

func (d drowsy) Delete(k service.Key) error {
	time.Sleep(2 * confirmPace)
	return d.DataPlane.Delete(k)
}

// A withdrawal that is confirmed while other frontends are deleted counts from then on.
func TestConfirmedDuringAPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowly{after: confirmPace}
		w := newWorld(t, fake.New(), behind(slow), func(_ *world, c *Config) { c.DataPlane, c.Resync = drowsy{c.DataPlane}, time.Hour })
		two := web(2, 1)
		other := two.Frontends[0]
		other.Port = 443
		two.Frontends = append(two.Frontends, other)
		w.serve(web(1, 1), two)
		w.expect("upsert 10.1.1.1 1", "upsert 10.1.2.1 1", "upsert 10.1.2.1 1", "announce 2")
		w.serve(web(2, 1)) // the address of the other port stays advertised
		time.Sleep(3 * confirmPace)
		w.expect("announce 1", "delete 10.1.2.1")
		time.Sleep(2 * time.Second)
		w.expect("delete 10.1.1.1")
		w.stop()
	})
}

// stuck is a data plane that deletes nothing.
type stuck struct{ dataplane.DataPlane }

func (stuck) Delete(service.Key) error { return errors.New("stuck") }

// counted is a prober that counts the passes.
type counted struct {
	Prober
	passes int
}

func (c *counted) Change(add, remove []health.Target) {
	c.passes++
	c.Prober.Change(add, remove)
}

// A frontend that could not be deleted and must stay again is not retried meanwhile.
func TestStaysAfterAFailedDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, count := &slowly{after: -1}, &counted{}
		w := newWorld(t, fake.New(), behind(slow), func(_ *world, c *Config) {
			c.DataPlane, c.Prober, count.Prober, c.Resync = stuck{c.DataPlane}, count, c.Prober, time.Hour
		})
		both := web(1, 1)
		other := both.Frontends[0]
		other.Port = 443
		both.Frontends = append(both.Frontends, other)
		w.serve(both)
		synctest.Wait()
		w.serve(web(1, 1))
		time.Sleep(time.Second)
		w.serve()
		synctest.Wait()
		before := count.passes
		time.Sleep(time.Minute)
		if passes := count.passes - before; passes > 10 {
			t.Errorf("%d passes in a minute without changes", passes)
		}
		slow.confirmAfter(0)
		time.Sleep(10 * time.Second)
		if v := w.loop.View(); len(v.Leaving) != 2 || len(v.Failures) != 2 {
			t.Errorf("leaving are %v, failures %v", v.Leaving, v.Failures)
		}
		w.stop()
	})
}

// glimpse is an announcer that fails and looks at the View.
type glimpse struct {
	advertise.Announcer
	look func() *View
	seen *View
}

func (g *glimpse) Set([]route.Route) error {
	g.seen = g.look()
	return errors.New("no")
}

// A View that was published does not change when the first announcement fails, which
// follows it.
func TestAPublishedViewStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &glimpse{Announcer: &advertise.Fake{}}
		w := newWorld(t, fake.New(), func(w *world, c *Config) { c.Announcer, g.look = g, func() *View { return w.loop.View() } })
		w.serve()
		synctest.Wait()
		if g.seen == nil || len(g.seen.Failures) > 0 || len(w.loop.View().Failures) != 1 {
			t.Errorf("before the call %+v, after it %+v", g.seen, w.loop.View())
		}
		w.stop()
	})
}

// A route whose withdrawal fails keeps its frontend.
func TestHeldWhileTheAnnouncerFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fake.New())
		w.serve(web(1, 1), web(2, 1))
		w.expect("upsert 10.1.1.1 1", "upsert 10.1.2.1 1", "announce 2")
		w.setFail(func() bool { return true })
		w.serve(web(2, 1), web(3, 1))
		w.expect("upsert 10.1.3.1 1")
		time.Sleep(time.Minute)
		w.expect()
		if v := w.loop.View(); len(v.Withdrawing) != 1 || v.Withdrawing[0].Reason != "no" {
			t.Errorf("waited for is %v", v.Withdrawing)
		}
		w.setFail(func() bool { return false })
		time.Sleep(keyed.Last)
		w.expect("announce 1", "announce 2")
		time.Sleep(time.Second)
		w.expect("delete 10.1.1.1")
		w.stop()
	})
}

// If the data plane cannot be read, routes that are not desired are withdrawn, and
// everything else stays.
func TestWithdrawsThoughTheDataPlaneCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fake.New())
		w.serve(web(1, 1), web(2, 1))
		w.expect("upsert 10.1.1.1 1", "upsert 10.1.2.1 1", "announce 2")
		w.faulty.SetRate(1)
		time.Sleep(31 * time.Second)
		w.expect()
		w.serve(web(2, 1), web(3, 1))
		w.expect("announce 1")
		w.faulty.SetRate(0)
		time.Sleep(time.Minute)
		w.expect("upsert 10.1.3.1 1", "announce 2", "delete 10.1.1.1")
		w.stop()
	})
}

// A load balancer that stops keeps forwarding until all peers have confirmed the
// withdrawal of its routes, but for at most DrainTimeout. Linger is one second.
func TestStopsWhenConfirmed(t *testing.T) {
	for name, c := range map[string]struct {
		after, limit time.Duration
		hurry        bool
		want         time.Duration
	}{
		"at once":                       {limit: time.Minute, want: time.Second},
		"soon":                          {after: 900 * time.Millisecond, limit: time.Minute, want: 1900 * time.Millisecond},
		"late":                          {after: 30 * time.Second, limit: time.Minute, want: 31 * time.Second},
		"never":                         {after: -1, limit: 25 * time.Second, want: 26 * time.Second},
		"never, and somebody in haste":  {after: -1, limit: time.Hour, hurry: true, want: 2 * time.Second},
		"as late as there is time":      {after: 25500 * time.Millisecond, limit: 25 * time.Second, want: 26 * time.Second},
		"before it begins, long before": {after: -2, limit: 25 * time.Second, want: 26 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hurry, slow := make(chan struct{}), &slowly{after: c.after}
				w := newWorld(t, fake.New(), behind(slow), func(_ *world, config *Config) { config.DrainTimeout, config.Hurry = c.limit, hurry })
				w.serve(web(1, 2))
				synctest.Wait()
				if c.after == -2 { // it has no routes left to withdraw
					w.serve()
					time.Sleep(time.Minute)
				}
				began := time.Now()
				if c.hurry {
					time.AfterFunc(2*time.Second, func() { close(hurry) })
				}
				w.stop()
				if took := time.Since(began); took < c.want || took > c.want+2*confirmPace {
					t.Errorf("it stopped after %v, want %v", took, c.want)
				}
			})
		})
	}
}

// A load balancer that drains but keeps running is drained when all peers have confirmed
// it. There is no other limit.
func TestDrainedWhenConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowly{after: time.Hour}
		w := newWorld(t, fake.New(), behind(slow), func(_ *world, c *Config) { c.DrainTimeout = time.Minute })
		w.serve(web(1, 2))
		synctest.Wait()
		w.loop.OrderDrain(true)
		stage := func(want string) {
			t.Helper()
			synctest.Wait()
			if d := w.loop.View().Drain; d == nil || string(d.Stage) != want {
				t.Errorf("stage is %+v, want %s", d, want)
			}
		}
		time.Sleep(time.Hour - time.Second)
		stage("withdrawn")
		time.Sleep(3 * time.Second)
		stage("drained")
		w.loop.OrderDrain(false)
		w.took()
		slow.confirmAfter(0)
		w.stop()
	})
}

// Routes of an earlier process are withdrawn if there is nothing to advertise.
func TestWithdrawsRoutesOfEarlierProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fake.New())
		waits := web(1, 1)
		w.setHealth(waits, 0, health.Unknown)
		w.serve(waits)
		w.expect()
		w.serve()
		w.expect("announce 0")
		w.serve()
		w.expect()
		w.stop()
	})
}

// The same applies if the source fails.
func TestLingersWithoutASource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowly{Announcer: &advertise.Fake{}, after: 3 * time.Second}
		w := newWorld(t, fake.New(), func(_ *world, c *Config) { c.Announcer, c.DrainTimeout = slow, time.Minute })
		w.serve(web(1, 2))
		w.stop()
		w.loop.announced, w.loop.asked, slow.have = []route.Route{{}}, []route.Route{{}}, []route.Route{{}}
		began := time.Now()
		w.loop.withdrawAll()
		if took := time.Since(began); took < 4*time.Second || took > 4*time.Second+2*confirmPace {
			t.Errorf("it lingered for %v, want 4 s", took)
		}
	})
}
