package xdp

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/device"
	"github.com/fairlead/fairlead/dataplane/xdp/entry"
	"github.com/fairlead/fairlead/internal/bpffs"
	"github.com/fairlead/fairlead/internal/version"
	"github.com/fairlead/fairlead/lab/testkit"
)

// refused tries to open and expects an error of this kind that contains all these
// strings.
func (n *testNet) refused(t *testing.T, c Config, kind error, says ...string) {
	t.Helper()
	testkit.Do(t, n.balancer, func() error {
		d, err := Open(c)
		if err == nil {
			t.Error("was opened")
			return d.Detach()
		}
		if kind != nil && !errors.Is(err, kind) {
			t.Errorf("%v: is no %v", err, kind)
		}
		for _, s := range says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%v: does not say %q", err, s)
			}
		}
		return nil
	})
}

// attachedProgram returns the id of an interface's program, 0 for none.
func (n *testNet) attachedProgram(t *testing.T, name string) (id uint32) {
	t.Helper()
	testkit.Do(t, n.balancer, func() error {
		nic, err := netlink.LinkByName(name)
		if err == nil && nic.Attrs().Xdp != nil {
			id = nic.Attrs().Xdp.ProgId
		}
		return err
	})
	return id
}

func TestOpenRefusesBadConfig(t *testing.T) {
	n := newNet(t)
	for field, change := range map[string]func(*Config){
		"Interfaces":   func(c *Config) { c.Interfaces = nil },
		"eth9":         func(c *Config) { c.Interfaces = []string{"eth9"} },
		"MaxFrontends": func(c *Config) { c.MaxFrontends = -1 },
		"MaxBackends":  func(c *Config) { c.MaxBackends = -1 },
		"MaxFlows":     func(c *Config) { c.MaxFlows = -1 },
		"Mode":         func(c *Config) { c.Mode = "offload" },
		"Ports: 5-4":   func(c *Config) { c.Ports = PortRange{5, 4} },
		"SourceV4":     func(c *Config) { c.SourceV4 = own6 },
		"SourceV6":     func(c *Config) { c.SourceV6 = own4 },
		"Ports: 40000-50000 overlaps net.ipv4.ip_local_port_range": func(c *Config) { c.Ports = PortRange{40000, 50000} },
	} {
		c := config()
		change(&c)
		n.refused(t, c, nil, field)
	}
	if names, _ := os.ReadDir(config().PinDir); len(names) != 0 {
		t.Errorf("left behind: %v", names)
	}
}

func TestSecondAgentIsRefused(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	id := n.attachedProgram(t, "eth0")
	n.refused(t, config(), bpffs.ErrInUse, "PinDir", config().PinDir, "stop the other agent")
	other := config()
	other.PinDir += "2"
	n.refused(t, other, ErrOccupied, "eth0", `"balancer"`, "stop the agent")
	if now := n.attachedProgram(t, "eth0"); now != id {
		t.Errorf("program %d became %d", id, now)
	}
	if names, _ := os.ReadDir(other.PinDir); len(names) != 0 {
		t.Errorf("the refused one left %v", names)
	}
	must(t, d.Close())
	n.open(t, config())
}

func TestForeignProgramIsLeftAlone(t *testing.T) {
	n := newNet(t)
	foreign, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "somebodys", Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, int32(pass)), asm.Return()},
	})
	must(t, err)
	defer foreign.Close()
	var l link.Link
	testkit.Do(t, n.balancer, func() (err error) {
		l, err = link.AttachXDP(link.XDPOptions{Program: foreign, Interface: int(n.eth1)})
		return err
	})
	defer l.Close()
	c := config()
	c.Interfaces = []string{"eth0", "eth1"}
	n.refused(t, c, ErrOccupied, "eth1", "somebodys", "ip link set dev eth1 xdp off")
	if n.attachedProgram(t, "eth1") == 0 || n.attachedProgram(t, "eth0") != 0 {
		t.Error("the refusal changed what is attached")
	}
}

func TestLayoutMismatch(t *testing.T) {
	n := newNet(t)
	c := config()
	c.PinDir += "3"
	older := filepath.Join(c.PinDir, "balancer-v999")
	must(t, os.MkdirAll(older, 0o700))
	defer os.RemoveAll(c.PinDir)
	n.refused(t, c, ErrLayout, older, "remove that folder")
}

