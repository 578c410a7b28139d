package packet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/testnet"
)

// inWorld runs a test for both families in one world.
func inWorld(t *testing.T, f func(w *world, v6 family)) {
	w := newWorld(t)
	families(t, func(t *testing.T, v6 family) {
		w.t = t
		f(w, v6)
	})
}

// TestHairpin: a pod that serves itself sees its node as the client.
func TestHairpin(t *testing.T) {
	inWorld(t, func(w *world, v6 family) {
		w.expose(v6, "A", "A")
		for _, at := range []netip.AddrPort{v6.at(clusterIP, 80), v6.at(loadIP, 80), v6.at(nodeAAddr, 30080)} {
			w.want(w.podA, at, "A", v6.of(podAAddr.Prev()), false)
			w.wantDatagram(w.podA, at, 10, "A", v6.of(podAAddr.Prev()))
		}
	})
}

// TestOtherPortsAreTheNodes has a server of the node itself, in addition to node ports.
func TestOtherPortsAreTheNodes(t *testing.T) {
	inWorld(t, func(w *world, v6 family) {
		w.expose(v6, "A", "A")
		w.want(w.client, v6.at(nodeAAddr, 8080), "host", v6.of(clientAddr), false)
		w.want(w.podA, v6.at(nodeAAddr, 8080), "host", v6.of(podAAddr), false)
		w.want(w.client, v6.at(nodeAAddr, 30080), "A", v6.of(clientAddr), false)
	})
}

// TestPoliciesLocal has different endpoints for clients inside and outside.
func TestPoliciesLocal(t *testing.T) {
	inWorld(t, func(w *world, v6 family) {
		w.expose(v6, "B", "A")
		node := v6.at(nodeAAddr, 30080)
		w.want(w.client, node, "A", v6.of(clientAddr), false)
		w.want(w.podC, node, "B", v6.of(podCAddr), false)
		w.expose(v6, "B", "", func(f *proxy.Frontend) { f.Outside.Empty = proxy.Dropped })
		w.wantDropped(w.client, node, "dropped-no-local")
		w.want(w.podC, node, "B", v6.of(podCAddr), false)
		w.expose(v6, "", "", func(f *proxy.Frontend) { f.Inside.Empty, f.Outside.Empty = proxy.Dropped, proxy.Dropped })
		for _, ns := range []*netns.NS{w.podC, w.nodeA, w.client} {
			w.wantDropped(ns, v6.at(clusterIP, 80), "dropped-no-local")
		}
	})
}

// wantDropped tries to connect until a counter shows that it was dropped.
func (w *world) wantDropped(ns *netns.NS, at netip.AddrPort, why string) {
	w.t.Helper()
	before := w.counted(why)
	ctx, cancel := context.WithCancel(context.Background())
	tried := make(chan error, 1)
	go func() {
		tried <- ns.Do(func() error {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", at.String())
			if err == nil {
				conn.Close()
			}
			return err
		})
	}()
	testkit.Eventually(w.t, patience, func() error {
		if w.counted(why) == before {
			return fmt.Errorf("%s was not counted\n%s", why, w.state())
		}
		return nil
	})
	cancel()
	if err := <-tried; !errors.Is(err, context.Canceled) {
		w.t.Errorf("connecting to %s gave %v; want nothing until it is given up", at, err)
	}
}

// inWorlds does the same with checksums left to devices, filled in after the programs,
// and complete before.
func inWorlds(t *testing.T, f func(w *world, v6 family)) {
	t.Run("offloads", func(t *testing.T) { inWorld(t, f) })
	for name, before := range map[string]bool{"filled in behind": false, "filled in before": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.dropOffloads(before)
			families(t, func(t *testing.T, v6 family) {
				w.t = t
				f(w, v6)
			})
		})
	}
}

