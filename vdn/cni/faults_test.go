package cni

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/sysctl"
	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/vdn"
)

// TestNoesHaveNames checks that every rejection names its cause, has a code and leaves
// nothing behind.
func TestNoesHaveNames(t *testing.T) {
	r := newRig(t)
	for name, c := range map[string]struct {
		network string
		more    []string
		before  func(*netns.NS) (after func() error)
		code    uint
		says    []string
	}{
		"network unknown": {network: "nosuch", code: types.ErrInvalidNetworkConfig, says: []string{"network nosuch", "not found"}},
		"pool empty": {network: "tiny", code: types.ErrTryAgainLater, says: []string{"pool", "10.9.2.0/24", "exhausted"}, before: func(*netns.NS) func() error {
			return r.held("tiny")
		}},
		"address taken": {network: "science", more: []string{`"runtimeConfig":{"ips":["10.9.0.77"]}`}, code: types.ErrTryAgainLater, says: []string{"reserved for lab/telescope"}},
		"NIC taken elsewhere": {network: "whole", code: types.ErrTryAgainLater, says: []string{"nic1 is in use by attachment other.net1"}, before: func(*netns.NS) func() error {
			return r.held("whole")
		}},
		"NICs in use": {network: "whole", code: ErrNode, says: []string{"nic1 is part of another", "nic2 has address 192.0.2.1 of the node"}, before: nicsInUse(t)},
		"no device": {network: "science", code: ErrNode, says: []string{"no device eth0", "no device eth1"}, before: func(*netns.NS) func() error {
			return renamed(t, "eth1", "eth1x")
		}},
		"device down": {network: "tiny", code: ErrNode, says: []string{"eth1 is down", "ip link set eth1 up"}, before: func(*netns.NS) func() error {
			must(t, netlink.LinkSetDown(link(t, "eth1")))
			return func() error { return netlink.LinkSetUp(link(t, "eth1")) }
		}},
		"MTU": {network: "science", code: ErrNode, says: []string{"eth1 has MTU 1300", "requires 1400"}, before: func(*netns.NS) func() error {
			must(t, netlink.LinkSetMTU(link(t, "eth1"), 1300))
			return func() error { return netlink.LinkSetMTU(link(t, "eth1"), 1600) }
		}},
		"interface's name taken": {network: "science", code: ErrTaken, says: []string{"CNI_IFNAME", "net1 (bridge)"}, before: func(pod *netns.NS) func() error {
			testkit.Do(t, pod, func() error { return bridge("net1") })
			return func() error { return pod.Do(func() error { return netlink.LinkDel(link(t, "net1")) }) }
		}},
		"NIC cannot do the MTU": {network: "huge", code: ErrNode, says: []string{"MTU 9000", "lower the mtu of the network"}, before: func(*netns.NS) func() error {
			return r.huge()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := testkit.NetNS(t)
			after := func() error { return nil }
			if c.before != nil {
				after = c.before(pod)
			}
			had := links(t, pod)
			a := args(r.conf(c.network, c.more...), "one", pod.Path())
			_, err := Add(a)
			refusedWith(t, err, c.code, c.says...)
			must(t, Del(a)) // as runtimes do
			if left := links(t, pod); len(left) != len(had) {
				t.Errorf("the pod has %q, had %q", left, had)
			}
			must(t, after())
			r.nothingLeft()
		})
	}
}

// TestAddressOfUnknownHost checks that ADD does not take an address that a host unknown to
// the controller uses. A node too busy to see the response in time sees it at the next
// attempt.
func TestAddressOfUnknownHost(t *testing.T) {
	r := newRig(t)
	pod := testkit.NetNS(t)
	a := args(r.conf("science", `"runtimeConfig":{"ips":["10.9.0.66","fd09::66"]}`), "one", pod.Path())
	for _, address := range []string{"10.9.0.66/24", "fd09::66/64"} {
		leave := r.unknownHost(address)
		testkit.Eventually(t, within, func() error {
			_, err := Add(a)
			must(t, Del(a))
			if err == nil {
				return errors.New("ADD succeeds")
			}
			refusedWith(t, err, ErrTaken, "address "+netip.MustParsePrefix(address).Addr().String()+" is used by", "unknown host")
			return nil
		})
		must(t, leave())
	}
	r.nothingLeft()
}

