package gather_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/agent/doctor"
	"github.com/fairlead/fairlead/agent/socket"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/dataplane/xdp"
	"github.com/fairlead/fairlead/internal/privilege"
	"github.com/fairlead/fairlead/lab/testkit"
)

// expected describes a finding: the prefix of its check name, and parts of its message
// and fix.
type expected struct {
	check   string
	status  doctor.Status
	message string
	fix     string
}

// fault is a real fault to set up.
type fault struct {
	name  string
	roles []doctor.Role
	setUp func(*world)
	want  []expected
}

var (
	balancer = []doctor.Role{doctor.Balancer}
	server   = []doctor.Role{doctor.DSR}
	both     = []doctor.Role{doctor.Balancer, doctor.DSR}
	router   = []doctor.Role{doctor.Router}
	proxy    = []doctor.Role{doctor.Proxy}
)

// TestFaults sets up one fault at a time and checks that it is found with the right
// status and a fix, and that nothing else is reported as broken.
func TestFaults(t *testing.T) {
	for _, f := range slices.Concat(interfaceFaults, routingFaults, portFaults, softwareFaults, systemFaults, agentFaults) {
		t.Run(f.name, func(t *testing.T) {
			w := healthy(t)
			w.o.Roles = f.roles
			f.setUp(w)
			r := w.examine()
			for _, want := range f.want {
				if !slices.ContainsFunc(r.Findings, want.fits) {
					t.Errorf("no finding %+v in\n%s", want, strings.Join(r.Lines(), "\n"))
				}
			}
			for _, got := range r.Findings {
				expected := slices.ContainsFunc(f.want, func(e expected) bool { return e.fits(got) })
				if got.Status == doctor.Broken && !expected {
					t.Errorf("broken, too: %+v", got)
				}
			}
		})
	}
}

func (e expected) fits(f doctor.Finding) bool {
	return f.Check == e.check && f.Status == e.status && strings.Contains(f.Message, e.message) && strings.Contains(f.Fix, e.fix)
}

// TestHealthy examines an environment without faults, for all roles.
func TestHealthy(t *testing.T) {
	for _, role := range doctor.Roles {
		w := healthy(t)
		w.o.Roles, w.o.Cgroup = []doctor.Role{role}, w.mount("cgroup2", 0)
		r := w.examine()
		for _, f := range r.Findings {
			// The clock and the limits of this machine are not under test.
			bad := f.Status == doctor.Broken || f.Status == doctor.Degraded || f.Status == doctor.Unknown
			if bad && f.Area != "system" {
				t.Errorf("%s: %+v", role, f)
			}
		}
		if r.Count(doctor.OK) == 0 && role != doctor.Reflector {
			t.Errorf("%s: nothing is ok: %+v", role, r)
		}
	}
}

