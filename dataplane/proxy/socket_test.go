package proxy

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/features"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/testkit/refusals"
)

// patience is how long a test waits for an expected event.
const patience = 20 * time.Second

// socket is a kernel socket, with everything that Go's net would hide.
type socket struct {
	t      testing.TB
	fd     int
	family int
}

func newSocket(t testing.TB, family, kind int) socket {
	t.Helper()
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	limit := unix.NsecToTimeval(int64(patience))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		t.Fatal(err)
	}
	return socket{t, fd, family}
}

// sockaddr returns an address in the form for a socket of this family: IPv4 mapped into
// IPv6 if necessary.
func (s socket) sockaddr(a netip.AddrPort) unix.Sockaddr {
	if s.family == unix.AF_INET {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

func fromSockaddr(s unix.Sockaddr) netip.AddrPort {
	switch s := s.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(s.Addr), uint16(s.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(s.Addr).Unmap(), uint16(s.Port))
	}
	return netip.AddrPort{}
}

func (s socket) connect(to netip.AddrPort) error { return unix.Connect(s.fd, s.sockaddr(to)) }

func (s socket) sendTo(to netip.AddrPort) error {
	return unix.Sendto(s.fd, []byte("?"), 0, s.sockaddr(to))
}

// noTarget is the error for a client of a service without endpoints.
func noTarget() error {
	if refusals.Without(features.RefusedErrno) {
		return unix.EPERM
	}
	return unix.ECONNREFUSED
}

func (s socket) peer() netip.AddrPort {
	s.t.Helper()
	a, err := unix.Getpeername(s.fd)
	if err != nil {
		s.t.Fatal(err)
	}
	return fromSockaddr(a)
}

// receive reads a server's name, and its address as reported by the kernel.
func (s socket) receive() (name string, from netip.AddrPort) {
	s.t.Helper()
	b := make([]byte, 64)
	n, a, err := unix.Recvfrom(s.fd, b, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(b[:n]), fromSockaddr(a)
}

// ways are the kinds of sockets that can connect to a service of each family.
var ways = []struct {
	name           string
	family         int
	service, other string
	server         string
}{
	{"IPv4", unix.AF_INET, "10.96.0.1:80", "10.96.0.2:80", "127.1.0.1:0"},
	{"IPv4-mapped", unix.AF_INET6, "10.96.0.1:80", "10.96.0.2:80", "127.1.0.1:0"},
	{"IPv6", unix.AF_INET6, "[fd00:10:96::1]:80", "[fd00:10:96::2]:80", "[::1]:0"},
}

func TestTCPSocketReachesTargetAndKnowsService(t *testing.T) {
	d := open(t, config(t))
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			k := key(w.service, service.TCP)
			apply(t, d, frontend(k, serveTCP(t, w.server, w.name)))
			s := newSocket(t, w.family, unix.SOCK_STREAM)
			to := netip.MustParseAddrPort(w.service)
			if err := s.connect(to); err != nil {
				t.Fatal(err)
			}
			if name, _ := s.receive(); name != w.name {
				t.Errorf("%q answered", name)
			}
			if peer := s.peer(); peer != to && !refusals.Without(features.PeerName) {
				t.Errorf("the peer's name is %s", peer)
			}
		})
	}
}

func TestConnectedUDPSocket(t *testing.T) {
	d := open(t, config(t))
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			apply(t, d, frontend(key(w.service, service.UDP), serveUDP(t, w.server, w.name)))
			s := newSocket(t, w.family, unix.SOCK_DGRAM)
			to := netip.MustParseAddrPort(w.service)
			if err := s.connect(to); err != nil {
				t.Fatal(err)
			}
			if _, err := unix.Write(s.fd, []byte("?")); err != nil {
				t.Fatal(err)
			}
			if name, from := s.receive(); name != w.name || from != to {
				t.Errorf("%q answered from %s", name, from)
			}
			if peer := s.peer(); peer != to && !refusals.Without(features.PeerName) {
				t.Errorf("the peer's name is %s", peer)
			}
		})
	}
}

func TestUnconnectedUDPSocketTalksToSeveral(t *testing.T) {
	d := open(t, config(t))
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			apply(t, d,
				frontend(key(w.service, service.UDP), serveUDP(t, w.server, "one")),
				frontend(key(w.other, service.UDP), serveUDP(t, w.server, "two")))
			direct := serveUDP(t, w.server, "direct")
			s := newSocket(t, w.family, unix.SOCK_DGRAM)
			for range 2 {
				for name, to := range map[string]netip.AddrPort{
					"one": netip.MustParseAddrPort(w.service), "two": netip.MustParseAddrPort(w.other), "direct": direct,
				} {
					if err := s.sendTo(to); err != nil {
						t.Fatal(err)
					}
					if got, from := s.receive(); got != name || from != to {
						t.Errorf("%s: %q answered from %s", name, got, from)
					}
				}
			}
		})
	}
}