// held leases everything that a network has, for another node or another pod.
func (r *rig) held(network string) func() error {
	devices := []string{"eth1", "nic1", "nic2"}
	interfaces := []string{"net1"}
	if network == "whole" {
		interfaces = append(interfaces, "net2")
	}
	for _, name := range interfaces {
		_, err := r.vdn.Attach(context.Background(), vdn.AttachmentRequest{Network: network, Node: "n1", Container: "other", Interface: name, Devices: devices})
		must(r.t, err)
	}
	return func() error {
		var errs []error
		for _, name := range interfaces {
			errs = append(errs, r.vdn.Detach(context.Background(), "other."+name))
		}
		return errors.Join(errs...)
	}
}

func nicsInUse(t *testing.T) func(*netns.NS) func() error {
	return func(*netns.NS) func() error {
		must(t, bridge("br7"))
		must(t, netlink.LinkSetMaster(link(t, "nic1"), link(t, "br7")))
		a, err := netlink.ParseAddr("192.0.2.1/24")
		must(t, err)
		must(t, netlink.AddrAdd(link(t, "nic2"), a))
		return func() error {
			return errors.Join(netlink.LinkDel(link(t, "br7")), netlink.AddrDel(link(t, "nic2"), a))
		}
	}
}

func bridge(name string) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs})
}

func renamed(t *testing.T, from, to string) (back func() error) {
	change := func(from, to string) error {
		l := link(t, from)
		return errors.Join(netlink.LinkSetDown(l), netlink.LinkSetName(l, to), netlink.LinkSetUp(l))
	}
	must(t, change(from, to))
	return func() error { return change(to, from) }
}

// unknownHost assigns an address to a host of the segment.
func (r *rig) unknownHost(address string) (leave func() error) {
	a, err := netlink.ParseAddr(address)
	must(r.t, err)
	a.Flags = unix.IFA_F_NODAD
	testkit.Do(r.t, r.lan, func() error { return netlink.AddrAdd(link(r.t, "lan"), a) })
	return func() error {
		return r.lan.Do(func() error { return netlink.AddrDel(link(r.t, "lan"), a) })
	}
}

// huge creates a network whose MTU its NIC does not support.
func (r *rig) huge() func() error {
	whole := networks()[1]
	whole.Name, whole.MTU, whole.Devices = "huge", 9000, []string{"small"}
	whole.Subnets = []vdn.Subnet{{CIDR: netip.MustParsePrefix("10.9.5.0/24")}}
	must(r.t, r.vdn.PutNetwork(context.Background(), whole))
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.ParentIndex = "small", link(r.t, "eth1").Attrs().Index
	must(r.t, netlink.LinkAdd(&netlink.Macvlan{LinkAttrs: attrs}))
	return func() error {
		return errors.Join(r.vdn.DeleteNetwork(context.Background(), "huge"), netlink.LinkDel(link(r.t, "small")))
	}
}

// TestControllerAway checks that ADD reports an unreachable controller and leaves nothing
// behind, that DEL does not wait for it, and that any later call releases the owed lease.
func TestControllerAway(t *testing.T) {
	for _, pay := range []string{"ADD", "DEL", "GC", "STATUS"} {
		t.Run("paid by "+pay, func(t *testing.T) {
			r := newRig(t)
			pod, other := testkit.NetNS(t), testkit.NetNS(t)
			a, b := args(r.conf("whole"), "one", pod.Path()), args(r.conf("whole"), "two", other.Path())
			_, err := Add(a)
			must(t, err)
			r.stop()
			_, err = Add(b)
			refusedWith(t, err, types.ErrTryAgainLater, "cannot reach the VDN controller at http://"+r.address)
			refusedWith(t, Status(b), types.ErrPluginNotAvailable, "cannot reach the VDN controller at http://127.0.0.1:")
			must(t, Del(a))
			must(t, Del(a))
			if left := append(links(t, pod), links(t, other)...); len(left) > 0 {
				t.Errorf("pods have %q", left)
			}
			r.start()
			if ids := r.leases(); len(ids) != 1 {
				t.Fatalf("leases are %q", ids)
			}
			switch pay {
			case "ADD":
				_, err := Add(b)
				must(t, err)
				must(t, Del(b))
			case "DEL":
				must(t, Del(b))
			case "GC":
				must(t, GC(b))
			case "STATUS":
				must(t, Status(b))
			}
			r.nothingLeft()
		})
	}
}

