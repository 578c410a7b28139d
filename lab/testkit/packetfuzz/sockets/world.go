package sockets

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/core/service"
	plane "github.com/fairlead/fairlead/dataplane/proxy"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/proxied"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// The node of all worlds has all endpoints itself: packets to them arrive. eth0 is
// 10.0.0.11/24, 2001:db8::11/64, with a default gateway that does not answer. A pod has
// its own namespace with the same device.

func addr(text string) wire.Addr { return netip.MustParseAddr(text).As16() }

// addresses by family.
var (
	nodes    = [2]string{"10.0.0.11", "2001:db8::11"}
	gateways = [2]string{"10.0.0.1", "2001:db8::1"}
	services = [2][]string{{"10.96.0.1", "10.96.0.2", "203.0.113.1"}, {"2001:db8:96::1", "2001:db8:96::2", "2001:db8:113::1"}}
	targets  = [2][]string{{"10.1.0.1", "10.1.0.2", "10.1.0.3", "10.0.0.11"}, {"2001:db8:1::1", "2001:db8:1::2", "2001:db8:1::3", "2001:db8::11"}}
	ports    = []uint16{80, 8080}
	others   = [2][]string{{"127.0.0.1", "127.9.9.9", "0.0.0.0", "198.51.100.1", "10.0.0.11"}, {"::1", "::", "2001:db8:99::1", "2001:db8::11", "::2"}}
)

func newNet() (n, pod *packetfuzz.Net, err error) {
	if pod, err = wired("fuzz-pod", "10.0.0.13/24", "2001:db8::13/64"); err != nil {
		return nil, pod, err
	}
	n, err = wired("fuzz-sockets", "10.0.0.11/24", "2001:db8::11/64")
	if err != nil {
		return n, pod, err
	}
	for f := range 2 {
		for _, a := range targets[f] {
			if a != nodes[f] {
				n.Up("lo", netip.PrefixFrom(netip.MustParseAddr(a), []int{32, 128}[f]).String())
			}
		}
	}
	return n, pod, n.Err()
}

func wired(name string, addrs ...string) (*packetfuzz.Net, error) {
	n, err := packetfuzz.NewNet(name)
	if err != nil {
		return nil, err
	}
	n.Up("lo")
	eth0 := n.Wire("eth0", [6]byte{2, 0, 0, 0, 0, 11}, 1500, addrs...)
	for _, g := range gateways {
		n.Neighbor(eth0, g, [6]byte{2, 0, 0, 0, 0, 1})
		n.Route("", netlink.Route{LinkIndex: int(eth0), Gw: net.ParseIP(g)})
	}
	return n, n.Err()
}

// agent is the socket part of a node's service proxy, at an empty cgroup.
type agent struct {
	plane   *plane.DataPlane
	root    string // of cgroups
	nobody  *os.File
	clients *os.File // the cgroup of this process
}

func openAgent() (a *agent, err error) {
	a = &agent{}
	if a.root, err = os.MkdirTemp("", "fuzz-sockets-"); err != nil {
		return a, err
	}
	for name, to := range map[string]**os.File{"nobody": &a.nobody, "clients": &a.clients} {
		folder := filepath.Join(a.root, name)
		if err := os.Mkdir(folder, 0o755); err != nil {
			return a, err
		}
		if *to, err = testkit.OpenCgroup(folder); err != nil {
			return a, err
		}
	}
	const dir = "/sys/fs/bpf/fuzz-sockets"
	a.plane, err = plane.Open(plane.Config{
		PinDir: dir, Cgroup: a.nobody.Name(), MaxFrontends: 256, MaxTargets: 1024, MaxSourceRanges: 512, Namespaces: filepath.Join(a.root, "none"),
	})
	if err != nil {
		return a, err
	}
	return a, a.plane.SetNodeAddresses([]netip.Addr{netip.MustParseAddr(nodes[0]), netip.MustParseAddr(nodes[1])})
}

func (a *agent) close() (errs []error) {
	if a.plane != nil {
		errs = append(errs, a.plane.Detach())
	}
	if a.clients != nil {
		errs = append(errs, testkit.JoinCgroup(filepath.Dir(a.clients.Name())), testkit.CloseCgroup(a.clients))
	}
	if a.nobody != nil {
		errs = append(errs, testkit.CloseCgroup(a.nobody))
	}
	if a.root != "" {
		errs = append(errs, os.RemoveAll(a.root))
	}
	return errs
}

