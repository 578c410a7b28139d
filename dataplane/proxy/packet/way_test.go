package packet

import (
	"errors"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/netlist"
	"github.com/fairlead/fairlead/internal/sysctl"
	"github.com/fairlead/fairlead/internal/tc"
	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/testnet"
)

// TestTrafficPastAFirewall makes node A drop what its connection tracking calls invalid,
// as with kube-proxy.
func TestTrafficPastAFirewall(t *testing.T) {
	w := newWorld(t)
	testkit.DropInvalid(t, w.nodeA)
	families(t, func(t *testing.T, v6 family) {
		w.t = t
		w.traffic(v6)
		w.route(w.nodeA, "172.16.2.0/24", nodeBAddr, func(r *netlink.Route) { r.MTU, r.MTULock = 1300, true })
		w.expose(v6, "B", "B")
		w.wantFragmented(w.client, v6.at(clusterIP, 80))
		w.wantFragmented(w.nodeA, v6.at(clusterIP, 80))
		w.route(w.nodeA, "172.16.2.0/24", nodeBAddr)
	})
}

// TestTrafficWithoutOffloads makes the kernel split bundles and fill in checksums before
// and after the programs.
func TestTrafficWithoutOffloads(t *testing.T) {
	w := newWorld(t)
	w.dropOffloads(true)
	families(t, func(t *testing.T, v6 family) {
		w.t = t
		w.traffic(v6)
	})
}

// dropOffloads makes the kernel fill in checksums where packets leave node A and, if
// before is set, before they arrive there.
func (w *world) dropOffloads(before bool) {
	w.t.Helper()
	devices := map[*netns.NS][]string{w.nodeA: {"eth0", "pod0", "pod1"}}
	if before {
		maps.Copy(devices, map[*netns.NS][]string{
			w.router: {"a", "cli"}, w.client: {"eth0"}, w.podA: {"eth0"}, w.podB: {"eth0"}, w.podC: {"eth0"},
		})
	}
	for ns, names := range devices {
		for _, d := range names {
			w.do(ns, func() error { return testnet.Offload(d, unix.ETHTOOL_STXCSUM, 0) })
		}
	}
}

// bridged puts the pods of node A behind one bridge, where they reach each other without
// their node.
func bridged(w *world) {
	w.do(w.nodeA, func() error {
		if err := testnet.Bridge("cni0"); err != nil {
			return err
		}
		for _, port := range []string{"pod0", "pod1"} {
			l, err := netlink.LinkByName(port)
			if err != nil {
				return err
			}
			addrs, err := netlist.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(l, netlink.FAMILY_ALL) })
			if err != nil {
				return err
			}
			for _, a := range addrs {
				if err := netlink.AddrDel(l, &a); err != nil {
					return err
				}
			}
		}
		return errors.Join(
			testnet.Enslave("pod0", "cni0"), testnet.Enslave("pod1", "cni0"), address("cni0", podAAddr.Prev()), address("cni0", podCAddr.Prev()),
		)
	})
	w.direct(w.podA, "eth0", podCAddr, 0)
	w.direct(w.podC, "eth0", podAAddr, 0)
}

// TestTrafficBehindABridge: replies go from port to port, with and without passing the
// node's firewall.
func TestTrafficBehindABridge(t *testing.T) {
	for _, seen := range []string{"0", "1"} {
		t.Run("firewall sees it: "+seen, func(t *testing.T) {
			w := buildWorld(t, tc.Open, bridged, func(w *world) {
				w.do(w.nodeA, func() error {
					return errors.Join(netns.WriteSysctl("net.bridge.bridge-nf-call-iptables", seen), netns.WriteSysctl("net.bridge.bridge-nf-call-ip6tables", seen))
				})
				testkit.DropInvalid(t, w.nodeA)
				w.dropForged(w.nodeA)
			})
			families(t, func(t *testing.T, v6 family) {
				w.t = t
				gateway := podAAddr.Prev()
				if v6 {
					gateway = podCAddr.Prev() // the kernel lists the newest first
				}
				w.expose(v6, "A", "A")
				for _, at := range []netip.AddrPort{v6.at(clusterIP, 80), v6.at(nodeAAddr, 30080)} {
					w.want(w.client, at, "A", v6.of(clientAddr), true)
					w.want(w.podC, at, "A", v6.of(podCAddr), true)
					w.wantDatagram(w.podC, at, 5000, "A", v6.of(podCAddr))
					w.want(w.podA, at, "A", v6.of(gateway), true)
				}
				w.want(w.nodeA, v6.at(clusterIP, 80), "A", v6.of(nodeAAddr), true)
				w.wantDatagram(w.nodeA, v6.at(clusterIP, 80), 10, "A", v6.of(nodeAAddr))
				w.expose(v6, "B", "B")
				w.want(w.podC, v6.at(clusterIP, 80), "B", v6.of(podCAddr), true)
			})
		})
	}
}

