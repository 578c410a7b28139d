package cni

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/netlist"
	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/testkit"
)

// TestMacvlan checks that two pods of a node and a host of the segment reach each other
// over both families, and that everything is configured as the network specifies.
func TestMacvlan(t *testing.T) {
	r := newRig(t)
	one, two := testkit.NetNS(t), testkit.NetNS(t)
	first, err := Add(args(r.conf("science"), "one", one.Path()))
	must(t, err)
	second, err := Add(args(r.conf("science"), "two", two.Path()))
	must(t, err)
	i := first.Interfaces[0]
	if len(first.IPs) != 2 || i.Name != "net1" || i.Mtu != 1400 || i.Sandbox != one.Path() || first.DNS.Nameservers[0] != "10.9.0.1" || len(first.Routes) != 5 {
		t.Errorf("it says %+v", first)
	}
	reaches(t, one, two, hosts(second)...)
	reaches(t, two, one, hosts(first)...)
	reaches(t, one, r.lan, netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("fd09::1"))
	reaches(t, r.lan, one, hosts(first)...)
	for name, ns := range map[string]*netns.NS{"one": one, "two": two} {
		result := first
		if name == "two" {
			result = second
		}
		must(t, Check(args(with(t, r.conf("science"), result), name, ns.Path())))
		for range 2 {
			must(t, Del(args(r.conf("science"), name, ns.Path())))
		}
		if left := links(t, ns); len(left) > 0 {
			t.Errorf("%s has %q left", name, left)
		}
	}
	r.nothingLeft()
}

// TestHostDevice checks that each pod gets its own NIC and returns it.
func TestHostDevice(t *testing.T) {
	r := newRig(t)
	one, two, three := testkit.NetNS(t), testkit.NetNS(t), testkit.NetNS(t)
	first, err := Add(args(r.conf("whole"), "one", one.Path()))
	must(t, err)
	second, err := Add(args(r.conf("whole"), "two", two.Path()))
	must(t, err)
	reaches(t, one, two, hosts(second)...)
	reaches(t, two, one, hosts(first)...)
	_, err = Add(args(r.conf("whole"), "three", three.Path()))
	refusedWith(t, err, ErrNode, "nic1 free: attachment one.net1 has it", "nic2 free: attachment two.net1 has it")
	must(t, Status(args(r.conf("whole"), "", "")))
	must(t, Check(args(with(t, r.conf("whole"), first), "one", one.Path())))
	must(t, Del(args(r.conf("whole"), "one", one.Path())))
	_, err = Add(args(r.conf("whole"), "three", three.Path()))
	must(t, err)
	must(t, Del(args(r.conf("whole"), "two", two.Path())))
	must(t, Del(args(r.conf("whole"), "three", three.Path())))
	r.nothingLeft()
}

// TestGuaranteedHostDevice checks that ADD chooses a NIC whose own link carries the
// guarantee, names each one that does not, and leaves nothing behind.
func TestGuaranteedHostDevice(t *testing.T) {
	r := newRig(t)
	whole := networks()[1]
	whole.Devices = []string{"upper0", "nic1", "nic2"}
	below, err := netlink.LinkByName("eth1")
	must(t, err)
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.ParentIndex = "upper0", below.Attrs().Index
	must(t, netlink.LinkAdd(&netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_PRIVATE}))
	t.Cleanup(func() { must(t, netlink.LinkDel(link(t, "upper0"))) })
	ns := testkit.NetNS(t)
	whole.GuaranteedRate = 20_000_000_000 // a veth device reports 10G
	must(t, r.vdn.PutNetwork(t.Context(), whole))
	_, err = Add(args(r.conf("whole"), "one", ns.Path()))
	refusedWith(t, err, ErrNode, "device upper0 shares the wire of eth1", "device nic1 carries 10G, but guaranteedRate of the network is 20G", "device nic2 carries")
	r.nothingLeft()
	whole.GuaranteedRate = 10_000_000_000
	must(t, r.vdn.PutNetwork(t.Context(), whole))
	_, err = Add(args(r.conf("whole"), "one", ns.Path()))
	must(t, err)
	if l, err := r.vdn.Attachment(t.Context(), "one.net1"); err != nil || l.Device != "nic1" {
		t.Errorf("%+v, %v: want nic1", l, err)
	}
	must(t, Del(args(r.conf("whole"), "one", ns.Path())))
	r.nothingLeft()
}

