package dsr

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/tc"
	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/testnet"
)

// world is a small network with real TCP and a load balancer in this process:
//
//	client ── router ─┬─ lb            the load balancer, in user space
//	192.168.0.7       ├─ nodeA ── podA 172.16.1.2
//	                  └─ nodeB ── podB 172.16.2.2
//	        lan 10.0.0.0/16
//
// The router has no route to pods: the client can reach them only through the VIP. Every
// address has an IPv6 counterpart.
type world struct {
	t                       *testing.T
	client, router, lb      *netns.NS
	nodeA, nodeB            *netns.NS
	podA, podB              *netns.NS
	halfA, halfB            *Agent
	balancer                *balancer
	hook                    tc.Opener
	serverA, serverB        netip.AddrPort // in pods
	serverA6, serverB6      netip.AddrPort
	hostServer, hostServer6 netip.AddrPort // nodeB itself
}

const bigBody = 1 << 20

func newWorld(t *testing.T, hook tc.Opener) *world {
	return buildWorld(t, hook, false)
}

// buildWorld makes the world. bridged: podA and the load balancer are behind one bridge
// of nodeA, as its pods.
func buildWorld(t *testing.T, hook tc.Opener, bridged bool) *world {
	t.Helper()
	w := &world{
		t: t, hook: hook,
		serverA: ap("172.16.1.2:8080"), serverA6: ap("[2001:db8:16:1::2]:8080"),
		serverB: ap("172.16.2.2:8081"), serverB6: ap("[2001:db8:16:2::2]:8081"),
		hostServer: ap("10.0.0.106:8082"), hostServer6: ap("[2001:db8::106]:8082"),
	}
	testnet.Namespaces(t, &w.client, &w.router, &w.lb, &w.nodeA, &w.nodeB, &w.podA, &w.podB)
	w.wire(bridged)
	testnet.Serve(t, w.podA, w.serverA, "A")
	testnet.Serve(t, w.podA, w.serverA6, "A")
	testnet.Serve(t, w.podB, w.serverB, "B")
	testnet.Serve(t, w.podB, w.serverB6, "B")
	testnet.Serve(t, w.nodeB, w.hostServer, "host")
	testnet.Serve(t, w.nodeB, w.hostServer6, "host")
	w.halfA = openAgent(t, w.nodeA, Config{}, hook)
	w.halfB = openAgent(t, w.nodeB, Config{}, hook)
	w.balancer = newBalancer(t, w.lb)
	return w
}

// wire makes the links, addresses and routes.
func (w *world) wire(bridged bool) {
	w.bridge(w.router, "lan", "10.0.0.110/16", "2001:db8::110/64")
	w.lan(w.lb, "10.0.0.120/16", "2001:db8::120/64")
	w.lan(w.nodeA, "10.0.0.105/16", "2001:db8::105/64")
	w.lan(w.nodeB, "10.0.0.106/16", "2001:db8::106/64")
	testnet.Pair(w.t, w.router, "cli", w.client, "eth0")
	w.do(w.router, func() error { return testnet.Address("cli", "192.168.0.1/24", "2001:db8:c::1/64") })
	w.do(w.client, func() error { return testnet.Address("eth0", "192.168.0.7/24", "2001:db8:c::7/64") })
	if bridged {
		w.bridge(w.nodeA, "cni0", "172.16.1.1/24", "2001:db8:16:1::1/64")
		w.port(w.nodeA, "cni0", "port0", w.podA, "eth0")
		w.port(w.nodeA, "cni0", "port1", w.lb, "eth1")
		w.do(w.podA, func() error { return testnet.Address("eth0", "172.16.1.2/24", "2001:db8:16:1::2/64") })
		w.do(w.lb, func() error { return testnet.Address("eth1", "172.16.1.9/24", "2001:db8:16:1::9/64") })
		w.routes(w.podA, "0.0.0.0/0 172.16.1.1", "::/0 2001:db8:16:1::1")
	} else {
		w.pod(w.nodeA, w.podA, "172.16.1", "2001:db8:16:1:")
	}
	w.pod(w.nodeB, w.podB, "172.16.2", "2001:db8:16:2:")
	for _, ns := range []*netns.NS{w.router, w.nodeA, w.nodeB} {
		w.do(ns, testnet.Forward)
	}
	w.routes(w.client, "0.0.0.0/0 192.168.0.1", "::/0 2001:db8:c::1")
	toA := []string{"172.16.1.0/24 10.0.0.105", "2001:db8:16:1::/64 2001:db8::105"}
	toB := []string{"172.16.2.0/24 10.0.0.106", "2001:db8:16:2::/64 2001:db8::106"}
	out := []string{"0.0.0.0/0 10.0.0.110", "::/0 2001:db8::110"}
	w.routes(w.nodeA, append(toB, out...)...)
	w.routes(w.nodeB, append(toA, out...)...)
	if bridged {
		w.routes(w.lb, append(toB, out...)...)
		w.routes(w.router, "10.1.1.0/24 10.0.0.105", "2001:db8:1::/64 2001:db8::105")
		w.routes(w.nodeA, "10.1.1.0/24 172.16.1.9", "2001:db8:1::/64 2001:db8:16:1::9")
	} else {
		w.routes(w.lb, append(append(toA, toB...), out...)...)
		w.routes(w.router, "10.1.1.0/24 10.0.0.120", "2001:db8:1::/64 2001:db8::120")
	}
	// The test's load balancer needs single packets with complete checksums.
	w.do(w.client, func() error { return testnet.Offload("eth0", unix.ETHTOOL_STXCSUM, 0) })
	for _, ns := range []*netns.NS{w.nodeA, w.nodeB} {
		w.do(ns, func() error { return gather("eth0") })
	}
}

