package reconciler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/fake"
	"github.com/fairlead/fairlead/source"
)

// world is the environment of a loop, with a journal of the calls to it.
type world struct {
	t       *testing.T
	memory  *fake.DataPlane
	faulty  *fake.Faulty
	publish func(source.Snapshot)
	loop    *Loop
	stop    func()

	mu        sync.Mutex
	journal   []string
	announced []route.Route
	states    map[health.Target]health.State
	before    map[health.Target]health.State // at the last call of Transitions
	changed   chan struct{}
	fail      func() bool
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.journal = append(w.journal, fmt.Sprintf(format, args...))
}

// took returns the journal since the last call.
func (w *world) took() []string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	j := w.journal
	w.journal = nil
	return j
}

func (w *world) expect(want ...string) {
	w.t.Helper()
	if got := w.took(); !slices.Equal(got, want) {
		w.t.Errorf("\n got %q\nwant %q", got, want)
	}
}

// setFail sets when the announcer fails.
func (w *world) setFail(fail func() bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail = fail
}

// These methods implement Prober.
func (w *world) Change(_, _ []health.Target) {}
func (w *world) Transitions() map[netip.Addr]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	moved := map[netip.Addr]bool{}
	for t, s := range w.states {
		if was, known := w.before[t]; !known && s != health.Up || known && s != was {
			moved[t.Addr.Addr()] = true
		}
	}
	for t, was := range w.before {
		if _, known := w.states[t]; !known && was != health.Up {
			moved[t.Addr.Addr()] = true
		}
	}
	w.before = maps.Clone(w.states)
	return moved
}
func (w *world) State(t health.Target) health.State {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s, ok := w.states[t]; ok {
		return s
	}
	return health.Up
}
func (w *world) Changed() <-chan struct{} { return w.changed }

// journaled records the calls to the data plane.
type journaled struct {
	dataplane.DataPlane
	w *world
}

func (j journaled) Upsert(f desired.Frontend) error {
	err := j.DataPlane.Upsert(f)
	if err == nil {
		j.w.note("upsert %s %d", f.Key.VIP, len(f.Backends))
	}
	return err
}

func (j journaled) Delete(k service.Key) error {
	err := j.DataPlane.Delete(k)
	if err == nil {
		j.w.note("delete %s", k.VIP)
	}
	return err
}

// announcer records advertised routes and checks that their frontends are programmed.
type announcer struct{ *world }

func (a announcer) Set(routes []route.Route) error {
	a.mu.Lock()
	fail := a.fail
	a.mu.Unlock()
	if fail() {
		return errors.New("no")
	}
	held, _ := a.memory.List()
	for _, r := range routes {
		if !slices.ContainsFunc(held, func(f desired.Frontend) bool { return r.Prefix.Contains(f.VIP) }) {
			a.t.Errorf("%s is announced, but the data plane does not hold it", r.Prefix)
		}
	}
	a.mu.Lock()
	a.announced = slices.Clone(routes)
	a.mu.Unlock()
	a.note("announce %d", len(routes))
	return nil
}
func (a announcer) Withdrawing() []advertise.Withdrawal { return nil }
func (a announcer) Peers() []advertise.Peer             { return nil }
func (a announcer) Close() error                        { return nil }

// sourceFunc adapts a function to a source.
type sourceFunc func(context.Context, func(source.Snapshot)) error

func (f sourceFunc) Run(ctx context.Context, publish func(source.Snapshot)) error {
	return f(ctx, publish)
}

// newWorld runs a loop in a synctest bubble until the test ends.
func newWorld(t *testing.T, m *fake.DataPlane, change ...func(*world, *Config)) *world {
	w := &world{t: t, memory: m, states: map[health.Target]health.State{}, changed: make(chan struct{}, 1), fail: func() bool { return false }}
	w.faulty = fake.NewFaulty(journaled{w.memory, w}, 0, 1)
	config := Config{
		Source: sourceFunc(func(ctx context.Context, publish func(source.Snapshot)) error {
			w.publish = publish
			<-ctx.Done()
			return nil
		}),
		Prober: w, DataPlane: w.faulty, Announcer: announcer{w}, Linger: time.Second, Resync: 30 * time.Second,
		Node: plan.Node{Name: "lb1", NextHop4: netip.MustParseAddr("10.0.0.105")},
		Log:  slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	for _, f := range change {
		f(w, &config)
	}
	w.loop = New(config)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := w.loop.Run(ctx); err != nil {
			t.Errorf("the loop gave up: %v", err)
		}
	}()
	w.stop = func() { cancel(); <-ended }
	synctest.Wait()
	return w
}

