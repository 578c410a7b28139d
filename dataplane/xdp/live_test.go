package xdp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/netorder"
	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/testkit"
)

// patience is how long a busy machine may take for one packet.
const patience = 20 * time.Second

// wireEnd is a packet socket on net0, the far end of eth0.
type wireEnd struct{ fd int }

func (n *testNet) wireEnd(t *testing.T) *wireEnd {
	t.Helper()
	w := &wireEnd{fd: -1}
	testkit.Do(t, n.outside, func() (err error) {
		nic, err := netlink.LinkByName("net0")
		must(t, err)
		all := netorder.Port(unix.ETH_P_ALL)
		if w.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(all)); err != nil {
			return err
		}
		return unix.Bind(w.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: nic.Attrs().Index})
	})
	must(t, unix.SetsockoptTimeval(w.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: int64(patience.Seconds())}))
	must(t, unix.SetsockoptInt(w.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 1<<24))
	t.Cleanup(func() { unix.Close(w.fd) })
	return w
}

// exchange sends one flow's packet and waits for the load balancer's output.
func (w *wireEnd) exchange(frame, want []byte) error {
	if _, err := unix.Write(w.fd, frame); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	buf := make([]byte, 2048)
	for {
		n, from, err := unix.Recvfrom(w.fd, buf, 0)
		if err != nil {
			return fmt.Errorf("nothing came back: %w", err)
		}
		if from.(*unix.SockaddrLinklayer).Pkttype != unix.PACKET_OUTGOING && bytes.Equal(buf[:n], want) {
			return nil
		}
	}
}

// tunnelled is a packet that opens a flow to the only backend of a tunnel, and its
// output: always the same, without second-chance.
func tunnelled(t *testing.T) (in, out []byte) {
	t.Helper()
	p := packet{src: clients[false], dst: vips[false], flags: "S", payload: 30}
	in = p.bytes(t)
	p.outer = &outer{src: owns[false], dst: addrOf(servers[false]), ttl: 64}
	sent(&p)
	return in, p.bytes(t)
}

// steady is a flow of SYNs to a tunnel's only backend, each sent when the previous one
// has come back: none may be lost.
type steady struct {
	t         *testing.T
	exchanged atomic.Int64
	stop      chan struct{}
	ended     chan error
}

func (n *testNet) steadyTraffic(t *testing.T) *steady {
	t.Helper()
	w := n.wireEnd(t)
	s := &steady{t: t, stop: make(chan struct{}), ended: make(chan error, 1)}
	in, out := tunnelled(t)
	go func() {
		for {
			select {
			case <-s.stop:
				s.ended <- nil
				return
			default:
			}
			if err := w.exchange(in, out); err != nil {
				s.ended <- fmt.Errorf("after %d packets: %w", s.exchanged.Load(), err)
				return
			}
			s.exchanged.Add(1)
			time.Sleep(time.Millisecond) // leave time for others
		}
	}()
	return s
}

// more waits for some more packets.
func (s *steady) more(when string) {
	s.t.Helper()
	from := s.exchanged.Load()
	testkit.Eventually(s.t, patience, func() error {
		if s.exchanged.Load() < from+20 {
			return fmt.Errorf("%s: only %d packets", when, s.exchanged.Load()-from)
		}
		return nil
	})
}

func (s *steady) end() {
	s.t.Helper()
	close(s.stop)
	if err := <-s.ended; err != nil {
		s.t.Fatal(err)
	}
	s.t.Logf("%d packets", s.exchanged.Load())
}

// The agent stops, starts, stops, and changes what is programmed: no packet is lost, and
// everything programmed before stays.
func TestRestartLosesNothing(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	kept := frontend(service.Tunnel, vips[false], service.TCP, servers[false])
	upsert(t, d, kept)
	other := frontend(service.FullNAT, vips[true], service.UDP, servers[true], "[fd05::7]:9")
	other.Scheduler, other.Backends[1].Weight = service.RoundRobin, 0
	upsert(t, d, other)
	traffic := n.steadyTraffic(t)
	more := traffic.more
	more("at first")
	programmed := listed(t, d)
	for range 5 {
		must(t, d.Close())
		if n.attachedProgram(t, "eth0") == 0 {
			t.Fatal("the program went with the agent")
		}
		more("while no agent runs")
		d = n.open(t, config())
		if now := listed(t, d); now != programmed {
			t.Fatalf("lists\n %s\nprogrammed\n %s", now, programmed)
		}
		// There and back again, by every kind of change.
		for _, size := range []int{251, 509} {
			wider := kept
			wider.RingSize = size
			wider.Backends = append(wider.Backends[:1:1], service.Backend{Addr: netip.MustParseAddrPort("172.16.5.9:1")})
			upsert(t, d, wider)
			upsert(t, d, kept)
		}
		more("after a restart")
	}
	traffic.end()
}

