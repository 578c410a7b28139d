package doctor_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/doctor"
	"github.com/fairlead/fairlead/internal/features"
	"github.com/fairlead/fairlead/internal/privilege"
)

// always returns a known fact.
func always[T any](v T) doctor.Known[T] { return doctor.Known[T]{Value: v} }

// without removes capabilities, and CAP_SYS_ADMIN, which includes others.
func without(caps ...privilege.Capability) func(*doctor.System) {
	return func(s *doctor.System) {
		for _, c := range append(caps, privilege.SysAdmin) {
			s.Held &^= 1 << c
		}
	}
}

// good returns facts without any fault.
func good() *doctor.Facts {
	f := &doctor.Facts{
		System: always(doctor.System{Release: "6.12.3", BTF: true, Root: true, Held: privilege.All, UnprivilegedBPF: "2", OpenFiles: 1 << 20,
			LockedMemory: ^uint64(0), CPUs: 4}),
		Features:   map[string]doctor.Known[[]doctor.Feature]{},
		Pins:       always(doctor.BPFFS{Path: "/sys/fs/bpf", Mounted: true, Writable: true}),
		CgroupRoot: always(doctor.Cgroup{Path: "/sys/fs/cgroup", V2: true, Root: true}),
		Network: always(doctor.Network{Names: []string{"lo", "eth0"}, Routes: []doctor.Route{{Prefix: "default", Device: "eth0"}},
			Links: []doctor.Link{{Name: "eth0", Driver: "mlx5_core", MTU: 9000, Up: true, Carrier: true, Addresses: 2,
				XDP:    always(doctor.XDPFeatures{Basic: true, Redirect: true, RedirectTarget: true, Fragments: true}),
				Queues: always(doctor.Queues{RX: 4, MaxRX: 8}), RPFilter: 2}}}),
		Sysctls: always(map[string]doctor.Sysctl{}),
		Clock:   always(doctor.Clock{Now: time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC), Synchronized: always(true)}),
	}
	for name, value := range map[string]string{
		"net.core.bpf_jit_enable": "1", "net.ipv4.ip_forward": "1", "net.ipv6.conf.all.forwarding": "1",
		"net.ipv4.fib_multipath_hash_policy": "3", "net.ipv6.fib_multipath_hash_policy": "3",
		"net.ipv4.fib_multipath_hash_fields": "0x0037", "net.ipv6.fib_multipath_hash_fields": "0x0037",
		"net.ipv4.neigh.default.gc_thresh3": "1024", "net.ipv6.neigh.default.gc_thresh3": "1024",
		"net.netfilter.nf_conntrack_max": "262144", "net.netfilter.nf_conntrack_count": "10",
	} {
		f.Sysctls.Value[name] = doctor.Sysctl{Value: value, Writable: true}
	}
	for _, c := range features.Components {
		f.Features[string(c)] = always([]doctor.Feature{
			{Name: "essential-" + string(c), Since: "5.2", Essential: true, OK: true},
			{Name: "optional", Since: "6.6", OK: true},
		})
	}
	return f
}

// refuse makes a feature unavailable to a component.
func refuse(component string, feature doctor.Feature) func(*doctor.Facts, *doctor.Options) {
	return func(f *doctor.Facts, _ *doctor.Options) {
		feature.Since, feature.Message, feature.WhatLost = "5.2", "helper bpf_x: EPERM", "it is slow"
		f.Features[component] = always([]doctor.Feature{feature})
	}
}

func setting(name, value string) func(*doctor.Facts, *doctor.Options) {
	return func(f *doctor.Facts, _ *doctor.Options) {
		f.Sysctls.Value[name] = doctor.Sysctl{Value: value, Writable: true}
	}
}

// sys and eth0 change the facts about the system and the interface.
func sys(change func(*doctor.System)) func(*doctor.Facts, *doctor.Options) {
	return func(f *doctor.Facts, _ *doctor.Options) { change(&f.System.Value) }
}

func eth0(change func(*doctor.Link)) func(*doctor.Facts, *doctor.Options) {
	return func(f *doctor.Facts, _ *doctor.Options) { change(&f.Network.Value.Links[0]) }
}

func agentThat(a doctor.Agent) func(*doctor.Facts, *doctor.Options) {
	return func(f *doctor.Facts, _ *doctor.Options) { f.Agents = always([]doctor.Agent{a}) }
}