var interfaceFaults = []fault{
	{"the interface does not exist", both, func(w *world) { w.o.Interfaces = []string{"eth7"} },
		[]expected{{"interface/eth7", doctor.Broken, "no interface eth7", "eth0"}}},
	{"the interface is down", both, func(w *world) {
		w.o.Interfaces = []string{"eth0"}
		w.do(func() error { return netlink.LinkSetDown(w.link("eth0")) })
	}, []expected{{"interface/eth0", doctor.Broken, "is down", "ip link set dev eth0 up"}}},
	{"the interface has no carrier", both, func(w *world) {
		w.o.Interfaces = []string{"eth0"}
		w.do(func() error { return netlink.LinkSetDown(w.link("far0")) })
	}, []expected{{"interface/eth0", doctor.Broken, "no carrier", "eth0"}}},
	{"the interface has no address", balancer, func(w *world) {
		w.o.Interfaces = []string{"far0"}
	}, []expected{{"interface/far0", doctor.Degraded, "no address", "ip address add"}}},
	{"the MTU leaves no room for tunnels", balancer, func(w *world) {
		w.do(func() error { return netlink.LinkSetMTU(w.link("eth0"), 1500) })
	}, []expected{{"mtu/eth0", doctor.Info, "no room for tunnels", "mtu 1648"}}},
	{"the MTU is low", balancer, func(w *world) {
		w.do(func() error { return netlink.LinkSetMTU(w.link("eth0"), 1400) })
	}, []expected{{"mtu/eth0", doctor.Degraded, "below 1500", "ip link set dev eth0 mtu 1648"}}},
	{"the MTU is too large for native XDP", balancer, func(w *world) {
		w.do(func() error {
			tap := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "tap0"}, Mode: netlink.TUNTAP_MODE_TAP, Queues: 1}
			w.must(netlink.LinkAdd(tap))
			w.Cleanup(func() {
				for _, f := range tap.Fds {
					f.Close()
				}
			})
			w.up("tap0")
			w.address("tap0", "10.0.1.1/24")
			return netlink.LinkSetMTU(w.link("tap0"), 9000)
		})
		w.o.Interfaces = []string{"tap0"}
	}, []expected{{"native-xdp/tap0", doctor.Degraded, "MTU 9000 of tap0 is larger", "ip link set dev tap0 mtu"}}},
	{"the driver has no native XDP", balancer, func(w *world) {
		w.do(func() error {
			w.must(netlink.LinkAdd(&netlink.Ifb{LinkAttrs: netlink.LinkAttrs{Name: "ifb0"}}))
			w.up("ifb0")
			w.address("ifb0", "10.0.1.1/24")
			return nil
		})
		w.o.Interfaces = []string{"ifb0"}
	}, []expected{{"native-xdp/ifb0", doctor.Degraded, "does not support native XDP", "driver"}}},
	{"the far end of a veth does not poll", balancer, func(w *world) {
		w.do(func() error {
			w.must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth1"}, PeerName: "far1"}))
			w.up("far1")
			w.up("eth1")
			w.address("eth1", "10.0.1.1/24")
			return nil
		})
		w.o.Interfaces = []string{"eth1"}
	}, []expected{{"native-xdp/eth1", doctor.Degraded, "peer of eth1", "ethtool -K VETH gro on"}}},
}

