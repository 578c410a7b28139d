package serverhalf

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/service"
)

// hooks are both ways to attach; where the kernel has no tcx they are the same.
var hooks = map[string]newHookFunc{"tcx": newHook, "clsact": newClsact}

func eachMethod(t *testing.T, f func(t *testing.T, m service.Method)) {
	for _, m := range []service.Method{service.Tunnel, service.DirectNAT} {
		t.Run(string(m), func(t *testing.T) { f(t, m) })
	}
}

// both gives the entries of a server for TCP and UDP.
func both(m service.Method, v, server netip.AddrPort) []Entry {
	return []Entry{entry(m, v, server, service.TCP), entry(m, v, server, service.UDP)}
}

func (w *world) set(h *Half, entries ...[]Entry) {
	w.t.Helper()
	var all []Entry
	for _, es := range entries {
		all = append(all, es...)
	}
	if err := h.Set(all); err != nil {
		w.t.Fatal(err)
	}
}

// TestTraffic has real clients and servers, by every method, to pods and hosts.
func TestTraffic(t *testing.T) {
	for name, hook := range hooks {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, hook)
			eachMethod(t, func(t *testing.T, m service.Method) {
				w.t = t
				for _, tc := range []struct {
					name      string
					v, server netip.AddrPort
					half      *Half
				}{
					{"A", vip, w.serverA, w.halfA}, {"A", vip6, w.serverA6, w.halfA},
					{"host", vip, w.hostServer, w.halfB}, {"host", vip6, w.hostServer6, w.halfB},
				} {
					t.Run(fmt.Sprintf("%s to %s", tc.v.Addr(), tc.name), func(t *testing.T) {
						w.t = t
						w.set(tc.half, both(m, tc.v, tc.server))
						w.balancer.choose(tc.v, choice{method: m, first: tc.server})
						for range 3 {
							w.wantName(w.browser(), tc.v, tc.name)
						}
						w.wantBodies(w.browser(), tc.v)
						w.wantDatagram(tc.v, tc.name)
						if e := w.balancer.errors(); e != "no errors" {
							t.Error(e)
						}
					})
				}
			})
		})
	}
}