// TestOwedIsNotTakenFromTheLiving checks that a container that is attached again keeps its
// lease.
func TestOwedIsNotTakenFromTheLiving(t *testing.T) {
	r := newRig(t)
	pod := testkit.NetNS(t)
	a := args(r.conf("science"), "one", pod.Path())
	_, err := Add(a)
	must(t, err)
	r.stop()
	must(t, Del(a))
	r.start()
	_, err = Add(a)
	must(t, err)
	must(t, Status(a))
	if ids := r.leases(); len(ids) != 1 {
		t.Errorf("leases are %q", ids)
	}
	must(t, Del(a))
	r.nothingLeft()
}

// TestPodDeletedDuringADD deletes the pod at various points of ADD.
func TestPodDeletedDuringADD(t *testing.T) {
	r := newRig(t)
	for _, network := range []string{"science", "whole"} {
		for _, at := range []string{"GET /v1/networks/", "POST /v1/attachments", "PUT /v1/attachments/"} {
			t.Run(network+" at "+strings.ReplaceAll(at, "/", " "), func(t *testing.T) {
				pod, err := netns.Create("deleted")
				must(t, err)
				gone := false
				r.onRequest(func(q *http.Request) {
					if !gone && strings.HasPrefix(q.Method+" "+q.URL.Path, at) {
						gone = true
						must(t, pod.Close())
					}
				})
				a := args(r.conf(network), "one", pod.Path())
				_, err = Add(a)
				refusedWith(t, err, types.ErrUnknownContainer, "is gone")
				r.onRequest(nil)
				r.nothingLeft()
				must(t, Del(a))
				if _, err := Add(a); err == nil {
					t.Error("ADD succeeds without a namespace")
				}
			})
		}
	}
}

// TestDeviceDeletedDuringADD has the pod delete the device, which it is allowed to.
func TestDeviceDeletedDuringADD(t *testing.T) {
	r := newRig(t)
	pod := testkit.NetNS(t)
	a := args(r.conf("science"), "one", pod.Path())
	r.onRequest(func(q *http.Request) {
		if strings.HasSuffix(q.URL.Path, "/up") {
			must(t, pod.Do(func() error { return netlink.LinkDel(link(t, "net1")) }))
		}
	})
	if result, err := Add(a); err == nil { // only CHECK notices it
		refusedWith(t, Check(args(with(t, r.conf("science"), result), "one", pod.Path())), ErrChanged, "net1 not found")
	}
	r.onRequest(nil)
	must(t, Del(a))
	r.nothingLeft()
}

// TestDELForWhatNeverWas checks that DEL succeeds whatever is missing.
func TestDELForWhatNeverWas(t *testing.T) {
	r := newRig(t)
	pod := testkit.NetNS(t)
	testkit.Do(t, pod, func() error { return bridge("net1") })
	for _, path := range []string{pod.Path(), "", "/run/netns/nosuch", "/proc/999999999/ns/net"} {
		for _, network := range []string{"science", "whole", "nosuch"} {
			must(t, Del(args(r.conf(network), "never", path)))
		}
	}
	if have := links(t, pod); len(have) != 1 {
		t.Errorf("another plugin's interface is gone: %q", have)
	}
	if err := Del(args(r.conf("science"), "never", "/etc/passwd")); err != nil {
		t.Errorf("a file in the namespace's place: %v", err)
	}
	r.nothingLeft()
}

// TestNICThatVanishes removes a NIC from a pod: DEL and GC succeed, STATUS and CHECK report
// it.
func TestNICThatVanishes(t *testing.T) {
	for _, by := range []string{"DEL", "GC"} {
		t.Run(by, func(t *testing.T) {
			r := newRig(t)
			pod := testkit.NetNS(t)
			a := args(r.conf("whole"), "one", pod.Path())
			result, err := Add(a)
			must(t, err)
			r.unplug("nic1")
			r.unplug("nic2")
			refusedWith(t, Check(args(with(t, r.conf("whole"), result), "one", pod.Path())), ErrChanged, "NIC was removed")
			if by == "DEL" {
				must(t, Del(a))
			} else {
				must(t, GC(a))
			}
			refusedWith(t, Status(a), types.ErrLimitedConnectivity, "has none of its devices")
			_, err = Add(args(r.conf("whole"), "two", pod.Path()))
			refusedWith(t, err, ErrNode, "no device nic1", "no device nic2")
			for _, name := range []string{"nic1", "nic2"} {
				r.plug(name)
			}
			r.nothingLeft()
		})
	}
}

