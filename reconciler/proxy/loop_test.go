package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/proxy/fake"
	"github.com/fairlead/fairlead/internal/keyed"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func id(name string) service.ID { return service.ID{Namespace: "default", Name: name} }

// svc returns a Service with port 80 on addr, created that many seconds after the epoch.
func svc(name, addr string, age int, change ...func(*proxy.Service)) *proxy.Service {
	s := &proxy.Service{
		ID: id(name), Created: epoch.Add(time.Duration(age) * time.Second), ClusterIPs: []netip.Addr{netip.MustParseAddr(addr)},
		Ports: []proxy.ServicePort{{Protocol: service.TCP, Port: 80}},
	}
	for _, c := range change {
		c(s)
	}
	return s
}

func external(addr string) func(*proxy.Service) {
	return func(s *proxy.Service) { s.ExternalIPs = append(s.ExternalIPs, netip.MustParseAddr(addr)) }
}

// eps returns a slice of a Service. The endpoints all run on n2.
func eps(name, of string, addrs ...string) *proxy.Slice {
	sl := &proxy.Slice{
		ID: proxy.SliceID{Namespace: "default", Name: name}, Service: of, Ports: []proxy.SlicePort{{Protocol: service.TCP, Port: 8080}},
	}
	for _, a := range addrs {
		sl.Endpoints = append(sl.Endpoints, proxy.Endpoint{Addr: netip.MustParseAddr(a), Node: "n2", Ready: true, Serving: true})
	}
	return sl
}

// world is a running loop on an in-memory plane.
type world struct {
	*Loop
	t     *testing.T
	plane *fake.Plane
	fault *fake.Faulty
}

// run starts a loop in a synctest bubble.
func run(t *testing.T, c Config) *world {
	w := &world{t: t, plane: fake.New()}
	w.fault = fake.NewFaulty(w.plane, 0, 1)
	if c.Plane == nil {
		c.Plane = w.fault
	}
	c.Log = slog.New(slog.DiscardHandler)
	w.Loop = New(c)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return w
}

// holds waits until the loop has nothing left to do immediately, and compares the plane's
// contents: lines of "address target ...".
func (w *world) holds(want ...string) {
	w.t.Helper()
	synctest.Wait()
	if got := lines(w.plane.Held()); !slices.Equal(got, want) {
		w.t.Errorf("holds\n got %q\nwant %q", got, want)
	}
}

func lines(frontends []proxy.Frontend) (text []string) {
	for _, f := range frontends {
		line := f.Key.String()
		for _, t := range f.Outside.Targets {
			line += " " + t.Addr.Addr().String()
			if t.Local {
				line += "*"
			}
		}
		text = append(text, line)
	}
	return text
}

// did compares the plane's calls since the last check.
func (w *world) did(want fake.Calls) {
	w.t.Helper()
	synctest.Wait()
	got := w.plane.Calls()
	if got.Largest = want.Largest; got != want {
		w.t.Errorf("calls\n got %+v\nwant %+v", got, want)
	}
}

var quick = Config{Window: proxy.DefaultWindow, MaxDelay: proxy.DefaultMaxDelay}

// TestNothingIsTouchedBeforeAllIsKnown starts on a plane that a predecessor has filled.
func TestNothingIsTouchedBeforeAllIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := run(t, quick)
		stale, _ := proxy.Build(svc("stale", "10.96.0.9", 0), nil, proxy.Node{})
		kept, _ := proxy.Build(svc("a", "10.96.0.1", 0), []*proxy.Slice{eps("a-1", "a", "10.1.0.1")}, proxy.Node{})
		if err := w.plane.Apply(append(stale, kept...), nil); err != nil {
			t.Fatal(err)
		}
		w.plane.Calls()
		w.SetNode(proxy.Node{Name: "n1"})
		w.SetSlice(eps("a-1", "a", "10.1.0.1"))
		w.SetService(svc("a", "10.96.0.1", 0))
		w.SetService(svc("b", "10.96.0.2", 0))
		time.Sleep(time.Minute)
		w.did(fake.Calls{})
		if v := w.View(); v.Loaded || v.Synced {
			t.Errorf("a view before all is known: %+v", v)
		}
		w.Loaded()
		w.holds("10.96.0.1:80/TCP 10.1.0.1", "10.96.0.2:80/TCP")
		w.did(fake.Calls{Applies: 1, Set: 2, Gone: 1, Written: 1, Removed: 1})
		v := w.View()
		if !v.Loaded || !v.Synced || v.Services != 2 || v.Slices != 1 || v.Frontends != 2 || v.Unwritten != 0 || v.Passes != 1 {
			t.Errorf("view %+v", v)
		}
		w.Loaded()
		w.did(fake.Calls{})
	})
}

func TestOneChangeWritesOnlyItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := run(t, quick)
		for i := range 100 {
			w.SetService(svc(fmt.Sprint("s", i), fmt.Sprintf("10.96.1.%d", i), 0))
		}
		w.Loaded()
		w.did(fake.Calls{Applies: 1, Set: 100, Written: 100})
		time.Sleep(time.Second)
		w.SetSlice(eps("s7-1", "s7", "10.1.0.1"))
		w.did(fake.Calls{Applies: 1, Set: 1, Written: 1})
		time.Sleep(time.Second)
		w.SetSlice(eps("s7-1", "s8", "10.1.0.1")) // the slice now belongs to a different Service
		w.did(fake.Calls{Applies: 1, Set: 2, Written: 2})
		time.Sleep(time.Second)
		w.SetService(svc("s7", "10.96.1.7", 0)) // no change
		w.did(fake.Calls{})
		w.DeleteService(id("s8"))
		w.did(fake.Calls{Applies: 1, Gone: 1, Removed: 1})
		time.Sleep(time.Second)
		w.DeleteService(id("s8"))
		w.DeleteSlice(proxy.SliceID{Namespace: "default", Name: "s7-1"})
		w.DeleteSlice(proxy.SliceID{Namespace: "default", Name: "never"})
		w.did(fake.Calls{})
		if v := w.View(); v.Services != 99 || v.Slices != 0 || len(w.entries) != 99 {
			t.Errorf("%d Services, %d slices, %d entries; want 99, 0, 99", v.Services, v.Slices, len(w.entries))
		}
	})
}

// TestChangesAreGathered checks that the first change of an idle loop is written
// immediately, following ones together, and that none waits longer than MaxDelay.
func TestChangesAreGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := run(t, Config{Window: 10 * time.Millisecond, MaxDelay: 40 * time.Millisecond})
		w.SetService(svc("a", "10.96.0.1", 0))
		w.Loaded()
		w.did(fake.Calls{Applies: 1, Set: 1, Written: 1})
		time.Sleep(time.Second)
		turn := 0
		change := func() {
			turn++
			w.SetSlice(eps("a-1", "a", fmt.Sprintf("10.1.0.%d", turn)))
		}
		change()
		w.did(fake.Calls{Applies: 1, Set: 1, Written: 1})
		time.Sleep(2 * time.Millisecond)
		change()
		time.Sleep(9 * time.Millisecond)
		change()
		time.Sleep(9 * time.Millisecond)
		w.did(fake.Calls{}) // not idle for a whole window yet
		time.Sleep(time.Millisecond)
		w.did(fake.Calls{Applies: 1, Set: 1, Written: 1})
		if got := w.View().Latency.Max; got != 19*time.Millisecond {
			t.Errorf("the slowest change took %s, want 19ms", got)
		}
		for range 100 { // never idle
			time.Sleep(4 * time.Millisecond)
			change()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if c := w.plane.Calls(); c.Applies < 9 || c.Applies > 11 {
			t.Errorf("400 ms of changes took %d calls, want one in 40 ms", c.Applies)
		}
		if got := w.View().Latency; got.Max != 40*time.Millisecond {
			t.Errorf("the slowest change took %s, want 40ms", got.Max)
		}
		w.holds("10.96.0.1:80/TCP 10.1.0." + fmt.Sprint(turn))
	})
}

