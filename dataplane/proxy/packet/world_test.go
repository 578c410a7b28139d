package packet

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	plane "github.com/fairlead/fairlead/dataplane/proxy"
	"github.com/fairlead/fairlead/internal/tc"
	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/testkit/refusals"
	"github.com/fairlead/fairlead/lab/testnet"
)

func TestMain(m *testing.M) { refusals.Main(m) }

const bigBody = 10 << 20

// world is a small network with real TCP and UDP. Node A has the service proxy. Its
// sockets are not translated, so everything is done by packets.
//
//	client ── router ─┬─ nodeA ─┬─ podA  172.16.1.2
//	192.168.0.7       │         └─ podC  172.16.3.2
//	                  └─ nodeB ─── podB  172.16.2.2
//	       lan 10.0.0.0/24
//
// The router sends packets for cluster, external and load balancer addresses to node A.
// Every address has an IPv6 counterpart.
type world struct {
	t, whole         *testing.T // the subtest, and the test with which the world ends
	client, router   *netns.NS
	nodeA, nodeB     *netns.NS
	podA, podB, podC *netns.NS
	plane            *plane.DataPlane
	half             *Half
	cfg              Config
	hook             tc.Opener
}

// The tests' addresses. v6 returns each one's counterpart.
var (
	nodeAAddr, nodeBAddr = ip("10.0.0.11"), ip("10.0.0.12")
	clientAddr           = ip("192.168.0.7")
	podAAddr, podBAddr   = ip("172.16.1.2"), ip("172.16.2.2")
	podCAddr             = ip("172.16.3.2")
	clusterIP, loadIP    = ip("10.96.0.1"), ip("203.0.113.1")
)

func ip(s string) netip.Addr { return netip.MustParseAddr(s) }

// twin returns the IPv6 counterpart of an IPv4 address.
func twin(a netip.Addr) netip.Addr {
	b := a.As4()
	return ip(fmt.Sprintf("2001:db8:%x:%x::%x", uint(b[0])<<8|uint(b[1]), b[2], b[3]))
}

// family returns an address of the family under test.
type family bool

func (v6 family) of(a netip.Addr) netip.Addr {
	if v6 {
		return twin(a)
	}
	return a
}

func (v6 family) at(a netip.Addr, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(v6.of(a), port)
}

