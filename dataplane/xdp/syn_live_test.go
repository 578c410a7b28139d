package xdp

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/testkit"
)

// openReal opens a data plane between real hosts.
func openReal(t *testing.T, n realNet, change func(*Config)) *DataPlane {
	t.Helper()
	c := Config{
		Interfaces: []string{"eth0", "eth1"}, PinDir: "/sys/fs/bpf/real",
		SourceV4: netip.MustParseAddr("192.168.8.1"), SourceV6: netip.MustParseAddr("fd08::1"), MaxFlows: 1 << 14,
	}
	if change != nil {
		change(&c)
	}
	var d *DataPlane
	testkit.Do(t, n.balancer, func() (err error) {
		d, err = Open(c)
		return err
	})
	t.Cleanup(func() { testkit.Do(t, n.balancer, d.Detach) })
	return d
}

// The frontends for real hosts, and each one's backend.
func realFrontend(method service.Method, v6 bool) (f desired.Frontend, listen string) {
	vip, server := "10.1.1.1:80", "192.168.8.2:8080"
	if v6 {
		vip, server = "[fd99::1]:80", "[fd08::2]:8080"
	}
	if method == service.DR {
		server = netip.AddrPortFrom(netip.MustParseAddrPort(server).Addr(), 80).String()
		return frontend(method, vip, service.TCP, server), vip
	}
	return frontend(method, vip, service.TCP, server), server
}

// toAnyone gives the load balancer a route to the whole Internet, through the client's
// side.
func toAnyone(t *testing.T, n realNet) {
	t.Helper()
	testkit.Do(t, n.balancer, func() error {
		nic, err := netlink.LinkByName("eth0")
		for _, gateway := range []string{"192.168.7.2", "fd07::2"} {
			route(t, netlink.Route{LinkIndex: nic.Attrs().Index, Gw: net.ParseIP(gateway)})
		}
		return err
	})
}

// haveVIPs adds the VIPs to the server's loopback, and the server's MAC address to the
// load balancer, for dr.
func haveVIPs(t *testing.T, n realNet) {
	t.Helper()
	var mac net.HardwareAddr
	testkit.Do(t, n.server, func() error {
		address(t, "lo", "10.1.1.1/32", "fd99::1/128")
		nic, err := netlink.LinkByName("s0")
		mac = nic.Attrs().HardwareAddr
		return err
	})
	testkit.Do(t, n.balancer, func() error {
		nic, err := netlink.LinkByName("eth1")
		for _, server := range []string{"192.168.8.2", "fd08::2"} {
			neighbor(t, uint32(nic.Attrs().Index), server, mac)
		}
		return err
	})
}

// lossy makes an interface's queue overflow, so that segments are lost in both directions
// and selective acknowledgments report which.
func lossy(t *testing.T, ns *netns.NS, name string) {
	t.Helper()
	testkit.Do(t, ns, func() error {
		nic, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return netlink.QdiscAdd(&netlink.Tbf{
			QdiscAttrs: netlink.QdiscAttrs{LinkIndex: nic.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
			Rate:       6_000_000, Limit: 20_000, Buffer: 8_000,
		})
	})
}

// echoTCP returns all data, after a greeting if there is one.
func echoTCP(t *testing.T, ns *netns.NS, addr, greeting string) {
	t.Helper()
	acceptEach(t, ns, addr, func(c net.Conn) {
		io.WriteString(c, greeting)
		io.Copy(c, c)
	})
}

// dialIn connects in a namespace.
func dialIn(t *testing.T, ns *netns.NS, addr string, timeout time.Duration) (net.Conn, error) {
	t.Helper()
	var c net.Conn
	var failed error
	testkit.Do(t, ns, func() error {
		c, failed = net.DialTimeout("tcp", addr, timeout)
		return nil
	})
	return c, failed
}

// negotiated returns the negotiated options of a connection: TCPI_OPT_* of linux/tcp.h.
func negotiated(t *testing.T, c net.Conn) (options uint8) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	must(t, err)
	must(t, raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		must(t, err)
		options = info.Options
	}))
	return options
}

