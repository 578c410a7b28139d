package cni

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/testkit"
)

// veth creates a veth pair on the node. The first end stands for a NIC. Both ends are up.
func veth(t *testing.T, name string) netlink.Link {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = name, 1600
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: name + "p"}))
	t.Cleanup(func() {
		for _, end := range []string{name + "p", name} { // deleting one end deletes the other
			if l, err := netlink.LinkByName(end); err == nil {
				must(t, netlink.LinkDel(l))
			}
		}
	})
	for _, end := range []string{name, name + "p"} {
		must(t, netlink.LinkSetUp(link(t, end)))
	}
	return link(t, name)
}

func link(t *testing.T, name string) netlink.Link {
	t.Helper()
	l, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return l
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// given returns a NIC in a pod.
func given(t *testing.T, p *pod) (*nic, *call) {
	t.Helper()
	l := veth(t, "nic0")
	must(t, netlink.LinkAddAltName(l, "slot7"))
	must(t, netlink.LinkSetAlias(l, "left port"))
	l = link(t, "nic0")
	was := describe(l)
	c := &call{container: "c1", iface: "net1"}
	host, err := handle()
	must(t, err)
	defer host.Close()
	inside, err := c.take(host, l, p)
	must(t, err)
	was.Index = inside.Attrs().Index
	return was, c
}

// TestNICComesHomeAsItWas checks that a NIC is restored whatever the pod did to it.
func TestNICComesHomeAsItWas(t *testing.T) {
	for name, spoil := range map[string]func(h *netlink.Handle, l netlink.Link) error{
		"nothing": func(*netlink.Handle, netlink.Link) error { return nil },
		"renamed": func(h *netlink.Handle, l netlink.Link) error { return h.LinkSetName(l, "eth9") },
		"named like another of the node": func(h *netlink.Handle, l netlink.Link) error {
			return h.LinkSetName(l, "lo2")
		},
		"mark and name": func(h *netlink.Handle, l netlink.Link) error {
			return errors.Join(h.LinkSetName(l, "eth9"), h.LinkSetAlias(l, "fairlead other.net1 lo2"))
		},
		"addresses, MTU, MAC": func(h *netlink.Handle, l netlink.Link) error {
			_, p, _ := net.ParseCIDR("10.0.0.1/24")
			return errors.Join(h.LinkSetUp(l), h.AddrAdd(l, &netlink.Addr{IPNet: p}), h.LinkSetMTU(l, 1300),
				h.LinkSetHardwareAddr(l, net.HardwareAddr{2, 0, 0, 0, 0, 99}))
		},
		"alternative names that the node has": func(h *netlink.Handle, l netlink.Link) error {
			return errors.Join(h.LinkAddAltName(l, "lo2"), h.LinkDelAltName(l, "slot7"))
		},
		"in a bridge": func(h *netlink.Handle, l netlink.Link) error {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = "br0"
			bridge := &netlink.Bridge{LinkAttrs: attrs}
			return errors.Join(h.LinkAdd(bridge), h.LinkSetMaster(l, bridge))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := podOf(t)
			veth(t, "lo2")
			was, c := given(t, p)
			if l := inPod(t, p, "net1"); l.Attrs().Alias != "fairlead c1.net1 nic0" {
				t.Fatalf("in the pod it is %+v", l.Attrs())
			}
			must(t, spoil(p.links, inPod(t, p, "net1")))
			for range 2 { // the second time, nothing is left to do
				_, err := was.giveBack(c.id(), p)
				must(t, err)
			}
			sameNIC(t, was)
		})
	}
}

func podOf(t *testing.T) *pod {
	t.Helper()
	p, err := openPod(testkit.NetNS(t).Path())
	must(t, err)
	t.Cleanup(p.close)
	return p
}

// linkOf is link in a namespace.
func linkOf(t *testing.T, ns *netns.NS, name string) (l netlink.Link) {
	t.Helper()
	testkit.Do(t, ns, func() (err error) {
		l, err = netlink.LinkByName(name)
		return err
	})
	return l
}

func inPod(t *testing.T, p *pod, name string) netlink.Link {
	t.Helper()
	l, err := p.links.LinkByName(name)
	if err != nil {
		t.Fatalf("%s in the pod: %v", name, err)
	}
	return l
}