func (w *world) serve(services ...*service.Service) { w.publish(source.Snapshot{Services: services}) }

func (w *world) setHealth(s *service.Service, backend int, state health.State) {
	w.mu.Lock()
	w.states[health.Target{Addr: s.Frontends[0].Backends[backend].Addr, Check: s.Health}] = state
	w.mu.Unlock()
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

func web(i, backends int) *service.Service {
	vip := netip.AddrFrom4([4]byte{10, 1, byte(i), 1})
	s := &service.Service{
		ID: service.ID{Namespace: "default", Name: fmt.Sprint("web", i)}, Method: service.Tunnel, Scheduler: service.Maglev,
		RingSize: 251, Health: service.DefaultHealthCheck, Panic: true,
		Frontends: []service.Frontend{{Key: service.Key{VIP: vip, Port: 80, Protocol: service.TCP}}},
	}
	for b := range backends {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 16, byte(i), byte(b + 1)}), 8080)
		s.Frontends[0].Backends = append(s.Frontends[0].Backends, service.Backend{Addr: addr, Weight: 1})
	}
	return s
}

func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fake.New())
		w.expect() // nothing before the source has loaded
		w.serve(web(1, 2), web(2, 1))
		w.expect("upsert 10.1.1.1 2", "upsert 10.1.2.1 1", "announce 2")
		w.serve(web(1, 3), web(2, 1))
		w.expect("upsert 10.1.1.1 3") // the other one is not touched
		w.serve(web(2, 1))
		w.expect("announce 1") // withdrawn, but still programmed for packets in transit
		time.Sleep(999 * time.Millisecond)
		w.expect()
		time.Sleep(time.Millisecond)
		w.expect("delete 10.1.1.1")
		w.stop()
		w.expect("announce 0") // and the data plane keeps working
	})
}

// The view reports the time since which each route is advertised, whatever else changes.
func TestRoutesHaveTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fake.New())
		began := time.Now()
		w.serve(web(1, 1))
		synctest.Wait()
		time.Sleep(time.Minute)
		w.serve(web(1, 2), web(2, 1))
		synctest.Wait()
		times := map[string]time.Duration{}
		for r, since := range w.loop.View().Announced {
			times[r.Prefix.String()] = since.Sub(began)
		}
		if want := map[string]time.Duration{"10.1.1.1/32": 0, "10.1.2.1/32": time.Minute}; !maps.Equal(times, want) {
			t.Errorf("announced since %v, want %v", times, want)
		}
		w.serve(web(2, 1))
		synctest.Wait()
		time.Sleep(time.Minute)
		w.serve(web(1, 1), web(2, 1))
		synctest.Wait()
		for r, since := range w.loop.View().Announced {
			if r.Prefix.String() == "10.1.1.1/32" && since.Sub(began) != 2*time.Minute {
				t.Errorf("%s came back, but is reported as advertised since %s", r.Prefix, since.Sub(began))
			}
		}
		w.stop()
		if left := w.loop.View().Announced; len(left) > 0 {
			t.Errorf("withdrawn, but shown: %v", left)
		}
	})
}

// A route whose attributes change is advertised again without a withdrawal.
func TestAttributesChangeWithoutAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fake.New())
		began := time.Now()
		terms := func(med uint32) {
			w.publish(source.Snapshot{Services: []*service.Service{web(1, 1)}, Advertisements: &priced{med}})
		}
		terms(0)
		w.expect("upsert 10.1.1.1 1", "announce 1")
		time.Sleep(time.Minute)
		terms(7)
		w.expect("announce 1")
		if r := w.announced[0]; r.MED != 7 {
			t.Errorf("announced is %s", r)
		}
		for r, since := range w.loop.View().Announced {
			if r.MED != 7 || !since.Equal(began) {
				t.Errorf("shown is %s since %s, want since %s", r, since, began)
			}
		}
		w.stop()
	})
}

// priced offers every address with a MED.
type priced struct{ med uint32 }

func (p *priced) Offers(_ *service.Service, vip netip.Addr) ([]route.Offer, string) {
	return []route.Offer{{Prefix: netip.PrefixFrom(vip, 32), Attributes: route.Attributes{MED: p.med}}}, ""
}

func TestComesBackWhileLingering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fake.New())
		w.serve(web(1, 1))
		w.expect("upsert 10.1.1.1 1", "announce 1")
		w.serve()
		w.expect("announce 0")
		w.serve(web(1, 1))
		time.Sleep(time.Minute)
		w.expect("announce 1")
		w.stop()
	})
}