func TestUnconnectedUDPSocketKeepsItsTarget(t *testing.T) {
	d := open(t, config(t))
	k := key("10.96.0.1:53", service.UDP)
	at := []netip.AddrPort{
		serveUDP(t, "127.1.0.1:7001", "one"), serveUDP(t, "127.1.0.2:7001", "two"), serveUDP(t, "127.1.0.3:7001", "three"),
	}
	apply(t, d, frontend(k, at...))
	ask := func(s socket) string {
		t.Helper()
		if err := s.sendTo(netip.AddrPortFrom(k.Addr, k.Port)); err != nil {
			t.Fatal(err)
		}
		name, _ := s.receive()
		return name
	}
	s := newSocket(t, unix.AF_INET, unix.SOCK_DGRAM)
	first := ask(s)
	for range 20 {
		if name := ask(s); name != first {
			t.Fatalf("%s answered, then %s", first, name)
		}
	}
	seen := map[string]bool{}
	for range 100 {
		seen[ask(newSocket(t, unix.AF_INET, unix.SOCK_DGRAM))] = true
	}
	if len(seen) != len(at) {
		t.Errorf("other sockets met only %v", seen)
	}
	var rest []netip.AddrPort
	for i, name := range []string{"one", "two", "three"} {
		if name != first {
			rest = append(rest, at[i])
		}
	}
	apply(t, d, frontend(k, rest...))
	if name := ask(s); name == first {
		t.Errorf("%s still answers, though it is no target", name)
	}
}

func TestNoTargets(t *testing.T) {
	d := open(t, config(t))
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			to := netip.MustParseAddrPort(w.service)
			for _, protocol := range []service.Protocol{service.TCP, service.UDP} {
				apply(t, d, proxy.Frontend{Key: key(w.service, protocol)})
			}
			if err := newSocket(t, w.family, unix.SOCK_STREAM).connect(to); !errors.Is(err, noTarget()) {
				t.Errorf("TCP: connect: %v", err)
			}
			if err := newSocket(t, w.family, unix.SOCK_DGRAM).connect(to); !errors.Is(err, noTarget()) {
				t.Errorf("UDP: connect: %v", err)
			}
			if err := newSocket(t, w.family, unix.SOCK_DGRAM).sendTo(to); !errors.Is(err, noTarget()) {
				t.Errorf("UDP: sendto: %v", err)
			}
		})
	}
}

// What is left to the packet programs goes to the service's own address: here to a host
// that has it.
func TestLeftToPackets(t *testing.T) {
	d := open(t, config(t))
	target := serveTCP(t, "127.1.0.1:0", "target")
	addAddress(t, "192.0.2.9")
	own := serveTCP(t, "192.0.2.9:0", "own")
	k := proxy.Key{Addr: own.Addr(), Port: own.Port(), Protocol: service.TCP}
	ranged, closed, dropped := frontend(k, target), frontend(k, target), proxy.Frontend{Key: k}
	ranged.Allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	closed.Closed = true
	dropped.Inside.Empty = proxy.Dropped
	for what, f := range map[string]proxy.Frontend{"ranges": ranged, "closed": closed, "dropped": dropped} {
		apply(t, d, f)
		if name := dial(t, own); name != "own" {
			t.Errorf("%s: %s answered", what, name)
		}
	}
	apply(t, d, frontend(k, target))
	if name := dial(t, own); name != "target" {
		t.Errorf("after all: %s answered", name)
	}
}

