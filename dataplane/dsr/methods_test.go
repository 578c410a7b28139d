package dsr

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/tc"
	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/testnet"
)

// eachFamily runs a test with the tunnel entries of A and B set.
func (w *world) eachFamily(t *testing.T, f func(v, a, b netip.AddrPort)) {
	for _, tc := range []struct{ v, a, b netip.AddrPort }{{vip, w.serverA, w.serverB}, {vip6, w.serverA6, w.serverB6}} {
		t.Run(tc.v.Addr().String(), func(t *testing.T) {
			w.t = t
			w.set(w.halfA, both(service.Tunnel, tc.v, tc.a))
			w.set(w.halfB, both(service.Tunnel, tc.v, tc.b))
			f(tc.v, tc.a, tc.b)
		})
	}
}

// TestTrafficByGUE runs the tunnel over UDP, also with second-chance.
func TestTrafficByGUE(t *testing.T) {
	w := newWorld(t, tc.Open)
	w.eachFamily(t, func(v, a, b netip.AddrPort) {
		w.balancer.choose(v, choice{method: service.Tunnel, first: b, gue: true})
		old := w.browser()
		w.wantName(old, v, "B")
		w.wantBodies(old, v)
		w.wantDatagram(v, "B")
		w.balancer.choose(v, choice{method: service.Tunnel, first: a, older: list{b}, gue: true})
		w.wantBodies(old, v)
		w.wantName(w.browser(), v, "A")
	})
}

// TestSecondChanceOfUDP: a flow of datagrams stays with its backend through two changes,
// and a new one is accepted by the first of its list, because nobody knows it.
func TestSecondChanceOfUDP(t *testing.T) {
	w := newWorld(t, tc.Open)
	w.eachWay(t, func(m service.Method, v, a, b netip.AddrPort) {
		third := w.hostServer
		if v.Addr().Is6() {
			third = w.hostServer6
		}
		w.balancer.choose(v, choice{method: m, first: b})
		old := w.dial("udp", v)
		if got := w.who(old); got != "B" {
			w.t.Fatalf("%s answered, want B", got)
		}
		w.balancer.choose(v, choice{method: m, first: a, older: list{third, b}})
		for range 3 {
			if got := w.who(old); got != "B" {
				w.t.Fatalf("%s answered after the change, want B\n%s", got, w.state())
			}
		}
		w.wantDatagram(v, "A")
	})
}

// TestLongDatagrams sends requests and replies that exceed the path MTU.
func TestLongDatagrams(t *testing.T) {
	w := newWorld(t, tc.Open)
	w.eachFamily(t, func(v, a, _ netip.AddrPort) {
		echo := netip.AddrPortFrom(a.Addr(), 7007)
		at := netip.AddrPortFrom(v.Addr(), 7)
		var server net.PacketConn
		w.do(w.podA, func() (err error) { server, err = net.ListenPacket("udp", echo.String()); return err })
		defer server.Close()
		go func() { // answers with a long one
			buf := make([]byte, 1<<16)
			for {
				_, from, err := server.ReadFrom(buf)
				if err != nil {
					return
				}
				server.WriteTo(testnet.Body(5000), from)
			}
		}()
		w.set(w.halfA, both(service.Tunnel, at, echo))
		w.balancer.choose(at, choice{method: service.Tunnel, first: echo})
		conn := w.dial("udp", at)
		if got := testnet.Datagram(w.t, conn, []byte("?"), w.state); !bytes.Equal(got, testnet.Body(5000)) {
			w.t.Errorf("%d bytes came, not the 5000 that were sent\n%s", len(got), w.state())
		}
	})
}

// TestRejectedDatagramReportsTheVIP: nothing listens at the backend, and the client
// receives the error from the VIP.
func TestRejectedDatagramReportsTheVIP(t *testing.T) {
	w := newWorld(t, tc.Open)
	w.eachFamily(t, func(v, a, _ netip.AddrPort) {
		nobody, at := netip.AddrPortFrom(a.Addr(), 9), netip.AddrPortFrom(v.Addr(), 9)
		w.set(w.halfA, both(service.Tunnel, at, nobody))
		w.balancer.choose(at, choice{method: service.Tunnel, first: nobody})
		conn := w.dial("udp", at)
		testkit.Eventually(w.t, patience, func() error {
			if _, err := conn.Write([]byte("anyone?")); err != nil && !errors.Is(err, unix.ECONNREFUSED) {
				return err
			}
			conn.SetReadDeadline(time.Now().Add(time.Second))
			if _, err := conn.Read(make([]byte, 10)); !errors.Is(err, unix.ECONNREFUSED) {
				return fmt.Errorf("read gave %v, want a refusal", err)
			}
			return nil
		})
	})
}