// TestAskedFor covers owner, addresses and MAC from capabilities and from CNI_ARGS.
func TestAskedFor(t *testing.T) {
	r := newRig(t)
	ns := testkit.NetNS(t)
	a := args(r.conf("science", `"runtimeConfig":{"ips":["10.9.0.50/24","fd09::50"],"mac":"02:00:00:00:00:50"}`), "one", ns.Path())
	result, err := Add(a)
	must(t, err)
	if got := hosts(result); !slices.Equal(got, []netip.Addr{netip.MustParseAddr("10.9.0.50"), netip.MustParseAddr("fd09::50")}) || result.Interfaces[0].Mac != "02:00:00:00:00:50" {
		t.Errorf("it has %v, %+v", got, result.Interfaces[0])
	}
	must(t, Del(a))
	a = args(r.conf("science"), "two", ns.Path())
	a.Args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=lab;K8S_POD_NAME=telescope;K8S_POD_UID=1;MAC=02:00:00:00:00:51"
	result, err = Add(a)
	must(t, err)
	if got := hosts(result); got[0] != netip.MustParseAddr("10.9.0.77") || result.Interfaces[0].Mac != "02:00:00:00:00:51" {
		t.Errorf("it has %v, %+v", got, result.Interfaces[0])
	}
	must(t, Del(a))
	a.IfName = "eth5"
	for ips, want := range map[string]string{"10.9.0.51": "10.9.0.51", "10.9.0.52/24,fd09::52": "10.9.0.52 fd09::52"} {
		a.Args = "IP=" + ips
		result, err = Add(a)
		must(t, err)
		for i, ip := range strings.Fields(want) {
			if got := hosts(result); got[i] != netip.MustParseAddr(ip) {
				t.Errorf("it has %v, want %s", got, want)
			}
		}
		must(t, Del(a))
	}
	r.nothingLeft()
}

// TestAPodIsReplaced creates a pod's new sandbox before the old one is deleted, with a
// controller restart between them. The address reserved for the pod moves to the new
// sandbox once the old one has released it, and a late DEL of the old one takes nothing.
func TestAPodIsReplaced(t *testing.T) {
	r := newRig(t)
	sandbox := func(container, uid string) *skel.CmdArgs {
		a := args(r.conf("science"), container, testkit.NetNS(t).Path())
		a.Args = "K8S_POD_NAMESPACE=lab;K8S_POD_NAME=telescope;K8S_POD_UID=" + uid
		return a
	}
	old, fresh := sandbox("old", "1"), sandbox("new", "2")
	_, err := Add(old)
	must(t, err)
	_, err = Add(fresh)
	refusedWith(t, err, types.ErrTryAgainLater, "10.9.0.77, reserved for lab/telescope, is in use by attachment old.")
	r.stop()
	must(t, Del(old)) // reported to the controller later
	r.start()
	result, err := Add(fresh)
	must(t, err)
	if got := hosts(result); got[0] != netip.MustParseAddr("10.9.0.77") {
		t.Errorf("it has %v", got)
	}
	must(t, Del(old))
	fresh.StdinData = []byte(with(t, string(fresh.StdinData), result))
	must(t, Check(fresh))
	if all := r.store.Attachments("", ""); len(all) != 1 || all[0].Container != "new" || all[0].OwnerUID != "2" {
		t.Errorf("leased: %+v", all)
	}
	must(t, Del(fresh))
	r.nothingLeft()
}

// TestSameAddressSameMAC keeps the neighbor caches of other hosts valid.
func TestSameAddressSameMAC(t *testing.T) {
	r := newRig(t)
	var macs []string
	for _, container := range []string{"one", "two"} {
		a := args(r.conf("tiny"), container, testkit.NetNS(t).Path())
		result, err := Add(a)
		must(t, err)
		macs = append(macs, result.Interfaces[0].Mac)
		must(t, Del(a))
	}
	if macs[0] != macs[1] {
		t.Errorf("they are %q", macs)
	}
}