// Real TCP under pressure, with the kernel's own stacks at both ends: a megabyte there
// and back, over lossy links, arrives as it was sent, with selective acknowledgments,
// timestamps and scaled windows.
func TestPressureWithRealSockets(t *testing.T) {
	for _, method := range []service.Method{service.NAT, service.FullNAT, service.DR} {
		for _, v6 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, v6 %v", method, v6), func(t *testing.T) {
				n := newRealNet(t)
				haveVIPs(t, n)
				d := openReal(t, n, nil)
				f, listen := realFrontend(method, v6)
				upsert(t, d, f)
				putUnderPressure(t, d, f.Key)
				echoTCP(t, n.server, listen, "")
				lossy(t, n.client, "c0")
				lossy(t, n.server, "s0")
				vip := netip.AddrPortFrom(f.VIP, f.Port).String()
				for i := range 3 {
					sendBack(t, n, vip, 1<<20, i == 0)
				}
				counts := synCountsOf(t, d, f.Key)
				if opened := counts.CookiesAccepted + counts.Admitted; opened < 3 {
					t.Errorf("three connections were opened under pressure: %+v", counts)
				}
			})
		}
	}
}

// sendBack makes the server return this many bytes.
func sendBack(t *testing.T, n realNet, vip string, bytes int, look bool) {
	t.Helper()
	began := time.Now()
	c, err := dialIn(t, n.client, vip, patience)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	must(t, c.SetDeadline(time.Now().Add(patience)))
	if took := time.Since(began); look {
		t.Logf("connected after %v", took)
	}
	if got := negotiated(t, c); got&7 != 7 { // timestamps, SACK, scale
		t.Errorf("negotiated %#x", got)
	}
	message := make([]byte, bytes)
	for i := 0; i < len(message); i += 8 {
		binary.LittleEndian.PutUint64(message[i:], rand.Uint64())
	}
	go func() {
		c.Write(message)
		c.(*net.TCPConn).CloseWrite()
	}()
	sum := sha256.New()
	got, err := io.Copy(sum, c)
	if want := sha256.Sum256(message); err != nil || got != int64(bytes) || !slices.Equal(sum.Sum(nil), want[:]) {
		t.Errorf("%d of %d bytes came back, or others: %v", got, bytes, err)
	}
}

// A server that sends first does so within little more than the second after which it
// repeats its SYN-ACK. A client that sends first has no delay.
func TestWhoSpeaksFirstUnderPressure(t *testing.T) {
	n := newRealNet(t)
	d := openReal(t, n, nil)
	f, listen := realFrontend(service.FullNAT, false)
	upsert(t, d, f)
	putUnderPressure(t, d, f.Key)
	const greeting = "220 ready\r\n"
	echoTCP(t, n.server, listen, greeting)
	for name, speaks := range map[string]bool{"the client": true, "the server": false} {
		began := time.Now()
		c, err := dialIn(t, n.client, "10.1.1.1:80", patience)
		must(t, err)
		must(t, c.SetDeadline(time.Now().Add(patience)))
		if speaks {
			_, err := c.Write([]byte("hello"))
			must(t, err)
		}
		buf := make([]byte, len(greeting))
		_, err = io.ReadFull(c, buf)
		t.Logf("%s speaks first: the greeting came after %v", name, time.Since(began))
		if err != nil || string(buf) != greeting {
			t.Errorf("%s speaks first: %q, %v", name, buf, err)
		}
		c.Close()
	}
}

// flood sends SYNs with forged sources to a VIP, from the client's side, until it is
// stopped.
type flood struct {
	sent atomic.Int64
	stop chan struct{}
	done sync.WaitGroup
}

func (n realNet) flood(t *testing.T, vip netip.AddrPort) *flood {
	t.Helper()
	fl := &flood{stop: make(chan struct{})}
	var fd, nic int
	testkit.Do(t, n.client, func() (err error) {
		link, err := netlink.LinkByName("c0")
		if err != nil {
			return err
		}
		nic = link.Attrs().Index
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	})
	var to, from net.HardwareAddr
	testkit.Do(t, n.balancer, func() error {
		link, err := netlink.LinkByName("eth0")
		to = link.Attrs().HardwareAddr
		return err
	})
	testkit.Do(t, n.client, func() error {
		link, err := netlink.LinkByName("c0")
		from = link.Attrs().HardwareAddr
		return err
	})
	fl.done.Go(func() {
		defer unix.Close(fd)
		fl.run(fd, nic, vip, to, from)
	})
	t.Cleanup(fl.end)
	return fl
}

