package kernel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/pktgen"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/bypass"
	"github.com/fairlead/fairlead/lab/domain"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/throughput"
	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/enforce"
)

// field is a domain where node n1 enforces, with traffic sinks in its pods.
type field struct {
	*domain.Domain
	t     *testing.T
	k     *Kernel
	sinks map[string]*throughput.Sink
}

// newField builds a field. uplinks are those whose rate n1 shares.
func newField(t *testing.T, attach domain.Attach, uplinks ...vdn.Uplink) *field {
	t.Helper()
	d, err := domain.Build(t.Context(), attach)
	if err != nil {
		t.Fatal(err)
	}
	f := &field{Domain: d, t: t, sinks: map[string]*throughput.Sink{}}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, name := range []string{"a2", "b1"} {
		if f.sinks[name], err = throughput.Listen(d.Host(name), 9); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.sinks[name].Close() })
	}
	n1 := d.Host("n1")
	testkit.Do(t, n1.Namespace(), func() (err error) {
		f.k, err = Open(Config{PinDir: pins(n1), Uplinks: uplinks})
		return err
	})
	t.Cleanup(func() {
		if err := f.k.Remove(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// apply lets both networks communicate, and returns Apply's error.
func (f *field) apply() error {
	return f.k.Apply(f.t.Context(), f.Plan("n1", 1, vdn.Slice{PeerNetworks: []uint16{2}}, vdn.Slice{PeerNetworks: []uint16{1}}))
}

// talks checks that a1 reaches others.
func (f *field) talks(to ...string) {
	f.t.Helper()
	for _, name := range to {
		testkit.Eventually(f.t, time.Minute, func() error {
			c, err := f.Host("a1").Dial(f.t.Context(), netip.Addr{}, netip.AddrPortFrom(f.Pods[name].Addrs[0], 9))
			if err != nil {
				return err
			}
			return c.Close()
		})
	}
}

// mac returns a pod's MAC address.
func (f *field) mac(pod string) []byte {
	f.t.Helper()
	l, err := f.Host(pod).Netlink().LinkByName(f.Pods[pod].Att.Interface)
	if err != nil {
		f.t.Fatal(err)
	}
	return l.Attrs().HardwareAddr
}

// received sends valid datagrams from a1 to another pod by a given method, and reports
// whether any arrives.
func (f *field) received(way, to string) bool {
	f.t.Helper()
	frame, err := pktgen.Packet{
		From: netip.AddrPortFrom(f.Pods["a1"].Addrs[0], 4444), To: netip.AddrPortFrom(f.Pods[to].Addrs[0], 9), Protocol: "udp", Payload: 100,
	}.Frame()
	if err != nil {
		f.t.Fatal(err)
	}
	copy(frame, f.mac(to))
	copy(frame[6:], f.mac("a1"))
	s, err := bypass.Ways[way](f.Host("a1"), f.Pods["a1"].Att.Interface)
	if err != nil {
		f.t.Fatal(err)
	}
	defer s.Close()
	f.hello(to)
	_, before := f.sinks[to].Received()
	for range 20 {
		if err := s.Send(frame); err != nil {
			f.t.Fatal(err)
		}
	}
	f.hello(to)
	_, after := f.sinks[to].Received()
	return after-before >= 100
}

// hello sends one-byte datagrams through a socket until one arrives.
func (f *field) hello(to string) {
	f.t.Helper()
	var c net.Conn
	testkit.Do(f.t, f.Host("a1").Namespace(), func() (err error) {
		c, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(f.Pods[to].Addrs[0], 9)))
		return err
	})
	defer c.Close()
	_, before := f.sinks[to].Received()
	testkit.Eventually(f.t, time.Minute, func() error {
		_, err := c.Write([]byte{0})
		if _, now := f.sinks[to].Received(); now == before {
			return errors.Join(err, fmt.Errorf("%s receives nothing", to))
		}
		return nil
	})
}

// drops returns n1's drops for a reason.
func (f *field) drops(reason string) (sum uint64) {
	f.t.Helper()
	all, err := f.k.Counters(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	for _, c := range all {
		sum += c.Drops[reason]
	}
	return sum
}

// TestBypass bypasses the programs at a pod's device, toward the other node and toward a
// pod of the same node, with the device below an uplink or not. Before anything is enforced
// everything must arrive, or the test would prove nothing.
func TestBypass(t *testing.T) {
	uplink := vdn.Uplink{Device: domain.Uplink, Rate: 1_000_000_000}
	for name, uplinks := range map[string][]vdn.Uplink{"uplink": {uplink}, "another device": nil} {
		t.Run(name, func(t *testing.T) {
			f := newField(t, domain.Macvlan, uplinks...)
			f.talks("a2")
			for way := range bypass.Ways {
				for _, to := range []string{"a2", "b1"} {
					if !f.received(way, to) {
						t.Errorf("by %s nothing reaches %s though nothing is enforced", way, to)
					}
				}
			}
			if err := f.apply(); err != nil {
				t.Fatal(err)
			}
			for way := range bypass.Ways {
				for _, to := range []string{"a2", "b1"} {
					before := f.drops(enforce.Bypassed)
					if f.received(way, to) {
						t.Errorf("by %s %s receives what skipped the programs of a1", way, to)
					}
					if n := f.drops(enforce.Bypassed) - before; n != 20 {
						t.Errorf("by %s to %s: of 20 frames %d are counted as bypassed", way, to, n)
					}
				}
			}
		})
	}
}

// TestBypassOfVeth uses pods on veth pairs, as the bridge plugin creates them.
func TestBypassOfVeth(t *testing.T) {
	f := newField(t, bridged)
	if err := f.apply(); err != nil {
		t.Fatal(err)
	}
	f.talks("b1", "a2")
	for way := range bypass.Ways {
		before := f.drops(enforce.Bypassed)
		if f.received(way, "b1") {
			t.Errorf("by %s b1 receives what skipped the programs of a1", way)
		}
		if n := f.drops(enforce.Bypassed) - before; n != 20 {
			t.Errorf("by %s: of 20 frames %d are counted as bypassed", way, n)
		}
	}
}

// bridged attaches a pod by a veth pair to a bridge over the node's uplink.
func bridged(node, pod *lab.Host, device string) (up vdn.UpReport, err error) {
	const name = "br0"
	nl := node.Netlink()
	bridge, err := nl.LinkByName(name)
	if err != nil {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		bridge = &netlink.Bridge{LinkAttrs: attrs}
		below, belowErr := nl.LinkByName(domain.Uplink)
		if err := errors.Join(nl.LinkAdd(bridge), nl.LinkSetUp(bridge), belowErr); err != nil {
			return up, err
		}
		if err := nl.LinkSetMaster(below, bridge); err != nil {
			return up, err
		}
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "v-" + pod.Name()
	pair := &netlink.Veth{LinkAttrs: attrs, PeerName: device, PeerNamespace: netlink.NsFd(pod.Namespace().FD())}
	if err := errors.Join(nl.LinkAdd(pair), nl.LinkSetUp(pair), nl.LinkSetMaster(pair, bridge)); err != nil {
		return up, err
	}
	l, err := pod.Netlink().LinkByName(device)
	if err != nil {
		return up, err
	}
	return vdn.UpReport{Device: attrs.Name, MAC: l.Attrs().HardwareAddr.String(), NetNS: pod.Namespace().Path()}, nil
}

// TestBypassOfIPvlan uses pods on ipvlan devices, as the ipvlan plugin creates them: they
// share one MAC address, and the kernel forwards frames between pods.
func TestBypassOfIPvlan(t *testing.T) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "probe"
	ns := testkit.NetNS(t)
	testkit.Do(t, ns, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		attrs.ParentIndex = lo.Attrs().Index
		if err := netlink.LinkAdd(&netlink.IPVlan{LinkAttrs: attrs}); errors.Is(err, unix.EOPNOTSUPP) {
			t.Skip("this kernel has no ipvlan")
		}
		return nil
	})
	f := newField(t, ipvlan)
	if err := f.apply(); err != nil {
		t.Fatal(err)
	}
	f.talks("b1", "a2")
	for way := range bypass.Ways {
		for _, to := range []string{"a2", "b1"} {
			if f.received(way, to) {
				t.Errorf("by %s %s receives what skipped the programs of a1", way, to)
			}
		}
	}
}

// ipvlan attaches a pod by an ipvlan device on the node's uplink.
func ipvlan(node, pod *lab.Host, device string) (up vdn.UpReport, err error) {
	below, err := node.Netlink().LinkByName(domain.Uplink)
	if err != nil {
		return up, err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.ParentIndex, attrs.Namespace = device, below.Attrs().Index, netlink.NsFd(pod.Namespace().FD())
	if err := node.Netlink().LinkAdd(&netlink.IPVlan{LinkAttrs: attrs, Mode: netlink.IPVLAN_MODE_L2}); err != nil {
		return up, err
	}
	l, err := pod.Netlink().LinkByName(device)
	if err != nil {
		return up, err
	}
	return vdn.UpReport{Device: domain.Uplink, MAC: l.Attrs().HardwareAddr.String(), NetNS: pod.Namespace().Path()}, nil
}

// TestBypassUnderXDP attaches an XDP program in generic mode to the uplink. It sees what
// macvlan forwards between pods before our programs do.
func TestBypassUnderXDP(t *testing.T) {
	f := newField(t, domain.Macvlan)
	if err := f.apply(); err != nil {
		t.Fatal(err)
	}
	pass, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}, // XDP_PASS
	})
	if err != nil {
		t.Fatal(err)
	}
	defer pass.Close()
	testkit.Do(t, f.Host("n1").Namespace(), func() error {
		dev, err := netlink.LinkByName(domain.Uplink)
		if err != nil {
			return err
		}
		l, err := link.AttachXDP(link.XDPOptions{Program: pass, Interface: dev.Attrs().Index, Flags: link.XDPGenericMode})
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	})
	for way := range bypass.Ways {
		for _, to := range []string{"a2", "b1"} {
			if f.received(way, to) {
				t.Errorf("by %s %s receives what skipped the programs of a1", way, to)
			}
		}
	}
}