// TestRollingUpdate replaces 10 pods in each of 200 Services, one pod per Service at a
// time, each with three changes of its slice, a millisecond apart.
func TestRollingUpdate(t *testing.T) {
	calls := map[string]fake.Calls{}
	var slowest time.Duration
	for name, c := range map[string]Config{"gathered": quick, "each": {}} {
		synctest.Test(t, func(t *testing.T) {
			w := run(t, c)
			for i := range 200 {
				w.SetService(svc(fmt.Sprint("s", i), fmt.Sprintf("10.96.1.%d", i), 0))
			}
			w.Loaded()
			w.did(fake.Calls{Applies: 1, Set: 200, Written: 200})
			time.Sleep(time.Second)
			for step := range 30 {
				for i := range 200 {
					w.SetSlice(eps(fmt.Sprintf("s%d-1", i), fmt.Sprint("s", i), fmt.Sprintf("10.%d.%d.1", step, i)))
					time.Sleep(time.Millisecond)
				}
			}
			time.Sleep(time.Second)
			synctest.Wait()
			calls[name] = w.plane.Calls()
			slowest = max(slowest, w.View().Latency.Max)
			want := make([]string, 200)
			for i := range want {
				want[i] = fmt.Sprintf("10.96.1.%d:80/TCP 10.29.%d.1", i, i)
			}
			slices.SortFunc(want, func(a, b string) int { return byAddress(a, b) })
			w.holds(want...)
		})
	}
	t.Logf("6000 changes in 6 s: %d calls, the slowest change after %s; not gathered %d calls", calls["gathered"].Applies, slowest, calls["each"].Applies)
	if calls["each"].Applies != 6000 || calls["gathered"].Applies > 160 || slowest > proxy.DefaultMaxDelay {
		t.Errorf("gathered: %+v, not gathered: %+v, slowest %s", calls["gathered"], calls["each"], slowest)
	}
}

func byAddress(a, b string) int {
	addr := func(line string) netip.Addr {
		text, _, _ := strings.Cut(line, ":")
		return netip.MustParseAddr(text)
	}
	return addr(a).Compare(addr(b))
}

// TestTheOlderServiceHasTheKey has several Services claim one address.
func TestTheOlderServiceHasTheKey(t *testing.T) {
	const shared = "192.0.2.1"
	synctest.Test(t, func(t *testing.T) {
		w := run(t, quick)
		step := func(do func(), want ...string) {
			t.Helper()
			time.Sleep(time.Second)
			do()
			synctest.Wait()
			got := ""
			for _, f := range w.plane.Held() {
				if f.Addr.String() == shared {
					got += f.Outside.Targets[0].Addr.Addr().String() + " "
				}
			}
			for _, p := range w.View().Problems {
				got += p.String() + " "
			}
			if want := strings.Join(append(want, ""), " "); got != want {
				t.Errorf("\n got %s\nwant %s", got, want)
			}
		}
		problem := func(of, by string) string {
			return fmt.Sprintf("Service default/%s: spec.externalIPs: Service default/%s already has 192.0.2.1:80/TCP and is older: "+
				"give one of the two another address or port", of, by)
		}
		for i, name := range []string{"a", "b", "c"} {
			w.SetSlice(eps(name+"-1", name, fmt.Sprintf("10.1.0.%d", i+1)))
		}
		w.Loaded()
		b, c := svc("b", "10.96.0.2", 5, external(shared)), svc("c", "10.96.0.3", 5, external(shared))
		step(func() { w.SetService(c) }, "10.1.0.3")
		step(func() { w.SetService(b) }, "10.1.0.2", problem("c", "b")) // of the same age, but b sorts before c
		step(func() { w.SetService(svc("a", "10.96.0.1", 9, external(shared))) }, "10.1.0.2", problem("a", "b"), problem("c", "b"))
		if v, err := w.Service(id("c")); err != nil || len(v.Frontends) != 1 || len(v.Problems) != 1 {
			t.Errorf("Service c: %+v, %v; want one frontend and one problem", v, err)
		}
		step(func() { w.DeleteService(id("b")) }, "10.1.0.3", problem("a", "c"))
		step(func() { w.SetService(svc("c", "10.96.0.3", 20, external(shared))) }, "10.1.0.1", problem("c", "a")) // created again
		w.plane.Calls()
		step(func() { w.SetSlice(eps("c-1", "c", "10.1.0.33")) }, "10.1.0.1", problem("c", "a"))
		w.did(fake.Calls{Applies: 1, Set: 1, Written: 1}) // its own address only
		step(func() { w.SetService(svc("a", "10.96.0.1", 9)); w.SetService(b) }, "10.1.0.2", problem("c", "b"))
		step(func() { w.SetService(svc("c", "10.96.0.3", 20)) }, "10.1.0.2")
		if _, err := w.Service(id("d")); err == nil {
			t.Error("a Service is known that was never set")
		}
		if all := w.Services(); len(all) != 3 || all[1].ID != b.ID || len(all[1].Frontends) != 2 || len(w.rivals) != 0 {
			t.Errorf("Services %+v, rivals %v", all, w.rivals)
		}
	})
}