func (w *world) do(ns *netns.NS, f func() error) {
	w.t.Helper()
	testkit.Do(w.t, ns, f)
}

// lan connects a namespace's eth0 to the router's bridge.
func (w *world) lan(ns *netns.NS, addrs ...string) {
	w.t.Helper()
	port := "p" + addrs[0][len("10.0.0."):len("10.0.0.1xx")]
	w.port(w.router, "lan", port, ns, "eth0")
	w.do(ns, func() error { return testnet.Address("eth0", addrs...) })
}

func (w *world) bridge(ns *netns.NS, name string, addrs ...string) {
	w.t.Helper()
	w.do(ns, func() error { return testnet.Bridge(name, addrs...) })
}

// port connects a namespace to another's bridge.
func (w *world) port(ns *netns.NS, bridge, port string, peer *netns.NS, device string) {
	w.t.Helper()
	testnet.Pair(w.t, ns, port, peer, device)
	w.do(ns, func() error {
		// With TSO at this end the other end would not merge packets.
		return errors.Join(testnet.Enslave(port, bridge), testnet.Offload(port, unix.ETHTOOL_STXCSUM, 0))
	})
}

// pod connects a pod to its node, with a gateway at .1 and the pod at .2.
func (w *world) pod(node, pod *netns.NS, net4, net6 string) {
	w.t.Helper()
	testnet.Pair(w.t, node, "pod0", pod, "eth0")
	w.do(node, func() error { return testnet.Address("pod0", net4+".1/24", net6+":1/64") })
	w.do(pod, func() error { return testnet.Address("eth0", net4+".2/24", net6+":2/64") })
	w.routes(pod, "0.0.0.0/0 "+net4+".1", "::/0 "+net6+":1")
}

// routes adds routes given as "prefix gateway".
func (w *world) routes(ns *netns.NS, routes ...string) {
	w.t.Helper()
	w.do(ns, func() error {
		for _, r := range routes {
			var dst, gw string
			fmt.Sscan(r, &dst, &gw)
			_, prefix, err := net.ParseCIDR(dst)
			if err != nil {
				return err
			}
			if err := netlink.RouteAdd(&netlink.Route{Dst: prefix, Gw: net.ParseIP(gw)}); err != nil {
				return fmt.Errorf("route %s: %w", r, err)
			}
		}
		return nil
	})
}

// reroute changes the gateway of an existing prefix.
func (w *world) reroute(ns *netns.NS, prefix, gateway string) {
	w.t.Helper()
	w.do(ns, func() error {
		_, dst, err := net.ParseCIDR(prefix)
		if err != nil {
			return err
		}
		return netlink.RouteReplace(&netlink.Route{Dst: dst, Gw: net.ParseIP(gateway)})
	})
}

// gather makes a device merge packets of one flow (GRO), including those that arrive one
// by one: it waits briefly for more.
func gather(device string) error {
	if err := testnet.Offload(device, unix.ETHTOOL_SGRO, 1); err != nil {
		return err
	}
	sys, err := os.MkdirTemp("", "sys")
	if err != nil {
		return err
	}
	defer os.Remove(sys)
	// The sysfs of this network namespace.
	if err := unix.Mount("sysfs", sys, "sysfs", 0, ""); err != nil {
		return err
	}
	defer unix.Unmount(sys, unix.MNT_DETACH)
	dir := filepath.Join(sys, "class/net", device)
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "gro_flush_timeout"), []byte("500000"), 0),
		os.WriteFile(filepath.Join(dir, "napi_defer_hard_irqs"), []byte("1"), 0),
	)
}

// patience is how long a test waits for what takes milliseconds.
const patience = testnet.Patience

// dial opens a connection from the client.
func (w *world) dial(network string, to netip.AddrPort) net.Conn {
	w.t.Helper()
	conn, err := testnet.Dial(w.client, network, to)
	if err != nil {
		w.t.Fatalf("%s: %v\n%s", to, err, w.state())
	}
	w.t.Cleanup(func() { conn.Close() })
	return conn
}

// browser is the client's, with one connection.
func (w *world) browser() *http.Client { return testnet.Browser(w.t, w.client) }

// wantName verifies the server's name.
func (w *world) wantName(c *http.Client, at netip.AddrPort, name string) {
	w.t.Helper()
	if got, _ := testnet.Ask(w.t, c, at, w.state); got != name {
		w.t.Fatalf("%s answered, want %s\n%s", got, name, w.state())
	}
}

// wantBodies sends and fetches large bodies.
func (w *world) wantBodies(c *http.Client, at netip.AddrPort) {
	w.t.Helper()
	testnet.WantBodies(w.t, c, at, bigBody, w.state)
}

// who returns the name of the server that answers a datagram.
func (w *world) who(conn net.Conn) string {
	w.t.Helper()
	name, _, _ := testnet.AskDatagram(w.t, conn, []byte("who is there?"), w.state)
	return name
}

// wantDatagram retries over UDP until this server answers.
func (w *world) wantDatagram(at netip.AddrPort, name string) {
	w.t.Helper()
	conn := w.dial("udp", at)
	testkit.Eventually(w.t, patience, func() error {
		if got := w.who(conn); got != name {
			return fmt.Errorf("%s answered, want %s", got, name)
		}
		return nil
	})
}

// state is the diagnostic output of a failed test.
func (w *world) state() string {
	var b bytes.Buffer
	for _, h := range []*Agent{w.halfA, w.halfB} {
		counters, err := h.Counters()
		flows, err2 := h.Flows()
		fmt.Fprintf(&b, "%v\n%v %v\n%v %v\n", h.Describe().Attached, counters, err, flows, err2)
	}
	fmt.Fprintf(&b, "balancer: %s", w.balancer.errors())
	return b.String()
}