var all = doctor.Roles

// TestFindings changes one fact at a time.
func TestFindings(t *testing.T) {
	for name, c := range map[string]struct {
		roles  []doctor.Role
		change func(*doctor.Facts, *doctor.Options)
		check  string
		want   doctor.Status
		fix    string
	}{
		"an old kernel that has everything": {all, sys(func(s *doctor.System) { s.Release = "5.14.0-503.el9" }), "kernel", doctor.Degraded, "Linux 6.1"},
		"an old kernel that lacks something": {all, func(f *doctor.Facts, o *doctor.Options) {
			f.System.Value.Release = "4.18.0"
			refuse("dsr-agent", doctor.Feature{Name: "bpf_loop", Essential: true})(f, o)
		}, "kernel", doctor.Broken, "Linux 6.1"},
		"a kernel without a number": {all, sys(func(s *doctor.System) { s.Release = "?" }), "kernel", doctor.Unknown, ""},
		"no BTF":                    {all, sys(func(s *doctor.System) { s.BTF = false }), "btf", doctor.Degraded, "CONFIG_DEBUG_INFO_BTF"},
		"root without BPF":          {[]doctor.Role{doctor.DSR}, sys(without(privilege.BPF)), "capabilities", doctor.Broken, "add BPF"},
		"not root": {all, sys(func(s *doctor.System) { s.Root, s.Held = false, 0 }),
			"capabilities", doctor.Unknown, ""},
		"a router needs no BPF":          {[]doctor.Role{doctor.Router}, sys(without(privilege.BPF)), "capabilities", doctor.OK, ""},
		"CAP_SYS_ADMIN includes CAP_BPF": {all, sys(func(s *doctor.System) { s.Held &^= 1 << privilege.BPF }), "capabilities", doctor.OK, ""},
		"features are probed without CAP_SYS_ADMIN": {all, func(f *doctor.Facts, o *doctor.Options) {
			sys(without())(f, o)
			refuse("dsr-agent", doctor.Feature{Name: "bpf_loop", Essential: true})(f, o)
		}, "feature/bpf_loop", doctor.Broken, ""},
		"a balancer restarts":                 {[]doctor.Role{doctor.Balancer}, sys(without()), "capabilities", doctor.Broken, "add SYS_ADMIN"},
		"a proxy enters namespaces":           {all, sys(without()), "capabilities", doctor.Broken, "add SYS_ADMIN"},
		"a reflector takes a port below 1024": {[]doctor.Role{doctor.Reflector}, sys(without(privilege.NetBindService)), "capabilities", doctor.Broken, "NET_BIND_SERVICE"},
		"IPVS needs no BPF":                   {[]doctor.Role{doctor.Balancer}, func(f *doctor.Facts, o *doctor.Options) { sys(without(privilege.BPF))(f, o); o.DataPlane = "ipvs" }, "capabilities", doctor.OK, ""},
		"lockdown":                            {all, sys(func(s *doctor.System) { s.Lockdown = "confidentiality" }), "lockdown", doctor.Info, ""},
		"seccomp":                             {all, sys(func(s *doctor.System) { s.Seccomp = true }), "seccomp", doctor.Info, ""},
		"BPF for everybody":                   {all, sys(func(s *doctor.System) { s.UnprivilegedBPF = "0" }), "unprivileged-bpf", doctor.Info, ""},
		"no JIT":                              {all, setting("net.core.bpf_jit_enable", "0"), "bpf-jit", doctor.Degraded, "sysctl -w net.core.bpf_jit_enable=1"},
		"little memory":                       {all, sys(func(s *doctor.System) { s.MemoryMax = 64 << 20 }), "memory-limit", doctor.Degraded, "256M"},
		"few files":                           {all, sys(func(s *doctor.System) { s.OpenFiles = 1024 }), "open-files", doctor.Degraded, "LimitNOFILE"},
		"locked memory":                       {all, sys(func(s *doctor.System) { s.LockedMemory = 65536 }), "locked-memory", doctor.Info, ""},
		"1970": {all, func(f *doctor.Facts, _ *doctor.Options) { f.Clock.Value.Now = time.Unix(3600, 0) },
			"clock", doctor.Broken, "chronyd"},
		"a clock of its own": {all, func(f *doctor.Facts, _ *doctor.Options) { f.Clock.Value.Synchronized.Value = false },
			"clock", doctor.Degraded, "chronyd"},
		"an essential feature": {[]doctor.Role{doctor.DSR}, refuse("dsr-agent", doctor.Feature{Name: "x", Essential: true}), "feature/x", doctor.Broken, "Linux 5.2"},
		"an optional feature":  {[]doctor.Role{doctor.DSR}, refuse("dsr-agent", doctor.Feature{Name: "x"}), "feature/x", doctor.Degraded, "Linux 5.2"},
		"a silent feature":     {[]doctor.Role{doctor.DSR}, refuse("dsr-agent", doctor.Feature{Name: "x", Silent: true}), "feature/x", doctor.Info, ""},
		"a feature not tried":  {[]doctor.Role{doctor.DSR}, refuse("dsr-agent", doctor.Feature{Name: "x", Untried: true}), "feature/x", doctor.Unknown, ""},
		"no IPVS, where XDP works": {[]doctor.Role{doctor.Balancer}, refuse("ipvs-balancer", doctor.Feature{Name: "ipvs", Essential: true}),
			"feature/ipvs", doctor.Info, ""},
		"no XDP, where IPVS works": {[]doctor.Role{doctor.Balancer}, refuse("balancer", doctor.Feature{Name: "x", Essential: true}),
			"feature/x", doctor.Info, ""},
		"no IPVS, and XDP not probed": {[]doctor.Role{doctor.Balancer}, func(f *doctor.Facts, o *doctor.Options) {
			refuse("ipvs-balancer", doctor.Feature{Name: "ipvs", Essential: true})(f, o)
			f.Features["balancer"] = doctor.Known[[]doctor.Feature]{Err: "not finished in time"}
		}, "feature/ipvs", doctor.Unknown, ""},
		"neither XDP nor IPVS": {[]doctor.Role{doctor.Balancer}, func(f *doctor.Facts, o *doctor.Options) {
			refuse("ipvs-balancer", doctor.Feature{Name: "ipvs", Essential: true})(f, o)
			refuse("balancer", doctor.Feature{Name: "x", Essential: true})(f, o)
		}, "feature/x", doctor.Broken, "Linux 5.2"},
		"no XDP, where nothing else may be used": {[]doctor.Role{doctor.Balancer}, func(f *doctor.Facts, o *doctor.Options) {
			o.DataPlane = "xdp"
			refuse("balancer", doctor.Feature{Name: "x", Essential: true})(f, o)
		}, "feature/x", doctor.Broken, "Linux 5.2"},
		"no IPVS, where nothing else may be used": {[]doctor.Role{doctor.Balancer}, func(f *doctor.Facts, o *doctor.Options) {
			o.DataPlane = "ipvs"
			refuse("ipvs-balancer", doctor.Feature{Name: "ipvs", Essential: true})(f, o)
		}, "feature/ipvs", doctor.Broken, "modprobe ip_vs"},
		"few queues": {all, eth0(func(l *doctor.Link) { l.Queues.Value.RX = 1 }), "queues/eth0", doctor.Degraded, "ethtool -L eth0 combined 4"},
		"no more queues": {all, eth0(func(l *doctor.Link) { l.Queues.Value = doctor.Queues{RX: 1, MaxRX: 1} }),
			"queues/eth0", doctor.Info, ""},
		"a driver that says nothing": {all, eth0(func(l *doctor.Link) { l.XDP.Err = "the kernel does not say" }), "native-xdp/eth0", doctor.Unknown, ""},
		"jumbo frames without fragments": {all, eth0(func(l *doctor.Link) { l.XDP.Value.Fragments = false }),
			"native-xdp/eth0", doctor.Degraded, "ip link set dev eth0 mtu 3498"},
		"little room for tunnels": {all, eth0(func(l *doctor.Link) { l.MTU = 1550 }), "mtu/eth0", doctor.Info, "mtu 1648"},
		"no interface": {all, func(f *doctor.Facts, _ *doctor.Options) { f.Network.Value.Routes = nil },
			"interfaces", doctor.Unknown, ""},
		"no answer about networks": {all, func(f *doctor.Facts, _ *doctor.Options) { f.Network.Err = "not finished in time" }, "interfaces", doctor.Unknown, ""},
		"no answer about sysctls":  {all, func(f *doctor.Facts, _ *doctor.Options) { f.Sysctls.Err = "not finished in time" }, "sysctl", doctor.Unknown, ""},
		"policy 0":                 {all, setting("net.ipv4.fib_multipath_hash_policy", "0"), "sysctl/ipv4.fib_multipath_hash_policy", doctor.Degraded, "=3"},
		"policy 1":                 {all, setting("net.ipv4.fib_multipath_hash_policy", "1"), "sysctl/ipv4.fib_multipath_hash_policy", doctor.OK, ""},
		"many backends": {all, agentThat(doctor.Agent{Socket: "s", Role: "balancer", Backends: 1000}),
			"sysctl/ipv4.neigh.default.gc_thresh3", doctor.Degraded, "gc_thresh3=2048"},
		"conntrack is full": {all, setting("net.netfilter.nf_conntrack_count", "262000"), "conntrack", doctor.Degraded, "nf_conntrack_max=524288"},
		"IPVS services of somebody else": {all, func(f *doctor.Facts, _ *doctor.Options) { f.IPVSServices.Value = 3 },
			"ipvs-services", doctor.Info, ""},
		"IPVS services of somebody else, in IPVS": {all, func(f *doctor.Facts, o *doctor.Options) { f.IPVSServices.Value, o.DataPlane = 3, "ipvs" },
			"ipvs-services", doctor.Degraded, "ipvsadm --clear"},
		"IPVS services of ours": {all, func(f *doctor.Facts, o *doctor.Options) {
			f.IPVSServices.Value, o.DataPlane = 3, "ipvs"
			agentThat(doctor.Agent{Socket: "s", Role: "balancer", IPVS: true})(f, o)
		}, "ipvs-services", doctor.OK, ""},
		"kube-proxy, where it is needed": {[]doctor.Role{doctor.Balancer}, func(f *doctor.Facts, _ *doctor.Options) { f.Chains.Value = []string{"nat/KUBE-SERVICES"} },
			"kube-proxy-rules", doctor.Info, ""},
		"a program that was detached": {all, func(f *doctor.Facts, o *doctor.Options) { o.Attached = []string{"eth0"} },
			"xdp/eth0", doctor.Broken, "restart the agent"},
		"a program that may not be asked for": {all, eth0(func(l *doctor.Link) { l.Attached = &doctor.Program{ID: 7, Name: doctor.Nameless} }),
			"xdp/eth0", doctor.Unknown, ""},
		"a port of who runs here": {all, func(f *doctor.Facts, o *doctor.Options) {
			f.Sockets = always([]doctor.Socket{{Port: 179, PID: 9, Comm: "fairlead"}})
			agentThat(doctor.Agent{Socket: "s", Role: "router", PID: 9})(f, o)
		}, "port/bgp", doctor.OK, ""},
		"a port of who may not be asked": {all, func(f *doctor.Facts, _ *doctor.Options) { f.Sockets = always([]doctor.Socket{{Port: 179}}) },
			"port/bgp", doctor.Broken, "--shadow-protocol"},
		"warnings of the data plane": {all, agentThat(doctor.Agent{Socket: "s", Role: "balancer", Warnings: []string{"no room"}}),
			"data-plane", doctor.Degraded, "fairlead status"},
		"an agent that is degraded": {all, agentThat(doctor.Agent{Socket: "s", Role: "balancer", Degraded: []string{"capture is refused"}}),
			"degraded", doctor.Degraded, "docs/kernel-features.md"},
		"an agent of somebody else": {all, agentThat(doctor.Agent{Socket: "s", Error: "permission denied"}), "socket", doctor.Unknown, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f, o := good(), doctor.Options{Roles: c.roles, DataPlane: "auto"}
			c.change(f, &o)
			r := doctor.Examine(f, o)
			i := slices.IndexFunc(r.Findings, func(f doctor.Finding) bool { return f.Check == c.check && f.Status == c.want })
			if i < 0 || !strings.Contains(r.Findings[i].Fix, c.fix) {
				t.Errorf("no %s %s with fix %q in\n%s", c.want, c.check, c.fix, strings.Join(r.Lines(), "\n"))
			}
			for _, f := range r.Findings {
				if f.Message == "" || (f.Status == doctor.Broken || f.Status == doctor.Degraded) && f.Fix == "" {
					t.Errorf("says too little: %+v", f)
				}
			}
		})
	}
}