// realNet is three hosts with real sockets at the ends, and no resolved neighbors:
//
//	client c0 192.168.7.2 ── eth0 balancer eth1 ── s0 192.168.8.2 server
//	          fd07::2       .1              .1       fd08::2
type realNet struct{ client, balancer, server *netns.NS }

func newRealNet(t *testing.T) realNet {
	n := realNet{testkit.NetNS(t), testkit.NetNS(t), testkit.NetNS(t)}
	for _, w := range []struct {
		near, far   string
		there       *netns.NS
		subnet4, v6 string
	}{{"eth0", "c0", n.client, "192.168.7.", "fd07::"}, {"eth1", "s0", n.server, "192.168.8.", "fd08::"}} {
		testkit.Do(t, n.balancer, func() error {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = w.near
			must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: w.far, PeerNamespace: netlink.NsFd(w.there.FD())}))
			address(t, w.near, w.subnet4+"1/24", w.v6+"1/64")
			return nil
		})
		testkit.Do(t, w.there, func() error {
			// A checksum left to the driver would be lost on the way.
			setOffload(t, w.far, unix.ETHTOOL_STXCSUM, 0)
			nic := address(t, w.far, w.subnet4+"2/24", w.v6+"2/64")
			setOffload(t, w.far, unix.ETHTOOL_SGRO, 1)
			for _, gw := range []string{w.subnet4 + "1", w.v6 + "1"} {
				route(t, netlink.Route{LinkIndex: nic, Gw: net.ParseIP(gw)})
			}
			return nil
		})
	}
	return n
}

// address gives an interface addresses, brings it up and returns its index.
func address(t *testing.T, name string, addrs ...string) int {
	t.Helper()
	nic, err := netlink.LinkByName(name)
	must(t, err)
	for _, a := range addrs {
		addr, err := netlink.ParseAddr(a)
		must(t, err)
		addr.Flags = unix.IFA_F_NODAD
		must(t, netlink.AddrAdd(nic, addr))
	}
	must(t, netlink.LinkSetUp(nic))
	return nic.Attrs().Index
}

// Real TCP and UDP through fullnat, with the kernel's own stacks at both ends: they check
// checksums, lengths and state.
func TestFullNATWithRealSockets(t *testing.T) {
	n := newRealNet(t)
	var d *DataPlane
	testkit.Do(t, n.balancer, func() (err error) {
		d, err = Open(Config{
			Interfaces: []string{"eth0", "eth1"}, PinDir: "/sys/fs/bpf/real",
			SourceV4: netip.MustParseAddr("192.168.7.1"), SourceV6: netip.MustParseAddr("fd07::1"), MaxFlows: 1024,
		})
		return err
	})
	t.Cleanup(func() { must(t, d.Detach()) })
	for vip, server := range map[string]string{"10.1.1.1:80": "192.168.8.2:8080", "[fd99::1]:80": "[fd08::2]:8080"} {
		both(t, d, frontend(service.FullNAT, vip, 0, server))
		serveTCP(t, n.server, server)
		serveUDP(t, n.server, server)
		own := netip.MustParseAddr("192.168.7.1")
		if netip.MustParseAddrPort(vip).Addr().Is6() {
			own = netip.MustParseAddr("fd07::1")
		}
		for range 3 {
			seen, body := askTCP(t, n.client, vip, 300_000)
			if seen.Addr() != own || seen.Port() < DefaultPorts.First || seen.Port() > DefaultPorts.Last || body != 300_000 {
				t.Errorf("TCP %s: the server saw %s and %d bytes", vip, seen, body)
			}
			if seen := askUDP(t, n.client, vip); seen.Addr() != own {
				t.Errorf("UDP %s: the server saw %s", vip, seen)
			}
		}
	}
	counters, err := d.Counters()
	must(t, err)
	for _, c := range counters {
		if c.Total.Flows < 3 || c.Total.Packets < 3 {
			t.Errorf("%s: counted %+v", c.Key, c.Total)
		}
	}
	for name, count := range d.Describe().Drops {
		if count != 0 {
			t.Errorf("%d packets dropped: %s", count, name)
		}
	}
}