// TestNoEndpoints: clients are informed immediately.
func TestNoEndpoints(t *testing.T) {
	inWorlds(t, func(w *world, v6 family) {
		w.expose(v6, "", "")
		for name, ns := range map[string]*netns.NS{"client": w.client, "pod": w.podA, "node": w.nodeA} {
			for _, at := range []netip.AddrPort{v6.at(clusterIP, 80), v6.at(loadIP, 80), v6.at(nodeAAddr, 30080)} {
				if name == "node" && at.Port() == 30080 {
					continue
				}
				if _, err := w.dial(ns, "tcp", at); !errors.Is(err, unix.ECONNREFUSED) {
					w.t.Errorf("%s: connecting to %s gave %v, want it refused\n%s", name, at, err, w.state())
				}
				w.wantUnreachable(ns, at)
			}
		}
	})
}

// wantUnreachable sends datagrams until it receives an unreachable error.
func (w *world) wantUnreachable(ns *netns.NS, at netip.AddrPort) {
	w.t.Helper()
	conn, err := w.dial(ns, "udp", at)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	testkit.Eventually(w.t, patience, func() error {
		if _, err := conn.Write(testnet.Body(1400)); errors.Is(err, unix.ECONNREFUSED) {
			return nil
		}
		conn.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNREFUSED) {
			return fmt.Errorf("%s: %w; want it refused\n%s", at, err, w.state())
		}
		return nil
	})
}

// TestTargetsOwnErrors has endpoints without a listener on their port: their errors reach
// the client from the service.
func TestTargetsOwnErrors(t *testing.T) {
	inWorlds(t, func(w *world, v6 family) {
		closed := func(f *proxy.Frontend) {
			for _, ts := range [][]proxy.Target{f.Inside.Targets, f.Outside.Targets} {
				for i := range ts {
					ts[i].Addr = netip.AddrPortFrom(ts[i].Addr.Addr(), 9)
				}
			}
		}
		for _, pod := range []string{"A", "B", "H"} {
			w.expose(v6, pod, pod, closed)
			for _, ns := range []*netns.NS{w.client, w.podC, w.podA, w.nodeA} {
				for _, at := range []netip.AddrPort{v6.at(clusterIP, 80), v6.at(nodeAAddr, 30080)} {
					if ns == w.nodeA && at.Port() == 30080 {
						continue
					}
					if _, err := w.dial(ns, "tcp", at); !errors.Is(err, unix.ECONNREFUSED) {
						w.t.Errorf("%s to %s: connecting to %s gave %v, want it refused", ns.Name(), pod, at, err)
					}
					w.wantUnreachable(ns, at)
				}
			}
		}
	})
}

func TestSourceRanges(t *testing.T) {
	inWorld(t, func(w *world, v6 family) {
		only := func(a netip.Addr) func(*proxy.Frontend) {
			return func(f *proxy.Frontend) {
				f.Allow = []netip.Prefix{netip.PrefixFrom(v6.of(a), v6.of(a).BitLen()-4).Masked()}
			}
		}
		at := v6.at(loadIP, 80)
		w.expose(v6, "A", "B", only(clientAddr))
		w.want(w.client, at, "B", v6.of(nodeAAddr), false)
		w.wantDropped(w.podC, at, "dropped-source-range")
		w.wantDropped(w.nodeA, at, "dropped-source-range")
		for _, pods := range []string{"A", "B"} {
			w.expose(v6, pods, pods, only(nodeAAddr))
			w.want(w.nodeA, at, pods, v6.of(nodeAAddr), false)
		}
		w.expose(v6, "H", "H", only(nodeAAddr)) // to itself: it sees the service
		for range 3 {
			w.want(w.nodeA, at, "host", at.Addr(), true)
		}
		for _, size := range []int{10, 5000} {
			w.wantDatagram(w.nodeA, at, size, "host", at.Addr())
		}
		w.wantDropped(w.client, at, "dropped-source-range")
		w.expose(v6, "A", "A", only(podCAddr))
		w.want(w.podC, at, "A", v6.of(podCAddr), false)
		w.wantDropped(w.client, at, "dropped-source-range")
		w.expose(v6, "A", "A", func(f *proxy.Frontend) { f.Closed = true })
		w.wantDropped(w.podC, at, "dropped-source-range")
	})
}