func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fake.New())
		s := web(1, 2)
		s.Panic = false
		w.serve(s)
		w.expect("upsert 10.1.1.1 2", "announce 1")
		w.setHealth(s, 0, health.Down)
		w.expect("upsert 10.1.1.1 2") // it drains
		w.setHealth(s, 0, health.Removed)
		w.expect("upsert 10.1.1.1 1")
		w.setHealth(s, 1, health.Down)
		w.expect("announce 0")
		time.Sleep(2 * time.Second)
		w.expect("delete 10.1.1.1")
		w.setHealth(s, 0, health.Up)
		w.expect("upsert 10.1.1.1 2", "announce 1")
		w.stop()
	})
}

// One prefix leads to two Services, one of which awaits the health of its backends: its
// packets must not arrive yet.
func TestPrefixWaitsForAllBehindIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fake.New())
		known, waits := web(1, 1), web(2, 1)
		for _, s := range []*service.Service{known, waits} {
			s.Prefixes = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}
		}
		w.setHealth(waits, 0, health.Unknown)
		w.serve(known, waits)
		w.expect("upsert 10.1.1.1 1")
		w.setHealth(waits, 0, health.Up)
		w.expect("upsert 10.1.2.1 1", "announce 1")
		// If a route is withdrawn because its frontends are, packets in transit are still
		// forwarded, whatever else is pending.
		w.setHealth(waits, 0, health.Unknown)
		w.serve(known)
		w.expect("delete 10.1.2.1")
		w.serve(waits)
		w.expect("announce 0")
		time.Sleep(time.Second)
		w.expect("delete 10.1.1.1")
		w.stop()
	})
}

// TestTheFirstWholePass checks that the first complete pass waits for everything that can
// be programmed, and happens once.
func TestTheFirstWholePass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known, waits, bad := web(1, 1), web(2, 1), web(3, 1)
		w := newWorld(t, fake.New(), func(_ *world, c *Config) { c.DataPlane = full{c.DataPlane, bad.Frontends[0].Key.VIP} })
		expect := func(want string) {
			t.Helper()
			synctest.Wait()
			if got := w.loop.View().Waits; got != want {
				t.Errorf("waits for %q, want %q", got, want)
			}
		}
		expect("the Services have not been read yet")
		w.setHealth(waits, 0, health.Unknown)
		w.serve(known, waits)
		expect("TCP 10.1.2.1:80 waits for the first health checks of its backends")
		w.setFail(func() bool { return true })
		w.setHealth(waits, 0, health.Up)
		expect("announcer: no")
		w.serve(known, waits, bad)
		expect("TCP 10.1.3.1:80 is not held yet")
		w.setFail(func() bool { return false })
		time.Sleep(time.Minute)
		expect("")
		w.setHealth(waits, 0, health.Unknown)
		w.serve(known, waits, bad, web(4, 1))
		expect("")
		w.stop()
	})
}

// full is a data plane that has no room for one address.
type full struct {
	dataplane.DataPlane
	vip netip.Addr
}

func (f full) Upsert(want desired.Frontend) error {
	if want.VIP == f.vip {
		return errors.New("all 2 frontends are in use")
	}
	return f.DataPlane.Upsert(want)
}

// One prefix leads to two Services, one of which cannot be programmed. Once that is
// certain, the other is advertised, also by an agent that has just started. What cannot
// be programmed is reported.
func TestPrefixDoesNotWaitForWhatCannotBeHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good, bad := web(1, 1), web(2, 1)
		for _, s := range []*service.Service{good, bad} {
			s.Prefixes = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}
		}
		m, key := fake.New(), bad.Frontends[0].Key
		noRoom := func(_ *world, c *Config) { c.DataPlane = full{c.DataPlane, key.VIP} }
		w := newWorld(t, m, noRoom)
		w.serve(good, bad)
		w.expect("upsert 10.1.1.1 1") // the other may have failed by chance
		time.Sleep(time.Second)
		w.expect("announce 1")
		w.stop()
		w = newWorld(t, m, noRoom)
		w.serve(bad, good)
		time.Sleep(time.Second)
		w.expect("announce 1")
		if err := w.loop.View().Failures[key.String()]; err == nil || err.Error() != "all 2 frontends are in use" {
			t.Errorf("what cannot be held has the error %v", err)
		}
		w.serve(bad) // without the other it is not advertised
		time.Sleep(2 * time.Second)
		w.expect("announce 0", "delete 10.1.1.1")
		w.stop()
	})
}