// dial connects and returns who answers.
func dial(t testing.TB, to netip.AddrPort) string {
	t.Helper()
	name, err := tryDial(to)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func tryDial(to netip.AddrPort) (string, error) {
	c, err := net.DialTimeout("tcp", to.String(), patience)
	if err != nil {
		return "", err
	}
	defer c.Close()
	b := make([]byte, 64)
	c.SetReadDeadline(time.Now().Add(patience))
	n, err := c.Read(b)
	return string(b[:n]), err
}

func TestNodePorts(t *testing.T) {
	d := open(t, config(t))
	at4, at6 := serveTCP(t, "127.1.0.1:0", "four"), serveTCP(t, "[::1]:0", "six")
	apply(t, d, frontend(key("0.0.0.0:30080", service.TCP), at4), frontend(key("[::]:30080", service.TCP), at6))
	for _, to := range []string{"127.0.0.1:30080", "127.3.2.1:30080", "0.0.0.0:30080"} {
		if name := dial(t, netip.MustParseAddrPort(to)); name != "four" {
			t.Errorf("%s: %s answered", to, name)
		}
	}
	if name := dial(t, netip.MustParseAddrPort("[::1]:30080")); name != "six" {
		t.Errorf("::1: %s answered", name)
	}
	node4, node6 := netip.MustParseAddrPort("192.0.2.7:30080"), netip.MustParseAddrPort("[2001:db8::7]:30080")
	if _, err := net.DialTimeout("tcp", node4.String(), 100*time.Millisecond); err == nil {
		t.Error("an address serves node ports that is none of the node's")
	}
	if err := d.SetNodeAddresses([]netip.Addr{node4.Addr(), node6.Addr()}); err != nil {
		t.Fatal(err)
	}
	if name := dial(t, node4); name != "four" {
		t.Errorf("%s: %s answered", node4, name)
	}
	if name := dial(t, node6); name != "six" {
		t.Errorf("%s: %s answered", node6, name)
	}
	if err := d.SetNodeAddresses([]netip.Addr{node6.Addr()}); err != nil {
		t.Fatal(err)
	}
	if _, err := net.DialTimeout("tcp", node4.String(), 100*time.Millisecond); err == nil {
		t.Error("an address serves node ports that is the node's no longer")
	}
}

// A pod's loopback is its own.
func TestNodePortsOnAPodsLoopback(t *testing.T) {
	d := open(t, config(t))
	apply(t, d, frontend(key("0.0.0.0:30080", service.TCP), serveTCP(t, "127.1.0.1:0", "node")))
	testkit.Do(t, testkit.NetNS(t), func() error {
		for _, to := range []string{"127.0.0.1:30080", "0.0.0.0:30080"} {
			s := newSocket(t, unix.AF_INET, unix.SOCK_STREAM)
			if err := s.connect(netip.MustParseAddrPort(to)); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("%s: %v", to, err)
			}
		}
		return nil
	})
}

func TestNodeOnly(t *testing.T) {
	c := config(t)
	c.NodeOnly = true
	d := open(t, c)
	k := key("10.96.0.1:80", service.UDP)
	apply(t, d, frontend(k, serveUDP(t, "127.1.0.1:0", "server")))
	to := netip.AddrPortFrom(k.Addr, k.Port)
	if err := newSocket(t, unix.AF_INET, unix.SOCK_DGRAM).connect(to); err != nil {
		t.Errorf("the node: %v", err)
	}
	testkit.Do(t, testkit.NetNS(t), func() error {
		if err := newSocket(t, unix.AF_INET, unix.SOCK_DGRAM).connect(to); !errors.Is(err, unix.ENETUNREACH) {
			t.Errorf("a pod with no route: %v", err)
		}
		return nil
	})
}

func TestSharesAmongTargets(t *testing.T) {
	d := open(t, config(t))
	at := []netip.AddrPort{
		serveTCP(t, "127.1.0.1:7001", "one"), serveTCP(t, "127.1.0.2:7001", "two"),
		serveTCP(t, "127.1.0.3:7001", "three"), serveTCP(t, "127.1.0.4:7001", "four"),
	}
	k := key("10.96.0.1:80", service.TCP)
	apply(t, d, frontend(k, at...))
	const dials = 2000
	shares := map[string]int{}
	for range dials {
		shares[dial(t, netip.AddrPortFrom(k.Addr, k.Port))]++
	}
	// Six standard deviations.
	for name, n := range shares {
		if n < dials/4-117 || n > dials/4+117 {
			t.Errorf("%s got %d of %d", name, n, dials)
		}
	}
	if len(shares) != len(at) {
		t.Errorf("shares: %v", shares)
	}
	for h, err := range d.List() {
		if err != nil || h.Connections != dials {
			t.Errorf("counted %d connections, %v", h.Connections, err)
		}
	}
}

func TestAffinity(t *testing.T) {
	d := open(t, config(t))
	var at []netip.AddrPort
	for _, ip := range []string{"127.1.0.1", "127.1.0.2", "127.1.0.3", "127.1.0.4", "127.1.0.5", "127.1.0.6", "127.1.0.7", "127.1.0.8"} {
		at = append(at, serveTCP(t, ip+":7001", ip))
	}
	f := frontend(key("10.96.0.1:80", service.TCP), at...)
	f.Affinity = time.Hour
	apply(t, d, f)
	to := netip.AddrPortFrom(f.Addr, f.Port)
	first := dial(t, to)
	for range 30 {
		if name := dial(t, to); name != first {
			t.Fatalf("%s answered, then %s", first, name)
		}
	}
	without := f
	without.Inside = choice()
	for _, a := range at {
		if a.Addr().String() != first {
			without.Inside.Targets = append(without.Inside.Targets, proxy.Target{Addr: a})
		}
	}
	apply(t, d, without)
	second := dial(t, to)
	if second == first {
		t.Fatalf("%s answers, though it is no target", first)
	}
	apply(t, d, f)
	if name := dial(t, to); name != second {
		t.Errorf("%s answered after %s had been chosen", name, second)
	}
}

