package dsr

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/tc"
	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/testkit/refusals"
	"github.com/fairlead/fairlead/lab/testnet"
)

// hooks are both ways to attach. If the kernel has no tcx they are the same.
var hooks = func() map[string]tc.Opener {
	if refusals.Without("clsact") {
		return map[string]tc.Opener{"tcx": tc.Open}
	}
	return map[string]tc.Opener{"tcx": tc.Open, "clsact": tc.OpenClsact}
}()

var returning = []service.Method{service.Tunnel, service.DSRNAT}

// both returns a backend's entries for TCP and UDP.
func both(m service.Method, v, server netip.AddrPort) []Entry {
	return []Entry{entry(m, v, server, service.TCP), entry(m, v, server, service.UDP)}
}

func (w *world) set(h *Agent, entries ...[]Entry) {
	w.t.Helper()
	var all []Entry
	for _, es := range entries {
		all = append(all, es...)
	}
	if err := h.Set(all); err != nil {
		w.t.Fatal(err)
	}
}

// TestTraffic has real clients and servers, with every forwarding mode, to pods and
// hosts. Packets arrive at the nodes in bundles (GRO) and leave the servers as bundles
// (GSO).
func TestTraffic(t *testing.T) {
	for name, hook := range hooks {
		t.Run(name, func(t *testing.T) { newWorld(t, hook).traffic(t) })
	}
}

// TestTrafficToDevicesWithoutOffloads makes the kernel itself split bundles and fill in
// checksums after the program.
func TestTrafficToDevicesWithoutOffloads(t *testing.T) {
	w := newWorld(t, tc.Open)
	w.do(w.nodeA, func() error { return testnet.Offload("pod0", unix.ETHTOOL_STXCSUM, 0) })
	w.do(w.nodeB, func() error { return testnet.Offload("eth0", unix.ETHTOOL_STXCSUM, 0) })
	w.traffic(t)
}

// TestTrafficBehindABridge has the load balancer and a server on one bridge: traffic
// between them never reaches the node's own routing.
func TestTrafficBehindABridge(t *testing.T) { buildWorld(t, tc.Open, true).traffic(t) }

// TestTrafficPastAFirewall has nodes that drop what their connection tracking calls
// invalid, as with kube-proxy: it sees at most one direction.
func TestTrafficPastAFirewall(t *testing.T) {
	w := newWorld(t, tc.Open)
	for _, ns := range []*netns.NS{w.nodeA, w.nodeB} {
		testkit.DropInvalid(t, ns)
	}
	w.traffic(t)
}

// TestTrafficByTheOtherFamily runs the tunnel over IPv6 for IPv4 and vice versa.
func TestTrafficByTheOtherFamily(t *testing.T) {
	w := newWorld(t, tc.Open)
	for _, tc := range []struct{ v, outer, inner netip.AddrPort }{
		{vip, w.serverA6, w.serverA}, {vip6, w.serverA, w.serverA6},
	} {
		t.Run(tc.v.Addr().String(), func(t *testing.T) {
			w.t = t
			entries := both(service.Tunnel, tc.v, tc.outer)
			for i := range entries {
				entries[i].Deliver = tc.inner.Addr()
			}
			w.set(w.halfA, entries)
			w.balancer.choose(tc.v, choice{method: service.Tunnel, first: tc.outer})
			w.wantName(w.browser(), tc.v, "A")
			w.wantBodies(w.browser(), tc.v)
			w.wantDatagram(tc.v, "A")
		})
	}
}

