package serverhalf

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane/internal/tc"
	"github.com/fairlead/fairlead/internal/testkit"
	"github.com/fairlead/fairlead/lab/netns"
)

// world is a small network with real TCP and a balancer in this process:
//
//	client ── router ─┬─ lb            the balancer, in user space
//	192.168.0.7       ├─ nodeA ── podA 172.16.1.2
//	                  └─ nodeB ── podB 172.16.2.2
//	        lan 10.0.0.0/16
//
// The router knows no route to pods; only through the VIP can the client reach
// them. Every address has its IPv6 twin.
type world struct {
	t                       *testing.T
	client, router, lb      *netns.NS
	nodeA, nodeB            *netns.NS
	podA, podB              *netns.NS
	halfA, halfB            *Half
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

// buildWorld makes the world; bridged has podA and the balancer behind one
// bridge of nodeA, as pods of its.
func buildWorld(t *testing.T, hook tc.Opener, bridged bool) *world {
	t.Helper()
	w := &world{
		t: t, hook: hook,
		serverA: ap("172.16.1.2:8080"), serverA6: ap("[2001:db8:16:1::2]:8080"),
		serverB: ap("172.16.2.2:8081"), serverB6: ap("[2001:db8:16:2::2]:8081"),
		hostServer: ap("10.0.0.106:8082"), hostServer6: ap("[2001:db8::106]:8082"),
	}
	for _, ns := range []**netns.NS{&w.client, &w.router, &w.lb, &w.nodeA, &w.nodeB, &w.podA, &w.podB} {
		*ns = testkit.NetNS(t)
		// Link-local addresses are good at once: nothing asks for a neighbour
		// before (ndisc_solicit in net/ipv6/ndisc.c).
		w.do(*ns, func() error { return netns.WriteSysctl("net.ipv6.conf.default.accept_dad", "0") })
	}
	w.wire(bridged)
	w.serve(w.podA, w.serverA, "A")
	w.serve(w.podA, w.serverA6, "A")
	w.serve(w.podB, w.serverB, "B")
	w.serve(w.podB, w.serverB6, "B")
	w.serve(w.nodeB, w.hostServer, "host")
	w.serve(w.nodeB, w.hostServer6, "host")
	w.halfA = openHalf(t, w.nodeA, Config{}, hook)
	w.halfB = openHalf(t, w.nodeB, Config{}, hook)
	w.balancer = newBalancer(t, w.lb)
	return w
}

// wire makes the links, addresses and routes.
func (w *world) wire(bridged bool) {
	w.bridge(w.router, "lan", "10.0.0.110/16", "2001:db8::110/64")
	w.lan(w.lb, "10.0.0.120/16", "2001:db8::120/64")
	w.lan(w.nodeA, "10.0.0.105/16", "2001:db8::105/64")
	w.lan(w.nodeB, "10.0.0.106/16", "2001:db8::106/64")
	w.pair(w.router, "cli", w.client, "eth0")
	w.do(w.router, func() error { return address("cli", "192.168.0.1/24", "2001:db8:c::1/64") })
	w.do(w.client, func() error { return address("eth0", "192.168.0.7/24", "2001:db8:c::7/64") })
	if bridged {
		w.bridge(w.nodeA, "cni0", "172.16.1.1/24", "2001:db8:16:1::1/64")
		w.port(w.nodeA, "cni0", "port0", w.podA, "eth0")
		w.port(w.nodeA, "cni0", "port1", w.lb, "eth1")
		w.do(w.podA, func() error { return address("eth0", "172.16.1.2/24", "2001:db8:16:1::2/64") })
		w.do(w.lb, func() error { return address("eth1", "172.16.1.9/24", "2001:db8:16:1::9/64") })
		w.routes(w.podA, "0.0.0.0/0 172.16.1.1", "::/0 2001:db8:16:1::1")
	} else {
		w.pod(w.nodeA, w.podA, "172.16.1", "2001:db8:16:1:")
	}
	w.pod(w.nodeB, w.podB, "172.16.2", "2001:db8:16:2:")
	for _, ns := range []*netns.NS{w.router, w.nodeA, w.nodeB} {
		w.do(ns, func() error {
			return errors.Join(netns.WriteSysctl("net.ipv4.ip_forward", "1"), netns.WriteSysctl("net.ipv6.conf.all.forwarding", "1"))
		})
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
	// A balancer of this test's kind sees single packets with whole checksums.
	w.do(w.client, func() error { return ethtool("eth0", unix.ETHTOOL_STXCSUM, 0) })
	for _, ns := range []*netns.NS{w.nodeA, w.nodeB} {
		w.do(ns, func() error { return gather("eth0") })
	}
}

func (w *world) do(ns *netns.NS, f func() error) {
	w.t.Helper()
	testkit.Do(w.t, ns, f)
}

// pair connects two namespaces.
func (w *world) pair(a *netns.NS, nameA string, b *netns.NS, nameB string) {
	w.t.Helper()
	w.do(a, func() error {
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: nameA}, PeerName: nameB, PeerNamespace: netlink.NsFd(b.FD())}
		return netlink.LinkAdd(veth)
	})
}