func (fl *flood) run(fd, nic int, vip netip.AddrPort, to, from net.HardwareAddr) {
	rng := rand.New(rand.NewPCG(1, 2))
	s := shot{opens: true}
	s.Protocol, s.VIP, s.Port = service.TCP, vip.Addr(), vip.Port()
	s.ttl = 60
	at := &unix.SockaddrLinklayer{Ifindex: nic}
	for {
		select {
		case <-fl.stop:
			return
		default:
		}
		for range 64 {
			a := [16]byte{0x20, 0x01, 0x0d, 0xb8, 0xbb}
			binary.BigEndian.PutUint64(a[8:], rng.Uint64())
			source := netip.AddrFrom16(a)
			if vip.Addr().Is4() {
				source = netip.AddrFrom4([4]byte{byte(11 + rng.IntN(100)), byte(rng.Uint32()), byte(rng.Uint32()), byte(1 + rng.IntN(250))})
			}
			s.Client = netip.AddrPortFrom(source, uint16(1024+rng.IntN(60000)))
			frame := ethernet(to, from, s.ip(s.Client, vip, s.ttl, nil))
			if err := unix.Sendto(fd, frame, 0, at); err == nil {
				fl.sent.Add(1)
			}
		}
	}
}

func (fl *flood) end() {
	select {
	case <-fl.stop:
	default:
		close(fl.stop)
	}
	fl.done.Wait()
}

// tries is the outcome of some connections.
type tries struct {
	opened, failed int
	slowest        time.Duration
	total          time.Duration
	why            []string
}

func (r tries) String() string {
	mean := time.Duration(0)
	if r.opened > 0 {
		mean = (r.total / time.Duration(r.opened)).Round(time.Millisecond)
	}
	why := slices.Compact(slices.Sorted(slices.Values(r.why)))
	return fmt.Sprintf("%d opened, %d failed, %v on average, %v at most, %q", r.opened, r.failed, mean, r.slowest.Round(time.Millisecond), why)
}

// try opens connections, four at a time, each of which exchanges a message.
func (n realNet) try(t *testing.T, vip string, count int, timeout time.Duration) (r tries) {
	t.Helper()
	var all sync.WaitGroup
	var mu sync.Mutex
	turns := make(chan struct{}, 4)
	for range count {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			began := time.Now()
			err := n.tryOnce(t, vip, timeout)
			took := time.Since(began)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				r.failed++
				r.why = append(r.why, err.Error())
				return
			}
			r.opened++
			r.total += took
			r.slowest = max(r.slowest, took)
		})
	}
	all.Wait()
	return r
}

func (n realNet) tryOnce(t *testing.T, vip string, timeout time.Duration) error {
	c, err := dialIn(t, n.client, vip, timeout)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, "hello"); err != nil {
		return err
	}
	buf := make([]byte, 5)
	if _, err := io.ReadFull(c, buf); err != nil {
		return err
	}
	if string(buf) != "hello" {
		return errors.New("another answer")
	}
	return nil
}

// undefended gives a server a short queue for opening connections, no cookies of its own,
// and no memory of previous clients.
func undefended(t *testing.T, server *netns.NS) {
	t.Helper()
	testkit.Do(t, server, func() error {
		return errors.Join(netns.WriteSysctl("net.ipv4.tcp_syncookies", "0"), netns.WriteSysctl("net.ipv4.tcp_max_syn_backlog", "128"),
			netns.WriteSysctl("net.ipv4.tcp_synack_retries", "1"), netns.WriteSysctl("net.ipv4.tcp_no_metrics_save", "1"))
	})
}

// In a flood of SYNs with forged sources real clients connect if the frontend is
// protected, with every forwarding mode. Without protection the servers' queues are full
// of connections that are never established, and almost no client connects.
func TestSYNFloodWithRealClients(t *testing.T) {
	const connections = 20
	for _, method := range []service.Method{service.NAT, service.FullNAT, service.DR} {
		for _, v6 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, v6 %v", method, v6), func(t *testing.T) {
				var off, on tries
				for try := 0; try < 3 && off.failed < connections/4 && on.failed == 0; try++ { // a starved flood harms nobody
					off, on = floodedTries(t, method, v6, connections)
				}
				if on.failed > 0 || off.failed < connections/4 {
					t.Errorf("protected: %v; not protected: %v", on, off)
				}
			})
		}
	}
}

