package topology_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/topology"
)

var update = flag.Bool("update", false, "rewrite the goldens")

func TestMain(m *testing.M) { testkit.Main(m) }

const long = 30 * time.Second

func plan(t *testing.T, o topology.Options) *topology.Net {
	t.Helper()
	n, err := topology.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The topology is the same for the same seed.
func TestDrawing(t *testing.T) {
	o := topology.Default()
	o.ClientAddrs = 1
	for name, ipv6 := range map[string]bool{"fig5": false, "fig5-ipv6": true} {
		o.IPv6 = ipv6
		got := plan(t, o).Topology().String()
		golden := "testdata/" + name + ".txt"
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
	}
}

func TestBalancersShareNodesAsInFig12(t *testing.T) {
	n := plan(t, topology.Default())
	var hops [][]string
	for i := range n.Services {
		var at []string
		for _, p := range n.Balancers(i) {
			at = append(at, p.Node.Addr.String())
		}
		hops = append(hops, at)
	}
	want := [][]string{{"10.0.0.105", "10.0.0.106", "10.0.0.107"}, {"10.0.0.106", "10.0.0.107"}}
	if diff := cmp.Diff(want, hops); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if _, _, err := n.AddBalancer(0); err != nil {
		t.Errorf("no room for one more: %v", err)
	}
	if _, _, err := n.AddBalancer(0); err == nil {
		t.Error("two balancers of one service share a node")
	}
	n.Remove("web-lb2")
	if p, _, err := n.AddBalancer(0); err != nil || p.Node.Name != "node2" || p.Name != "web-lb5" {
		t.Errorf("after a removal: %+v (%v)", p, err)
	}
}

func TestNewRefuses(t *testing.T) {
	for _, o := range []topology.Options{
		{},
		{Services: []topology.ServiceOptions{{Balancers: 3}}, Nodes: 2},
		{Services: []topology.ServiceOptions{{Balancers: 300}}},
		{Services: []topology.ServiceOptions{{Balancers: 1}}, ClientAddrs: 300},
	} {
		if _, err := topology.New(o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

// network builds the network, with a server on every host that returns the client's
// address.
func network(t *testing.T) (*topology.Net, *lab.Lab) {
	t.Helper()
	o := topology.Default()
	o.IPv6 = true
	n := plan(t, o)
	topology := n.Topology()
	l, err := lab.Build(t.Context(), topology)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		testkit.NoLeftovers(t)
	})
	for _, h := range topology.Hosts {
		whoami(t, l.Host(h.Name))
	}
	return n, l
}

func whoami(t *testing.T, h *lab.Host) {
	t.Helper()
	ln, err := h.Listen("tcp", ":80")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap().String())
			c.Close()
		}
	}()
}

// ask returns the address that the server sees for the host; local may be the zero Addr.
func ask(h *lab.Host, local netip.Addr, remote netip.AddrPort) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	c, err := h.Dial(ctx, local, remote)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(long))
	b, err := io.ReadAll(c)
	return string(b), err
}

func TestEveryoneReachesWhoTheyMust(t *testing.T) {
	n, l := network(t)
	expect := func(from string, to netip.Addr, seenAs netip.Addr) {
		t.Helper()
		local := netip.Addr{}
		if from == topology.Client {
			local = seenAs // it has several
		}
		got, err := ask(l.Host(from), local, netip.AddrPortFrom(to, 80))
		if err != nil || got != seenAs.String() {
			t.Errorf("%s to %s is seen as %q (%v), want %s", from, to, got, err, seenAs)
		}
	}
	for _, p := range n.Pods {
		// The reflector sees the pods themselves, the router only nodes.
		expect(p.Name, topology.ReflectorAddr, p.Addr)
		expect(p.Name, topology.ReflectorAddr6, p.Addr6)
		expect(p.Name, topology.RouterAddr, p.Node.Addr)
		expect(p.Name, topology.RouterAddr6, p.Node.Addr6)
		expect(topology.Reflector, p.Addr, topology.ReflectorAddr)
		expect(p.Node.Name, p.Addr, p.Node.Pods.Addr().Next())
		for _, q := range n.Pods {
			expect(p.Name, q.Addr, p.Addr)
			expect(p.Name, q.Addr6, p.Addr6)
		}
	}
	for _, node := range n.Nodes {
		expect(topology.Client, node.Addr, n.ClientAddrs[0])
		expect(topology.Client, node.Addr6, n.ClientAddrs6[0])
	}
	if _, err := ask(l.Host(topology.Client), netip.Addr{}, netip.AddrPortFrom(n.Pods[0].Addr, 80)); err == nil {
		t.Error("the router has a way into the overlay network")
	}
}