func (v6 family) any() netip.Addr {
	if v6 {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

// families runs a test for IPv4 and IPv6.
func families(t *testing.T, f func(t *testing.T, v6 family)) {
	t.Run("IPv4", func(t *testing.T) { f(t, false) })
	t.Run("IPv6", func(t *testing.T) { f(t, true) })
}

func newWorld(t *testing.T) *world { return buildWorld(t, tc.Open) }

// buildWorld makes the world. change is applied before node A has its proxy.
func buildWorld(t *testing.T, hook tc.Opener, change ...func(*world)) *world {
	t.Helper()
	w := &world{t: t, whole: t, hook: hook}
	testnet.Namespaces(t, &w.client, &w.router, &w.nodeA, &w.nodeB, &w.podA, &w.podB, &w.podC)
	w.wire()
	for name, at := range map[string]struct {
		ns   *netns.NS
		addr netip.Addr
	}{"A": {w.podA, podAAddr}, "B": {w.podB, podBAddr}, "C": {w.podC, podCAddr}, "host": {w.nodeA, nodeAAddr}} {
		testnet.Serve(t, at.ns, netip.AddrPortFrom(at.addr, 8080), name)
		testnet.Serve(t, at.ns, netip.AddrPortFrom(twin(at.addr), 8080), name)
	}
	for _, c := range change {
		c(w)
	}
	w.open()
	return w
}

func (w *world) open() {
	w.t.Helper()
	dir := filepath.Join("/sys/fs/bpf", w.nodeA.Name())
	w.do(w.nodeA, func() (err error) {
		w.plane, err = plane.Open(plane.Config{
			PinDir: dir, Cgroup: testkit.Cgroup(w.t), MaxFrontends: 1024, MaxTargets: 4096, MaxSourceRanges: 128,
			Namespaces: w.t.TempDir(),
		})
		return err
	})
	w.t.Cleanup(func() {
		if err := w.plane.Detach(); err != nil {
			w.t.Error(err)
		}
	})
	if err := w.plane.SetNodeAddresses([]netip.Addr{nodeAAddr, twin(nodeAAddr)}); err != nil {
		w.t.Fatal(err)
	}
	w.cfg = Config{Maps: plane.Folder(dir), PinDir: dir + "-packet", MaxFlows: 1 << 14, Log: slog.New(slog.NewTextHandler(w.t.Output(), nil))}
	w.cfg.sweepEvery = time.Hour // tests with ended flows sweep themselves
	w.openHalf()
}

func (w *world) openHalf() {
	w.t.Helper()
	w.do(w.nodeA, func() (err error) {
		w.half, err = open(w.cfg, w.hook)
		return err
	})
	half := w.half
	w.whole.Cleanup(func() {
		if err := half.Detach(); err != nil && !errors.Is(err, ErrClosed) {
			w.whole.Error(err)
		}
	})
}

// wire makes the links, addresses and routes.
func (w *world) wire() {
	w.do(w.router, func() error { return errors.Join(testnet.Bridge("lan"), address("lan", ip("10.0.0.1"))) })
	testnet.Pair(w.t, w.router, "cli", w.client, "eth0")
	w.do(w.router, func() error { return address("cli", ip("192.168.0.1")) })
	w.do(w.client, func() error { return address("eth0", clientAddr) })
	for _, n := range []struct {
		ns   *netns.NS
		addr netip.Addr
		port string
	}{{w.nodeA, nodeAAddr, "a"}, {w.nodeB, nodeBAddr, "b"}} {
		testnet.Pair(w.t, w.router, n.port, n.ns, "eth0")
		w.do(w.router, func() error { return testnet.Enslave(n.port, "lan") })
		w.do(n.ns, func() error { return address("eth0", n.addr) })
	}
	w.pod(w.nodeA, w.podA, "pod0", podAAddr)
	w.pod(w.nodeA, w.podC, "pod1", podCAddr)
	w.pod(w.nodeB, w.podB, "pod0", podBAddr)
	for _, ns := range []*netns.NS{w.router, w.nodeB} { // the product itself configures node A
		w.do(ns, testnet.Forward)
	}
	w.route(w.client, "0.0.0.0/0", ip("192.168.0.1"))
	w.route(w.nodeA, "0.0.0.0/0", ip("10.0.0.1"))
	w.route(w.nodeB, "0.0.0.0/0", ip("10.0.0.1"))
	w.route(w.nodeA, "172.16.2.0/24", nodeBAddr)
	w.route(w.nodeB, "172.16.1.0/24", nodeAAddr)
	w.route(w.nodeB, "172.16.3.0/24", nodeAAddr)
	w.route(w.router, "10.96.0.0/24", nodeAAddr)
	w.route(w.router, "203.0.113.0/24", nodeAAddr)
}

func (w *world) do(ns *netns.NS, f func() error) {
	w.t.Helper()
	testkit.Do(w.t, ns, f)
}

// pod connects a pod to its node, which has its network's first address.
func (w *world) pod(node, pod *netns.NS, device string, addr netip.Addr) {
	w.t.Helper()
	gateway := addr.Prev()
	testnet.Pair(w.t, node, device, pod, "eth0")
	w.do(node, func() error { return address(device, gateway) })
	w.do(pod, func() error { return address("eth0", addr) })
	w.route(pod, "0.0.0.0/0", gateway)
}

// address gives a device an address and its counterpart, and brings it up.
func address(device string, a netip.Addr) error {
	return testnet.Address(device, netip.PrefixFrom(a, 24).String(), netip.PrefixFrom(twin(a), 64).String())
}

func network(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// route adds a route and its counterpart.
func (w *world) route(ns *netns.NS, prefix string, by netip.Addr, change ...func(*netlink.Route)) {
	w.t.Helper()
	p := netip.MustParsePrefix(prefix)
	p6 := netip.PrefixFrom(twin(p.Addr()), 64).Masked()
	if p.Bits() == 0 {
		p6 = netip.MustParsePrefix("::/0")
	}
	w.do(ns, func() error {
		r, r6 := &netlink.Route{Dst: network(p), Gw: by.AsSlice()}, &netlink.Route{Dst: network(p6), Gw: twin(by).AsSlice()}
		for _, c := range change {
			c(r)
			c(r6)
		}
		return errors.Join(netlink.RouteReplace(r), netlink.RouteReplace(r6))
	})
}

// patience is how long a test waits for what takes milliseconds.
const patience = testnet.Patience

func (w *world) dial(ns *netns.NS, network string, to netip.AddrPort) (net.Conn, error) {
	return testnet.Dial(ns, network, to)
}

func (w *world) browser(ns *netns.NS) *http.Client { return testnet.Browser(w.t, ns) }

// ask returns the name of the server that answers, and the client's address that it sees.
func (w *world) ask(c *http.Client, at netip.AddrPort) (name string, seen netip.Addr) {
	w.t.Helper()
	return testnet.Ask(w.t, c, at, w.state)
}

// want asks by a new connection, and sends and fetches large bodies where asked.
func (w *world) want(ns *netns.NS, at netip.AddrPort, name string, seen netip.Addr, big bool) {
	w.t.Helper()
	c := w.browser(ns)
	defer c.CloseIdleConnections()
	if got, from := w.ask(c, at); got != name || from != seen {
		w.t.Fatalf("%s answered %s, want %s to answer %s\n%s", got, from, name, seen, w.state())
	}
	if big {
		w.wantBodies(c, at)
	}
}

func (w *world) wantBodies(c *http.Client, at netip.AddrPort) {
	w.t.Helper()
	testnet.WantBodies(w.t, c, at, bigBody, w.state)
}

// datagram sends one of this size until it comes back, and returns the name of the server
// that answers, and the client's address that it saw.
func (w *world) datagram(conn net.Conn, size int) (name string, seen netip.Addr) {
	w.t.Helper()
	name, seen, whole := testnet.AskDatagram(w.t, conn, testnet.Body(size), w.state)
	if !whole {
		w.t.Fatalf("not the %d bytes came back that were sent\n%s", size, w.state())
	}
	return name, seen
}

func (w *world) wantDatagram(ns *netns.NS, at netip.AddrPort, size int, name string, seen netip.Addr) {
	w.t.Helper()
	conn, err := w.dial(ns, "udp", at)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	if got, from := w.datagram(conn, size); got != name || from != seen {
		w.t.Fatalf("%s answered %s, want %s to answer %s\n%s", got, from, name, seen, w.state())
	}
}

// counted returns a counter.
func (w *world) counted(name string) uint64 {
	w.t.Helper()
	counters, err := w.half.Counters()
	if err != nil {
		w.t.Fatal(err)
	}
	return counters[name]
}

// state is the diagnostic output of a failed test.
func (w *world) state() string {
	var b strings.Builder
	counters, err := w.half.Counters()
	fmt.Fprintln(&b, w.half.Describe().Attached, err)
	for name, n := range counters {
		if n > 0 {
			fmt.Fprintf(&b, "%s %d\n", name, n)
		}
	}
	for f, err := range w.half.EachFlow(dataplane.FlowQuery{}) {
		fmt.Fprintln(&b, f, err)
	}
	return b.String()
}

// targets are pods sorted by address, as frontends require.
func targets(v6 family, names string) []proxy.Target {
	var all []proxy.Target
	for _, n := range names {
		switch n {
		case 'A':
			all = append(all, proxy.Target{Addr: v6.at(podAAddr, 8080), Local: true})
		case 'B':
			all = append(all, proxy.Target{Addr: v6.at(podBAddr, 8080)})
		case 'C':
			all = append(all, proxy.Target{Addr: v6.at(podCAddr, 8080), Local: true})
		case 'H':
			all = append(all, proxy.Target{Addr: v6.at(nodeAAddr, 8080), Local: true})
		}
	}
	slices.SortFunc(all, func(a, b proxy.Target) int { return a.Addr.Compare(b.Addr) })
	return all
}

// expose makes a TCP and UDP service at port 80 of the cluster and load balancer
// addresses and at node port 30080, with these pods as endpoints.
func (w *world) expose(v6 family, inside, outside string, change ...func(*proxy.Frontend)) {
	w.t.Helper()
	var set []proxy.Frontend
	for _, p := range []service.Protocol{service.TCP, service.UDP} {
		for kind, at := range map[proxy.Kind]netip.AddrPort{
			proxy.ClusterIP: v6.at(clusterIP, 80), proxy.LoadBalancerIP: v6.at(loadIP, 80), proxy.NodePort: netip.AddrPortFrom(v6.any(), 30080),
		} {
			f := proxy.Frontend{
				Key: proxy.Key{Addr: at.Addr(), Port: at.Port(), Protocol: p}, Kind: kind,
				Inside: proxy.Choice{Targets: targets(v6, inside)}, Outside: proxy.Choice{Targets: targets(v6, outside)},
			}
			for _, c := range change {
				c(&f)
			}
			set = append(set, f)
		}
	}
	if err := w.plane.Apply(set, nil); err != nil {
		w.t.Fatal(err)
	}
}
