package ipvs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/testkit"
)

// world is a load balancer with its environment:
//
//	client 192.168.0.2 ── router ─┬─ balancer 172.16.0.1, VIPs 10.1.0.0/16
//	       fd02::2                ├─ s1 172.16.0.11, fd00::11
//	                              ├─ s2 172.16.0.12, fd00::12
//	                              └─ s3 172.16.0.13, fd00::13
//
// Servers answer with their name, through the router or, with nat, through the load
// balancer.
type world struct {
	*testing.T
	lab    *lab.Lab
	plane  *DataPlane
	direct bool // packets arrive at servers with the VIP in them
}

const servers = 3

var (
	vip4 = netip.MustParseAddr("10.1.1.1")
	vip6 = netip.MustParseAddr("2001:db8:1::1")
)

func newWorld(t *testing.T, method service.Method) *world {
	t.Helper()
	gateway4, gateway6 := "172.16.0.254", "fd00::fe"
	if method == service.NAT {
		gateway4, gateway6 = "172.16.0.1", "fd00::1"
	}
	topology := lab.Topology{
		Hosts: []lab.HostSpec{
			{Name: "client"}, {Name: "balancer"},
			{Name: "router", Forward: true},
		},
		Switches: []lab.SwitchSpec{{Name: "net"}},
		Links: []lab.Link{
			{A: lab.At("client", "c0", "192.168.0.2/24", "fd02::2/64").Via("192.168.0.1", "default").Via("fd02::1", "default"),
				B: lab.At("router", "r0", "192.168.0.1/24", "fd02::1/64")},
			{A: lab.At("router", "r1", "172.16.0.254/24", "fd00::fe/64").Via("172.16.0.1", "10.1.0.0/16").Via("fd00::1", "2001:db8::/32"), B: lab.Port("net")},
			{A: lab.At("balancer", "eth0", "172.16.0.1/24", "fd00::1/64").Via("172.16.0.254", "default").Via("fd00::fe", "default"), B: lab.Port("net")},
		},
	}
	for i := range servers {
		name := fmt.Sprint("s", i+1)
		topology.Hosts = append(topology.Hosts, serverSpec(name, method))
		topology.Links = append(topology.Links, lab.Link{
			A: lab.At(name, "e0", fmt.Sprintf("172.16.0.%d/24", 11+i), fmt.Sprintf("fd00::%d/64", 11+i)).Via(gateway4, "default").Via(gateway6, "default"),
			B: lab.Port("net"),
		})
	}
	l, err := lab.Build(t.Context(), topology)
	must(t, err)
	w := &world{T: t, lab: l, direct: method == service.DR || method == service.Tunnel}
	t.Cleanup(func() {
		if w.plane != nil {
			must(t, w.plane.Close())
		}
		must(t, l.Close())
	})
	w.open(Config{})
	return w
}

// serverSpec has the VIPs if the forwarding mode leaves them in packets.
func serverSpec(name string, method service.Method) lab.HostSpec {
	s := lab.HostSpec{Name: name, Sysctls: map[string]string{"net.ipv4.conf.all.rp_filter": "0", "net.ipv4.conf.default.rp_filter": "0"}}
	if method == service.DR || method == service.Tunnel {
		s.Loopback = []string{vip4.String() + "/32", vip6.String() + "/128"}
		s.Sysctls["net.ipv4.conf.all.arp_ignore"], s.Sysctls["net.ipv4.conf.all.arp_announce"] = "1", "2"
	}
	return s
}

// open opens the data plane in the load balancer's namespace, like a restarted agent if
// one is open.
func (w *world) open(c Config) {
	w.Helper()
	if w.plane != nil {
		must(w, w.plane.Close())
		w.plane = nil
	}
	c.NetNS = w.lab.Host("balancer").Namespace().Path()
	plane, err := Open(c)
	must(w, err)
	w.plane = plane
}

// serve makes every server answer TCP and UDP on a port.
func (w *world) serve(port uint16) {
	w.Helper()
	for i := range servers {
		name := fmt.Sprint("s", i+1)
		l, err := w.lab.Host(name).Listen("tcp", fmt.Sprintf(":%d", port))
		must(w, err)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go echo(c, name)
			}
		}()
		w.serveUDP(name, port)
	}
}

// serveUDP answers from the requested address: with a separate socket for each.
func (w *world) serveUDP(name string, port uint16) {
	w.Helper()
	addrs := []string{fmt.Sprintf(":%d", port)}
	if w.direct {
		addrs = []string{fmt.Sprintf("%s:%d", vip4, port), fmt.Sprintf("[%s]:%d", vip6, port)}
	}
	for _, addr := range addrs {
		u, err := w.lab.Host(name).ListenPacket("udp", addr)
		must(w, err)
		w.Cleanup(func() { u.Close() })
		go func() {
			packet := make([]byte, 1500)
			for {
				_, from, err := u.ReadFrom(packet)
				if err != nil {
					return
				}
				u.WriteTo([]byte(name+"\n"), from) //nolint:errcheck // the client would wait in vain
			}
		}()
	}
}

// echo answers every line with the server's name, and closes the connection at "bye".
func echo(c net.Conn, name string) {
	defer c.Close()
	for lines := bufio.NewScanner(c); lines.Scan() && lines.Text() != "bye"; {
		if _, err := fmt.Fprintln(c, name); err != nil {
			return
		}
	}
}