// lan connects a namespace's eth0 to the router's bridge.
func (w *world) lan(ns *netns.NS, addrs ...string) {
	w.t.Helper()
	port := "p" + addrs[0][len("10.0.0."):len("10.0.0.1xx")]
	w.port(w.router, "lan", port, ns, "eth0")
	w.do(ns, func() error { return address("eth0", addrs...) })
}

func (w *world) bridge(ns *netns.NS, name string, addrs ...string) {
	w.t.Helper()
	w.do(ns, func() error {
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}); err != nil {
			return err
		}
		return address(name, addrs...)
	})
}

// port connects a namespace to another's bridge.
func (w *world) port(ns *netns.NS, bridge, port string, peer *netns.NS, device string) {
	w.t.Helper()
	w.pair(ns, port, peer, device)
	w.do(ns, func() error {
		l, err := netlink.LinkByName(port)
		if err != nil {
			return err
		}
		b, err := netlink.LinkByName(bridge)
		if err != nil {
			return err
		}
		// With TSO at this end the other end would not put packets together.
		return errors.Join(netlink.LinkSetMaster(l, b), netlink.LinkSetUp(l), ethtool(port, unix.ETHTOOL_STXCSUM, 0))
	})
}

// pod connects a pod to its node, with a gateway at .1 and the pod at .2.
func (w *world) pod(node, pod *netns.NS, net4, net6 string) {
	w.t.Helper()
	w.pair(node, "pod0", pod, "eth0")
	w.do(node, func() error { return address("pod0", net4+".1/24", net6+":1/64") })
	w.do(pod, func() error { return address("eth0", net4+".2/24", net6+":2/64") })
	w.routes(pod, "0.0.0.0/0 "+net4+".1", "::/0 "+net6+":1")
}

// address gives a device addresses that are usable at once, and brings it up.
func address(device string, addrs ...string) error {
	l, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return err
	}
	for _, a := range addrs {
		addr, err := netlink.ParseAddr(a)
		if err != nil {
			return err
		}
		if addr.IP.To4() == nil {
			addr.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(l, addr); err != nil {
			return fmt.Errorf("%s: address %s: %w", device, a, err)
		}
	}
	return nil
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

// reroute gives a prefix that has a route another gateway.
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

// ethtool sets one feature of a device (linux/ethtool.h).
func ethtool(device string, cmd, value uint32) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	data := [2]uint32{cmd, value}
	req := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&data)}
	copy(req.name[:], device)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req))); errno != 0 {
		return fmt.Errorf("ethtool %s: %w", device, errno)
	}
	return nil
}

