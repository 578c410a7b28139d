package proxy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/proxy/fake"
	"github.com/fairlead/fairlead/internal/keyed"
)

// poison is a plane that rejects some addresses.
type poison struct {
	*fake.Plane
	addrs atomic.Pointer[[]netip.Addr]
}

func (p *poison) Apply(set []proxy.Frontend, gone []proxy.Key) error {
	var rest []proxy.Frontend
	var errs []error
	for _, f := range set {
		if slices.Contains(*p.addrs.Load(), f.Addr) {
			errs = append(errs, proxy.Refusal{Key: f.Key, Err: errors.New("no room: raise the limit")})
		} else {
			rest = append(rest, f)
		}
	}
	return errors.Join(append(errs, p.Plane.Apply(rest, gone))...)
}

func (p *poison) set(addrs ...string) {
	var list []netip.Addr
	for _, a := range addrs {
		list = append(list, netip.MustParseAddr(a))
	}
	p.addrs.Store(&list)
}

// well checks that nothing is pending, and compares the rejected frontends.
func (w *world) well(refused ...string) {
	w.t.Helper()
	synctest.Wait()
	var got []string
	v := w.View()
	for _, p := range v.Problems {
		got = append(got, p.String())
	}
	for i, name := range refused {
		refused[i] = "Service default/" + name + " cannot be held as it should be: no room: raise the limit; what was held there stays, and it is tried again"
	}
	_, waits := w.Sync()
	if !slices.Equal(got, refused) || v.Refused != len(refused) || !v.Synced || v.LastError != nil || v.Unwritten != 0 || !waits.IsZero() {
		w.t.Errorf("problems %q, want %q; waits since %s; view %+v", got, refused, waits, v)
	}
}

// TestOneThatIsRefusedHarmsNoOther checks that a rejected frontend affects no other,
// neither in the first pass nor later, and that it is reported and retried.
func TestOneThatIsRefusedHarmsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := &poison{Plane: fake.New()}
		bad.set("10.96.0.1")
		w := run(t, Config{Plane: bad, Window: proxy.DefaultWindow, MaxDelay: proxy.DefaultMaxDelay})
		w.plane = bad.Plane
		const one, three = "bad: spec.clusterIPs: 10.96.0.1:80/TCP", "b: spec.clusterIPs: 10.96.0.3:80/TCP"
		w.SetService(svc("bad", "10.96.0.1", 0))
		w.SetService(svc("a", "10.96.0.2", 0))
		w.Loaded()
		w.holds("10.96.0.2:80/TCP")
		w.well(one)
		time.Sleep(time.Minute)
		w.plane.Calls()
		w.SetService(svc("b", "10.96.0.3", 0))
		w.did(fake.Calls{Applies: 1, Set: 1, Written: 1})
		w.SetSlice(eps("bad-1", "bad", "10.1.0.1"))
		time.Sleep(time.Second)
		w.well(one)
		if s, err := w.Service(id("bad")); err != nil || len(s.Problems) != 1 || len(s.Frontends) != 1 {
			t.Errorf("the Service is shown as %+v, %v", s, err)
		}
		bad.set()
		time.Sleep(keyed.Last)
		w.holds("10.96.0.1:80/TCP 10.1.0.1", "10.96.0.2:80/TCP", "10.96.0.3:80/TCP")
		w.well()
		bad.set("10.96.0.1", "10.96.0.3")
		w.SetSlice(eps("b-1", "b", "10.1.0.2"))
		time.Sleep(time.Minute)
		w.plane.Calls()
		w.DeleteService(id("a"))
		w.did(fake.Calls{Applies: 1, Gone: 1, Removed: 1})
		w.well(three)
		bad.set("10.96.0.1")
		for i := range 20 { // new rejections do not postpone the retry of earlier ones
			w.SetSlice(eps("bad-1", "bad", fmt.Sprintf("10.1.1.%d", i)))
			time.Sleep(time.Second)
		}
		w.holds("10.96.0.1:80/TCP 10.1.0.1", "10.96.0.3:80/TCP 10.1.0.2")
		w.well(one)
		w.DeleteService(id("bad"))
		w.DeleteSlice(proxy.SliceID{Namespace: "default", Name: "bad-1"})
		w.well()
		time.Sleep(time.Minute)
		w.plane.Calls()
		time.Sleep(time.Hour) // nothing is left to retry
		w.did(fake.Calls{})
	})
}

// TestARefusedFrontendKeepsNoOthersHealth checks that health checks of other Services are
// set, and for the Service itself only that it has no endpoints here.
func TestARefusedFrontendKeepsNoOthersHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &healthRecorder{checks: map[service.ID]proxy.HealthCheck{}}
		bad := &poison{Plane: fake.New()}
		bad.set()
		w := run(t, Config{Plane: bad, Health: h})
		w.plane = bad.Plane
		checked := func(port uint16) func(*proxy.Service) {
			return func(s *proxy.Service) { s.ExternalLocal, s.HealthCheckNodePort = true, port }
		}
		expect := func(of string, want int) {
			t.Helper()
			if got := h.of(of).Ready4; got != want {
				t.Errorf("Service %s: %d endpoints reported, want %d", of, got, want)
			}
		}
		w.SetNode(proxy.Node{Name: "n2"})
		w.SetService(svc("a", "10.96.0.1", 0, checked(32000)))
		w.SetService(svc("bad", "10.96.0.2", 0, checked(32001)))
		w.SetSlice(eps("bad-1", "bad", "10.1.0.1"))
		w.Loaded()
		expect("bad", 1)
		bad.set("10.96.0.2")
		w.SetSlice(eps("bad-1", "bad", "10.1.0.1", "10.1.0.2"))
		w.SetSlice(eps("a-1", "a", "10.1.0.3"))
		expect("a", 1)
		expect("bad", 1)
		w.SetSlice(eps("bad-1", "bad"))
		expect("bad", 0)
		w.SetSlice(eps("bad-1", "bad", "10.1.0.1", "10.1.0.2"))
		bad.set()
		time.Sleep(keyed.Last)
		expect("bad", 2)
	})
}