const patience = 20 * time.Second

// dial opens a connection from the client.
func (w *world) dial(to netip.AddrPort) *conn {
	w.Helper()
	c, err := w.tryDial(to)
	must(w, err)
	return c
}

func (w *world) tryDial(to netip.AddrPort) (*conn, error) {
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	c, err := w.lab.Host("client").Dial(ctx, netip.Addr{}, to)
	if err != nil {
		return nil, err
	}
	w.Cleanup(func() { c.Close() })
	return &conn{c, bufio.NewReader(c)}, nil
}

// dialFrom opens a connection from a client port that may have had one before, whose last
// packet may be in flight.
func (w *world) dialFrom(port int, to netip.AddrPort) (c *conn) {
	w.Helper()
	d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{Port: port}}
	dial := func() error {
		dialled, err := d.Dial("tcp", to.String())
		if err == nil {
			w.Cleanup(func() { dialled.Close() })
			c = &conn{dialled, bufio.NewReader(dialled)}
		}
		return err
	}
	w.eventually(func() error {
		err := w.lab.Host("client").Do(dial)
		if err != nil && !errors.Is(err, unix.EADDRINUSE) {
			w.Fatal(err)
		}
		return err
	})
	return c
}

// conn is a connection that identifies its peer.
type conn struct {
	net.Conn
	read *bufio.Reader
}

func (c *conn) who() (string, error) {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, "who?\n"); err != nil {
		return "", err
	}
	name, err := c.read.ReadString('\n')
	return strings.TrimSpace(name), err
}

// bye makes the server close the connection, and then closes it too.
func (c *conn) bye() error {
	if _, err := io.WriteString(c, "bye\n"); err != nil {
		return err
	}
	_, err := c.read.ReadString('\n')
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, c.Close())
}

// answers returns the backend that answers one new connection.
func (w *world) answers(to netip.AddrPort) string {
	w.Helper()
	c := w.dial(to)
	defer c.Close()
	name, err := c.who()
	must(w, err)
	return name
}

// spread counts which backends answer n new connections.
func (w *world) spread(to netip.AddrPort, n int) map[string]int {
	w.Helper()
	count := map[string]int{}
	for range n {
		count[w.answers(to)]++
	}
	return count
}

// ask sends one UDP packet from a port of the client and returns the backend that
// answers.
func (w *world) ask(from uint16, to netip.AddrPort) (name string, err error) {
	w.Helper()
	err = w.lab.Host("client").Do(func() error {
		c, err := net.DialUDP("udp", &net.UDPAddr{Port: int(from)}, net.UDPAddrFromAddrPort(to))
		if err != nil {
			return err
		}
		defer c.Close()
		answer := make([]byte, 100)
		if _, err := io.WriteString(c, "who?"); err != nil {
			return err
		}
		if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		n, err := c.Read(answer)
		name = strings.TrimSpace(string(answer[:n]))
		return err
	})
	return name, err
}

// frontend has the test environment's servers as backends, which listen on the port at.
func frontend(method service.Method, scheduler service.Scheduler, vip netip.Addr, port, at uint16) desired.Frontend {
	f := desired.Frontend{
		Key:    service.Key{VIP: vip, Port: port, Protocol: service.TCP},
		Method: method, Scheduler: scheduler, RingSize: 251, Survival: service.FlowTable,
	}
	for i := range servers {
		addr := netip.AddrFrom4([4]byte{172, 16, 0, byte(11 + i)})
		if vip.Is6() {
			addr = netip.MustParseAddr(fmt.Sprintf("fd00::%d", 11+i))
		}
		f.Backends = append(f.Backends, service.Backend{Addr: netip.AddrPortFrom(addr, at), Weight: 1})
	}
	return f
}

// tunnelEnds gives the servers devices that terminate tunnels.
func (w *world) tunnelEnds() {
	w.Helper()
	for i := range servers {
		h := w.lab.Host(fmt.Sprint("s", i+1))
		for _, link := range []netlink.Link{
			&netlink.Iptun{LinkAttrs: netlink.LinkAttrs{Name: "tun4"}},
			&netlink.Ip6tnl{LinkAttrs: netlink.LinkAttrs{Name: "tun6"}},
			&netlink.Sittun{LinkAttrs: netlink.LinkAttrs{Name: "six4"}},
		} {
			must(w, wrap(link.Attrs().Name, h.Netlink().LinkAdd(link)))
			must(w, h.Netlink().LinkSetUp(link))
		}
		must(w, h.Do(func() error {
			out, err := exec.Command("ip", "fou", "add", "port", fmt.Sprint(service.DefaultGUEPort), "gue").CombinedOutput()
			return wrap(string(out), err)
		}))
	}
}

func (w *world) upsert(f desired.Frontend) {
	w.Helper()
	must(w, w.plane.Upsert(f))
}

// listed returns what is programmed, by key.
func (w *world) listed() map[service.Key]desired.Frontend {
	w.Helper()
	all := map[service.Key]desired.Frontend{}
	list, err := w.plane.List()
	must(w, err)
	for _, f := range list {
		all[f.Key] = f
	}
	return all
}

// eventually retries until cond returns nil.
func (w *world) eventually(cond func() error) {
	w.Helper()
	testkit.Eventually(w, patience, cond)
}

func wrap(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