// floodedTries opens connections during a SYN flood, without protection and with it.
func floodedTries(t *testing.T, method service.Method, v6 bool, connections int) (off, on tries) {
	results := map[service.SYNProtection]tries{}
	for _, protection := range []service.SYNProtection{service.SYNOff, service.SYNAuto} {
		t.Run(string(protection), func(t *testing.T) {
			n := newRealNet(t)
			haveVIPs(t, n)
			toAnyone(t, n)
			undefended(t, n.server)
			d := openReal(t, n, func(c *Config) { c.SYNThreshold = 1000 })
			f, listen := realFrontend(method, v6)
			f.SYNProtection = protection
			upsert(t, d, f)
			echoTCP(t, n.server, listen, "")
			vip := netip.AddrPortFrom(f.VIP, f.Port)
			if calm := n.try(t, vip.String(), 1, patience); calm.failed > 0 {
				t.Fatalf("before the flood: %v", calm)
			}
			fl := n.flood(t, vip)
			testkit.Eventually(t, patience, func() error {
				if fl.sent.Load() < 20_000 {
					return errors.New("the flood has not begun")
				}
				if protection == service.SYNAuto && !synCountsOf(t, d, f.Key).Guarded {
					return errors.New("nobody has noticed")
				}
				return nil
			})
			timeout := patience
			if protection == service.SYNOff {
				timeout = 2 * time.Second
			}
			r := n.try(t, vip.String(), connections, timeout)
			results[protection] = r
			t.Logf("%v; %d SYNs were forged; %+v", r, fl.sent.Load(), synCountsOf(t, d, f.Key))
		})
	}
	return results[service.SYNOff], results[service.SYNAuto]
}

// A client behind a NAT router that drops what its connection tracking calls invalid
// answers a challenge like any other.
func TestChallengesPassConnectionTracking(t *testing.T) {
	n := newRealNet(t)
	haveVIPs(t, n)
	d := openReal(t, n, nil)
	f, listen := realFrontend(service.DR, false)
	upsert(t, d, f)
	putUnderPressure(t, d, f.Key)
	echoTCP(t, n.server, listen, "")
	inner := behindRouter(t, n)
	behind := realNet{client: inner, balancer: n.balancer, server: n.server}
	r := behind.try(t, "10.1.1.1:80", 10, patience)
	t.Logf("%v, %+v", r, synCountsOf(t, d, f.Key))
	if r.failed > 0 {
		t.Errorf("%v", r)
	}
	if got := synCountsOf(t, d, f.Key); got.ChallengesAnswered == 0 {
		t.Errorf("counted %+v", got)
	}
}

// behindRouter makes the client a router for a host behind it, which the others know only
// by the router's address. It forwards nothing that its connection tracking calls
// invalid.
func behindRouter(t *testing.T, n realNet) *netns.NS {
	t.Helper()
	inner := testkit.NetNS(t)
	testkit.Do(t, n.client, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "r0"
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "i0", PeerNamespace: netlink.NsFd(inner.FD())}); err != nil {
			return err
		}
		address(t, "r0", "192.168.9.1/24")
		if err := netns.WriteSysctl("net.ipv4.ip_forward", "1"); err != nil {
			return err
		}
		rules := exec.CommandContext(t.Context(), "nft", "-f", "-")
		rules.Stdin = strings.NewReader(`
			table ip router {
				chain forward { type filter hook forward priority 0; ct state invalid drop; }
				chain input { type filter hook input priority 0; ct state invalid drop; }
				chain out { type nat hook postrouting priority 100; oifname "c0" masquerade; }
			}`)
		if out, err := rules.CombinedOutput(); err != nil {
			return fmt.Errorf("nft: %w: %s", err, out)
		}
		return nil
	})
	testkit.Do(t, inner, func() error {
		nic := address(t, "i0", "192.168.9.2/24")
		return netlink.RouteAdd(&netlink.Route{LinkIndex: nic, Gw: net.ParseIP("192.168.9.1")})
	})
	return inner
}
