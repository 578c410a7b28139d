package xdp

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/sysctl"
	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/testkit"
)

// routedNet adds a router before realNet's load balancer. Its path to the client is
// narrower than all others, which only the router knows:
//
//	client c0 ── r0 router r1 ── eth0 balancer eth1 ── s0 server
//	192.168.6.2  .1       192.168.7.2  .1          .1  192.168.8.2
//	fd06::2      ::1      fd07::2      ::1         ::1 fd08::2
//	              route with MTU 1300
//
// The VIPs 10.1.1.1 and fd99::1 are on the server's loopback, too.
type routedNet struct{ client, router, balancer, server *netns.NS }

var routedVIPs = map[bool]string{false: "10.1.1.1:80", true: "[fd99::1]:80"}

func newRoutedNet(t *testing.T) routedNet {
	n := routedNet{testkit.NetNS(t), testkit.NetNS(t), testkit.NetNS(t), testkit.NetNS(t)}
	cable(t, n.router, "r0", "fd06::1/64", "192.168.6.1/24", n.client, "c0", "fd06::2/64", "192.168.6.2/24")
	cable(t, n.balancer, "eth0", "fd07::1/64", "192.168.7.1/24", n.router, "r1", "fd07::2/64", "192.168.7.2/24")
	cable(t, n.balancer, "eth1", "fd08::1/64", "192.168.8.1/24", n.server, "s0", "fd08::2/64", "192.168.8.2/24")
	gateway(t, n.client, "c0", "192.168.6.1", "fd06::1")
	gateway(t, n.router, "r1", "192.168.7.1", "fd07::1")
	gateway(t, n.balancer, "eth0", "192.168.7.2", "fd07::2")
	gateway(t, n.server, "s0", "192.168.8.1", "fd08::1")
	testkit.Do(t, n.router, func() error {
		// By its route: a veth end with a smaller MTU would not accept longer
		// frames from its peer either.
		nic, err := netlink.LinkByName("r0")
		must(t, err)
		for _, client := range []string{"192.168.6.2/32", "fd06::2/128"} {
			_, dst, _ := net.ParseCIDR(client)
			route(t, netlink.Route{LinkIndex: nic.Attrs().Index, Dst: dst, MTU: 1300, MTULock: true})
		}
		for _, path := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
			must(t, sysctl.Setting{Path: path, Value: "1"}.Set())
		}
		return nil
	})
	testkit.Do(t, n.server, func() error {
		address(t, "lo", "10.1.1.1/32", "fd99::1/128")
		return nil
	})
	return n
}

// cable joins two namespaces by a veth pair that fills in checksums in software.
func cable(t *testing.T, near *netns.NS, name, v6, v4 string, far *netns.NS, farName, far6, far4 string) {
	t.Helper()
	testkit.Do(t, near, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: farName, PeerNamespace: netlink.NsFd(far.FD())}))
		setOffload(t, name, unix.ETHTOOL_STXCSUM, 0)
		address(t, name, v4, v6)
		return nil
	})
	testkit.Do(t, far, func() error {
		setOffload(t, farName, unix.ETHTOOL_STXCSUM, 0)
		address(t, farName, far4, far6)
		setOffload(t, farName, unix.ETHTOOL_SGRO, 1)
		return nil
	})
}

func gateway(t *testing.T, ns *netns.NS, name string, addrs ...string) {
	t.Helper()
	testkit.Do(t, ns, func() error {
		nic, err := netlink.LinkByName(name)
		must(t, err)
		for _, gw := range addrs {
			route(t, netlink.Route{LinkIndex: nic.Attrs().Index, Gw: net.ParseIP(gw)})
		}
		return nil
	})
}

// serve opens the data plane with frontends on both VIPs that forward to the server.
func (n routedNet) serve(t *testing.T, method service.Method) *DataPlane {
	t.Helper()
	var d *DataPlane
	testkit.Do(t, n.balancer, func() (err error) {
		d, err = Open(Config{
			Interfaces: []string{"eth0", "eth1"}, PinDir: "/sys/fs/bpf/routed", MaxFlows: 1024,
			SourceV4: netip.MustParseAddr("192.168.7.1"), SourceV6: netip.MustParseAddr("fd07::1"),
		})
		return err
	})
	t.Cleanup(func() { must(t, d.Detach()) })
	for v6, vip := range routedVIPs {
		server := map[bool]string{false: "192.168.8.2:80", true: "[fd08::2]:80"}[v6]
		f := frontend(method, vip, 0, server)
		f.Survival = service.HashOnly
		for _, f.Protocol = range []service.Protocol{service.TCP, service.UDP} {
			upsert(t, d, f)
		}
		// dr never waits for a neighbor.
		n.reach(t, strings.TrimSuffix(strings.Trim(server, "[]"), ":80"))
	}
	return d
}

