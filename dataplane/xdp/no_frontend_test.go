package xdp

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/entry"
	"github.com/fairlead/fairlead/internal/sysctl"
	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/testkit"
)

// judge runs frames of one kind: those that go to the kernel unmodified, and those that
// are dropped as not served.
func (n *testNet) judge(t *testing.T, d *DataPlane, want verdict, frames map[string][]byte) {
	t.Helper()
	for name, frame := range frames {
		before := d.Describe().Drops
		v, out := n.run(t, d, frame)
		if v != want || v == pass && !bytes.Equal(out, frame) {
			t.Errorf("%s: %v, want %v\n got %s\nwant %s", name, v, want, hex.Dump(out), hex.Dump(frame))
		}
		for reason, count := range d.Describe().Drops {
			if counted := count - before[reason]; counted != 0 != (want == drop && reason == "no-frontend") {
				t.Errorf("%s: drop reason %s counted %d", name, reason, counted)
			}
		}
	}
}

// notServed are frames to a VIP, but to none of its frontends, by family.
func notServed(t *testing.T) map[string][]byte {
	four := packet{src: clients[false], dst: "10.1.1.1:81", flags: "S", payload: 44}.bytes(t)
	six := packet{src: clients[true], dst: "[2001:db8:1::1]:81", flags: "S", payload: 44}.bytes(t)
	icmp6 := func(kind, hops byte) []byte { return edit(edit(six, 20, 58, hops), 14+40, kind) }
	return map[string][]byte{
		"another port":                 packet{src: clients[false], dst: "10.1.1.1:81"}.bytes(t),
		"another port, IPv6":           packet{src: clients[true], dst: "[2001:db8:1::1]:81"}.bytes(t),
		"port 0":                       packet{src: clients[false], dst: "10.1.1.1:0"}.bytes(t),
		"an option of a client's":      packet{src: clients[false], dst: "10.1.1.1:81", option: "10.9.9.9:9"}.bytes(t),
		"a header of a client's":       packet{src: clients[true], dst: "[2001:db8:1::1]:81", option: "[fd09::9]:9"}.bytes(t),
		"first fragment":               edit(four, 20, 0x20, 0),
		"IPv6 hop-by-hop":              extension(0, padOption(6))(six),
		"ICMP":                         edit(edit(four, 23, 1), 34, 13),
		"ICMPv6":                       icmp6(129, 64),
		"neighbor discovery from afar": icmp6(135, 254),
		"SCTP":                         edit(four, 23, 132),
		"protocol 0":                   edit(four, 23, 0),
		"TCP in a tag":                 tagged(four, 5),
	}
}

// Packets addressed to no VIP go to the kernel unmodified, and so do those that only the
// kernel can answer.
func TestUntouched(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	for _, v6 := range []bool{false, true} {
		both(t, d, frontend(service.DSRNAT, vips[v6], 0, servers[v6]))
	}
	four := packet{src: clients[false], dst: vips[false], flags: "S", payload: 40}.bytes(t)
	six := packet{src: clients[true], dst: vips[true], flags: "S", payload: 40}.bytes(t)
	solicitation := edit(edit(six, 20, 58, 255), 14+40, 135)
	untouched := map[string][]byte{
		"another address":          packet{src: clients[false], dst: "10.1.1.2:80"}.bytes(t),
		"own address":              packet{src: clients[false], dst: "172.16.0.2:80"}.bytes(t),
		"own address, IPv6":        packet{src: clients[true], dst: "[fd00::2]:80"}.bytes(t),
		"TTL 1":                    packet{src: clients[false], dst: vips[false], ttl: 1}.bytes(t),
		"hop limit 1":              packet{src: clients[true], dst: vips[true], ttl: 1}.bytes(t),
		"not served, TTL 1":        packet{src: clients[false], dst: "10.1.1.1:81", ttl: 1}.bytes(t),
		"not served, hop limit 1":  packet{src: clients[true], dst: "[2001:db8:1::1]:81", ttl: 1}.bytes(t),
		"a tag and nothing else":   tagged(four, 5)[:18],
		"broadcast":                edit(four, 0, 255, 255, 255, 255, 255, 255),
		"ARP":                      edit(four, 12, 8, 6),
		"neighbor solicitation":    solicitation,
		"neighbor advertisement":   edit(solicitation, 14+40, 136),
		"version 6 in IPv4":        edit(four, 14, 0x65),
		"version 4 in IPv6":        edit(six, 14, 0x45),
		"header length 4":          edit(four, 14, 0x44),
		"cut in the IPv4 header":   four[:14+19],
		"cut in the IPv6 header":   six[:14+39],
		"cut in the Ethernet type": edit(four[:14], 0, 2),
	}
	for name, frame := range notServed(t) {
		to := 14 + 16
		switch frame[12] {
		case 0x86:
			to = 14 + 24
		case 0x81:
			to = 18 + 16
		}
		untouched[name+", to another address"] = edit(frame, to+3, 9)
	}
	n.judge(t, d, pass, untouched)
}