// TestGood checks that good facts yield no bad findings for any role.
func TestGood(t *testing.T) {
	r := doctor.Examine(good(), doctor.Options{Roles: all, DataPlane: "auto"})
	if r.Broken+r.Degraded+r.Count(doctor.Unknown) > 0 {
		t.Errorf("%s", strings.Join(r.Lines(), "\n"))
	}
}

// TestNothingKnown checks that without facts there is no verdict, and no panic.
func TestNothingKnown(t *testing.T) {
	f := &doctor.Facts{}
	const late = "not finished in time"
	f.System.Err, f.Pins.Err, f.CgroupRoot.Err, f.Network.Err, f.Sysctls.Err, f.Sockets.Err = late, late, late, late, late, late
	f.Processes.Err, f.Chains.Err, f.IPVSServices.Err, f.Agents.Err, f.Manifests.Err, f.Clock.Err = late, late, late, late, late, late
	r := doctor.Examine(f, doctor.Options{Roles: all, DataPlane: "auto"})
	if r.Broken+r.Degraded > 0 || r.Count(doctor.Unknown) < 12 {
		t.Errorf("%s", strings.Join(r.Lines(), "\n"))
	}
}

// TestReport checks the text and JSON reports.
func TestReport(t *testing.T) {
	f := good()
	f.Network.Value.Links[0].Up = false
	f.Sysctls.Value["net.core.bpf_jit_enable"] = doctor.Sysctl{Value: "0"}
	r := doctor.Examine(f, doctor.Options{Roles: doctor.DefaultRoles, DataPlane: "xdp"})
	text := strings.Join(r.Lines(), "\n")
	head, tail, found := strings.Cut(text, "1 broken, 1 degraded")
	if !found || !strings.HasPrefix(head, "Linux 6.12.3, roles balancer, dsr\n\nsystem\n") {
		t.Fatalf("%s", text)
	}
	first, second := strings.Index(tail, "  broken    interface/eth0: "), strings.Index(tail, "  degraded  bpf-jit: ")
	if first < 0 || second < first || !strings.Contains(tail, "\n            fix: ip link set dev eth0 up") {
		t.Errorf("what is not ok at the end: %s", tail)
	}
	var back map[string]any
	b, err := json.Marshal(r)
	if err == nil {
		err = json.Unmarshal(b, &back)
	}
	if err != nil || back["kernel"] != "6.12.3" || back["broken"] != 1.0 || back["degraded"] != 1.0 || len(back["findings"].([]any)) != len(r.Findings) {
		t.Errorf("%s %v", b, err)
	}
}