// serveTCP reads each connection to its end and answers with the peer's address and the
// number of bytes.
func serveTCP(t *testing.T, ns *netns.NS, addr string) {
	t.Helper()
	acceptEach(t, ns, addr, func(c net.Conn) {
		n, _ := io.Copy(io.Discard, c)
		fmt.Fprintf(c, "%s %d", c.RemoteAddr(), n)
	})
}

// acceptEach serves each connection to an address, and closes it.
func acceptEach(t *testing.T, ns *netns.NS, addr string, serve func(net.Conn)) {
	t.Helper()
	var l net.Listener
	testkit.Do(t, ns, func() (err error) {
		l, err = net.Listen("tcp", addr)
		return err
	})
	t.Cleanup(func() { l.Close() })
	go netns.ServeTCP(l, serve)
}

func askTCP(t *testing.T, ns *netns.NS, vip string, bytes int) (seen netip.AddrPort, got int) {
	t.Helper()
	var c net.Conn
	testkit.Do(t, ns, func() (err error) {
		c, err = net.DialTimeout("tcp", vip, patience)
		return err
	})
	defer c.Close()
	must(t, c.SetDeadline(time.Now().Add(patience)))
	_, err := c.Write(make([]byte, bytes))
	must(t, err)
	must(t, c.(*net.TCPConn).CloseWrite())
	answer, err := io.ReadAll(c)
	must(t, err)
	var who string
	if _, err := fmt.Sscanf(string(answer), "%s %d", &who, &got); err != nil {
		t.Fatalf("%q: %v", answer, err)
	}
	return netip.MustParseAddrPort(who), got
}

// serveUDP answers each datagram with the sender's address.
func serveUDP(t *testing.T, ns *netns.NS, addr string) {
	t.Helper()
	answerUDP(t, ns, addr, func(in []byte, from string) []byte {
		answer := binary.BigEndian.AppendUint32(nil, binary.BigEndian.Uint32(in))
		return append(answer, from...)
	})
}

// answerUDP answers each datagram with a function's result.
func answerUDP(t *testing.T, ns *netns.NS, addr string, answer func(in []byte, from string) []byte) {
	t.Helper()
	var c net.PacketConn
	testkit.Do(t, ns, func() (err error) {
		c, err = net.ListenPacket("udp", addr)
		return err
	})
	t.Cleanup(func() { c.Close() })
	go func() {
		var buf [65536]byte
		for {
			n, from, err := c.ReadFrom(buf[:])
			if err != nil {
				return
			}
			c.WriteTo(answer(buf[:n], from.String()), from)
		}
	}()
}

// askUDP repeats a request until it is answered: a datagram that waits for a neighbor may
// legitimately be lost.
func askUDP(t *testing.T, ns *netns.NS, vip string) (seen netip.AddrPort) {
	t.Helper()
	var c net.Conn
	testkit.Do(t, ns, func() (err error) {
		c, err = net.Dial("udp", vip)
		return err
	})
	defer c.Close()
	testkit.Eventually(t, patience, func() error {
		answer, err := tryUDP(t, c, []byte("ping"))
		if err == nil {
			seen = netip.MustParseAddrPort(string(answer[4:]))
		}
		return err
	})
	return seen
}

// tryUDP sends a datagram and waits for an answer, which may be lost.
func tryUDP(t *testing.T, c net.Conn, message []byte) ([]byte, error) {
	t.Helper()
	if _, err := c.Write(message); err != nil {
		return nil, err
	}
	must(t, c.SetReadDeadline(time.Now().Add(time.Second)))
	buf := make([]byte, 65536)
	n, err := c.Read(buf)
	return buf[:n], err
}