// Packets addressed to a VIP but not served would loop.
func TestNotServed(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	n.judge(t, d, pass, notServed(t))
	var programmed []desired.Frontend
	for _, v6 := range []bool{false, true} {
		for _, protocol := range []service.Protocol{service.TCP, service.UDP} {
			f := frontend(service.DSRNAT, vips[v6], protocol, servers[v6])
			upsert(t, d, f)
			upsert(t, d, f)
			programmed = append(programmed, f)
		}
	}
	n.judge(t, d, drop, notServed(t))
	must(t, d.Close())
	d = n.open(t, config())
	n.judge(t, d, drop, notServed(t))
	for i, f := range programmed {
		if i%2 == 1 { // the VIP's last
			n.judge(t, d, drop, map[string][]byte{f.Key.String(): notServed(t)[map[bool]string{false: "ICMP", true: "ICMPv6"}[f.VIP.Is6()]]})
		}
		must(t, d.Delete(f.Key))
		must(t, d.Delete(f.Key))
	}
	n.judge(t, d, pass, notServed(t))
	if _, vips, err := d.readFrontends(); err != nil || len(vips) != 0 {
		t.Errorf("left: %v, %v", vips, err)
	}
}

// If a VIP becomes an address of this host, unserved packets are for the host.
func TestVIPOfThisHost(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	for _, v6 := range []bool{false, true} {
		for _, vip := range []string{vips[v6], netip.AddrPortFrom(netip.MustParseAddr(owns[v6]), 80).String()} {
			upsert(t, d, frontend(service.DSRNAT, vip, service.TCP, servers[v6]))
		}
	}
	ssh := map[string][]byte{
		"own address":       packet{src: clients[false], dst: "172.16.0.2:22"}.bytes(t),
		"own address, IPv6": packet{src: clients[true], dst: "[fd00::2]:22"}.bytes(t),
		"fragment of it":    edit(packet{src: clients[false], dst: "172.16.0.2:22"}.bytes(t), 20, 0x20, 0),
		"ping of it":        edit(packet{src: clients[false], dst: "172.16.0.2:22"}.bytes(t), 23, 1),
	}
	n.judge(t, d, pass, ssh)
	n.judge(t, d, drop, notServed(t))
	onLo := func(do func(netlink.Link, *netlink.Addr) error) {
		testkit.Do(t, n.balancer, func() error {
			lo, err := netlink.LinkByName("lo")
			must(t, err)
			for _, v6 := range []bool{false, true} {
				vip := netip.MustParseAddrPort(vips[v6]).Addr()
				addr, err := netlink.ParseAddr(netip.PrefixFrom(vip, vip.BitLen()).String())
				must(t, err)
				addr.Flags = unix.IFA_F_NODAD
				must(t, do(lo, addr))
			}
			return nil
		})
	}
	onLo(netlink.AddrAdd)
	testkit.Eventually(t, patience, func() error { // the kernel adds an IPv6 address with a delay
		if v, _ := n.run(t, d, notServed(t)["ICMPv6"]); v != pass {
			return fmt.Errorf("%s: %v", vips[true], v)
		}
		return nil
	})
	n.judge(t, d, pass, ssh)
	n.judge(t, d, pass, notServed(t))
	must(t, d.SetSources(netip.Addr{}, netip.Addr{}))
	n.judge(t, d, pass, ssh)
	onLo(netlink.AddrDel)
	n.judge(t, d, drop, notServed(t))
}

// An agent dies before it has written or removed the VIP's own entry.
func TestDeathWhileChangingTheVIPEntry(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	upsert(t, d, frontendBefore)
	vip := frontendBefore.VIP
	for name, damage := range map[string]func() error{
		"not yet written": func() error { return d.removeVIP(vip) },
		"not yet removed": func() error {
			return d.kernel.Frontends.Put(entry.ToKey(entry.Whole(netip.MustParseAddr("10.9.9.9"))), bpf.BalancerFrontend{})
		},
	} {
		must(t, damage())
		must(t, d.Close())
		d = n.open(t, config())
		_, vips, err := d.readFrontends()
		if _, has := vips[vip]; err != nil || len(vips) != 1 || !has {
			t.Errorf("%s: the successor has %v, %v", name, vips, err)
		}
		if got := listed(t, d); got != show(frontendBefore) {
			t.Errorf("%s: lists %s", name, got)
		}
	}
}

// loopNet is a node that routes a service prefix to its load balancer pod, whose default
// route is the node:
//
//	client c0 192.168.7.2 ── n0 node net0 172.16.0.1 ── eth0 balancer
type loopNet struct {
	testNet
	client *netns.NS
}