func TestAffinity(t *testing.T) {
	inWorld(t, func(w *world, v6 family) {
		for _, ns := range []*netns.NS{w.client, w.podB} {
			at := v6.at(loadIP, 80)
			w.expose(v6, "AC", "AC", func(f *proxy.Frontend) { f.Affinity = time.Hour })
			first, _ := w.ask(w.browser(ns), at)
			for range 16 {
				if name, _ := w.ask(w.browser(ns), at); name != first {
					w.t.Fatalf("%s answered after %s", name, first)
				}
			}
			other := map[string]string{"A": "C", "C": "A"}[first]
			w.expose(v6, other, other, func(f *proxy.Frontend) { f.Affinity = time.Hour })
			if name, _ := w.ask(w.browser(ns), at); name != other {
				w.t.Errorf("%s answered, which is gone", name)
			}
		}
	})
}

// TestAffinityOfDatagrams: each datagram is a separate flow. A flow that continues stays
// on its endpoint. A new one goes to the endpoint of the client's last one, until that is
// removed or too long ago.
func TestAffinityOfDatagrams(t *testing.T) {
	inWorld(t, func(w *world, v6 family) {
		at := v6.at(loadIP, 80)
		expose := func(pods, keeps string, timeout time.Duration) {
			w.expose(v6, pods, pods, func(f *proxy.Frontend) {
				f.Affinity, f.Inside.Keeps, f.Outside.Keeps = timeout, targets(v6, keeps), targets(v6, keeps)
			})
		}
		for _, ns := range []*netns.NS{w.client, w.podB} {
			newSocket := func() string {
				conn, err := w.dial(ns, "udp", at)
				if err != nil {
					w.t.Fatal(err)
				}
				defer conn.Close()
				name, _ := w.datagram(conn, 10)
				return name
			}
			wantNewSocket := func(want string) {
				w.t.Helper()
				for range 8 {
					if name := newSocket(); name != want {
						w.t.Fatalf("%s answered, want %s\n%s", name, want, w.state())
					}
				}
			}
			expose("AC", "", time.Hour)
			lasting, err := w.dial(ns, "udp", at)
			if err != nil {
				w.t.Fatal(err)
			}
			defer lasting.Close()
			first, _ := w.datagram(lasting, 10)
			wantNewSocket(first)
			other := map[string]string{"A": "C", "C": "A"}[first]
			expose(other, first, time.Hour) // the first one terminates
			wantNewSocket(other)
			expose("AC", "", time.Hour) // and another has its address
			wantNewSocket(other)
			w.wantStays(lasting, first)
			expose("AC", "", time.Second)
			for _, query := range []func() string{newSocket, func() string { name, _ := w.ask(w.browser(ns), at); return name }} {
				before := query()
				testkit.Eventually(w.t, patience, func() error {
					time.Sleep(1100 * time.Millisecond)
					if query() == before {
						return errors.New("the client still reaches the same endpoint")
					}
					return nil
				})
			}
		}
	})
}

func TestTargetsShareClients(t *testing.T) {
	inWorld(t, func(w *world, v6 family) {
		w.expose(v6, "AC", "ABC")
		for _, c := range []struct {
			ns   *netns.NS
			want int
		}{{w.client, 3}, {w.podC, 2}} {
			seen := map[string]bool{}
			for range 100 { // probability of missing one of three: 10^-17
				name, _ := w.ask(w.browser(c.ns), v6.at(nodeAAddr, 30080))
				seen[name] = true
			}
			if len(seen) != c.want {
				w.t.Errorf("answers came from %v, want %d pods", seen, c.want)
			}
		}
	})
}