var routingFaults = []fault{
	{"there is no default route", server, func(w *world) {
		w.do(func() error { return netlink.RouteDel(&netlink.Route{Gw: []byte{10, 0, 0, 254}}) })
		w.o.Interfaces = []string{"eth0"}
	}, []expected{{"default-route", doctor.Degraded, "no default route", "ip route add default"}}},
	{"rp_filter is strict", server, func(w *world) { w.sysctl("net.ipv4.conf.eth0.rp_filter", "1") },
		[]expected{{"rp-filter/eth0", doctor.Degraded, "strict", "net.ipv4.conf.eth0.rp_filter=2"}}},
	{"rp_filter is strict on all", server, func(w *world) {
		w.sysctl("net.ipv4.conf.eth0.rp_filter", "0")
		w.sysctl("net.ipv4.conf.all.rp_filter", "1")
	}, []expected{{"rp-filter/eth0", doctor.Degraded, "strict", "net.ipv4.conf.all.rp_filter=2"}}},
	{"rp_filter is strict, and there are two default routes", server, func(w *world) {
		w.sysctl("net.ipv4.conf.eth0.rp_filter", "1")
		w.do(func() error {
			w.must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth1"}, PeerName: "far1"}))
			w.up("far1")
			w.up("eth1")
			w.address("eth1", "10.0.1.1/24")
			return netlink.RouteAdd(&netlink.Route{LinkIndex: w.link("eth1").Attrs().Index, Gw: []byte{10, 0, 1, 254}, Priority: 10})
		})
	}, []expected{
		{"default-route", doctor.Info, "eth0 and eth1", ""},
		{"rp-filter/eth0", doctor.Degraded, "strict", "net.ipv4.conf.eth0.rp_filter=2"},
	}},
	{"rp_filter is strict, and clients are elsewhere", server, func(w *world) {
		w.do(func() error {
			w.must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth1"}, PeerName: "far1"}))
			w.up("far1")
			w.up("eth1")
			w.address("eth1", "10.0.1.1/24")
			return nil
		})
		w.sysctl("net.ipv4.conf.eth1.rp_filter", "1")
		w.o.Interfaces = []string{"eth1"}
	}, []expected{{"rp-filter/eth1", doctor.Broken, "reaches clients by eth0", "net.ipv4.conf.eth1.rp_filter=2"}}},
	{"a route has a low MTU", balancer, func(w *world) {
		w.do(func() error {
			return netlink.RouteAdd(&netlink.Route{LinkIndex: w.link("eth0").Attrs().Index, Gw: []byte{10, 0, 0, 253}, MTU: 1280,
				Dst: &net.IPNet{IP: []byte{172, 16, 0, 0}, Mask: net.CIDRMask(12, 32)}})
		})
	}, []expected{{"route-mtu/172.16.0.0/12", doctor.Degraded, "has MTU 1280", "ip route change 172.16.0.0/12 via 10.0.0.253 dev eth0 mtu 1700"}}},
	{"a router does not forward IPv4", router, func(w *world) { w.sysctl("net.ipv4.ip_forward", "0") },
		[]expected{{"sysctl/ipv4.ip_forward", doctor.Degraded, "not forwarded", "sysctl -w net.ipv4.ip_forward=1"}}},
	{"a router does not forward IPv6", router, func(w *world) { w.sysctl("net.ipv6.conf.all.forwarding", "0") },
		[]expected{{"sysctl/ipv6.conf.all.forwarding", doctor.Degraded, "not forwarded", "sysctl -w net.ipv6.conf.all.forwarding=1"}}},
	{"forwarding was turned off under a running router", router, func(w *world) {
		w.sysctl("net.ipv4.ip_forward", "0")
		w.answer(status.Status{Role: "router"})
	}, []expected{{"sysctl/ipv4.ip_forward", doctor.Broken, "changed after the agent or router started", "sysctl -w net.ipv4.ip_forward=1"}}},
	{"a load balancer will turn forwarding on", balancer, func(w *world) { w.sysctl("net.ipv4.ip_forward", "0") },
		[]expected{{"sysctl/ipv4.ip_forward", doctor.Info, "the agent sets it", "sysctl -w net.ipv4.ip_forward=1"}}},
	{"a load balancer cannot turn forwarding on", balancer, func(w *world) {
		root := w.settings(map[string]string{"ipv4/ip_forward": "0"})
		w.must(unix.Mount(root, root, "", unix.MS_BIND, ""))
		w.must(unix.Mount("", root, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
		w.Cleanup(func() { w.must(unix.Unmount(root, unix.MNT_DETACH)) })
	}, []expected{{"sysctl/ipv4.ip_forward", doctor.Broken, "read-only", "sysctl -w net.ipv4.ip_forward=1 on the host"}}},
	{"a router hashes by addresses", router, func(w *world) { w.sysctl("net.ipv4.fib_multipath_hash_policy", "0") },
		[]expected{{"sysctl/ipv4.fib_multipath_hash_policy", doctor.Degraded, "without ports", "sysctl -w net.ipv4.fib_multipath_hash_policy=3"}}},
	{"a router hashes without ports", router, func(w *world) { w.sysctl("net.ipv6.fib_multipath_hash_fields", "7") },
		[]expected{{"sysctl/ipv6.fib_multipath_hash_fields", doctor.Degraded, "without the ports", "sysctl -w net.ipv6.fib_multipath_hash_fields=55"}}},
	{"there are too many neighbors", balancer, func(w *world) {
		w.settings(map[string]string{"ipv4/neigh/default/gc_thresh3": "8", "ipv4/ip_forward": "1"})
		w.do(func() error {
			for i := range 8 {
				w.must(netlink.NeighAdd(&netlink.Neigh{LinkIndex: w.link("eth0").Attrs().Index, IP: []byte{10, 0, 0, byte(10 + i)},
					HardwareAddr: []byte{2, 0, 0, 0, 0, byte(i)}, State: netlink.NUD_STALE, Family: unix.AF_INET}))
			}
			return nil
		})
	}, []expected{{"sysctl/ipv4.neigh.default.gc_thresh3", doctor.Degraded, "is 8, for 8 neighbors", "sysctl -w net.ipv4.neigh.default.gc_thresh3=1024"}}},
	{"connection tracking is nearly full", server, func(w *world) {
		w.settings(map[string]string{"netfilter/nf_conntrack_max": "1000", "netfilter/nf_conntrack_count": "900"})
	}, []expected{{"conntrack", doctor.Degraded, "900 of 1000", "sysctl -w net.netfilter.nf_conntrack_max=2000"}}},
}

// listen binds a port in the namespace until the test ends.
func (w *world) listen(network, address string) {
	w.Helper()
	w.do(func() error {
		if network == "udp" {
			c, err := net.ListenPacket(network, address)
			w.Cleanup(func() { c.Close() })
			return err
		}
		l, err := net.Listen(network, address)
		w.Cleanup(func() { l.Close() })
		return err
	})
}

var portFaults = []fault{
	{"another process has BGP's port", router, func(w *world) { w.listen("tcp", ":179") },
		[]expected{{"port/bgp", doctor.Broken, "in use by exe (process ", "fairlead router --shadow-protocol bgp"}}},
	{"another process has BFD's port", balancer, func(w *world) { w.listen("udp", "10.0.0.1:3784") },
		[]expected{{"port/bfd", doctor.Degraded, "in use by exe (process ", "--bfd=false"}}},
	{"another process has the port of metrics", balancer, func(w *world) {
		w.o.Metrics = ":9474"
		w.listen("tcp", ":9474")
	}, []expected{{"port/metrics", doctor.Broken, "in use by exe (process ", "--metrics-address"}}},
	{"another process has the port of health checks", proxy, func(w *world) {
		w.o.Health = "0.0.0.0:10256"
		w.listen("tcp", ":10256")
	}, []expected{{"port/health", doctor.Degraded, "in use by exe (process ", "--health-address"}}},
	{"another process has GUE's port", server, func(w *world) {
		w.o.GUEPort = 6080
		w.listen("udp", ":6080")
	}, []expected{{"port/gue", doctor.Degraded, "in use by exe (process ", "--gue-port"}}},
	{"the running agent has the port itself", router, func(w *world) {
		w.listen("tcp", ":179")
		w.answer(status.Status{Role: "router"})
	}, []expected{{"port/bgp", doctor.OK, "in use by Fairlead", ""}}},
}

// program loads a program that does nothing, until the test ends.
func (w *world) program(kind ebpf.ProgramType, name string) *ebpf.Program {
	w.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: kind, Name: name, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}}) // XDP_PASS
	w.must(err)
	w.Cleanup(func() { p.Close() })
	return p
}