// TestAClusterIPIsItsServices checks that an older Service cannot take another one's
// cluster IP by requesting it as an external IP.
func TestAClusterIPIsItsServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := run(t, quick)
		w.SetSlice(eps("old-1", "old", "10.1.0.1"))
		w.SetSlice(eps("new-1", "new", "10.1.0.2"))
		w.SetSlice(eps("third-1", "third", "10.1.0.3"))
		w.Loaded()
		w.SetService(svc("old", "10.96.0.1", 1, external("10.96.0.2")))
		w.SetService(svc("third", "10.96.0.3", 0, external("10.96.0.2")))
		w.holds("10.96.0.1:80/TCP 10.1.0.1", "10.96.0.2:80/TCP 10.1.0.3", "10.96.0.3:80/TCP 10.1.0.3")
		time.Sleep(time.Second)
		w.SetService(svc("new", "10.96.0.2", 9))
		w.holds("10.96.0.1:80/TCP 10.1.0.1", "10.96.0.2:80/TCP 10.1.0.2", "10.96.0.3:80/TCP 10.1.0.3")
		want := "Service default/old: spec.externalIPs: Service default/new already has 10.96.0.2:80/TCP as its cluster IP: " +
			"give one of the two another address or port"
		if got := w.View().Problems; len(got) != 2 || got[0].String() != want {
			t.Errorf("problems %v, want %s, and that of default/third", got, want)
		}
		time.Sleep(time.Second)
		w.SetService(svc("new", "10.96.0.4", 9, external("10.96.0.2"))) // the same address, but only requested
		w.holds("10.96.0.1:80/TCP 10.1.0.1", "10.96.0.2:80/TCP 10.1.0.3", "10.96.0.3:80/TCP 10.1.0.3", "10.96.0.4:80/TCP 10.1.0.2")
		time.Sleep(time.Second)
		w.SetService(svc("new", "10.96.0.2", 9, external("10.96.0.4")))
		w.holds("10.96.0.1:80/TCP 10.1.0.1", "10.96.0.2:80/TCP 10.1.0.2", "10.96.0.3:80/TCP 10.1.0.3", "10.96.0.4:80/TCP 10.1.0.2")
		time.Sleep(time.Second)
		w.DeleteService(id("new"))
		w.holds("10.96.0.1:80/TCP 10.1.0.1", "10.96.0.2:80/TCP 10.1.0.3", "10.96.0.3:80/TCP 10.1.0.3")
	})
}

