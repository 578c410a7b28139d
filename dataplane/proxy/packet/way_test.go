package packet

import (
	"bytes"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"testing"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/testkit"
	"github.com/fairlead/fairlead/lab/netns"
)

// TestTrafficPastAFirewall has node A drop what its connection tracking calls
// invalid, as kube-proxy has it do.
func TestTrafficPastAFirewall(t *testing.T) {
	w := newWorld(t)
	testkit.DropInvalid(t, w.nodeA)
	families(t, func(t *testing.T, v6 family) {
		w.t = t
		w.traffic(v6)
	})
}

// TestTrafficWithoutOffloads has the kernel take bundles apart and fill in
// checksums before and behind the programs.
func TestTrafficWithoutOffloads(t *testing.T) {
	w := newWorld(t)
	for ns, devices := range map[*netns.NS][]string{w.nodeA: {"eth0", "pod0", "pod1"}, w.podC: {"eth0"}, w.router: {"a"}, w.podB: {"eth0"}} {
		for _, d := range devices {
			w.do(ns, func() error { return plainChecksums(d) })
		}
	}
	families(t, func(t *testing.T, v6 family) {
		w.t = t
		w.traffic(v6)
	})
}

// plainChecksums has a device be given whole packets with whole checksums
// (linux/ethtool.h).
func plainChecksums(device string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	data := [2]uint32{unix.ETHTOOL_STXCSUM, 0}
	req := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&data)}
	copy(req.name[:], device)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req))); errno != 0 {
		return errno
	}
	return nil
}

// TestStrictSources has a node that takes packets only where the way back to
// their source leads (rp_filter 1).
func TestStrictSources(t *testing.T) {
	w := newWorld(t)
	w.do(w.nodeA, func() error { return netns.WriteSysctl("net.ipv4.conf.all.rp_filter", "1") })
	if err := w.half.do(w.half.reconcile); err != nil {
		t.Fatal(err)
	}
	w.traffic(false)
}

// TestPathMTU narrows the way behind the node, in one direction after the
// other: large segments pass only if who sends them is told.
func TestPathMTU(t *testing.T) {
	const narrow = 1300
	mtu := func(r *netlink.Route) { r.MTU = narrow }
	inWorld(t, func(w *world, v6 family) {
		at := v6.at(clusterIP, 80)
		for _, tc := range []struct {
			name   string
			narrow func()
			inside bool // there are clients inside who meet it, too
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
				if tc.inside {
					w.wantBodies(w.browser(w.podC), at)
					w.wantBodies(w.browser(w.nodeA), at)
				}
			})
		}
	})
}

// direct routes an address and its twin straight to a device, with an MTU.
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

// TestRestartUnderTraffic closes the half while a body comes, and opens it
// again while the next one goes.
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
	w.around(c, at, func() {
		if err := w.half.Close(); err != nil {
			w.t.Fatal(err)
		}
	})
	w.around(c, at, func() { w.openHalf() })
	w.datagram(conn, 10)
	if after := w.half.Describe().Attached; !slices.Equal(before, after) {
		w.t.Errorf("attached at %v, before at %v", after, before)
	}
	if n := w.counted("flow-made") - made; n != 1 { // the browser's
		w.t.Errorf("%d flows were made, want the browser's alone", n)
	}
}

// around fetches a large body and does something when half of it is there.
func (w *world) around(c *http.Client, at netip.AddrPort, f func()) {
	w.t.Helper()
	resp, err := c.Get("http://" + at.String() + "/big")
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	first := make([]byte, bigBody/2)
	if _, err := io.ReadFull(resp.Body, first); err != nil {
		w.t.Fatal(err)
	}
	f()
	rest, err := io.ReadAll(resp.Body)
	if err != nil || !bytes.Equal(append(first, rest...), body(bigBody)) {
		w.t.Fatalf("%d bytes, %v; want all %d", len(first)+len(rest), err, bigBody)
	}
}