func (w *world) tcx(name string) {
	w.do(func() error {
		l, err := link.AttachTCX(link.TCXOptions{Interface: w.link("eth0").Attrs().Index,
			Program: w.program(ebpf.SchedCLS, name), Attach: ebpf.AttachTCXIngress})
		w.must(err)
		w.Cleanup(func() { l.Close() })
		return nil
	})
}

func (w *world) chain(table, chain string) {
	w.Helper()
	c, err := nftables.New(nftables.WithNetNSFd(w.ns.FD()))
	w.must(err)
	c.AddChain(&nftables.Chain{Table: c.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: table}), Name: chain})
	w.must(c.Flush())
}

var softwareFaults = []fault{
	{"another XDP program is attached", balancer, func(w *world) {
		w.do(func() error {
			l, err := link.AttachXDP(link.XDPOptions{Program: w.program(ebpf.XDP, "cil_xdp_entry"), Interface: w.link("eth0").Attrs().Index})
			w.must(err)
			w.Cleanup(func() { l.Close() })
			return nil
		})
	}, []expected{{"xdp/eth0", doctor.Broken, `"cil_xdp_entry" (Cilium)`, "ip link set dev eth0 xdp off"}}},
	{"another program is at tcx", server, func(w *world) { w.tcx("cil_from_netdev") },
		[]expected{{"tc/eth0", doctor.Degraded, `"cil_from_netdev" (Cilium)`, "bpftool net show dev eth0"}}},
	{"an unknown program is at tcx", proxy, func(w *world) { w.tcx("somebody") },
		[]expected{{"tc/eth0", doctor.Degraded, `"somebody", id`, "bpftool"}}},
	{"another program is at clsact", server, func(w *world) {
		w.do(func() error {
			index := w.link("eth0").Attrs().Index
			w.must(netlink.QdiscAdd(&netlink.GenericQdisc{QdiscType: "clsact", QdiscAttrs: netlink.QdiscAttrs{
				LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}))
			return netlink.FilterAdd(&netlink.BpfFilter{Fd: w.program(ebpf.SchedCLS, "cali_tc_main").FD(), Name: "cali_tc_main", DirectAction: true,
				FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: netlink.HANDLE_MIN_EGRESS, Handle: 1, Protocol: 3, Priority: 1}})
		})
	}, []expected{{"tc/eth0", doctor.Degraded, "(Calico)", "tc filter del dev eth0 egress"}}},
	{"kube-proxy has rules (nftables)", proxy, func(w *world) { w.chain("kube-proxy", "services") },
		[]expected{{"kube-proxy-rules", doctor.Degraded, "table kube-proxy", "kube-proxy --cleanup"}}},
	{"kube-proxy has rules (iptables-nft)", proxy, func(w *world) { w.chain("nat", doctor.KubeServices) },
		[]expected{{"kube-proxy-rules", doctor.Degraded, "nat/KUBE-SERVICES", "kube-proxy --cleanup"}}},
	{"kube-proxy has rules (iptables-legacy)", proxy, func(w *world) {
		w.do(func() error {
			if out, err := exec.Command("iptables-legacy", "-t", "nat", "-N", doctor.KubeServices).CombinedOutput(); err != nil {
				w.Skipf("this machine has no iptables-legacy: %v %s", err, out)
			}
			return nil
		})
	}, []expected{{"kube-proxy-rules", doctor.Degraded, "iptables-legacy", "kube-proxy --cleanup"}}},
	{"kube-proxy runs", proxy, func(w *world) { w.process("kube-proxy") },
		[]expected{{"process/kube-proxy", doctor.Degraded, "the same Services", "delete daemonset kube-proxy"}}},
	{"keepalived runs", balancer, func(w *world) { w.process("keepalived") },
		[]expected{{"process/keepalived", doctor.Degraded, "VIPs", "fairlead import keepalived"}}},
	{"MetalLB runs", balancer, func(w *world) { w.process("speaker") },
		[]expected{{"process/speaker", doctor.Degraded, "MetalLB", "loadBalancerClass"}}},
	{"Cilium runs", both, func(w *world) { w.process("cilium-agent") },
		[]expected{{"process/cilium-agent", doctor.Degraded, "same hooks", "kubeProxyReplacement"}}},
}