// TestTheNodeChanges checks that everything is decided again, but only differences are
// written.
func TestTheNodeChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := run(t, quick)
		w.SetNode(proxy.Node{Name: "n1"})
		w.SetNodeAddresses([]netip.Addr{netip.MustParseAddr("10.0.0.1")})
		for i := range 10 {
			w.SetService(svc(fmt.Sprint("s", i), fmt.Sprintf("10.96.1.%d", i), 0))
		}
		w.SetSlice(eps("s3-1", "s3", "10.1.0.1"))
		w.Loaded()
		w.did(fake.Calls{Applies: 1, Set: 10, Written: 10})
		time.Sleep(time.Second)
		w.SetNode(proxy.Node{Name: "n2"})
		w.did(fake.Calls{Applies: 1, Set: 1, Written: 1})
		w.fault.SetRate(1)
		w.SetNodeAddresses([]netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")})
		time.Sleep(time.Second)
		w.fault.SetRate(0)
		time.Sleep(time.Minute)
		if got := w.plane.NodeAddresses(); len(got) != 2 {
			t.Errorf("node addresses %v, want two", got)
		}
		w.did(fake.Calls{})
	})
}

// TestFailuresAreTriedAgain checks that no change is lost, that other changes are written
// in the meantime, and that the status reports the failure.
func TestFailuresAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := run(t, quick)
		w.fault.SetRate(1)
		w.SetService(svc("a", "10.96.0.1", 0))
		w.Loaded()
		began := time.Now()
		time.Sleep(time.Second)
		if v := w.View(); v.Synced || !errors.Is(v.LastError, fake.ErrFault) || v.Unwritten != 1 || v.Failures != 4 {
			t.Errorf("view of a plane that fails: %+v", v)
		}
		if last, waits := w.Sync(); !last.IsZero() || !waits.Equal(began) {
			t.Errorf("synced at %s, waits since %s; want never, %s", last, waits, began)
		}
		w.fault.SetRate(0)
		time.Sleep(time.Second)
		w.holds("10.96.0.1:80/TCP")
		w.fault.SetRate(1)
		w.SetService(svc("b", "10.96.0.2", 0))
		w.DeleteService(id("a"))
		time.Sleep(5 * time.Second)
		w.SetService(svc("c", "10.96.0.3", 0))
		time.Sleep(time.Minute)
		if v := w.View(); v.Unwritten != 3 || v.Failures > 25 {
			t.Errorf("%d unwritten, %d failures; want 3, and few", v.Unwritten, v.Failures)
		}
		w.fault.SetRate(0)
		time.Sleep(keyed.Last)
		w.holds("10.96.0.2:80/TCP", "10.96.0.3:80/TCP")
		if v := w.View(); !v.Synced || v.LastError != nil {
			t.Errorf("view of a plane that is healed: %+v", v)
		}
	})
}

func TestResyncRepairsForeignChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := run(t, Config{Resync: time.Hour})
		w.SetService(svc("a", "10.96.0.1", 0))
		w.Loaded()
		w.holds("10.96.0.1:80/TCP")
		alien, _ := proxy.Build(svc("x", "10.96.0.9", 0), nil, proxy.Node{})
		w.plane.Alter(alien, w.plane.Keys())
		time.Sleep(59 * time.Minute)
		w.holds("10.96.0.9:80/TCP")
		w.fault.SetRate(1)
		time.Sleep(2 * time.Minute)
		if _, waits := w.Sync(); waits.IsZero() || w.View().Synced {
			t.Error("reported as synced although the plane fails")
		}
		w.fault.SetRate(0)
		time.Sleep(keyed.Last)
		w.holds("10.96.0.1:80/TCP")
		if _, waits := w.Sync(); !waits.IsZero() {
			t.Errorf("something is pending since %s", waits)
		}
	})
}

// slowCheck is a plane that takes a minute for a comparison.
type slowCheck struct{ *fake.Plane }

func (s slowCheck) Check(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Minute):
		return s.Plane.Check(ctx)
	}
}

