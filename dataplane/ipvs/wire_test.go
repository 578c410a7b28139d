package ipvs

import (
	"net"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/pktgen"
	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/testkit"
)

// The network of the frames:
//
//	namespace clients     namespace balancer                                          namespace servers
//	  net0 ────────────── client0  10.9.0.1/24, fd09::1/64
//	                               default via 10.9.0.2, fd09::2
//	                      server0  172.16.1.254/24, fd10::fe/64 ───────────────────── net0
//	                               neighbors 172.16.1.1 to .12, fd10::1 to ::c
//
// Clients and servers are only raw frames: nothing answers there.
var own4, own6 = netip.MustParseAddr("172.16.1.254"), netip.MustParseAddr("fd10::fe")

var macGateway = [6]byte{2, 0, 0, 0, 0, 1}

// macOf is a server's MAC address, with the last byte of its IP address.
func macOf(server netip.Addr) [6]byte { return [6]byte{2, 0, 0, 0, 9, server.As16()[15]} }

const ethernetHeader = 14

type wire struct {
	balancer         *netns.NS
	clients, servers *tap
	in               net.HardwareAddr // the load balancer's, on the clients' side
	sentinel         []byte
}

// tap receives everything on one end of a veth.
type tap struct{ fd int }

func newWire(t *testing.T) *wire {
	t.Helper()
	w := &wire{balancer: testkit.NetNS(t)}
	outside := map[string]*tap{}
	for name, addrs := range map[string][]string{"client0": {"10.9.0.1/24", "fd09::1/64"}, "server0": {own4.String() + "/24", own6.String() + "/64"}} {
		ns := testkit.NetNS(t)
		testkit.Do(t, w.balancer, func() error { return connect(name, ns, addrs) })
		testkit.Do(t, ns, func() (err error) {
			outside[name], err = newTap(t)
			return err
		})
	}
	w.clients, w.servers = outside["client0"], outside["server0"]
	testkit.Do(t, w.balancer, func() error { return w.neighbors() })
	var err error
	w.sentinel, err = pktgen.Packet{From: netip.MustParseAddrPort("10.9.0.2:9"), To: netip.AddrPortFrom(sentinelTo, 9), Protocol: "udp"}.Frame()
	must(t, err)
	return w
}

// connect creates a veth between this namespace and net0 of another.
func connect(name string, to *netns.NS, addrs []string) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "net0", PeerNamespace: netlink.NsFd(to.FD())}); err != nil {
		return err
	}
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	for _, a := range addrs {
		addr, err := netlink.ParseAddr(a)
		if err != nil {
			return err
		}
		addr.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(link, addr); err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(link)
}

// sentinelTo receives a plainly routed packet after each one sent.
var sentinelTo = netip.MustParseAddr("172.16.1.200")

// neighbors are the load balancer's permanent neighbor entries.
func (w *wire) neighbors() error {
	client0, err := netlink.LinkByName("client0")
	if err != nil {
		return err
	}
	server0, err := netlink.LinkByName("server0")
	if err != nil {
		return err
	}
	w.in = client0.Attrs().HardwareAddr
	for _, gateway := range []string{"10.9.0.2", "fd09::2"} {
		if err := neighbor(client0, netip.MustParseAddr(gateway), macGateway); err != nil {
			return err
		}
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: client0.Attrs().Index, Gw: net.ParseIP(gateway)}); err != nil {
			return err
		}
	}
	all := []netip.Addr{sentinelTo}
	for i := range 12 {
		all = append(all, netip.AddrFrom4([4]byte{172, 16, 1, byte(i + 1)}), netip.AddrFrom16([16]byte{0xfd, 0x10, 15: byte(i + 1)}))
	}
	for _, a := range all {
		if err := neighbor(server0, a, macOf(a)); err != nil {
			return err
		}
	}
	return nil
}

func neighbor(link netlink.Link, a netip.Addr, mac [6]byte) error {
	return netlink.NeighAdd(&netlink.Neigh{LinkIndex: link.Attrs().Index, IP: a.AsSlice(), HardwareAddr: mac[:], State: netlink.NUD_PERMANENT})
}