// TestTrafficByDR: the router sends packets for the VIP to the nodes, as a load balancer
// on their segment does: to a pod, and to the node itself, neither of which has the VIP.
func TestTrafficByDR(t *testing.T) {
	w := newWorld(t, tc.Open)
	for _, tc := range []struct {
		name        string
		v, server   netip.AddrPort
		node, other string // gateways
		half        *Agent
	}{
		{"A", vip, w.serverA, "10.1.1.0/24", "10.0.0.105", w.halfA}, {"A", vip6, w.serverA6, "2001:db8:1::/64", "2001:db8::105", w.halfA},
		{"host", vip, w.hostServer, "10.1.1.0/24", "10.0.0.106", w.halfB}, {"host", vip6, w.hostServer6, "2001:db8:1::/64", "2001:db8::106", w.halfB},
	} {
		t.Run(fmt.Sprintf("%s to %s", tc.v.Addr(), tc.name), func(t *testing.T) {
			w.t = t
			w.reroute(w.router, tc.node, tc.other)
			w.set(tc.half, both(service.DR, tc.v, tc.server))
			w.wantName(w.browser(), tc.v, tc.name)
			w.wantBodies(w.browser(), tc.v)
			w.wantDatagram(tc.v, tc.name)
			if got, err := tc.half.Counters(); err != nil || got["dr-delivered"] == 0 {
				t.Errorf("counters %v, %v; want packets by dr", got, err)
			}
		})
	}
}

// TestBundlesByGUEArePassed has several datagrams in one frame, as UDP's GRO for
// forwarding makes them, with one outer header for all.
func TestBundlesByGUEArePassed(t *testing.T) {
	n := newNode(t)
	n.set(t, entry(service.Tunnel, vip, pod, service.TCP))
	frame := wire{client: client, dst: vip, tunnel: pod.Addr(), gue: true, payload: "one, two, three"}.bytes(t)
	const contextGSOSize = 44 // its index among the words of struct __sk_buff
	var context [48]uint32
	context[contextGSOSize] = 60
	verdict, err := n.agent.obj.ToServer.Run(&ebpf.RunOptions{Data: frame, Context: context[:]})
	if err != nil || int(int32(verdict)) != untouched || n.count(t, "passed-bundle") != 1 {
		t.Errorf("verdict %d, %v, %d passed as bundles; want 1", int32(verdict), err, n.count(t, "passed-bundle"))
	}
}

// bulkBodies is the number of megabytes in each direction of one connection.
const bulkBodies = 6

// TestBulk: packets arrive at the node in bundles (GRO), if the tunnel lets the kernel
// merge them, and leave the backend as bundles (TSO).
func TestBulk(t *testing.T) {
	w := newWorld(t, tc.Open)
	w.eachFamily(t, func(v, a, _ netip.AddrPort) {
		for _, gue := range []bool{false, true} {
			w.balancer.choose(v, choice{method: service.Tunnel, first: a, gue: gue})
			c := w.browser()
			packets, bytes := w.passed(w.nodeA, "pod0")
			for range bulkBodies {
				w.wantBodies(c, v)
			}
			p, b := w.passed(w.nodeA, "pod0")
			t.Logf("gue %v: %d bytes in %d packets to the server", gue, b-bytes, p-packets)
			if !gue && (b-bytes)/(p-packets) < 1500 {
				w.t.Errorf("%d bytes to the server in %d packets: no bundles", b-bytes, p-packets)
			}
		}
	})
}

// passed returns what has left by a device.
func (w *world) passed(ns *netns.NS, device string) (packets, bytes uint64) {
	w.t.Helper()
	w.do(ns, func() error {
		l, err := netlink.LinkByName(device)
		if err == nil {
			packets, bytes = l.Attrs().Statistics.TxPackets, l.Attrs().Statistics.TxBytes
		}
		return err
	})
	return packets, bytes
}
