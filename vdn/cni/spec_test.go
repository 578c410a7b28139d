package cni

import (
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/testkit"
)

// TestNonsenseCanBeDeleted checks that only ADD rejects an invalid request of a pod's user,
// not DEL, which the runtime calls with the same input.
func TestNonsenseCanBeDeleted(t *testing.T) {
	r := newRig(t)
	pod := testkit.NetNS(t)
	for code, a := range map[uint][2]string{
		types.ErrInvalidEnvironmentVariables: {`"defaultRoute":true`, "IP=ten"},
		types.ErrInvalidNetworkConfig:        {`"runtimeConfig":{"mac":"00:00:00:00:00:00"}`, ""},
	} {
		add := args(r.conf("science", a[0]), "one", pod.Path())
		add.Args = a[1]
		_, err := Add(add)
		refusedWith(t, err, code, "want")
		must(t, Del(add))
		must(t, GC(add))
		must(t, Status(add))
		ipam := args(r.ipam("science", a[0]), "one", pod.Path())
		ipam.Args = a[1]
		_, err = AddAddresses(ipam)
		refusedWith(t, err, code, "want")
		must(t, DelAddresses(ipam))
	}
	r.nothingLeft()
}

// TestDELWithoutANamespace covers a runtime that no longer knows the namespace and passes
// none, while the namespace may still exist.
func TestDELWithoutANamespace(t *testing.T) {
	r := newRig(t)
	for _, network := range []string{"science", "whole"} {
		pod := testkit.NetNS(t)
		_, err := Add(args(r.conf(network), "one", pod.Path()))
		must(t, err)
		must(t, Del(args(r.conf(network), "one", "")))
		if left := links(t, pod); len(left) > 0 {
			t.Errorf("%s: the pod has %q", network, left)
		}
		r.nothingLeft()
	}
}

// TestNICAtHomeWithoutItsNote checks that nobody gets such a NIC until DEL removes its
// alias.
func TestNICAtHomeWithoutItsNote(t *testing.T) {
	r := newRig(t)
	must(t, netlink.LinkSetAlias(link(t, "nic1"), mark+"one.net1 nic1"))
	_, err := Add(args(r.conf("whole"), "two", testkit.NetNS(t).Path()))
	must(t, err)
	if n := (notes{r.dataDir}).read(attached, "two.net1"); n == nil || n.NIC.Name != "nic2" {
		t.Errorf("two has %+v", n)
	}
	must(t, Del(args(r.conf("whole"), "one", "")))
	must(t, Del(args(r.conf("whole"), "two", "")))
	r.nothingLeft()
}

// TestLeftoversAreReported checks the error code: code 3 would inform the runtime that DEL has
// nothing to do.
func TestLeftoversAreReported(t *testing.T) {
	r := newRig(t)
	pod, err := netns.Create("deleted")
	must(t, err)
	back := func() error { return errors.New("ADD reports no device") }
	r.onRequest(func(q *http.Request) {
		if q.Method == http.MethodPut {
			must(t, pod.Close())
			back = renamed(t, "nic2", "nic1") // now the pod's NIC cannot be returned
		}
	})
	a := args(r.conf("whole"), "one", pod.Path())
	_, err = Add(a)
	refusedWith(t, err, types.ErrInternal, "is gone", "another device of the node has that name")
	r.onRequest(nil)
	if n := (notes{r.dataDir}).all(attached); len(n) != 1 {
		t.Errorf("notes are %+v", n)
	}
	must(t, back())
	must(t, Del(a))
}

// TestAddressesAgain checks that a repeated ADD of addresses is rejected: a plugin that is
// called twice releases what it gets the second time, because its device already exists.
func TestAddressesAgain(t *testing.T) {
	r := newRig(t)
	c := newTool(t, "lab", "1.0.0", `{"type":"ptp",`+r.addresses("science")+`}`)
	pod := testkit.NetNS(t)
	c.must("add", "lab", pod)
	leases := r.leases()
	if _, err := c.run("add", "lab", pod); err == nil || !strings.Contains(err.Error(), "exists already") {
		t.Errorf("ADD again: %v", err)
	}
	if now := r.leases(); !slices.Equal(now, leases) || len(now) != 1 {
		t.Errorf("leases were %q, are %q", leases, now)
	}
	c.must("check", "lab", pod)
	c.must("del", "lab", pod)
	r.nothingLeft()
}

// TestNodesOwnNamespace checks that the node's namespace gets no device, because a pod's
// routes would break the node.
func TestNodesOwnNamespace(t *testing.T) {
	r := newRig(t)
	before := len(allLinks(t))
	for _, network := range []string{"science", "whole"} {
		a := args(r.conf(network), "one", "/proc/self/ns/net")
		_, err := Add(a)
		refusedWith(t, err, types.ErrInvalidNetNS, "the node's own namespace")
		if now := len(allLinks(t)); now != before {
			t.Errorf("%s: the node has %d links, had %d", network, now, before)
		}
		r.nothingLeft()
	}
}

