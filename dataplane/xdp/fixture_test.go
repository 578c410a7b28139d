package xdp

import (
	"net"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/internal/ethtool"
	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/testkit/refusals"
)

func TestMain(m *testing.M) { refusals.Main(m) }

// The network of all tests:
//
//	namespace outside            namespace balancer
//	  net0 ───────────────────── eth0  172.16.0.2/24, fd00::2/64, MTU 1500
//	                                   gateway 172.16.0.1, fd00::1 (for everything)
//	                                   neighbor 172.16.0.9, fd00::9 unresolved
//	                                   172.31.0.0/16, fd31::/16 unreachable
//	  net1 ───────────────────── eth1  172.17.0.2/24, fd01::2/64, MTU 1400
//	                                   neighbors 172.17.0.3, fd01::3
var (
	own4, own6 = netip.MustParseAddr("172.16.0.2"), netip.MustParseAddr("fd00::2")

	macGateway = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	macEth0    = net.HardwareAddr{2, 0, 0, 0, 0, 2}
	macEth1    = net.HardwareAddr{2, 0, 0, 0, 1, 2}
	macServer1 = net.HardwareAddr{2, 0, 0, 0, 1, 3}
)

type testNet struct {
	balancer, outside *netns.NS
	eth0, eth1        uint32
	current           *DataPlane // the one to detach at the end
}

func newNet(t testing.TB) *testNet {
	t.Helper()
	n := &testNet{balancer: testkit.NetNS(t), outside: testkit.NetNS(t)}
	testkit.Do(t, n.balancer, func() error {
		n.eth0 = n.wire(t, "eth0", "net0", macEth0, 1500, "172.16.0.2/24", "fd00::2/64")
		n.eth1 = n.wire(t, "eth1", "net1", macEth1, 1400, "172.17.0.2/24", "fd01::2/64")
		for _, a := range []string{"172.16.0.1", "fd00::1"} {
			neighbor(t, n.eth0, a, macGateway)
			route(t, netlink.Route{LinkIndex: int(n.eth0), Gw: net.ParseIP(a)})
		}
		for _, a := range []string{"172.17.0.3", "fd01::3"} {
			neighbor(t, n.eth1, a, macServer1)
		}
		for _, p := range []string{"172.31.0.0/16", "fd31::/16"} {
			_, dst, _ := net.ParseCIDR(p)
			route(t, netlink.Route{Dst: dst, Type: 7 /* RTN_UNREACHABLE */})
		}
		return nil
	})
	return n
}

// wire creates a veth pair and returns the index of the local end.
func (n *testNet) wire(t testing.TB, name, peer string, mac net.HardwareAddr, mtu int, addrs ...string) uint32 {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr, attrs.MTU = name, mac, mtu
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: peer, PeerNamespace: netlink.NsFd(n.outside.FD())}))
	nic, err := netlink.LinkByName(name)
	must(t, err)
	for _, a := range addrs {
		addr, err := netlink.ParseAddr(a)
		must(t, err)
		addr.Flags = 2 // IFA_F_NODAD
		must(t, netlink.AddrAdd(nic, addr))
	}
	must(t, netlink.LinkSetUp(nic))
	testkit.Do(t, n.outside, func() error {
		far, err := netlink.LinkByName(peer)
		must(t, err)
		must(t, netlink.LinkSetUp(far))
		// Else it drops everything that eth0 redirects. eth0 notices only while
		// it is up.
		setOffload(t, peer, unix.ETHTOOL_SGRO, 1)
		return nil
	})
	return uint32(nic.Attrs().Index)
}

// setOffload sets an offload with this ethtool call.
func setOffload(t testing.TB, nic string, cmd, value uint32) {
	t.Helper()
	_, err := ethtool.CallValue(nic, cmd, value)
	must(t, err)
}

func neighbor(t testing.TB, nic uint32, ip string, mac net.HardwareAddr) {
	t.Helper()
	must(t, netlink.NeighSet(&netlink.Neigh{
		LinkIndex: int(nic), IP: net.ParseIP(ip), HardwareAddr: mac, State: netlink.NUD_PERMANENT,
	}))
}

func route(t testing.TB, r netlink.Route) {
	t.Helper()
	must(t, netlink.RouteAdd(&r))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// config has small capacities. The interfaces are veths, so packets that go back out of
// eth0 are redirected.
func config() Config {
	return Config{
		Interfaces: []string{"eth0"}, PinDir: "/sys/fs/bpf/test", SourceV4: own4, SourceV6: own6,
		MaxFrontends: 64, MaxBackends: 512, MaxFlows: 8192,
	}
}

// open opens the data plane in the load balancer's namespace, until the test ends or
// opens it again.
func (n *testNet) open(t testing.TB, c Config) *DataPlane {
	t.Helper()
	var d *DataPlane
	testkit.Do(t, n.balancer, func() (err error) {
		d, err = Open(c)
		return err
	})
	n.current = d
	t.Cleanup(func() {
		if n.current != d {
			return
		}
		testkit.Do(t, n.balancer, d.Detach)
	})
	return d
}

// verdict is the program's return value.
type verdict uint32

const (
	drop     verdict = 1
	pass     verdict = 2
	tx       verdict = 3
	redirect verdict = 4
)

func (v verdict) String() string {
	return [...]string{"aborted", "drop", "pass", "tx", "redirect"}[v]
}

// run runs the real program on a frame received on eth0.
func (n *testNet) run(t testing.TB, d *DataPlane, frame []byte) (v verdict, out []byte) {
	t.Helper()
	testkit.Do(t, n.balancer, func() (err error) {
		v, out, err = n.runHere(d, frame)
		return err
	})
	return v, out
}

// runHere is run for callers already in the load balancer's namespace.
func (n *testNet) runHere(d *DataPlane, frame []byte) (verdict, []byte, error) {
	opts := ebpf.RunOptions{
		Data: frame, DataOut: make([]byte, len(frame)+256),
		Context: bpf.Context{DataEnd: uint32(len(frame)), IngressIfindex: n.eth0},
	}
	v, err := d.kernel.Balancer.Run(&opts)
	return verdict(v), opts.DataOut, err
}

// upsert programs a frontend or ends the test.
func upsert(t testing.TB, d *DataPlane, f desired.Frontend) {
	t.Helper()
	must(t, d.Upsert(f))
}

// frontend returns one of vip's family.
func frontend(method service.Method, vip string, protocol service.Protocol, servers ...string) desired.Frontend {
	v := netip.MustParseAddrPort(vip)
	f := desired.Frontend{
		Key:    service.Key{VIP: v.Addr(), Port: v.Port(), Protocol: protocol},
		Method: method, Scheduler: service.Maglev, RingSize: 251,
	}
	for _, s := range servers {
		f.Backends = append(f.Backends, service.Backend{Addr: netip.MustParseAddrPort(s), Weight: 1})
	}
	f.Backends = service.SortBackends(f.Backends)
	return f
}