func TestGenericFallback(t *testing.T) {
	n := newNet(t)
	testkit.Do(t, n.balancer, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "bridge0" // whose driver has no XDP
		return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs})
	})
	c := config()
	c.Interfaces = []string{"eth0", "bridge0"}
	c.Mode = Native
	n.refused(t, c, nil, "bridge0")
	if n.attachedProgram(t, "eth0") != 0 {
		t.Error("a failed Open left a program on eth0")
	}
	c.Mode = Auto
	d := n.open(t, c)
	lines := d.Describe().Attached
	if lines[0] != "eth0: native" || !strings.HasPrefix(lines[1], "bridge0: generic: native refused: ") {
		t.Errorf("attached %q", lines)
	}
	// Another mode is another attachment.
	must(t, d.Close())
	c.Mode = Generic
	d = n.open(t, c)
	if lines := d.Describe().Attached; lines[0] != "eth0: generic" {
		t.Errorf("attached %q", lines)
	}
	must(t, d.Close())
	c.Mode, c.Interfaces = Native, []string{"eth0"}
	d = n.open(t, c)
	if lines := d.Describe().Attached; len(lines) != 1 || lines[0] != "eth0: native" || n.attachedProgram(t, "bridge0") != 0 {
		t.Errorf("attached %q, and on bridge0 program %d", lines, n.attachedProgram(t, "bridge0"))
	}
}

// For an interface whose own driver has no native XDP, the reason lists its parts, to
// which one may attach instead.
func TestReasonNamesTheParts(t *testing.T) {
	n := newNet(t)
	testkit.Do(t, n.balancer, func() error {
		bridge := netlink.NewLinkAttrs()
		bridge.Name = "bridge0"
		must(t, netlink.LinkAdd(&netlink.Bridge{LinkAttrs: bridge}))
		master, err := netlink.LinkByName("bridge0")
		must(t, err)
		if got := device.NativeOf(master); got != "no native XDP" {
			t.Errorf("a bridge has %s", got)
		}
		member, err := netlink.LinkByName("eth1")
		must(t, err)
		return netlink.LinkSetMaster(member, master)
	})
	c := config()
	c.Interfaces, c.Mode = []string{"bridge0"}, Native
	const says = "it is a bridge on eth1 (native XDP)"
	n.refused(t, c, nil, says)
	c.Interfaces, c.Mode = []string{"bridge0", "eth0"}, Auto
	d := n.open(t, c)
	if line := d.Describe().Attached[0]; !strings.HasPrefix(line, "bridge0: generic: native refused: ") || !strings.Contains(line, says) {
		t.Errorf("attached %q: does not say %q", line, says)
	}
	testkit.Do(t, n.balancer, func() error {
		if alone := (Config{Interfaces: []string{"bridge0"}}); !device.AnyVeth(alone.Interfaces) {
			t.Error("nobody saw the veth in the bridge")
		}
		return nil
	})
}

// A veth whose peer has neither GRO nor a program would lose what a native program sends
// back: there auto uses generic, and packets really come back.
func TestVethWithPlainPeer(t *testing.T) {
	n := newNet(t)
	testkit.Do(t, n.outside, func() error {
		setOffload(t, "net0", unix.ETHTOOL_SGRO, 0)
		return nil
	})
	d := n.open(t, config())
	const want = "eth0: generic: native would need GRO on, or an XDP program, at the far end of this veth"
	if lines := d.Describe().Attached; lines[0] != want {
		t.Errorf("attached %q, want %q", lines[0], want)
	}
	upsert(t, d, frontend(service.Tunnel, vips[false], service.TCP, servers[false]))
	in, out := tunnelled(t)
	must(t, n.wireEnd(t).exchange(in, out))
}

// On hardware a packet goes back with XDP_TX, which costs less.
func TestBackByTX(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	upsert(t, d, frontend(service.Tunnel, vips[false], service.TCP, servers[false]))
	spec, err := d.config.program().Spec()
	must(t, err)
	var hardware struct {
		Balancer *ebpf.Program `ebpf:"balancer"`
	}
	must(t, spec.LoadAndAssign(&hardware, &ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: d.pins.Path("")}}))
	veth := d.kernel.Balancer
	d.kernel.Balancer = hardware.Balancer
	in := packet{src: clients[false], dst: vips[false]}
	row{name: "TX", in: in, verdict: tx, out: func(p *packet) {
		p.outer = &outer{src: owns[false], dst: addrOf(servers[false]), ttl: 64}
		sent(p)
	}}.check(t, n, d)
	must(t, hardware.Balancer.Close())
	d.kernel.Balancer = veth
}