// A restarted loop finds the state that its predecessor wrote and changes nothing, even
// before it knows the health of any backend.
func TestRestartIsHitless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := fake.New()
		w := newWorld(t, m)
		s := web(1, 2)
		w.serve(s)
		w.stop()
		w = newWorld(t, m)
		w.setHealth(s, 0, health.Unknown)
		w.setHealth(s, 1, health.Unknown)
		w.serve(s)
		w.expect("announce 1")
		w.stop()
	})
}

// Changes that others make to the data plane are reverted.
func TestResyncHeals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fake.New())
		w.serve(web(1, 2))
		w.expect("upsert 10.1.1.1 2", "announce 1")
		if err := w.memory.Delete(web(1, 2).Frontends[0].Key); err != nil {
			t.Fatal(err)
		}
		time.Sleep(31 * time.Second)
		w.expect("announce 0", "upsert 10.1.1.1 2", "announce 1")
		w.stop()
	})
}

// refuses is a data plane without support for round robin.
type refuses struct{ dataplane.DataPlane }

func (r refuses) Upsert(f desired.Frontend) error {
	if f.Scheduler == service.RoundRobin {
		return dataplane.Unsupported(f.Key, "scheduler rr")
	}
	return r.DataPlane.Upsert(f)
}

func TestRefusedByTheDataPlane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fake.New())
		w.loop.DataPlane = refuses{w.loop.DataPlane}
		good, bad := web(1, 1), web(2, 1)
		w.serve(good, bad)
		w.expect("upsert 10.1.1.1 1", "upsert 10.1.2.1 1", "announce 2")
		changed := *bad
		changed.Scheduler = service.RoundRobin
		w.serve(good, &changed)
		w.expect() // existing state stays
		want := "TCP 10.1.2.1:80: scheduler rr: not supported by this data plane"
		if got := w.loop.View().Refused[bad.Frontends[0].Key]; got != want {
			t.Errorf("refused with %q, want %q", got, want)
		}
		w.serve(good, bad)
		w.expect()
		if r := w.loop.View().Refused; len(r) != 0 {
			t.Errorf("still refused: %v", r)
		}
		w.stop()
	})
}

// Whatever fails in between, in the end the data plane and the advertised routes match
// the last snapshot.
func TestFaultsHeal(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, fake.New())
			rng := rand.New(rand.NewPCG(seed, 0))
			faults := rand.New(rand.NewPCG(seed, 1)) // separate, because the loop has its own goroutine
			w.setFail(func() bool { return faults.Float64() < 0.1 })
			w.faulty.SetRate(0.1)
			var last []*service.Service
			for range 60 {
				last = nil
				for i := range 6 {
					if n := rng.IntN(5); n > 0 {
						last = append(last, web(i, n-1))
					}
				}
				w.serve(last...)
				time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond)
			}
			time.Sleep(time.Minute)
			w.settled(last)
			w.stop()
		})
	}
}

func (w *world) settled(last []*service.Service) {
	w.t.Helper()
	synctest.Wait()
	held, _ := w.memory.List()
	var want []desired.Frontend
	for _, s := range last {
		if f := s.Frontends[0]; len(f.Backends) > 0 {
			want = append(want, desired.FrontendOf(s, f.Key, f.Backends))
		}
	}
	if !slices.EqualFunc(held, want, desired.Frontend.Same) {
		w.t.Errorf("held %v\nwant %v", held, want)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.announced) != len(want) {
		w.t.Errorf("announced %v, want %d routes", w.announced, len(want))
	}
}

// forgetful is a data plane that does not store the ring size.
type forgetful struct{ dataplane.DataPlane }

func (d forgetful) Canonical(f desired.Frontend) desired.Frontend {
	f.RingSize = 0
	return f
}

func (d forgetful) List() ([]desired.Frontend, error) {
	list, err := d.DataPlane.List()
	for i := range list {
		list[i] = d.Canonical(list[i])
	}
	return list, err
}

// Differences in what a data plane does not store cause no writes; other differences do.
func TestCanonicalIsEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fake.New(), func(_ *world, c *Config) { c.DataPlane = forgetful{c.DataPlane} })
		w.serve(web(1, 2))
		w.expect("upsert 10.1.1.1 2", "announce 1")
		time.Sleep(31 * time.Second)
		w.expect()
		other := *web(1, 2)
		other.RingSize = 16381
		w.serve(&other)
		w.expect()
		third := other
		third.Scheduler = service.SourceHash
		w.serve(&third)
		w.expect("upsert 10.1.1.1 2")
		w.stop()
	})
}