// TestNamesAreThoseOfOthers checks that roles are named as in config and components as in
// internal/features.
func TestNamesAreThoseOfOthers(t *testing.T) {
	for _, r := range config.Roles {
		if !slices.Contains(doctor.Roles, doctor.Role(r)) {
			t.Errorf("config has the role %s", r)
		}
	}
	examined := doctor.Options{Roles: all, DataPlane: "auto"}.Components()
	for _, c := range features.Components {
		if !slices.Contains(examined, string(c)) {
			t.Errorf("internal/features has the component %s, which no role examines", c)
		}
	}
	if len(examined) != len(features.Components) {
		t.Errorf("components %v", examined)
	}
}

// TestWithRoles checks the precedence: specified roles, running agents, the default.
func TestWithRoles(t *testing.T) {
	agents := []doctor.Agent{{Role: "balancer, proxy"}, {Role: "router"}, {Role: "router"}}
	for _, c := range []struct {
		named  []doctor.Role
		agents []doctor.Agent
		want   []doctor.Role
	}{
		{[]doctor.Role{doctor.VDN}, agents, []doctor.Role{doctor.VDN}},
		{nil, agents, []doctor.Role{doctor.Balancer, doctor.Proxy, doctor.Router}},
		{nil, nil, doctor.DefaultRoles},
	} {
		if got := (doctor.Options{Roles: c.named}).WithRoles(c.agents).Roles; !slices.Equal(got, c.want) {
			t.Errorf("%v and %v: %v", c.named, c.agents, got)
		}
	}
}