// TestAddAgain checks that ADD rejects an interface that exists (SPEC.md, ADD: "an
// interface of the requested name already exists"), and takes nothing from it.
func TestAddAgain(t *testing.T) {
	r := newRig(t)
	for _, network := range []string{"science", "whole"} {
		ns := testkit.NetNS(t)
		a := args(r.conf(network), "one", ns.Path())
		first, err := Add(a)
		must(t, err)
		before := linkOf(t, ns, "net1").Attrs().Index
		_, err = Add(a)
		refusedWith(t, err, ErrTaken, "attachment one.net1 exists already", "DEL")
		if now := linkOf(t, ns, "net1").Attrs().Index; now != before {
			t.Errorf("%s: its device is another", network)
		}
		must(t, Check(args(with(t, r.conf(network), first), "one", ns.Path())))
		other := args(r.conf(network), "one", testkit.NetNS(t).Path())
		must(t, Del(a))
		again, err := Add(other)
		must(t, err)
		must(t, Check(args(with(t, r.conf(network), again), "one", other.Netns)))
		must(t, Del(other))
	}
	r.nothingLeft()
}

// TestAddAfterRestart checks that a new namespace starts empty, whatever the note says, and
// gets the same addresses.
func TestAddAfterRestart(t *testing.T) {
	r := newRig(t)
	old, err := netns.Create("before")
	must(t, err)
	first, err := Add(args(r.conf("science"), "one", old.Path()))
	must(t, err)
	must(t, old.Do(func() error { return netlink.LinkDel(link(t, "net1")) })) // the kernel needs time to destroy a namespace
	must(t, old.Close())
	now := testkit.NetNS(t)
	second, err := Add(args(r.conf("science"), "one", now.Path()))
	must(t, err)
	if !slices.Equal(hosts(first), hosts(second)) || first.Interfaces[0].Mac != second.Interfaces[0].Mac {
		t.Errorf("first %+v, then %+v", first, second)
	}
	must(t, Del(args(r.conf("science"), "one", now.Path())))
	r.nothingLeft()
}

// TestNeighborsAreNotified checks that hosts on the segment know the location of a new pod before
// it sends any traffic.
func TestNeighborsAreNotified(t *testing.T) {
	r := newRig(t)
	testkit.Do(t, r.lan, func() error {
		l := link(t, "lan")
		for _, a := range []string{"10.9.0.60", "fd09::60"} { // the entries of the previous pod
			old := &netlink.Neigh{LinkIndex: l.Attrs().Index, State: netlink.NUD_STALE, IP: net.ParseIP(a), HardwareAddr: net.HardwareAddr{2, 9, 9, 9, 9, 9}}
			must(t, netlink.NeighSet(old))
		}
		return nil
	})
	a := args(r.conf("science", `"runtimeConfig":{"ips":["10.9.0.60","fd09::60"]}`), "one", testkit.NetNS(t).Path())
	result, err := Add(a)
	must(t, err)
	testkit.Eventually(t, within, func() error {
		return r.lan.Do(func() error {
			known, err := netlink.NeighList(link(t, "lan").Attrs().Index, unix.AF_UNSPEC)
			right := 0
			for _, n := range known {
				if n.HardwareAddr.String() == result.Interfaces[0].Mac && slices.Contains([]string{"10.9.0.60", "fd09::60"}, n.IP.String()) {
					right++
				}
			}
			if err == nil && right != 2 {
				return net.UnknownNetworkError("neighbors are not right yet")
			}
			return err
		})
	})
	must(t, Del(a))
}