var systemFaults = []fault{
	{"the folder for pins is on no BPF file system", both, func(w *world) { w.o.BPFFS = w.TempDir() },
		[]expected{{"bpffs", doctor.Degraded, "not on a BPF file system", "mount -t bpf"}}},
	{"the folder for pins is on none, and may not be mounted", both, func(w *world) {
		w.o.BPFFS = w.TempDir()
		w.without = []privilege.Capability{privilege.SysAdmin}
	}, []expected{{"bpffs", doctor.Broken, "cannot mount", "mount -t bpf"}, {"capabilities", doctor.Broken, "lacks CAP_SYS_ADMIN", "SYS_ADMIN"}}},
	{"the BPF file system is read-only", both, func(w *world) { w.o.BPFFS = w.mount("bpf", unix.MS_RDONLY) },
		[]expected{{"bpffs", doctor.Broken, "read-only", "remount,rw"}}},
	{"another version left its pins", balancer, func(w *world) {
		w.o.BPFFS = w.mount("bpf", 0)
		w.must(os.MkdirAll(filepath.Join(w.o.BPFFS, "fairlead/balancer/balancer-v1"), 0o700))
	}, []expected{{"pins/balancer-v1", doctor.Broken, "layout", "rm -r "}}},
	{"root may not use BPF", both, func(w *world) { w.without = []privilege.Capability{privilege.BPF, privilege.SysAdmin} },
		[]expected{{"capabilities", doctor.Broken, "lacks CAP_SYS_ADMIN", "securityContext.capabilities"}, {"features/balancer", doctor.Unknown, "lacks CAP_BPF", ""}}},
	{"root may not configure networks", router, func(w *world) { w.without = []privilege.Capability{privilege.NetAdmin} },
		[]expected{{"capabilities", doctor.Broken, "lacks CAP_NET_ADMIN", "NET_ADMIN"}}},
	{"it is not run as root", both, func(w *world) { w.env = append(w.env, nobodyVariable+"=1") },
		[]expected{{"capabilities", doctor.Unknown, "run as root", ""}, {"features/dsr-agent", doctor.Unknown, "not probed", ""}, {"bpffs", doctor.Unknown, "run as root", ""}}},
	{"the cgroup is of version 1", proxy, func(w *world) { w.o.Cgroup = w.mount("tmpfs", 0) },
		[]expected{{"cgroup", doctor.Broken, "not a cgroup v2", "--cgroup"}}},
	{"the cgroup is not the root", proxy, func(w *world) { w.o.Cgroup = testkit.Cgroup(w) },
		[]expected{{"cgroup", doctor.Degraded, "not the root", "--cgroup"}}},
	{"programs are interpreted", server, func(w *world) { w.settings(map[string]string{"core/bpf_jit_enable": "0"}) },
		[]expected{{"bpf-jit", doctor.Degraded, "interpreted", "sysctl -w net.core.bpf_jit_enable=1"}}},
}