// reach makes the load balancer learn the server's MAC address.
func (n routedNet) reach(t *testing.T, server string) {
	t.Helper()
	host := netip.MustParseAddr(strings.Trim(server, "[]"))
	testkit.Eventually(t, patience, func() error {
		var err error
		testkit.Do(t, n.balancer, func() error {
			var c net.Conn
			if c, err = net.Dial("udp", netip.AddrPortFrom(host, 9).String()); err == nil {
				_, err = c.Write([]byte("?"))
				c.Close()
			}
			nic, _ := netlink.LinkByName("eth1")
			known, _ := netlink.NeighList(nic.Attrs().Index, 0)
			for _, k := range known {
				if k.IP.Equal(host.AsSlice()) && k.State&(netlink.NUD_REACHABLE|netlink.NUD_STALE|netlink.NUD_DELAY) != 0 {
					err = nil
					return nil
				}
			}
			err = fmt.Errorf("%s is no known neighbor yet", host)
			return nil
		})
		return err
	})
}

// ping sends echo requests until one is answered completely.
func ping(t *testing.T, ns *netns.NS, vip netip.Addr, size int) {
	t.Helper()
	network, request, reply := "ip4:icmp", byte(8), byte(0)
	if vip.Is6() {
		network, request, reply = "ip6:ipv6-icmp", 128, 129
	}
	var c net.Conn
	testkit.Do(t, ns, func() (err error) {
		c, err = net.Dial(network, vip.String())
		return err
	})
	defer c.Close()
	message := append([]byte{request, 0, 0, 0, 0x12, 0x34, 0, 1}, make([]byte, size)...)
	for i := range message[8:] {
		message[8+i] = byte(i * 3)
	}
	if !vip.Is6() { // else the kernel does it
		binary.BigEndian.PutUint16(message[2:], sum16(message))
	}
	buf := make([]byte, 65536)
	testkit.Eventually(t, patience, func() error {
		_, err := c.Write(message)
		must(t, err)
		must(t, c.SetReadDeadline(time.Now().Add(time.Second)))
		n, err := c.Read(buf)
		if !vip.Is6() && n > 20 { // with its header
			n = copy(buf, buf[20:n])
		}
		if err == nil && (n != len(message) || buf[0] != reply || string(buf[8:n]) != string(message[8:])) {
			err = fmt.Errorf("%s: an answer of %d bytes, type %d", vip, n, buf[0]) // maybe a late answer to an earlier one
		}
		return err
	})
}

// A VIP answers pings, including those with many fragments.
func TestPing(t *testing.T) {
	n := newRoutedNet(t)
	n.serve(t, service.DR)
	for _, vip := range routedVIPs {
		for _, size := range []int{0, 56, 1000, 8000} {
			addr := netip.MustParseAddrPort(vip).Addr()
			if addr.Is6() && size > 1200 {
				continue // arrives in fragments too long for the way back, which must not be fragmented
			}
			ping(t, n.client, addr, size)
		}
	}
}

// The narrow link's router informs the VIP, the load balancer informs the backend, and
// the backend sends what fits.
func TestPathMTUDiscovery(t *testing.T) {
	n := newRoutedNet(t)
	n.serve(t, service.DR)
	const size = 400_000
	for v6, vip := range routedVIPs {
		var l net.Listener
		testkit.Do(t, n.server, func() (err error) {
			l, err = net.Listen("tcp", vip)
			return err
		})
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() { c.Write(make([]byte, size)); c.Close() }()
			}
		}()
		var c net.Conn
		testkit.Do(t, n.client, func() (err error) {
			c, err = net.DialTimeout("tcp", vip, patience)
			return err
		})
		must(t, c.SetDeadline(time.Now().Add(patience)))
		if got, err := io.Copy(io.Discard, c); err != nil || got != size {
			t.Errorf("v6 %v: %d bytes, %v", v6, got, err)
		}
		c.Close()
		l.Close()
	}
}

// Datagrams of 8 KB, fragmented in both directions: bypassing the load balancer on the
// return path, or through it.
func TestLongDatagrams(t *testing.T) {
	for _, method := range []service.Method{service.DR, service.FullNAT} {
		t.Run(string(method), func(t *testing.T) {
			n := newRoutedNet(t)
			d := n.serve(t, method)
			for v6, vip := range routedVIPs {
				server := vip
				if method == service.FullNAT {
					server = map[bool]string{false: "192.168.8.2:80", true: "[fd08::2]:80"}[v6]
				}
				echoUDP(t, n.server, server)
				exchangeUDP(t, n.client, vip, 8192)
			}
			if lost := d.Describe().Drops["fragment-lost"]; lost != 0 {
				t.Errorf("%d fragments were lost", lost)
			}
		})
	}
}

// echoUDP returns every datagram.
func echoUDP(t *testing.T, ns *netns.NS, addr string) {
	t.Helper()
	answerUDP(t, ns, addr, func(in []byte, _ string) []byte { return in })
}

// exchangeUDP sends datagrams until some have come back complete: the first may be lost
// to path MTU discovery.
func exchangeUDP(t *testing.T, ns *netns.NS, vip string, size int) {
	t.Helper()
	var c net.Conn
	testkit.Do(t, ns, func() (err error) {
		c, err = net.Dial("udp", vip)
		return err
	})
	defer c.Close()
	message := make([]byte, size)
	for i := range 5 {
		message[0] = byte(i)
		testkit.Eventually(t, patience, func() error {
			got, err := tryUDP(t, c, message)
			if err == nil && (len(got) != size || got[0] != byte(i)) {
				err = fmt.Errorf("%d bytes, the %d-th", len(got), got[0])
			}
			return err
		})
	}
}