// TestAForeignProgramIsNamed attaches a program before ours at the uplink's ingress that
// ends the chain: pods receive no broadcast then, and the node reports why.
func TestAForeignProgramIsNamed(t *testing.T) {
	f := newField(t, domain.Macvlan)
	if err := f.apply(); err != nil {
		t.Fatal(err)
	}
	f.talks("a2")
	ends, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}, // TC_ACT_OK
	})
	if err != nil {
		t.Fatal(err)
	}
	defer ends.Close()
	testkit.Do(t, f.Host("n1").Namespace(), func() error {
		dev, err := netlink.LinkByName(domain.Uplink)
		if err != nil {
			return err
		}
		return endChain(t, dev, ends)
	})
	testkit.Eventually(t, time.Minute, func() error {
		f.talks("a2")
		if err := f.apply(); err == nil || !strings.Contains(err.Error(), "network science: ") || !strings.Contains(err.Error(), "ends the chain") {
			return fmt.Errorf("apply: %v, want the other program named", err)
		}
		return nil
	})
}

// endChain attaches a program before all others at a device's ingress.
func endChain(t *testing.T, dev netlink.Link, p *ebpf.Program) error {
	l, err := link.AttachTCX(link.TCXOptions{Interface: dev.Attrs().Index, Program: p, Attach: ebpf.AttachTCXIngress, Anchor: link.Head()})
	if err == nil {
		t.Cleanup(func() { l.Close() })
		return nil
	}
	filter := &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: dev.Attrs().Index, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Protocol: 3, Priority: 1},
		Fd:          p.FD(), Name: "foreign", DirectAction: true,
	}
	return netlink.FilterReplace(filter)
}