// tunneled makes the nodes reach each other's pods through a device without Ethernet: a
// TUN device each, joined here.
func tunneled(w *world) {
	a, b := w.tun(w.nodeA, ip("172.31.0.1")), w.tun(w.nodeB, ip("172.31.0.2"))
	for _, way := range [][2]*os.File{{a, b}, {b, a}} {
		go func() {
			buf := make([]byte, 1<<16)
			for {
				n, err := way[0].Read(buf)
				if err != nil {
					return
				}
				way[1].Write(buf[:n])
			}
		}()
	}
	for ns, pods := range map[*netns.NS][]netip.Addr{w.nodeA: {podBAddr}, w.nodeB: {podAAddr, podCAddr}} {
		for _, pod := range pods {
			w.direct(ns, "tun0", pod, 0)
		}
	}
}

func (w *world) tun(ns *netns.NS, addr netip.Addr) (tun *os.File) {
	w.t.Helper()
	w.do(ns, func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		request, err := unix.NewIfreq("tun0")
		if err != nil {
			return err
		}
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
			return err
		}
		tun = os.NewFile(uintptr(fd), "tun0")
		return address("tun0", addr)
	})
	w.t.Cleanup(func() { tun.Close() })
	return tun
}

// TestTrafficThroughATunnel has another node's pods behind a device without Ethernet, and
// clients on both sides.
func TestTrafficThroughATunnel(t *testing.T) {
	w := buildWorld(t, tc.Open, tunneled)
	testkit.DropInvalid(t, w.nodeA)
	mask := ip("172.31.0.1")
	families(t, func(t *testing.T, v6 family) {
		w.t = t
		w.expose(v6, "B", "B")
		w.want(w.client, v6.at(nodeAAddr, 30080), "B", v6.of(mask), true)
		w.wantDatagram(w.client, v6.at(nodeAAddr, 30080), 5000, "B", v6.of(mask))
		w.want(w.podC, v6.at(clusterIP, 80), "B", v6.of(podCAddr), true)
		w.want(w.nodeA, v6.at(clusterIP, 80), "B", v6.of(nodeAAddr), true)
		w.route(w.nodeB, "10.96.0.0/24", nodeAAddr, func(r *netlink.Route) { r.Gw = nil; r.LinkIndex = w.index(w.nodeB, "tun0") })
		w.expose(v6, "A", "A")
		w.direct(w.nodeA, "tun0", podBAddr, 1300)
		w.want(w.podB, v6.at(clusterIP, 80), "A", v6.of(podBAddr), true)
		w.expose(v6, "B", "B") // to itself, through node A
		w.want(w.podB, v6.at(clusterIP, 80), "B", v6.of(mask), true)
		w.expose(v6, "", "")
		if _, err := w.dial(w.podB, "tcp", v6.at(clusterIP, 80)); !errors.Is(err, unix.ECONNREFUSED) {
			w.t.Errorf("connecting gave %v, want it refused", err)
		}
		w.wantUnreachable(w.podB, v6.at(clusterIP, 80))
	})
}

func (w *world) index(ns *netns.NS, device string) (index int) {
	w.t.Helper()
	w.do(ns, func() error {
		l, err := netlink.LinkByName(device)
		if err == nil {
			index = l.Attrs().Index
		}
		return err
	})
	return index
}

// TestStrictSources has a node that accepts packets only from the device that leads to
// their source: by rp_filter, and by a rule like Calico's, which also applies to IPv6.
// The node's settings stay unchanged.
func TestStrictSources(t *testing.T) {
	w := newWorld(t)
	w.do(w.nodeA, func() error { return netns.WriteSysctl("net.ipv4.conf.all.rp_filter", "1") })
	w.dropForged(w.nodeA)
	if err := w.half.worker.Do(w.half.reconcile); err != nil {
		t.Fatal(err)
	}
	families(t, func(t *testing.T, v6 family) {
		w.t = t
		w.traffic(v6)
	})
	for device, want := range map[string]string{"all": "1", "eth0": "0", "pod0": "0", "pod1": "0"} {
		w.do(w.nodeA, func() error {
			if got := sysctl.Read("ipv4/conf/" + device + "/rp_filter"); got != want {
				t.Errorf("rp_filter of %s is %s, want %s as before", device, got, want)
			}
			return nil
		})
	}
}

// dropForged makes a namespace drop what arrives on another device than that to its
// source.
func (w *world) dropForged(ns *netns.NS) {
	w.t.Helper()
	c, err := nftables.New(nftables.WithNetNSFd(ns.FD()))
	if err != nil {
		w.t.Fatal(err)
	}
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "strict"})
	chain := c.AddChain(&nftables.Chain{
		Table: table, Name: "raw", Hooknum: nftables.ChainHookPrerouting, Type: nftables.ChainTypeFilter, Priority: nftables.ChainPriorityRaw,
	})
	global := []expr.Any{ // neighbors use link-local addresses
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte{unix.IPPROTO_ICMPV6}},
	}
	c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: append(global,
		&expr.Fib{Register: 1, ResultOIF: true, FlagSADDR: true, FlagIIF: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: make([]byte, 4)},
		&expr.Meta{Key: expr.MetaKeyIIFTYPE, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint16(unix.ARPHRD_ETHER)},
		&expr.Verdict{Kind: expr.VerdictDrop},
	)})
	if err := c.Flush(); err != nil {
		w.t.Fatal(err)
	}
}