func TestInterfaceComesAndGoes(t *testing.T) {
	n := newNet(t)
	c := config()
	c.Interfaces = []string{"eth0", "eth1"}
	d := n.open(t, c)
	must(t, d.Close())
	testkit.Do(t, n.balancer, func() error {
		nic, err := netlink.LinkByName("eth1")
		must(t, err)
		must(t, netlink.LinkDel(nic))
		n.eth1 = n.wire(t, "eth1", "net1", macEth1, 1400)
		return nil
	})
	d = n.open(t, c)
	if n.attachedProgram(t, "eth1") == 0 {
		t.Error("the new eth1 has no program")
	}
	must(t, d.Close())
	c.Interfaces = []string{"eth0"}
	d = n.open(t, c)
	if n.attachedProgram(t, "eth1") != 0 || n.attachedProgram(t, "eth0") == 0 {
		t.Error("eth1 still has its program, or eth0 has lost its own")
	}
	var value uint32
	if err := d.kernel.TxPorts.Lookup(n.eth1, &value); !errors.Is(err, ebpf.ErrKeyNotExist) {
		t.Errorf("packets may still leave by eth1: %v", err)
	}
}

func TestDetachLeavesNothing(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	must(t, d.Detach())
	n.current = nil
	if n.attachedProgram(t, "eth0") != 0 {
		t.Error("the program is still attached")
	}
	if names, _ := os.ReadDir(config().PinDir); len(names) != 0 {
		t.Errorf("pins left: %v", names)
	}
}

func TestSysctlsAreSet(t *testing.T) {
	n := newNet(t)
	n.open(t, config())
	testkit.Do(t, n.balancer, func() error {
		for _, path := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding", "ipv4/conf/eth0/accept_local"} {
			if b, err := os.ReadFile("/proc/sys/net/" + path); err != nil || strings.TrimSpace(string(b)) != "1" {
				t.Errorf("%s is %q (%v)", path, b, err)
			}
		}
		return nil
	})
}

func TestDropReasonsHaveNames(t *testing.T) {
	spec, err := config().withDefaults().program().Spec()
	must(t, err)
	names, err := bpf.EnumNames(spec, "drop_reason", "DROP_", int(bpf.BalancerDropReasonDROP_REASONS))
	must(t, err)
	if len(names) != int(bpf.BalancerDropReasonDROP_REASONS) || slices.Contains(names, "") || names[bpf.BalancerDropReasonDROP_TOO_BIG] != "too-big" {
		t.Errorf("reasons are %q", names)
	}
}

func TestAddressesThereAndBack(t *testing.T) {
	for _, s := range []string{"10.1.2.3", "2001:db8::1", "::1", "0.0.0.0"} {
		a := netip.MustParseAddr(s)
		if got := entry.FromAddr(entry.ToAddr(a)); got != a {
			t.Errorf("%s became %s", a, got)
		}
	}
	if got := entry.FromAddr(entry.ToAddr(netip.MustParseAddr("::ffff:10.1.2.3"))); got != netip.MustParseAddr("10.1.2.3") {
		t.Errorf("a mapped address became %s", got)
	}
}

// verifiedMax limits the instructions that the verifier processes in the programs that
// startup waits for: about 0.15 s of a core. Linux 6.18 processes 102,000; Linux 7.3
// processes 130,000 for the same programs.
func verifiedMax() uint32 {
	if strings.HasPrefix(version.Release(), "6.") {
		return 125_000
	}
	return 140_000
}

// The verifier's work and the size of the code.
func TestVerifierStatistics(t *testing.T) {
	spec, err := config().withDefaults().program().Spec()
	must(t, err)
	for _, m := range spec.Maps {
		m.Pinning = ebpf.PinNone
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats}})
	if refused := (*ebpf.VerifierError)(nil); errors.As(err, &refused) {
		t.Fatalf("the verifier refuses a program:\n%s", strings.Join(refused.Log[max(0, len(refused.Log)-40):], "\n"))
	}
	must(t, err)
	defer coll.Close()
	total := uint32(0)
	for name, p := range coll.Programs {
		info, err := p.Info()
		must(t, err)
		xlated, err := info.Instructions()
		must(t, err)
		jited, err := info.JitedSize()
		t.Logf("%s: %s", name, strings.TrimSpace(p.VerifierLog))
		t.Logf("%s: xlated %d instructions, jited %d bytes (%v)", name, xlated.Size()/asm.InstructionSize, jited, err)
		n, ok := info.VerifiedInstructions()
		if !ok {
			t.Errorf("%s: the kernel does not report the number of verified instructions", name)
		}
		if name != "handover" && name != "syn" { // which are loaded later
			total += n
		}
	}
	if strings.HasPrefix(version.Release(), "6.1.") {
		return // it processes four times as many, and accepts them
	}
	if limit := verifiedMax(); total > limit {
		t.Errorf("the verifier processed %d instructions, more than %d: an agent that starts waits for that", total, limit)
	}
}

// TestLatePrograms loads the programs that an agent loads on demand, so that other kernels
// are tested with them, too.
func TestLatePrograms(t *testing.T) {
	d := newNet(t).open(t, config())
	must(t, d.Prepare())
	must(t, d.prepareSYN())
}