// TestNamespaceGoneBeforeDEL checks that devices in a deleted namespace are gone or
// returned.
func TestNamespaceGoneBeforeDEL(t *testing.T) {
	r := newRig(t)
	for _, network := range []string{"science", "whole"} {
		pod, err := netns.Create("deleted")
		must(t, err)
		a := args(r.conf(network), "one", pod.Path())
		_, err = Add(a)
		must(t, err)
		must(t, pod.Close())
		must(t, Del(a))
		if network == "whole" { // a veth, which the kernel never returns
			testkit.Eventually(t, within, func() error {
				return r.lan.Do(func() error {
					if _, err := netlink.LinkByName("nic1p"); err == nil {
						return errors.New("nic1 is still there")
					}
					return nil
				})
			})
			r.plug("nic1")
		}
	}
	r.nothingLeft()
}

// TestGC checks that GC retains valid attachments and those of the network's other
// configurations.
func TestGC(t *testing.T) {
	r := newRig(t)
	pods := map[string]*netns.NS{}
	add := func(conf, container string) {
		pods[container] = testkit.NetNS(t)
		_, err := Add(args(conf, container, pods[container].Path()))
		must(t, err)
	}
	add(r.conf("science"), "stays")
	add(r.conf("science"), "goes")
	add(r.conf("second", `"network":"science"`), "others")
	add(r.conf("science"), "unnoted")
	must(t, notes{r.dataDir}.remove(attached, "unnoted.net1"))
	add(r.conf("whole"), "nic")
	must(t, GC(args(r.conf("science", `"cni.dev/valid-attachments":[{"containerID":"stays","ifname":"net1"}]`), "", "")))
	if ids := strings.Join(r.leases(), " "); ids != "nic.net1 others.net1 stays.net1" {
		t.Errorf("leases are %s", ids)
	}
	for container, want := range map[string]int{"stays": 1, "goes": 0, "others": 1, "unnoted": 0, "nic": 1} {
		if have := links(t, pods[container]); len(have) != want {
			t.Errorf("%s has %q", container, have)
		}
	}
	for _, network := range []string{"whole", "science", "second"} {
		must(t, GC(args(r.conf(network, `"network":"`+strings.ReplaceAll(network, "second", "science")+`"`), "", "")))
	}
	r.nothingLeft()
	r.stop()
	refusedWith(t, GC(args(r.conf("science"), "", "")), types.ErrTryAgainLater, "cannot reach the VDN controller at http://127.0.0.1:")
}

// TestNoteLost checks that a NIC is returned using only its alias, and that a macvlan
// device is found.
func TestNoteLost(t *testing.T) {
	r := newRig(t)
	for _, network := range []string{"science", "whole"} {
		pod := testkit.NetNS(t)
		a := args(r.conf(network), "one", pod.Path())
		_, err := Add(a)
		must(t, err)
		must(t, os.WriteFile(notes{r.dataDir}.file(attached, "one.net1"), []byte("{"), 0o600))
		must(t, Del(a))
		if left := links(t, pod); len(left) > 0 {
			t.Errorf("%s: the pod has %q", network, left)
		}
	}
	for _, name := range []string{"nic1", "nic2"} {
		must(t, netlink.LinkSetMTU(link(t, name), 1600)) // only the note had it
		must(t, netlink.LinkSetUp(link(t, name)))
	}
	r.nothingLeft()
}

// TestIPv6OffInThePod checks that IPv6 is enabled on the network's interface.
func TestIPv6OffInThePod(t *testing.T) {
	r := newRig(t)
	pod := testkit.NetNS(t)
	testkit.Do(t, pod, func() error {
		return errors.Join(os.WriteFile("/proc/sys/net/ipv6/conf/all/disable_ipv6", []byte("1"), 0o644),
			os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0o644))
	})
	a := args(r.conf("science"), "one", pod.Path())
	result, err := Add(a)
	must(t, err)
	reaches(t, r.lan, pod, hosts(result)...)
	must(t, Del(a))
}

// TestKernelWithoutIPv6 checks that ADD reports the missing IPv6 support up front.
func TestKernelWithoutIPv6(t *testing.T) {
	r := newRig(t)
	settings := filepath.Join(t.TempDir(), "net")
	must(t, os.MkdirAll(filepath.Join(settings, "ipv4/conf/net1"), 0o755))
	must(t, os.WriteFile(filepath.Join(settings, "ipv4/conf/net1/arp_notify"), []byte("0"), 0o600))
	cmd := r.command("ADD", r.conf("science"), "one", testkit.NetNS(t))
	cmd.Env = append(cmd.Env, sysctl.RootEnv+"="+settings)
	out, err := cmd.Output()
	var says types.Error
	if err == nil || json.Unmarshal(out, &says) != nil {
		t.Fatalf("it says %s, %v", out, err)
	}
	refusedWith(t, &says, ErrNode, "IPv6 is disabled in this kernel")
	r.nothingLeft()
}