func allLinks(t *testing.T) []netlink.Link {
	t.Helper()
	all, err := netlink.LinkList()
	must(t, err)
	return all
}

// TestNotesThatCannotBeWritten checks that ADD stops before it creates anything.
func TestNotesThatCannotBeWritten(t *testing.T) {
	r := newRig(t)
	pod := testkit.NetNS(t)
	for _, network := range []string{"science", "whole"} {
		conf := strings.Replace(r.conf(network), `"dataDir":"`, `"dataDir":"/proc/version`, 1)
		_, err := Add(args(conf, "one", pod.Path()))
		refusedWith(t, err, types.ErrIOFailure, "dataDir")
		must(t, Del(args(conf, "one", pod.Path())))
		if left := links(t, pod); len(left) > 0 {
			t.Errorf("the pod has %q", left)
		}
		r.nothingLeft()
	}
}

// TestCheckLeavesOthersAlone checks that CHECK ignores what later plugins of the chain add,
// and how they spell a MAC address.
func TestCheckLeavesOthersAlone(t *testing.T) {
	r := newRig(t)
	pod := testkit.NetNS(t)
	a := args(r.conf("science"), "one", pod.Path())
	result, err := Add(a)
	must(t, err)
	result.Interfaces[0].Mac = strings.ToUpper(result.Interfaces[0].Mac)
	result.Interfaces = append(result.Interfaces, &current.Interface{Name: "tun0", Sandbox: pod.Path()})
	result.IPs = append(result.IPs, &current.IPConfig{Interface: current.Int(1), Address: ipNet(netip.MustParsePrefix("192.0.2.1/24"))})
	must(t, Check(args(with(t, r.conf("science"), result), "one", pod.Path())))
	result.IPs[2].Interface = current.Int(0)
	refusedWith(t, Check(args(with(t, r.conf("science"), result), "one", pod.Path())), ErrChanged, "192.0.2.1")
	must(t, Del(a))
}

// TestCheckOfAddresses checks against the controller, which may be unreachable.
func TestCheckOfAddresses(t *testing.T) {
	r := newRig(t)
	pod := testkit.NetNS(t)
	result, err := AddAddresses(args(r.ipam("science"), "one", pod.Path()))
	must(t, err)
	check := args(with(t, r.ipam("science"), result), "one", pod.Path())
	must(t, CheckAddresses(check))
	r.stop()
	must(t, CheckAddresses(check))
	r.start()
	must(t, DelAddresses(args(r.ipam("science"), "one", "")))
	refusedWith(t, CheckAddresses(check), ErrChanged, "no lease one.net1")
	r.nothingLeft()
}

// TestStatusOfAddresses checks that STATUS reports what ADD would.
func TestStatusOfAddresses(t *testing.T) {
	r := newRig(t)
	refusedWith(t, StatusAddresses(args(r.ipam("whole"), "", "")), types.ErrInvalidNetworkConfig, "whole NICs")
	refusedWith(t, StatusAddresses(args(r.ipam("nosuch"), "", "")), types.ErrPluginNotAvailable, "nosuch")
	r.stop()
	refusedWith(t, StatusAddresses(args(r.ipam("science"), "", "")), types.ErrPluginNotAvailable, "cannot reach the VDN controller at http://127.0.0.1:")
}

// TestGCGoesOn checks that GC continues past what it cannot undo, retains its lease, and
// reports all errors.
func TestGCGoesOn(t *testing.T) {
	r := newRig(t)
	one, two := testkit.NetNS(t), testkit.NetNS(t)
	for container, pod := range map[string]*netns.NS{"one": one, "two": two} {
		_, err := Add(args(r.conf("whole"), container, pod.Path()))
		must(t, err)
		must(t, notes{r.dataDir}.remove(attached, container+".net1"))
	}
	a, err := r.store.Attachment("one.net1")
	must(t, err)
	must(t, bridge(a.Device)) // occupies the name that the NIC needs
	err = GC(args(r.conf("whole"), "", ""))
	if err == nil || !strings.Contains(err.Error(), "another device of the node has that name") {
		t.Errorf("GC says %v", err)
	}
	if ids := r.leases(); !slices.Equal(ids, []string{"one.net1"}) {
		t.Errorf("leases are %q", ids)
	}
	must(t, netlink.LinkDel(link(t, a.Device)))
	must(t, GC(args(r.conf("whole"), "", "")))
	for _, name := range []string{"nic1", "nic2"} {
		must(t, netlink.LinkSetMTU(link(t, name), 1600)) // only the note had it
		must(t, netlink.LinkSetUp(link(t, name)))
	}
	r.nothingLeft()
	r.stop()
	err = together([]error{errors.New("one"), GC(args(r.conf("whole"), "", ""))})
	refusedWith(t, err, types.ErrTryAgainLater, "one; ", "cannot reach the VDN controller at http://127.0.0.1:")
}