// answer serves the status socket like an agent.
func (w *world) answer(s status.Status, more ...socket.Endpoint) {
	w.Helper()
	l, err := socket.Listen(w.o.Socket)
	w.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- status.Answer(ctx, l, status.Everything(func() status.Status { return s }), more...) }()
	w.Cleanup(func() {
		cancel()
		w.must(<-done)
	})
}

var agentFaults = []fault{
	{"the socket is stale", both, func(w *world) {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: w.o.Socket, Net: "unix"})
		w.must(err)
		l.SetUnlinkOnClose(false)
		l.Close()
	}, []expected{{"socket", doctor.Degraded, "nothing listens", "rm "}}},
	{"the agent is not ready", both, func(w *world) {
		w.answer(status.Status{Role: "balancer"}, status.ReadyEndpoint(func() status.Readiness {
			return status.Readiness{Waits: []string{"no BGP session is established"}}
		}))
	}, []expected{{"ready", doctor.Degraded, "no BGP session", "fairlead status --ready"}}},
	{"the agent has problems", both, func(w *world) {
		w.answer(status.Status{Role: "balancer", Problems: []problem.Problem{{Object: "web.yaml:3", Message: "no such field"}}})
	}, []expected{{"problems", doctor.Degraded, "no such field", "jq .problems"}}},
	{"there is no folder of manifests", both, func(w *world) { w.o.Services = filepath.Join(w.TempDir(), "services") },
		[]expected{{"manifests", doctor.Broken, "no such file", "mkdir -p "}}},
	{"a manifest cannot be read", both, func(w *world) {
		w.o.Services = w.TempDir()
		w.must(os.Symlink("nowhere", filepath.Join(w.o.Services, "web.yaml")))
	}, []expected{{"manifests", doctor.Broken, "web.yaml", "chmod"}}},
	{"the folder has no manifest", both, func(w *world) { w.o.Services = w.TempDir() },
		[]expected{{"manifests", doctor.Degraded, "no file that ends in .yaml", "manifests"}}},
}

// TestOursIsNotForeign opens the load balancer's data plane and checks that its program
// on the interface is not a fault.
func TestOursIsNotForeign(t *testing.T) {
	w := healthy(t)
	w.o.Roles, w.o.BPFFS = both, w.mount("bpf", 0)
	w.do(func() error {
		d, err := xdp.Open(xdp.Config{Interfaces: []string{"eth0"}, Mode: xdp.Generic, PinDir: filepath.Join(w.o.BPFFS, "fairlead/balancer"),
			MaxFrontends: 16, MaxBackends: 16, MaxFlows: 1024})
		w.must(err)
		return d.Close()
	})
	if r := w.examine(); !slices.ContainsFunc(r.Findings, (expected{"xdp/eth0", doctor.OK, "Fairlead's XDP program", ""}).fits) {
		t.Errorf("%s", strings.Join(r.Lines(), "\n"))
	}
}

// TestRolesOfTheAgent checks that by default, the roles of the running agent are
// examined.
func TestRolesOfTheAgent(t *testing.T) {
	w := healthy(t)
	w.answer(status.Status{Role: "dsr, proxy"})
	if r := w.examine(); !slices.Equal(r.Roles, []doctor.Role{doctor.DSR, doctor.Proxy}) {
		t.Errorf("roles are %v", r.Roles)
	}
}