// Sockets with a single request, however many, do not evict a client's affinity.
func TestAffinityOutlivesAFloodOfSenders(t *testing.T) {
	c := config(t)
	c.MaxAffinities, c.MaxSenders = leastLRU, leastLRU
	d := open(t, c)
	at := netip.MustParseAddrPort("127.1.0.1:53")
	affine, plain := frontend(key("10.96.0.1:53", service.UDP), at), frontend(key("10.96.0.2:53", service.UDP), at)
	affine.Affinity = time.Hour
	apply(t, d, affine, plain)
	connectUDP(t, unix.AF_INET, netip.AddrPortFrom(affine.Addr, affine.Port))
	for range 4 * leastLRU {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		s := socket{t, fd, unix.AF_INET}
		if err := errors.Join(s.sendTo(netip.AddrPortFrom(plain.Addr, plain.Port)), unix.Close(fd)); err != nil {
			t.Fatal(err)
		}
	}
	var k proxyAffinityKey
	var v proxyAffinity
	ids := []uint32{}
	all := d.kernel.Affinities.Iterate()
	for all.Next(&k, &v) {
		ids = append(ids, k.Id)
	}
	if want := []uint32{d.programmed[toKey(affine.Key)].Id}; all.Err() != nil || !slices.Equal(ids, want) {
		t.Errorf("affinities of %v, %v; want %v", ids, all.Err(), want)
	}
}

func TestAffinityEnds(t *testing.T) {
	d := open(t, config(t))
	at := []netip.AddrPort{serveTCP(t, "127.1.0.1:7001", "one"), serveTCP(t, "127.1.0.2:7001", "two")}
	f := frontend(key("10.96.0.1:80", service.TCP), at...)
	f.Affinity = time.Second
	apply(t, d, f)
	to := netip.AddrPortFrom(f.Addr, f.Port)
	first := dial(t, to)
	testkit.Eventually(t, patience, func() error {
		time.Sleep(1100 * time.Millisecond)
		if dial(t, to) == first {
			return errors.New("the client still goes to the same target")
		}
		return nil
	})
}

// A server that connects to its own service may reach itself.
func TestHairpin(t *testing.T) {
	d := open(t, config(t))
	k := key("10.96.0.1:80", service.TCP)
	at := netip.MustParseAddrPort("127.1.0.1:7001")
	apply(t, d, frontend(k, at))
	testkit.Do(t, testkit.NetNS(t), func() error {
		l, err := net.Listen("tcp", at.String())
		if err != nil {
			return err
		}
		defer l.Close()
		s := newSocket(t, unix.AF_INET, unix.SOCK_STREAM)
		if err := s.connect(netip.AddrPortFrom(k.Addr, k.Port)); err != nil {
			return err
		}
		c, err := l.Accept()
		if err != nil {
			return err
		}
		return c.Close()
	})
}

// A socket that is no longer connected receives from others, with their own addresses.
func TestConnectedNoMore(t *testing.T) {
	d := open(t, config(t))
	k := key("10.96.0.1:80", service.UDP)
	apply(t, d, frontend(k, serveUDP(t, "127.1.0.1:0", "server")))
	other := serveUDP(t, "127.1.0.2:0", "other")
	s := newSocket(t, unix.AF_INET, unix.SOCK_DGRAM)
	if err := s.connect(netip.AddrPortFrom(k.Addr, k.Port)); err != nil {
		t.Fatal(err)
	}
	nobody := unix.RawSockaddr{Family: unix.AF_UNSPEC}
	if _, _, err := unix.Syscall(unix.SYS_CONNECT, uintptr(s.fd), uintptr(unsafe.Pointer(&nobody)), unsafe.Sizeof(nobody)); err != 0 {
		t.Fatal(err)
	}
	if err := s.sendTo(other); err != nil {
		t.Fatal(err)
	}
	if name, from := s.receive(); name != "other" || from != other {
		t.Errorf("%q answered from %s", name, from)
	}
}

// A socket that connects again, to a destination that is no service, has no service's
// address.
func TestConnectedAgainPastAService(t *testing.T) {
	d := open(t, config(t))
	at := serveUDP(t, "127.1.0.1:0", "server")
	k := key("10.96.0.1:80", service.UDP)
	apply(t, d, frontend(k, at))
	s := newSocket(t, unix.AF_INET, unix.SOCK_DGRAM)
	for _, to := range []netip.AddrPort{netip.AddrPortFrom(k.Addr, k.Port), at} {
		if err := s.connect(to); err != nil {
			t.Fatal(err)
		}
		if peer := s.peer(); peer != to && !refusals.Without(features.PeerName) {
			t.Errorf("connected to %s, the peer's name is %s", to, peer)
		}
	}
}