// TestDefaultRoute checks that a secondary network leaves the pod's default route alone, or
// that the error says what to do.
func TestDefaultRoute(t *testing.T) {
	r := newRig(t)
	ns := testkit.NetNS(t)
	first := args(r.conf("science"), "one", ns.Path())
	_, err := Add(first)
	must(t, err)
	second := args(r.conf("science"), "one", ns.Path())
	second.IfName = "net2"
	_, err = Add(second)
	refusedWith(t, err, ErrTaken, `"defaultRoute": false`)
	second.StdinData = []byte(r.conf("tiny", `"defaultRoute": false`))
	result, err := Add(second)
	must(t, err)
	if len(result.Routes) > 0 {
		t.Errorf("routes are %v", result.Routes)
	}
	must(t, Del(second))
	must(t, Del(first))
	r.nothingLeft()
}

// TestCheckSees checks that CHECK detects changes to a pod's device.
func TestCheckSees(t *testing.T) {
	r := newRig(t)
	p, err := openPod(testkit.NetNS(t).Path())
	must(t, err)
	defer p.close()
	a := args(r.conf("science"), "one", p.path)
	for name, c := range map[string]struct {
		spoil func(l netlink.Link) error
		says  string
	}{
		"renamed": {func(l netlink.Link) error { return p.links.LinkSetName(l, "eth7") }, "net1 not found"},
		"down":    {func(l netlink.Link) error { return p.links.LinkSetDown(l) }, "net1 is down"},
		"MTU":     {func(l netlink.Link) error { return p.links.LinkSetMTU(l, 1300) }, "MTU 1300, want 1400"},
		"MAC":     {func(l netlink.Link) error { return p.links.LinkSetHardwareAddr(l, net.HardwareAddr{2, 1, 1, 1, 1, 1}) }, "MAC 02:01"},
		"address": {func(l netlink.Link) error {
			all, err := p.links.AddrList(l, unix.AF_INET)
			must(t, err)
			return p.links.AddrDel(l, &all[0])
		}, "does not have address 10.9.0."},
		"route": {func(l netlink.Link) error {
			_, to, _ := net.ParseCIDR("10.7.0.0/16")
			return p.links.RouteDel(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: to})
		}, "10.7"},
		"lease": {func(netlink.Link) error { return r.store.Detach(t.Context(), "one.net1") }, "no lease one.net1"},
	} {
		result, err := Add(a)
		must(t, err)
		check := args(with(t, r.conf("science"), result), "one", p.path)
		must(t, Check(check))
		must(t, c.spoil(inPod(t, p, "net1")))
		refusedWith(t, Check(check), ErrChanged, c.says)
		must(t, Del(a))
		if l, err := netlist.Whole(p.links.LinkList); err != nil || len(l) != 1 {
			t.Errorf("%s: after DEL the pod has %d links, %v", name, len(l), err)
		}
	}
	r.nothingLeft()
}

// TestCheckWithoutController compares only the kernel state.
func TestCheckWithoutController(t *testing.T) {
	r := newRig(t)
	ns := testkit.NetNS(t)
	result, err := Add(args(r.conf("science"), "one", ns.Path()))
	must(t, err)
	r.stop()
	must(t, Check(args(with(t, r.conf("science"), result), "one", ns.Path())))
	r.start()
	must(t, Del(args(r.conf("science"), "one", ns.Path())))
}

// TestUpIsReported checks the up report, which has what a node needs for enforcement.
func TestUpIsReported(t *testing.T) {
	r := newRig(t)
	ns := testkit.NetNS(t)
	requests := []string{}
	r.onRequest(func(q *http.Request) { requests = append(requests, q.Method+" "+q.URL.Path) })
	result, err := Add(args(r.conf("science"), "one", ns.Path()))
	must(t, err)
	want := "GET /v1/networks/science, POST /v1/attachments, PUT /v1/attachments/one.net1/up"
	if got := strings.Join(requests, ", "); got != want {
		t.Errorf("it asks %s, want %s", got, want)
	}
	a, err := r.store.Attachment("one.net1")
	must(t, err)
	if a.Device != "eth1" || a.NetNS != ns.Path() || a.MAC != result.Interfaces[0].Mac || a.Phase != "up" || a.Node != "n1" {
		t.Errorf("the controller knows %+v", a)
	}
	must(t, Del(args(r.conf("science"), "one", ns.Path())))
}