// TestPathMTU narrows the path after the node, one direction at a time: large segments
// pass only if their sender is informed.
func TestPathMTU(t *testing.T) {
	const narrow = 1300
	mtu := func(r *netlink.Route) { r.MTU, r.MTULock = narrow, true } // else IPv4 does not forward by it
	inWorld(t, func(w *world, v6 family) {
		at := v6.at(clusterIP, 80)
		for _, tc := range []struct {
			name   string
			narrow func()
			inside bool // clients inside are affected, too
		}{
			{"toward the client", func() { w.direct(w.router, "cli", clientAddr, narrow) }, false},
			{"toward the pod", func() { w.direct(w.nodeA, "pod0", podAAddr, narrow) }, true},
			{"toward the other node", func() { w.route(w.nodeA, "172.16.2.0/24", nodeBAddr, mtu) }, true},
			{"behind the other node", func() { w.direct(w.nodeB, "pod0", podBAddr, narrow) }, true},
		} {
			w.t.Run(tc.name, func(t *testing.T) {
				tc.narrow()
				w := *w
				w.t = t
				w.expose(v6, "A", "A")
				w.wantBodies(w.browser(w.client), at)
				if tc.inside {
					w.wantBodies(w.browser(w.podC), at)
					w.wantBodies(w.browser(w.nodeA), at)
				}
				w.expose(v6, "B", "B")
				w.wantBodies(w.browser(w.client), at)
				w.wantFragmented(w.client, at)
				if tc.inside {
					w.wantBodies(w.browser(w.podC), at)
					w.wantBodies(w.browser(w.nodeA), at)
					w.wantFragmented(w.nodeA, at)
				}
			})
		}
	})
}

// wantFragmented sends datagrams that may be fragmented in transit, with path MTU
// discovery disabled (in IPv6 they may not, so their sender fragments), and receives them
// back.
func (w *world) wantFragmented(ns *netns.NS, at netip.AddrPort) {
	w.t.Helper()
	conn, err := w.dial(ns, "udp", at)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	raw, err := conn.(*net.UDPConn).SyscallConn()
	if err != nil {
		w.t.Fatal(err)
	}
	if at.Addr().Is4() {
		controlErr := raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_OMIT)
		})
		if err := errors.Join(controlErr, err); err != nil {
			w.t.Fatal(err)
		}
	}
	for _, size := range []int{1400, 1472, 5000} {
		if name, _ := w.datagram(conn, size); name != "B" {
			w.t.Errorf("%s answered, want B", name)
		}
	}
}

// direct routes an address and its counterpart to a device, with an MTU.
func (w *world) direct(ns *netns.NS, device string, to netip.Addr, mtu int) {
	w.t.Helper()
	w.do(ns, func() error {
		l, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		for _, a := range []netip.Addr{to, twin(to)} {
			r := &netlink.Route{LinkIndex: l.Attrs().Index, Dst: network(netip.PrefixFrom(a, a.BitLen())), MTU: mtu}
			if err := netlink.RouteReplace(r); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestRestartUnderTraffic closes the half during one transfer, and opens it again during
// the next.
func TestRestartUnderTraffic(t *testing.T) {
	for name, hook := range hooks {
		t.Run(name, func(t *testing.T) {
			w := buildWorld(t, hook)
			families(t, func(t *testing.T, v6 family) {
				w.t = t
				w.expose(v6, "A", "B")
				for _, ns := range []*netns.NS{w.client, w.podC} {
					w.restart(ns, v6.at(clusterIP, 80))
				}
			})
		})
	}
}

func (w *world) restart(ns *netns.NS, at netip.AddrPort) {
	w.t.Helper()
	c := w.browser(ns)
	conn, err := w.dial(ns, "udp", at)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	w.datagram(conn, 10)
	before, made := w.half.Describe().Attached, w.counted("flow-made")
	testnet.Around(w.t, c, at, bigBody, func() {
		if err := w.half.Close(); err != nil {
			w.t.Fatal(err)
		}
	}, w.state)
	testnet.Around(w.t, c, at, bigBody, w.openHalf, w.state)
	w.datagram(conn, 10)
	if after := w.half.Describe().Attached; !slices.Equal(before, after) {
		w.t.Errorf("attached at %v, before at %v", after, before)
	}
	if n := w.counted("flow-made") - made; n != 1 { // the browser's
		w.t.Errorf("%d flows were made, want the browser's alone", n)
	}
}
