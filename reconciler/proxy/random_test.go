package proxy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/keyed"
)

// TestRandomChanges applies random changes to a loop while one call in ten to its plane
// fails. Whenever it had time, the plane has what a build from scratch yields.
func TestRandomChanges(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			w := run(t, Config{
				Window: time.Duration(rng.IntN(20)) * time.Millisecond, MaxDelay: proxy.DefaultMaxDelay,
				Resync: time.Duration(rng.IntN(2)) * 3 * time.Second,
			})
			w.fault.SetRate(0.1)
			known := &model{
				rng: rng, services: map[service.ID]*proxy.Service{}, slices: map[proxy.SliceID]*proxy.Slice{},
			}
			for range 20 {
				known.change(w.Loop)
			}
			w.Loaded()
			for range 30 {
				for range 1 + rng.IntN(20) {
					known.change(w.Loop)
					time.Sleep(time.Duration(rng.IntN(10)) * time.Millisecond)
				}
				if rng.IntN(3) == 0 {
					known.verify(w)
				}
			}
			known.verify(w)
		})
	}
}

// model records what a loop was given.
type model struct {
	rng      *rand.Rand
	services map[service.ID]*proxy.Service
	slices   map[proxy.SliceID]*proxy.Slice
	node     proxy.Node
}

// change makes a change. There are few names and addresses, so that they often collide.
func (m *model) change(l *Loop) {
	name := fmt.Sprint("s", m.rng.IntN(6))
	sliceID := proxy.SliceID{Namespace: "default", Name: fmt.Sprint("e", m.rng.IntN(8))}
	switch m.rng.IntN(12) {
	case 0:
		delete(m.services, id(name))
		l.DeleteService(id(name))
	case 1:
		delete(m.slices, sliceID)
		l.DeleteSlice(sliceID)
	case 2:
		m.node = proxy.Node{Name: fmt.Sprint("n", m.rng.IntN(3))}
		l.SetNode(m.node)
	case 3, 4, 5, 6:
		s := svc(name, fmt.Sprintf("10.96.0.%d", 1+m.rng.IntN(5)), m.rng.IntN(3))
		for range m.rng.IntN(3) {
			external(fmt.Sprintf([]string{"192.0.2.%d", "10.96.0.%d"}[m.rng.IntN(2)], 1+m.rng.IntN(3)))(s)
		}
		s.InternalLocal, s.ExternalLocal = m.rng.IntN(4) == 0, m.rng.IntN(4) == 0
		s.Ports[0].NodePort = uint16(30000 * m.rng.IntN(2))
		m.services[s.ID] = s
		l.SetService(s)
	default:
		sl := eps(sliceID.Name, name)
		for range m.rng.IntN(4) {
			sl.Endpoints = append(sl.Endpoints, proxy.Endpoint{
				Addr: eps("", "", fmt.Sprintf("10.1.0.%d", m.rng.IntN(9))).Endpoints[0].Addr, Node: fmt.Sprint("n", m.rng.IntN(3)),
				Ready: m.rng.IntN(4) > 0, Serving: true, Terminating: m.rng.IntN(4) == 0,
			})
		}
		m.slices[sl.ID] = sl
		l.SetSlice(sl)
	}
}

// verify gives the loop time, then compares.
func (m *model) verify(w *world) {
	w.t.Helper()
	for range 100 {
		time.Sleep(keyed.Last)
		synctest.Wait()
		if w.View().Synced {
			break
		}
	}
	got, want := w.plane.Held(), wanted(m.services, m.slices, m.node)
	if !slices.EqualFunc(got, want, func(a, b proxy.Frontend) bool { return a.Same(&b) }) {
		w.t.Fatalf("holds\n got %q\nwant %q", lines(got), lines(want))
	}
	if v := w.View(); v.Services != len(m.services) || v.Slices != len(m.slices) || v.Frontends != len(want) {
		w.t.Fatalf("view %+v; want %d Services, %d slices, %d frontends", v, len(m.services), len(m.slices), len(want))
	}
}

// TestConcurrentChanges has four goroutines change their own Services while two others read.
func TestConcurrentChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := run(t, quick)
		w.fault.SetRate(0.1)
		w.Loaded()
		services := map[service.ID]*proxy.Service{}
		var writers, readers sync.WaitGroup
		stop := make(chan struct{})
		for range 2 {
			readers.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Millisecond):
					}
					w.View()
					for _, s := range w.Services() {
						if _, err := w.Service(s.ID); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
		for g := range 4 {
			for i := range 50 {
				s := svc(fmt.Sprintf("s%d-%d", g, i), fmt.Sprintf("10.96.%d.%d", g, i), i, external("192.0.2.1"))
				services[s.ID] = s
				writers.Go(func() {
					w.SetService(svc(s.ID.Name, "10.96.9.9", i))
					time.Sleep(time.Duration(i%7) * time.Millisecond)
					w.SetService(s)
				})
			}
		}
		writers.Wait()
		close(stop)
		readers.Wait()
		(&model{services: services}).verify(w)
	})
}