// TestBadInput checks that invalid input is rejected by name.
func TestBadInput(t *testing.T) {
	r := newRig(t)
	pod := testkit.NetNS(t)
	for _, c := range []struct {
		conf, args string
		code       uint
		says       string
	}{
		{`{`, "", types.ErrDecodingFailure, "configuration"},
		{`[]`, "", types.ErrDecodingFailure, "configuration"},
		{`{"name":"a","timeout":"soon"}`, "", types.ErrInvalidNetworkConfig, "timeout"},
		{`{"name":"a","timeout":"-1s"}`, "", types.ErrInvalidNetworkConfig, "timeout"},
		{`{"name":"a","controller":"nowhere"}`, "", types.ErrInvalidNetworkConfig, "controller"},
		{`{"name":"a","tokenFile":"token"}`, "", types.ErrInvalidNetworkConfig, "tokenFile"},
		{`{"name":"a","tokenFile":"/nosuch"}`, "", types.ErrInvalidNetworkConfig, "/nosuch"},
		{`{"name":"a","ipam":{"type":"host-local"}}`, "", types.ErrInvalidNetworkConfig, "ipam.type"},
		{`{}`, "", types.ErrInvalidNetworkConfig, "network is required"},
		{`{"name":"a","runtimeConfig":{"ips":["ten"]}}`, "", types.ErrInvalidNetworkConfig, "runtimeConfig.ips"},
		{`{"name":"a","runtimeConfig":{"mac":"ff:ff:ff:ff:ff:ff"}}`, "", types.ErrInvalidNetworkConfig, "runtimeConfig.mac"},
		{`{"name":"a","cniVersion":"1.1.0","prevResult":{"cniVersion":"7"}}`, "", types.ErrDecodingFailure, "prevResult"},
		{with(t, r.conf("science"), c100()), "", types.ErrInvalidNetworkConfig, "first in the chain"},
		{r.conf("science"), "K8S_POD_NAME", types.ErrInvalidEnvironmentVariables, "CNI_ARGS"},
		{r.conf("science"), "IP=ten", types.ErrInvalidEnvironmentVariables, "IP=ten"},
		{r.conf("science"), "IP=10.9.0.51,ten", types.ErrInvalidEnvironmentVariables, "IP=10.9.0.51,ten"},
		{r.conf("science"), "MAC=1", types.ErrInvalidEnvironmentVariables, "MAC=1"},
	} {
		_, err := Add(&skel.CmdArgs{ContainerID: "one", IfName: "net1", Netns: pod.Path(), StdinData: []byte(c.conf), Args: c.args})
		refusedWith(t, err, c.code, c.says)
	}
	refusedWith(t, Check(args(r.conf("science"), "one", pod.Path())), types.ErrInvalidNetworkConfig, "prevResult")
	_, err := Add(args(r.conf("science"), "one", "/etc/passwd"))
	refusedWith(t, err, types.ErrUnknownContainer, "/etc/passwd")
	r.nothingLeft()
}

// TestAnotherControllerIsAsked has one of the configured controllers down permanently. A
// lease owed to one list of controllers is released with another list that shares a member.
func TestAnotherControllerIsAsked(t *testing.T) {
	r := newRig(t)
	ns := testkit.NetNS(t)
	alone := r.conf("science")
	several := strings.Replace(alone, "http://"+r.address, "http://127.0.0.1:1, http://"+r.address, 1)
	result, err := Add(args(several, "one", ns.Path()))
	must(t, err)
	must(t, Check(args(with(t, several, result), "one", ns.Path())))
	r.stop()
	_, err = Add(args(several, "two", testkit.NetNS(t).Path()))
	refusedWith(t, err, types.ErrTryAgainLater, "cannot reach the VDN controller at http://127.0.0.1:1:", "cannot reach the VDN controller at http://"+r.address)
	must(t, Del(args(several, "one", ns.Path())))
	r.start()
	must(t, GC(args(alone, "", "")))
	r.nothingLeft()
}