func sameNIC(t *testing.T, was *nic) {
	t.Helper()
	now := describe(link(t, was.Name))
	now.Index = was.Index
	slices.Sort(now.AltNames)
	if fmt.Sprint(*now) != fmt.Sprint(*was) {
		t.Errorf("it is %+v, was %+v", *now, *was)
	}
	l := link(t, was.Name)
	if a, err := netlink.AddrList(l, unix.AF_INET); err != nil || len(a) > 0 {
		t.Errorf("it has addresses %v, %v", a, err)
	}
}

// TestNICThatTheKernelBroughtHome covers a namespace that ends: the kernel returns hardware
// under the name that the pod gave it.
func TestNICThatTheKernelBroughtHome(t *testing.T) {
	p := podOf(t)
	was, c := given(t, p)
	home, err := here()
	must(t, err)
	defer home.Close()
	index := inPod(t, p, "net1").Attrs().Index
	must(t, p.run(func() error { return move(index, home.Fd(), "net1") }))
	found, err := was.giveBack(c.id(), nil)
	if err != nil || !found {
		t.Fatalf("found %v, %v", found, err)
	}
	sameNIC(t, was)
}

// TestNICThatTheKernelBringsHomeLate covers a namespace that the kernel destroys
// asynchronously, after its path is gone.
func TestNICThatTheKernelBringsHomeLate(t *testing.T) {
	p := podOf(t)
	was, c := given(t, p)
	if lo := link(t, "lo"); lo.Type() != hardware {
		t.Errorf("lo is of type %s", lo.Type())
	}
	sent := *was
	sent.Type = hardware // the kernel does not return a veth
	home, err := here()
	must(t, err)
	defer home.Close()
	index := inPod(t, p, "net1").Attrs().Index
	late := time.AfterFunc(100*time.Millisecond, func() {
		if err := p.run(func() error { return move(index, home.Fd(), "net1") }); err != nil {
			t.Error(err)
		}
	})
	defer late.Stop()
	found, err := sent.giveBack(c.id(), nil)
	if err != nil || !found {
		t.Fatalf("found %v, %v", found, err)
	}
	sameNIC(t, was)
}

// TestNICThatIsNoMore covers a virtual device that is deleted with the pod's namespace.
func TestNICThatIsNoMore(t *testing.T) {
	p := podOf(t)
	was, c := given(t, p)
	must(t, p.links.LinkDel(inPod(t, p, "net1")))
	for _, where := range []*pod{p, nil} {
		if found, err := was.giveBack(c.id(), where); err != nil || found {
			t.Errorf("found %v, %v", found, err)
		}
	}
}

// TestNICWhoseNameIsTaken checks that the NIC stays in the pod until the conflict is fixed.
func TestNICWhoseNameIsTaken(t *testing.T) {
	p := podOf(t)
	was, c := given(t, p)
	for _, l := range []string{"nic0p"} {
		must(t, netlink.LinkSetDown(link(t, l)))
		must(t, netlink.LinkSetName(link(t, l), "nic0"))
	}
	if _, err := was.giveBack(c.id(), p); !errors.Is(err, unix.EEXIST) {
		t.Fatalf("it says %v", err)
	}
	must(t, netlink.LinkSetName(link(t, "nic0"), "nic0p"))
	_, err := was.giveBack(c.id(), p)
	must(t, err)
	sameNIC(t, was)
}

// TestNICThatIsNotMovedOntoAnother covers a pod that already has the name: the NIC stays on
// the node, or is found again.
func TestNICThatIsNotMovedOntoAnother(t *testing.T) {
	p := podOf(t)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "net1"
	must(t, p.links.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}))
	was := describe(veth(t, "nic0"))
	host, err := handle()
	must(t, err)
	defer host.Close()
	c := &call{container: "c1", iface: "net1"}
	if _, err := c.take(host, link(t, "nic0"), p); !errors.Is(err, unix.EEXIST) {
		t.Errorf("it says %v", err)
	}
	_, err = was.giveBack(c.id(), p)
	must(t, err)
	sameNIC(t, was)
}