// listen opens the sockets of endpoints, before this process becomes one of the clients.
func (t *Target) listen() error {
	for f := range 2 {
		for _, a := range targets[f] {
			for _, port := range ports {
				e := wire.Endpoint{Addr: addr(a), Port: port}
				udp, err := bound(f, unix.SOCK_DGRAM, e)
				if err != nil {
					return err
				}
				tcp, err := bound(f, unix.SOCK_STREAM, e)
				if err != nil {
					return err
				}
				if err := unix.Listen(tcp, 4096); err != nil {
					return err
				}
				t.peers[e] = udp
				t.listeners = append(t.listeners, tcp)
			}
		}
	}
	return nil
}

func bound(family, kind int, e wire.Endpoint) (int, error) {
	fd, err := unix.Socket([]int{unix.AF_INET, unix.AF_INET6}[family], kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if family == 1 {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
	}
	return fd, errors.Join(err, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), unix.Bind(fd, sockaddr(e, family == 1)))
}

func sockaddr(e wire.Endpoint, v6 bool) unix.Sockaddr {
	if v6 {
		return &unix.SockaddrInet6{Port: int(e.Port), Addr: e.Addr}
	}
	return &unix.SockaddrInet4{Port: int(e.Port), Addr: [4]byte(e.Addr[12:])}
}

// Enter implements packetfuzz.Target.
func (t *Target) Enter(world uint64) error {
	rng := rand.New(rand.NewPCG(world, 21))
	t.world = t.world[:0]
	for _, v6 := range []bool{false, true} {
		for i := range 6 + rng.IntN(6) {
			t.world = append(t.world, frontendOf(rng, v6, i))
		}
	}
	t.changed = false
	return t.configure(t.world)
}

// configure gives the agent its configuration with exactly these frontends.
func (t *Target) configure(all []proxy.Frontend) error {
	return t.model.Hold(t.agent.plane, all, t.live["services"], t.object.Spec.Types)
}

func pick[T any](rng *rand.Rand, all []T) T { return all[rng.IntN(len(all))] }

func family(v6 bool) int {
	if v6 {
		return 1
	}
	return 0
}

// frontendOf returns a random frontend.
func frontendOf(rng *rand.Rand, v6 bool, i int) (f proxy.Frontend) {
	f.Kind = pick(rng, []proxy.Kind{proxy.ClusterIP, proxy.ClusterIP, proxy.LoadBalancerIP, proxy.NodePort})
	f.Key = proxy.Key{Addr: netip.MustParseAddr(pick(rng, services[family(v6)])), Port: uint16(80 + i), Protocol: pick(rng, []service.Protocol{service.TCP, service.UDP, service.UDP, service.SCTP})}
	if f.Kind == proxy.NodePort {
		f.Addr, f.Port = netip.AddrFrom4([4]byte{}), uint16(30000+i)
		if v6 {
			f.Addr = netip.IPv6Unspecified()
		}
	}
	f.Inside, f.Outside = choice(rng, v6), choice(rng, v6)
	if rng.IntN(3) == 0 {
		f.Affinity = time.Duration(pick(rng, []int{1, 5, 60, 10800})) * time.Second
	}
	if rng.IntN(8) == 0 {
		f.Allow = []netip.Prefix{netip.MustParsePrefix([]string{"0.0.0.0/0", "::/0"}[family(v6)])}
		if rng.IntN(2) == 0 {
			f.Allow, f.Closed = nil, true
		}
	}
	return f
}

// choice returns random endpoints, sorted.
func choice(rng *rand.Rand, v6 bool) (c proxy.Choice) {
	c.Empty = pick(rng, []proxy.Empty{proxy.Refused, proxy.Dropped})
	if rng.IntN(10) == 0 {
		return c
	}
	for _, a := range targets[family(v6)] {
		for _, port := range ports {
			t := proxy.Target{Addr: netip.AddrPortFrom(netip.MustParseAddr(a), port), Local: true}
			switch rng.IntN(4) {
			case 0, 1:
				c.Targets = append(c.Targets, t)
			case 2:
				c.Keeps = append(c.Keeps, t)
			}
		}
	}
	proxied.Sort(c.Targets)
	proxied.Sort(c.Keeps)
	return c
}