// newTap opens net0 of the calling thread's namespace, which itself sends nothing.
func newTap(t *testing.T) (*tap, error) {
	if err := netns.WriteSysctl("net.ipv6.conf.all.disable_ipv6", "1"); err != nil {
		return nil, err
	}
	link, err := netlink.LinkByName("net0")
	if err != nil {
		return nil, err
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return nil, err
	}
	const all = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL&0xff<<8 // in network order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1); err != nil {
		return nil, err
	}
	// Longer than any machine is busy: a timeout is a failure.
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 30}); err != nil {
		return nil, err
	}
	return &tap{fd}, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Attrs().Index})
}

// send sends a frame as a client and returns the output to the servers, and back. A
// plainly routed frame follows it: the kernel preserves the order, so when that has
// arrived, all have.
func (w *wire) send(t *testing.T, frame []byte) (out, back []way) {
	t.Helper()
	for _, f := range [][]byte{frame, w.sentinel} {
		copy(f, w.in)
		_, err := unix.Write(w.clients.fd, f)
		must(t, err)
	}
	for {
		next, err := w.servers.read(0)
		if err != nil {
			t.Fatalf("the packet behind did not come: %v", err)
		}
		switch {
		case next.dst == sentinelTo:
			return out, w.clients.readAll(t)
		case next.dst.IsValid():
			out = append(out, next)
		}
	}
}

// read returns the next packet; the zero way for anything that is no IP packet of a flow.
func (p *tap) read(flags int) (w way, err error) {
	buffer := make([]byte, 2048)
	n, _, err := unix.Recvfrom(p.fd, buffer, flags)
	if err != nil {
		return w, err
	}
	w, _ = readWay(buffer[:n])
	return w, nil
}

func (p *tap) readAll(t *testing.T) (all []way) {
	t.Helper()
	for {
		w, err := p.read(unix.MSG_DONTWAIT)
		if err == unix.EAGAIN {
			return all
		}
		must(t, err)
		all = append(all, w)
	}
}

// way is a packet's destination information.
type way struct {
	mac      [6]byte
	src      netip.AddrPort // without the port in a tunnel
	dst      netip.Addr
	protocol service.Protocol
	port     uint16
	tunnel   service.Encapsulation
	inner    netip.Addr // destination of the inner packet
}

// readWay parses a frame. It returns false for protocols that services do not have.
func readWay(frame []byte) (w way, ok bool) {
	copy(w.mac[:], frame)
	var inner []byte
	packet := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.DecodeOptions{Lazy: true, NoCopy: true})
	var src, next = netip.Addr{}, layers.IPProtocol(0)
	switch ip := packet.NetworkLayer().(type) {
	case *layers.IPv4:
		src, w.dst, next, inner = addrOf(ip.SrcIP), addrOf(ip.DstIP), ip.Protocol, ip.Payload
	case *layers.IPv6:
		src, w.dst, next, inner = addrOf(ip.SrcIP), addrOf(ip.DstIP), ip.NextHeader, ip.Payload
	default:
		return way{}, false
	}
	var srcPort uint16
	switch next {
	case layers.IPProtocolIPv4, layers.IPProtocolIPv6:
		w.tunnel = service.IPIP
	case layers.IPProtocolTCP, layers.IPProtocolUDP, layers.IPProtocolSCTP:
		w.protocol = service.Protocol(next)
		srcPort, w.port = uint16(inner[0])<<8|uint16(inner[1]), uint16(inner[2])<<8|uint16(inner[3])
		if next == layers.IPProtocolUDP && w.port == service.DefaultGUEPort {
			w.tunnel, srcPort = service.GUE, 0
			inner = inner[8+4+4*int(inner[8]&31):] // UDP's header, GUE's and its options
		}
	default:
		return way{}, false
	}
	if w.tunnel != "" {
		w.protocol, w.port = 0, 0
		w.inner = addrOf(map[byte][]byte{4: inner[16:20], 6: inner[24:40]}[inner[0]>>4])
	}
	w.src = netip.AddrPortFrom(src, srcPort)
	return w, true
}

func addrOf(b []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(b)
	return a.Unmap()
}