// TestTargetGoes: TCP stays with a removed endpoint, and UDP moves; but not from one that
// only accepts no new flows.
func TestTargetGoes(t *testing.T) {
	inWorld(t, func(w *world, v6 family) {
		for _, ns := range []*netns.NS{w.client, w.podC} {
			at := v6.at(clusterIP, 80)
			w.expose(v6, "A", "A")
			browser := w.browser(ns)
			w.ask(browser, at)
			conn, err := w.dial(ns, "udp", at)
			if err != nil {
				w.t.Fatal(err)
			}
			defer conn.Close()
			w.datagram(conn, 10)
			made := w.counted("flow-made")
			w.expose(v6, "B", "B", func(f *proxy.Frontend) { f.Inside.Keeps, f.Outside.Keeps = targets(v6, "A"), targets(v6, "A") })
			w.wantStays(conn, "A")
			if made != w.counted("flow-made") {
				w.t.Error("a datagram created another flow")
			}
			w.wantDatagram(ns, at, 10, "B", v6.of(map[*netns.NS]netip.Addr{w.client: nodeAAddr, w.podC: podCAddr}[ns]))
			w.expose(v6, "B", "B")
			if name, _ := w.ask(browser, at); name != "A" {
				w.t.Errorf("%s answered on a connection to A", name)
			}
			conn.SetDeadline(time.Now().Add(patience))
			testkit.Eventually(w.t, patience, func() error {
				if name, _ := w.datagram(conn, 10); name != "B" {
					return fmt.Errorf("%s answered, want B", name)
				}
				return nil
			})
			w.expose(v6, "", "")
			testkit.Eventually(w.t, patience, func() error {
				conn.SetDeadline(time.Now().Add(time.Second))
				_, err := conn.Write([]byte("?"))
				if err == nil {
					_, err = conn.Read(make([]byte, 10000))
				}
				if !errors.Is(err, unix.ECONNREFUSED) {
					return fmt.Errorf("a datagram gave %v, want it refused", err)
				}
				return nil
			})
		}
	})
}

// wantStays sends datagrams for longer than the programs cache their result for a flow's
// endpoint.
func (w *world) wantStays(conn net.Conn, name string) {
	w.t.Helper()
	conn.SetDeadline(time.Now().Add(patience))
	for range 4 {
		time.Sleep(500 * time.Millisecond)
		if got, _ := w.datagram(conn, 10); got != name {
			w.t.Fatalf("%s answered, want %s to stay\n%s", got, name, w.state())
		}
	}
}

// TestForgottenConnection: a client is informed immediately that its connection is no
// longer known.
func TestForgottenConnection(t *testing.T) {
	inWorld(t, func(w *world, v6 family) {
		w.expose(v6, "A", "B")
		for _, ns := range []*netns.NS{w.client, w.podC} {
			for _, at := range []netip.AddrPort{v6.at(clusterIP, 80), v6.at(nodeAAddr, 30080)} {
				conn, err := w.dial(ns, "tcp", at)
				if err != nil {
					w.t.Fatal(err)
				}
				defer conn.Close()
				w.forgetAll()
				_, err = conn.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
				if err == nil { // else its final ACK of the handshake arrived later, too
					_, err = conn.Read(make([]byte, 1))
				}
				if !errors.Is(err, unix.ECONNRESET) {
					w.t.Errorf("%s: it gave %v, want a reset\n%s", at, err, w.state())
				}
			}
		}
	})
}

// forgetAll empties the flow table.
func (w *world) forgetAll() {
	w.t.Helper()
	err := w.half.worker.Do(func() error {
		var key packetTuple
		var f packetPacketFlow
		var keys []packetTuple
		it := w.half.obj.PacketFlows.Iterate()
		for it.Next(&key, &f) {
			keys = append(keys, key)
		}
		for _, k := range keys {
			if err := w.half.obj.PacketFlows.Delete(k); err != nil {
				return err
			}
		}
		return it.Err()
	})
	if err != nil {
		w.t.Fatal(err)
	}
}