// TestChangesDoNotWaitForAComparison writes a change while the plane is compared.
func TestChangesDoNotWaitForAComparison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plane := fake.New()
		w := run(t, Config{Resync: time.Hour, Plane: slowCheck{plane}})
		w.plane = plane
		w.SetService(svc("a", "10.96.0.1", 0))
		w.Loaded()
		synctest.Wait()
		time.Sleep(time.Hour + time.Second)
		w.SetService(svc("b", "10.96.0.2", 0))
		w.holds("10.96.0.1:80/TCP", "10.96.0.2:80/TCP")
		plane.Calls()
		time.Sleep(time.Minute)
		w.did(fake.Calls{}) // as written
		if last, _ := w.Sync(); time.Since(last) > time.Minute {
			t.Errorf("a comparison without a difference does not count as synced: last %s ago", time.Since(last))
		}
		time.Sleep(time.Hour) // in the next comparison, which ends with the loop
	})
}

// healthRecorder records the health checks that a loop has set.
type healthRecorder struct {
	mu     sync.Mutex
	checks map[service.ID]proxy.HealthCheck
}

func (h *healthRecorder) Set(id service.ID, c proxy.HealthCheck) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checks[id] = c
}

func (h *healthRecorder) of(name string) proxy.HealthCheck {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.checks[id(name)]
}

// TestHealthIsSetAfterWrite checks that health checks are set after the frontends are
// written, not before.
func TestHealthIsSetAfterWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &healthRecorder{checks: map[service.ID]proxy.HealthCheck{}}
		w := run(t, Config{Health: h})
		w.SetNode(proxy.Node{Name: "n2"})
		w.SetService(svc("a", "10.96.0.1", 0, func(s *proxy.Service) { s.ExternalLocal, s.HealthCheckNodePort = true, 32000 }))
		w.SetService(svc("b", "10.96.0.2", 0))
		w.fault.SetRate(1)
		w.Loaded()
		time.Sleep(time.Second)
		if got := h.of("a"); got != (proxy.HealthCheck{}) {
			t.Errorf("health check %+v is set before anything is written", got)
		}
		w.fault.SetRate(0)
		time.Sleep(time.Minute)
		if got, want := h.of("a"), (proxy.HealthCheck{Port: 32000, IPv4: true}); got != want || len(h.checks) != 1 {
			t.Errorf("health checks %v, want only that of a: %+v", h.checks, want)
		}
		w.SetSlice(eps("a-1", "a", "10.1.0.1", "10.1.0.2"))
		if got := h.of("a").Ready4; got != 2 {
			t.Errorf("%d are ready, want 2", got)
		}
		w.DeleteService(id("a"))
		if got := h.of("a"); got != (proxy.HealthCheck{}) {
			t.Errorf("health check %+v is set although the Service is deleted", got)
		}
	})
}

// wanted returns the expected contents of a plane, built from scratch.
func wanted(services map[service.ID]*proxy.Service, all map[proxy.SliceID]*proxy.Slice, n proxy.Node) []proxy.Frontend {
	byAge := []*proxy.Service{}
	for _, s := range services {
		byAge = append(byAge, s)
	}
	slices.SortFunc(byAge, func(a, b *proxy.Service) int { return cmp.Or(a.Created.Compare(b.Created), a.ID.Compare(b.ID)) })
	first := map[proxy.Key]proxy.Frontend{}
	for _, s := range byAge {
		var of []*proxy.Slice
		for _, sl := range all {
			if sl.Service == s.ID.Name {
				of = append(of, sl)
			}
		}
		slices.SortFunc(of, func(a, b *proxy.Slice) int { return a.ID.Compare(b.ID) })
		frontends, _ := proxy.Build(s, of, n)
		for _, f := range frontends {
			if had, taken := first[f.Key]; !taken || f.Kind == proxy.ClusterIP && had.Kind != proxy.ClusterIP {
				first[f.Key] = f
			}
		}
	}
	return slices.SortedFunc(maps.Values(first), func(a, b proxy.Frontend) int { return a.Key.Compare(b.Key) })
}