func (w *world) traffic(t *testing.T) {
	for _, m := range returning {
		for _, tc := range []struct {
			name      string
			v, server netip.AddrPort
			half      *Agent
		}{
			{"A", vip, w.serverA, w.halfA}, {"A", vip6, w.serverA6, w.halfA},
			{"host", vip, w.hostServer, w.halfB}, {"host", vip6, w.hostServer6, w.halfB},
		} {
			t.Run(fmt.Sprintf("%s %s to %s", m, tc.v.Addr(), tc.name), func(t *testing.T) {
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
	}
}

// eachWay runs a test for every forwarding mode and family, with the VIP and the servers
// A and B, whose entries are set.
func (w *world) eachWay(t *testing.T, f func(m service.Method, v, a, b netip.AddrPort)) {
	for _, m := range returning {
		for _, tc := range []struct{ v, a, b, host netip.AddrPort }{
			{vip, w.serverA, w.serverB, w.hostServer}, {vip6, w.serverA6, w.serverB6, w.hostServer6},
		} {
			t.Run(fmt.Sprintf("%s %s", m, tc.v.Addr()), func(t *testing.T) {
				w.t = t
				for _, half := range []*Agent{w.halfA, w.halfB} {
					w.set(half, both(m, tc.v, tc.a), both(m, tc.v, tc.b), both(m, tc.v, tc.host))
				}
				f(m, tc.v, tc.a, tc.b)
			})
		}
	}
}

// TestSecondChance establishes a connection to B. Then its slot moves to A.
func TestSecondChance(t *testing.T) {
	w := newWorld(t, tc.Open)
	w.eachWay(t, func(m service.Method, v, a, b netip.AddrPort) {
		w.balancer.choose(v, choice{method: m, first: b})
		old := w.browser()
		w.wantName(old, v, "B")
		w.balancer.choose(v, choice{method: m, first: a, older: list{b}})
		w.wantName(old, v, "B")
		w.wantBodies(old, v)
		w.wantName(w.browser(), v, "A")
		counters, err := w.halfA.Counters()
		if err != nil || counters["second-chance"] == 0 {
			w.t.Errorf("counters of node A: %v, %v; want a second chance", counters, err)
		}
	})
}

// TestNobodyKnowsTheFlow establishes a connection to a third server. Then A is tried, and
// after it B. The client receives a reset immediately.
func TestNobodyKnowsTheFlow(t *testing.T) {
	w := newWorld(t, tc.Open)
	w.eachWay(t, func(m service.Method, v, a, b netip.AddrPort) {
		third := w.hostServer
		if v.Addr().Is6() {
			third = w.hostServer6
		}
		w.balancer.choose(v, choice{method: m, first: third})
		conn := w.dial("tcp", v)
		w.balancer.choose(v, choice{method: m, first: a, older: list{b}})
		_, err := conn.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
		if err == nil { // else its final ACK of the handshake reached A, too
			_, err = conn.Read(make([]byte, 1))
		}
		if !errors.Is(err, unix.ECONNRESET) {
			w.t.Errorf("it gave %v, want a reset\n%s", err, w.state())
		}
	})
}

// TestDirectConnections: the load balancer's own namespace connects to servers, as health
// checks do, before and after they are entries.
func TestDirectConnections(t *testing.T) {
	w := newWorld(t, tc.Open)
	direct := func() {
		for _, server := range []netip.AddrPort{w.serverA, w.serverA6, w.hostServer, w.hostServer6} {
			conn, err := testnet.Dial(w.lb, "tcp", server)
			if err != nil {
				w.t.Fatalf("%s: %v\n%s", server, err, w.state())
			}
			if _, err := conn.Write([]byte("GET / HTTP/1.0\r\n\r\n")); err != nil {
				w.t.Fatal(err)
			}
			if _, err := io.ReadAll(conn); err != nil {
				w.t.Fatal(err)
			}
			conn.Close()
		}
	}
	direct()
	w.eachWay(t, func(service.Method, netip.AddrPort, netip.AddrPort, netip.AddrPort) { direct() })
	for _, h := range []*Agent{w.halfA, w.halfB} {
		flows, err := h.Flows()
		if err != nil || len(flows) > 0 {
			t.Errorf("flows %v, %v; want none", flows, err)
		}
	}
}

// TestRestartUnderTraffic closes the agent during one transfer, and opens it again during
// the next.
func TestRestartUnderTraffic(t *testing.T) {
	for name, hook := range hooks {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, hook)
			w.eachWay(t, func(m service.Method, v, a, _ netip.AddrPort) {
				w.balancer.choose(v, choice{method: m, first: a})
				c := w.browser()
				w.set(w.halfA, both(m, v, a))
				before := devicesOf(w.halfA)
				w.around(c, v, func() {
					if err := w.halfA.Close(); err != nil {
						w.t.Fatal(err)
					}
				})
				w.wantBodies(c, v) // no agent runs
				w.wantName(w.browser(), v, "A")
				w.around(c, v, func() { w.halfA = openAgent(t, w.nodeA, Config{}, hook) })
				if programmed, err := w.halfA.List(); err != nil || len(programmed) != 2 {
					w.t.Errorf("found %v, %v; want both entries", programmed, err)
				}
				if after := devicesOf(w.halfA); !slices.Equal(before, after) {
					w.t.Errorf("attached at %v, before at %v", after, before)
				}
				w.around(c, v, func() { w.set(w.halfA, both(m, v, a)) })
				w.wantBodies(c, v)
			})
		})
	}
}

// around calls a function when half of a large body has arrived.
func (w *world) around(c *http.Client, v netip.AddrPort, f func()) {
	w.t.Helper()
	testnet.Around(w.t, c, v, bigBody, f, w.state)
}

func devicesOf(h *Agent) []string { return h.Describe().Attached }

// TestRemovedServerKeepsItsFlows removes a server from the entries while it has a
// connection.
func TestRemovedServerKeepsItsFlows(t *testing.T) {
	w := newWorld(t, tc.Open)
	if err := w.halfA.Close(); err != nil {
		t.Fatal(err)
	}
	w.halfA = openAgent(t, w.nodeA, Config{Linger: 5 * time.Second}, tc.Open)
	w.eachWay(t, func(m service.Method, v, a, _ netip.AddrPort) {
		w.balancer.choose(v, choice{method: m, first: a})
		c := w.browser()
		w.wantName(c, v, "A")
		w.set(w.halfA)
		if programmed, err := w.halfA.List(); err != nil || len(programmed) > 0 {
			w.t.Errorf("entries %v, %v; want none", programmed, err)
		}
		w.wantBodies(c, v)
		c.CloseIdleConnections()
		testkit.Eventually(w.t, patience, func() error {
			var rows rows
			err := w.halfA.worker.Do(func() (err error) {
				rows, err = w.halfA.rows()
				return err
			})
			if err == nil && len(rows) > 0 {
				err = fmt.Errorf("%d rows linger", len(rows))
			}
			return err
		})
	})
}