func newLoopNet(t *testing.T) loopNet {
	n := loopNet{*newNet(t), testkit.NetNS(t)}
	testkit.Do(t, n.outside, func() error { // the node
		for path, value := range map[string]string{
			"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1", "ipv4/conf/all/rp_filter": "0", "ipv4/conf/net0/rp_filter": "0",
		} {
			must(t, sysctl.Setting{Path: path, Value: value}.Set())
		}
		nic, err := netlink.LinkByName("net0")
		must(t, err)
		must(t, netlink.LinkSetHardwareAddr(nic, macGateway))
		index := address(t, "net0", "172.16.0.1/24", "fd00::1/64")
		for _, own := range owns {
			neighbor(t, uint32(index), own, macEth0)
		}
		for prefix, via := range map[string]string{"10.1.1.0/24": owns[false], "2001:db8:1::/64": owns[true]} {
			_, dst, _ := net.ParseCIDR(prefix)
			route(t, netlink.Route{LinkIndex: index, Dst: dst, Gw: net.ParseIP(via)})
		}
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "n0"
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "c0", PeerNamespace: netlink.NsFd(n.client.FD())})
	})
	testkit.Do(t, n.client, func() error {
		index := address(t, "c0", "192.168.7.2/24", "2001:db8:7::2/64")
		testkit.Do(t, n.outside, func() error { address(t, "n0", "192.168.7.1/24", "2001:db8:7::1/64"); return nil })
		for _, gw := range []string{"192.168.7.1", "2001:db8:7::1"} {
			route(t, netlink.Route{LinkIndex: index, Gw: net.ParseIP(gw)})
		}
		return nil
	})
	return n
}

// raw opens a socket whose packets start with the IP header.
func (n loopNet) raw(t *testing.T, domain int) (fd int) {
	t.Helper()
	testkit.Do(t, n.client, func() (err error) {
		fd, err = unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		return err
	})
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// toPod counts packets for a VIP that the node has sent to the pod, until none has
// arrived for a while or the maximum is reached.
func (w *wireEnd) toPod(t *testing.T, most int, quiet unix.Timeval) (seen int) {
	t.Helper()
	must(t, unix.SetsockoptTimeval(w.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &quiet))
	buf := make([]byte, 2048)
	for seen < most {
		size, from, err := unix.Recvfrom(w.fd, buf, 0)
		if err != nil {
			break
		}
		dst := dissect(buf[14:size]).dst
		if buf[12] == 8 && size >= 34 {
			dst = netip.AddrFrom4([4]byte(buf[30:34]))
		}
		vip := dst == netip.MustParseAddrPort(vips[false]).Addr() || dst == netip.MustParseAddrPort(vips[true]).Addr()
		if vip && from.(*unix.SockaddrLinklayer).Pkttype == unix.PACKET_OUTGOING {
			seen++
		}
	}
	return seen
}

// A ping, a closed port and a fragment to the VIP, through a real node and a real load
// balancer pod: each is seen once. Without the load balancer they loop until their TTL
// expires.
func TestNothingGoesInCircles(t *testing.T) {
	n := newLoopNet(t)
	d := n.open(t, config())
	fd4, fd6 := n.raw(t, unix.AF_INET), n.raw(t, unix.AF_INET6)
	four := packet{src: "192.168.7.2:40000", dst: vips[false], payload: 40}
	six := packet{src: "[2001:db8:7::2]:40000", dst: vips[true], payload: 40}
	closed4, closed6 := four, six
	closed4.dst, closed6.dst = "10.1.1.1:81", "[2001:db8:1::1]:81"
	probes := [][]byte{
		edit(four.bytes(t), 23, 1), edit(four.bytes(t), 20, 0x20, 0), closed4.bytes(t),
		edit(six.bytes(t), 20, 58), edit(six.bytes(t), 20, 44), closed6.bytes(t),
	}
	send := func() {
		t.Helper()
		for _, p := range probes {
			var err error
			if p[12] == 8 {
				err = unix.Sendto(fd4, p[14:], 0, &unix.SockaddrInet4{Addr: [4]byte(p[30:34])})
			} else {
				err = unix.Sendto(fd6, p[14:], 0, &unix.SockaddrInet6{Addr: [16]byte(p[38:54])})
			}
			must(t, err)
		}
	}
	const circles = 20 // of the 31 that a TTL of 64 lasts
	w := n.wireEnd(t)
	send()
	if seen := w.toPod(t, circles*len(probes), unix.Timeval{Sec: int64(patience.Seconds())}); seen < circles*len(probes) {
		t.Fatalf("with no frontend: %d packets seen of %d sent: this network has no circle to break", seen, len(probes))
	}
	w.toPod(t, 100*len(probes), unix.Timeval{Sec: 1}) // until their TTL has expired
	for _, v6 := range []bool{false, true} {
		both(t, d, frontend(service.Tunnel, vips[v6], 0, servers[v6]))
	}
	w = n.wireEnd(t)
	all := func() uint64 { // nobody sends such fragments otherwise
		drops := d.Describe().Drops
		return drops["no-frontend"] + drops["malformed"] + drops["fragment-lost"]
	}
	before := all()
	send()
	testkit.Eventually(t, patience, func() error {
		if dropped := all() - before; dropped < uint64(len(probes)) {
			return fmt.Errorf("%d dropped of %d", dropped, len(probes))
		}
		return nil
	})
	if seen := w.toPod(t, 1000, unix.Timeval{Usec: 1}); seen != len(probes) {
		t.Errorf("%d packets sent were seen %d times on their way to the pod", len(probes), seen)
	}
}