// With the router's route to a node, a client's packet for the service reaches the load
// balancer in its pod, unchanged, for each load balancer.
func TestServicePrefixLeadsToTheBalancer(t *testing.T) {
	n, l := network(t)
	s := n.Services[0]
	router := l.Host(topology.Router).Netlink()
	for _, p := range n.Balancers(0) {
		for vip, hop := range map[netip.Addr]netip.Addr{s.VIP.Addr(): p.Node.Addr, s.VIP6.Addr(): p.Node.Addr6} {
			lo, err := l.Host(p.Name).Netlink().LinkByName("lo")
			if err != nil {
				t.Fatal(err)
			}
			own := &net.IPNet{IP: vip.AsSlice(), Mask: net.CIDRMask(vip.BitLen(), vip.BitLen())}
			if err := l.Host(p.Name).Netlink().AddrAdd(lo, &netlink.Addr{IPNet: own, Flags: unix.IFA_F_NODAD}); err != nil {
				t.Fatal(err)
			}
			// The kernel adds an IPv6 address's local route a moment later.
			testkit.Eventually(t, long, func() error {
				routes, err := l.Host(p.Name).Netlink().RouteGet(own.IP)
				if err == nil && vip.Is6() && routes[0].Table != unix.RT_TABLE_LOCAL {
					err = fmt.Errorf("%s is not local yet", vip)
				}
				return err
			})
			if err := router.RouteReplace(&netlink.Route{Dst: own, Gw: hop.AsSlice()}); err != nil {
				t.Fatal(err)
			}
			client := n.ClientAddrs[3]
			if vip.Is6() {
				client = n.ClientAddrs6[3]
			}
			got, err := ask(l.Host(topology.Client), client, netip.AddrPortFrom(vip, 80))
			if err != nil || got != client.String() {
				t.Errorf("by %s the client is seen as %q (%v), want %s", p.Name, got, err, client)
			}
		}
	}
}

// A client's full-size packet, as encapsulated by a load balancer, reaches any backend
// unfragmented.
func TestTunnelledPacketsFit(t *testing.T) {
	n, l := network(t)
	from, to := n.Balancers(0)[0], n.Servers(0)[3]
	if from.Node == to.Node {
		t.Fatal("want two nodes between")
	}
	const ipUDP = 28
	in, err := l.Host(to.Name).ListenPacket("udp4", "0.0.0.0:9")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := l.Host(from.Name).ListenPacket("udp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	raw, err := out.(*net.UDPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.WriteTo(make([]byte, 1500+20+8-ipUDP), net.UDPAddrFromAddrPort(netip.AddrPortFrom(to.Addr, 9))); err != nil {
		t.Fatal(err)
	}
	in.SetReadDeadline(time.Now().Add(long))
	b := make([]byte, 2000)
	if size, _, err := in.ReadFrom(b); err != nil || size != 1500 {
		t.Errorf("%d bytes came (%v)", size, err)
	}
}

func TestPodsComeAndGo(t *testing.T) {
	n, l := network(t)
	b, part, err := n.AddBalancer(0)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Add(t.Context(), part); err != nil {
		t.Fatal(err)
	}
	s, part := n.AddServer(0)
	if err := l.Add(t.Context(), part); err != nil {
		t.Fatal(err)
	}
	whoami(t, l.Host(s.Name))
	if got, err := ask(l.Host(b.Name), netip.Addr{}, netip.AddrPortFrom(s.Addr, 80)); got != b.Addr.String() {
		t.Errorf("the new balancer is seen by the new server as %q (%v)", got, err)
	}
	if err := l.Cut(b.Name, topology.Dev); err != nil {
		t.Error(err)
	}
	if err := l.Remove(b.Name, s.Name); err != nil {
		t.Error(err)
	}
	n.Remove(b.Name)
	n.Remove(s.Name)
	if diff := cmp.Diff(n.Topology().String(), l.Topology().String()); diff != "" {
		t.Errorf("-planned +standing\n%s", diff)
	}
}