// gather has a device put packets of one flow together (GRO), also such as come
// one by one: it waits a little for more.
func gather(device string) error {
	if err := ethtool(device, unix.ETHTOOL_SGRO, 1); err != nil {
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

// serve runs a web server at an address: / gives the name, GET /big a large
// body, PUT /sum the hash of what it was sent, /slow a large body in pieces.
// On the same port of UDP it answers with its name.
func (w *world) serve(ns *netns.NS, at netip.AddrPort, name string) {
	w.t.Helper()
	var tcp net.Listener
	var udp net.PacketConn
	w.do(ns, func() (err error) {
		if tcp, err = net.Listen("tcp", at.String()); err != nil {
			return err
		}
		udp, err = net.ListenPacket("udp", at.String())
		return err
	})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(rw http.ResponseWriter, _ *http.Request) { io.WriteString(rw, name) })
	mux.HandleFunc("GET /big", func(rw http.ResponseWriter, _ *http.Request) { rw.Write(body(bigBody)) })
	mux.HandleFunc("PUT /sum", func(rw http.ResponseWriter, r *http.Request) {
		sum := sha256.New()
		io.Copy(sum, r.Body)
		fmt.Fprintf(rw, "%x", sum.Sum(nil))
	})
	server := &http.Server{Handler: mux}
	go server.Serve(tcp)
	go answer(udp, name)
	w.t.Cleanup(func() { server.Close(); udp.Close() })
}

func answer(udp net.PacketConn, name string) {
	buf := make([]byte, 2048)
	for {
		_, from, err := udp.ReadFrom(buf)
		if err != nil {
			return
		}
		udp.WriteTo([]byte(name), from)
	}
}

// body is data that no two places of are alike.
func body(n int) []byte {
	b := make([]byte, n)
	x := uint32(1)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

// patience is how long a test waits for what takes milliseconds.
const patience = 30 * time.Second

// dial opens a connection from a namespace.
func (w *world) dial(ns *netns.NS, network string, to netip.AddrPort) (conn net.Conn, err error) {
	err = ns.Do(func() error {
		conn, err = (&net.Dialer{Timeout: patience}).Dial(network, to.String())
		return err
	})
	if err == nil {
		conn.SetDeadline(time.Now().Add(patience))
	}
	return conn, err
}

// browser is an HTTP client in the client's namespace, with one connection.
func (w *world) browser() *http.Client {
	tr := &http.Transport{
		MaxConnsPerHost: 1,
		DialContext: func(_ context.Context, network, addr string) (net.Conn, error) {
			return w.dial(w.client, network, netip.MustParseAddrPort(addr))
		},
	}
	w.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience}
}

// get asks the VIP and gives the answer.
func (w *world) get(c *http.Client, at netip.AddrPort, path string) []byte {
	w.t.Helper()
	resp, err := c.Get("http://" + at.String() + path)
	return w.read(resp, err)
}

func (w *world) read(resp *http.Response, err error) []byte {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("%v\n%s", err, w.state())
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatalf("%v\n%s", err, w.state())
	}
	return b
}

// wantName asks for the server's name.
func (w *world) wantName(c *http.Client, at netip.AddrPort, name string) {
	w.t.Helper()
	if got := w.get(c, at, "/"); string(got) != name {
		w.t.Fatalf("%s answered, want %s\n%s", got, name, w.state())
	}
}

// wantBodies sends and fetches large bodies.
func (w *world) wantBodies(c *http.Client, at netip.AddrPort) {
	w.t.Helper()
	if got := w.get(c, at, "/big"); !bytes.Equal(got, body(bigBody)) {
		w.t.Fatalf("%d bytes came, not the %d that were sent", len(got), bigBody)
	}
	req, err := http.NewRequest("PUT", "http://"+at.String()+"/sum", bytes.NewReader(body(bigBody)))
	if err != nil {
		w.t.Fatal(err)
	}
	resp, err := c.Do(req)
	if got, want := string(w.read(resp, err)), fmt.Sprintf("%x", sha256.Sum256(body(bigBody))); got != want {
		w.t.Fatalf("the server got a body of hash %s, want %s", got, want)
	}
}

// wantDatagram asks over UDP, again and again as any UDP client must.
func (w *world) wantDatagram(at netip.AddrPort, name string) {
	w.t.Helper()
	conn, err := w.dial(w.client, "udp", at)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	buf := make([]byte, 100)
	testkit.Eventually(w.t, patience, func() error {
		if _, err := conn.Write([]byte("who?")); err != nil {
			return err
		}
		conn.SetReadDeadline(time.Now().Add(time.Second))
		n, err := conn.Read(buf)
		if err == nil && string(buf[:n]) != name {
			return fmt.Errorf("%s answered, want %s", buf[:n], name)
		}
		return err
	})
}

// state is what to look at when a test fails.
func (w *world) state() string {
	var b bytes.Buffer
	for _, h := range []*Half{w.halfA, w.halfB} {
		counters, err := h.Counters()
		flows, err2 := h.Flows()
		fmt.Fprintf(&b, "%v\n%v %v\n%v %v\n", h.Describe().Attached, counters, err, flows, err2)
	}
	fmt.Fprintf(&b, "balancer: %s", w.balancer.errors())
	return b.String()
}
