package reconciler

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/fake"
	"github.com/fairlead/fairlead/internal/keyed"
	"github.com/fairlead/fairlead/source"
)

// backends is the DSR agent of a node, which records its calls.
type backends struct {
	w    *world
	fail atomic.Bool
}

func (b *backends) SetBalancers(all []netip.Addr) error {
	if b.fail.Load() {
		return errors.New("no")
	}
	if all == nil {
		b.w.note("anyone")
	} else {
		b.w.note("accept %v", all)
	}
	return nil
}

func (b *backends) Set(f []desired.Frontend) error {
	b.w.note("serve %d", len(f))
	return nil
}

func addrs(texts ...string) []netip.Addr {
	all := []netip.Addr{}
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

func newBackends(t *testing.T, check bool, change ...func(*Config)) (*world, *backends) {
	b := &backends{}
	w := newWorld(t, fake.New(), func(w *world, c *Config) {
		b.w = w
		c.DSRAgent, c.CheckSenders, c.DataPlane, c.Announcer = b, check, nil, nil
		for _, f := range change {
			f(c)
		}
	})
	return w, b
}

// TestSenders checks that a backend node knows the permitted senders before it serves the
// first frontend, and follows changes.
func TestSenders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newBackends(t, true)
		defer w.stop()
		say := func(senders []netip.Addr) { w.publish(source.Snapshot{Services: services(1), Senders: senders}) }
		b.fail.Store(true)
		say(addrs("172.16.1.2"))
		w.expect() // nothing is served unchecked
		b.fail.Store(false)
		time.Sleep(keyed.First)
		w.expect("accept [172.16.1.2]", "serve 1")
		say(addrs("172.16.1.2"))
		w.expect("serve 1")
		say(addrs("172.16.1.2", "172.16.2.2"))
		w.expect("accept [172.16.1.2 172.16.2.2]", "serve 1")
		b.fail.Store(true)
		say(addrs("172.16.2.2"))
		w.expect("serve 1") // packets are checked against the previous senders
		b.fail.Store(false)
		time.Sleep(keyed.First)
		w.expect("accept [172.16.2.2]", "serve 1")
		say(nil) // unknown senders change nothing
		w.expect("serve 1")
		say(addrs())
		w.expect("accept []", "serve 1")
	})
}

func TestSendersAreNotChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newBackends(t, false)
		defer w.stop()
		w.serve(services(1)...)
		w.expect("anyone", "serve 1")
		w.serve(services(2)...)
		w.expect("serve 2")
	})
}

// TestOwnBalancerIsASender checks that a node with both roles accepts its own load
// balancer regardless of the source.
func TestOwnBalancerIsASender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newBackends(t, true, func(c *Config) {
			c.DataPlane, c.Own = fake.New(), append(addrs("10.0.0.105"), netip.Addr{})
		})
		defer w.stop()
		w.publish(source.Snapshot{Senders: addrs("10.0.0.106")})
		w.expect("accept [10.0.0.106 10.0.0.105]", "serve 0")
		w.publish(source.Snapshot{Senders: addrs("10.0.0.105", "10.0.0.106")})
		w.expect("accept [10.0.0.105 10.0.0.106]", "serve 0")
	})
}

// TestAnnouncesWhenOthersKnowIt starts a load balancer, whose packets must not reach
// backend nodes that do not know it yet.
func TestAnnouncesWhenOthersKnowIt(t *testing.T) {
	for name, c := range map[string]struct {
		alone bool
		named time.Duration // after the start; negative: never
		want  time.Duration // until the routes are advertised
	}{
		"named before":       {want: noticeSpread},
		"named soon":         {named: time.Second, want: time.Second + noticeSpread},
		"never named":        {named: -1, want: noticeLimit},
		"it knows no others": {alone: true, named: -1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, _ := newStateful(t, time.Minute)
				defer w.stop()
				w.loop.Balancers = !c.alone
				w.loop.open = false
				began := time.Now()
				s := source.Snapshot{Services: services(1)}
				named := s
				named.Balancers = addrs("172.16.1.2", "172.16.4.2")
				if c.named == 0 {
					s = named
				}
				w.publish(s)
				time.AfterFunc(max(0, c.named), func() {
					if c.named > 0 {
						w.publish(named)
					}
				})
				for !slices.Contains(w.took(), "announce 1") {
					if v := w.loop.View(); c.want > 0 && v.Loaded && v.Waits == "" {
						t.Error("it is ready before it is announced")
					}
					time.Sleep(10 * time.Millisecond)
				}
				if d := time.Since(began); d < c.want || d > c.want+20*time.Millisecond {
					t.Errorf("announced after %v, want %v", d, c.want)
				}
				w.publish(source.Snapshot{Services: services(2)})
				if !slices.Contains(w.took(), "announce 2") {
					t.Error("what comes later waits again")
				}
			})
		})
	}
}

// TestUnnamedBalancerIsAProblem uses a load balancer that sends from an address that is
// not an endpoint of its Service.
func TestUnnamedBalancerIsAProblem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newStateful(t, time.Minute)
		defer w.stop()
		problem := func(balancers ...string) string {
			w.publish(source.Snapshot{Services: services(1), Balancers: addrs(balancers...)})
			w.took()
			time.Sleep(noticeLimit)
			text := ""
			for _, p := range w.loop.View().Problems {
				text += p.String()
			}
			return text
		}
		if p := problem("172.16.1.2", "172.16.4.2"); p != "" {
			t.Errorf("it is named: %s", p)
		}
		if p := problem("172.16.4.2"); !strings.Contains(p, "packets are sent from 172.16.1.2, which is not an endpoint of that Service (endpoints: 172.16.4.2)") {
			t.Errorf("it is not named: %q", p)
		}
	})
}

func services(n int) (all []*service.Service) {
	for i := range n {
		all = append(all, web(i+1, 2))
	}
	return all
}
