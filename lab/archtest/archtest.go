// Package archtest enforces the rules that keep the code readable: who may import what,
// who may read a clock, how long files and functions may be, and that each package has
// exactly one package comment. Its test checks the whole module; it runs nothing of the
// product.
package archtest

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// module is this module's path.
const module = "github.com/fairlead/fairlead"

// pure are the packages that decide and compute: they depend only on their input, so that
// tests and the simulator can run them unchanged.
var pure = []string{"core/service", "core/proxy", "vdn", "vdn/file", "agent/doctor", "core/maglev", "core/schedule", "core/desired", "core/plan", "core/problem", "core/route", "core/health", "core/event", "core/ring", "core/addresspool", "internal/keyed",
	"dataplane/xdp/alloc", "advertise/l2/elect", "advertise/l2/wire", "lab/sim", "lab/sim/verdict", "lab/sim/lvs", "lab/sim/experiments", "lab/sim/scenario",
	"lab/sim/eventqueue", "lab/sim/stochastic", "lab/sim/traffic", "lab/sim/scenario/reading", "lab/sim/scenario/requests", "lab/sim/scenario/histogram", "lab/sim/resilient", "lab/sim/experiments/draw", "lab/sim/experiments/ecmp", "lab/sim/experiments/follow", "lab/sim/experiments/hierarchy", "lab/sim/experiments/rollout", "lab/sim/experiments/routing", "lab/sim/experiments/services", "lab/sim/experiments/tail"}

// outside is what a pure package must not import, directly or indirectly.
var outside = []Ban{
	{"net", "sockets are I/O (net/netip is fine)"},
	{"net/http", "sockets are I/O"},
	{"github.com/vishvananda/...", "the kernel is the data plane's and the router's business"},
	{"github.com/mdlayher/...", "the kernel is the data plane's and the router's business"},
	{"github.com/cilium/ebpf/...", "the kernel is the data plane's and the router's business"},
	{"github.com/osrg/gobgp/...", "BGP is advertise/bgp's business"},
	{"k8s.io/...", "Kubernetes' types end at the sources"},
	{"golang.org/x/sys/...", "system calls are I/O"},
}

// outsideDirect is what a pure package must not import directly. Everything imports os
// through fmt.
var outsideDirect = []Ban{
	{"os", "files and the environment are input: take them as arguments"},
	{"os/exec", "processes are I/O"},
	{"syscall", "system calls are I/O"},
}

// Ban is a forbidden import with its reason. A path that ends in "/..." includes
// everything below it.
type Ban struct{ Path, Why string }

func (b Ban) covers(imported string) bool {
	base, below := strings.CutSuffix(b.Path, "/...")
	return imported == base || below && strings.HasPrefix(imported, base+"/")
}

// Wall is a library that only some packages may import.
type Wall struct {
	Ban
	// Only are the packages that may, including those below them.
	Only []string
}

var walls = []Wall{
	{Ban{"github.com/prometheus/...", "metrics are one view of the Status among others"}, []string{"agent/metrics", "controller", "internal/exposition", "vdn/server", "vdn/node/metrics"}},
	{Ban{"github.com/osrg/gobgp/...", "the BGP library must be exchangeable: no type of it crosses advertise"}, []string{"advertise/bgp"}},
	{Ban{"github.com/osrg/gobgp/v4/pkg/server", "sessions and tables are ours: see docs/decisions/0041"}, nil},
	{Ban{"github.com/osrg/gobgp/v4/api", "it brings gRPC: see docs/decisions/0041"}, nil},
	{Ban{"github.com/cilium/ebpf/...", "only what loads programs and writes maps knows BPF"},
		[]string{"dataplane/xdp", "dataplane/dsr", "dataplane/proxy", "dataplane/cleanup",
			"internal/tc", "dataplane/internal/counter", "dataplane/auth", "internal/bpfload", "internal/bpfmap", "internal/features", "agent/doctor/gather", "agent/sysdump/gather", "vdn/enforce/kernel", "dataplane/internal/walk", "lab/testnet", "lab/e2e/hierarchy", "lab/bench/xdpbench", "lab/bench/peers", "lab/bench/proxybench", "lab/testkit/refuse", "lab/testkit/bpfstack", "lab/testkit/packetfuzz"}},
	{Ban{"github.com/vishvananda/...", "netlink is for those who change a kernel's state"},
		[]string{"router", "dataplane", "advertise/l2", "vdn/cni", "lab", "vdn/node", "vdn/enforce", "internal/netlist", "internal/tc", "internal/features", "agent/doctor/gather", "agent/sysdump/gather", "lab/testkit"}},
	{Ban{"k8s.io/client-go/...", "the API server is for the source and the controller"}, []string{"internal/kubeclient", "source/kube", "controller", "agent/kubectl", "vdn/kube", "lab/kube", "lab/bench/endpoints", "lab/bench/kubeproxy"}},
	{Ban{"k8s.io/api/...", "Kubernetes' types end at the sources"},
		[]string{"internal/kubeclient", "source/manifest", "source/kube", "source/object", "source/gateway", "api/v1alpha1", "controller", "agent/kubectl", "vdn/kube", "lab/kube", "lab/bench/endpoints", "lab/bench/kubeproxy"}},
	{Ban{"k8s.io/apimachinery/...", "Kubernetes' types end at the sources"},
		[]string{"internal/kubeclient", "source/manifest", "source/kube", "source/object", "source/crd", "source/gateway", "api/v1alpha1", "controller", "agent/kubectl", "vdn/kube", "lab/kube", "lab/bench/endpoints", "lab/bench/kubeproxy"}},
	{Ban{"github.com/aws/...", "clouds' SDKs are large and change: no type of them crosses advertise/cloud"}, []string{"advertise/cloud"}},
	{Ban{"google.golang.org/api/...", "clouds' SDKs are large and change: no type of them crosses advertise/cloud"}, []string{"advertise/cloud"}},
	{Ban{"go.etcd.io/bbolt/...", "what is kept of networks is written in one place"}, []string{"vdn/store"}},
	{Ban{"go.etcd.io/etcd/...", "its client is larger than what vdn/store/etcd needs of it: see docs/decisions/0036"}, nil},
	{Ban{"github.com/spf13/cobra/...", "commands are wiring"}, []string{"cmd"}},
	{Ban{module + "/cmd/...", "nothing stands on a command"}, []string{"cmd"}},
	{Ban{module + "/dataplane/xdp/bpf", "the balancer's maps are known in one folder"}, []string{"dataplane/xdp"}},
	{Ban{module + "/dataplane/xdp/program", "the balancer's programs are loaded in one folder"}, []string{"dataplane/xdp"}},
	{Ban{module + "/core/maglev", "rings are made in one place, for all data planes and the simulator"}, []string{"core/ring", "lab/sim"}},
}

// testOnly are packages of this module that only tests may import, including the packages
// below them.
var testOnly = []Ban{
	{"lab/testkit/refuse/...", "the product runs on the kernel as it is"},
	{"lab/testkit/refusals", "the product runs on the kernel as it is"},
	{"lab/testkit/fuzzlimit", "it ends the process"},
	{"internal/bpfload/layouttest", "it has a flag that writes golden files"},
}

// installed are the programs that users get, as in INSTALLED in the Makefile.
var installed = []string{"cmd/fairlead", "cmd/fairlead-cni", "cmd/fairlead-ipam", "cmd/kubectl-fairlead"}

// notInstalled is what no installed program may contain, directly or indirectly. These
// programs run with capabilities on other people's machines: everything in them can be
// attacked there, and is downloaded with every image.
var notInstalled = []Ban{
	{"lab/...", "labs, benchmarks, the simulator and test kits run the product from outside: they generate traffic, fill the kernel's tables, refuse system calls"},
	{"cmd/fairlead-lab/...", "demo, benchmarks and simulator are a program of their own"},
	{"cmd/internal/labcmd", "demo, benchmarks and simulator are a program of their own"},
	{"testing/...", "registers flags, and only tests need it"},
	{"gonum.org/...", "plotting: fonts and a PDF writer"},
	{"codeberg.org/...", "plotting: fonts and a PDF writer"},
	{"git.sr.ht/...", "plotting: fonts and a PDF writer"},
	{"k8s.io/client-go/kubernetes/...", "compiles every API group of Kubernetes: use internal/kubeclient"},
	{"k8s.io/client-go/informers/...", "compiles every API group of Kubernetes: use tools/cache with a ListWatch"},
	{"k8s.io/client-go/listers/...", "compiles every API group of Kubernetes: use tools/cache with a ListWatch"},
	{"k8s.io/client-go/tools/leaderelection/...", "brings the clientset and all informers: use controller/elect"},
	{"k8s.io/client-go/tools/events/...", "brings the clientset: use internal/kubeclient"},
	{"k8s.io/client-go/tools/record/...", "brings the clientset: use internal/kubeclient"},
	{"github.com/aws/aws-sdk-go-v2/service/ec2/...", "compiles 700 requests: add the one that is needed to advertise/cloud/aws"},
	{"google.golang.org/api/compute/...", "compiles every request of Compute Engine: add the one that is needed to advertise/cloud/gcp"},
}

// shared is what several packages must use, so that none has its own copy: the
// schedulers, which the simulator uses, and which the data planes run or are compared
// with in tests.
var shared = []Need{
	{"core/schedule", []string{"lab/sim", "lab/sim/experiments/follow", "lab/sim/experiments/tail", "dataplane/fake", "lab/conformance", "dataplane/xdp", "dataplane/ipvs"}},
	{"core/ring", []string{"lab/sim", "lab/sim/experiments/follow", "core/schedule", "dataplane/fake", "dataplane/xdp"}},
	{"core/maglev", []string{"core/ring"}},
}

// Need is a package that others must import.
type Need struct {
	Path string
	By   []string
}

// Package is what the rules check about a package. Paths within this module are relative
// to it.
type Package struct {
	Path string
	// Imports are the package's imports, TestImports those of its tests.
	Imports, TestImports []string
}

// Breaches returns every violation of the import rules, one line each with its fix. all
// contains the module's packages and their dependencies.
func Breaches(all []Package) []string {
	byPath := map[string]Package{}
	for _, p := range all {
		byPath[p.Path] = p
	}
	breaches := copies(byPath)
	for _, p := range all {
		if isOurs(p.Path) {
			breaches = append(breaches, throughWalls(p)...)
			breaches = append(breaches, testsAlone(p)...)
		}
		if slices.Contains(pure, p.Path) {
			breaches = append(breaches, impure(p, byPath)...)
		}
		if slices.Contains(installed, p.Path) {
			breaches = append(breaches, reached(p, byPath, notInstalled, "is installed")...)
		}
	}
	slices.Sort(breaches)
	return slices.Compact(breaches)
}

// copies finds packages that do not import what they must, among those that exist.
func copies(byPath map[string]Package) (breaches []string) {
	for _, n := range shared {
		for _, by := range n.By {
			if p, there := byPath[by]; there && !slices.Contains(slices.Concat(p.Imports, p.TestImports), n.Path) {
				breaches = append(breaches, fmt.Sprintf("%s does not import %s: it must not have a copy of its own", by, n.Path))
			}
		}
	}
	return breaches
}

// isOurs reports whether a package belongs to this module: other paths begin with a host
// name, or with std: in the standard library.
func isOurs(p string) bool { return !strings.HasPrefix(p, "std:") && !strings.Contains(first(p), ".") }

func first(p string) string {
	head, _, _ := strings.Cut(p, "/")
	return head
}

func throughWalls(p Package) []string {
	var breaches []string
	for _, w := range walls {
		if slices.ContainsFunc(w.Only, func(dir string) bool { return isBelow(p.Path, dir) }) {
			continue
		}
		for _, i := range slices.Concat(p.Imports, p.TestImports) {
			full := strings.TrimPrefix(i, "std:")
			if isOurs(i) {
				full = path.Join(module, i)
			}
			if w.covers(full) {
				breaches = append(breaches, fmt.Sprintf("%s imports %s, which only %s may: %s", p.Path, full, may(w.Only), w.Why))
			}
		}
	}
	return breaches
}

// testsAlone finds imports of test-only packages outside tests.
func testsAlone(p Package) (breaches []string) {
	for _, b := range testOnly {
		for _, i := range p.Imports {
			if b.covers(i) && !strings.HasPrefix(p.Path, "lab/testkit/") {
				breaches = append(breaches, fmt.Sprintf("%s imports %s, which only tests may: %s", p.Path, i, b.Why))
			}
		}
	}
	return breaches
}

func may(only []string) string {
	if len(only) == 0 {
		return "itself"
	}
	return strings.Join(only, ", ")
}

func isBelow(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// impure follows the imports of a pure package.
func impure(p Package, byPath map[string]Package) []string {
	var breaches []string
	for _, i := range p.Imports {
		for _, b := range outsideDirect {
			if b.covers(strings.TrimPrefix(i, "std:")) {
				breaches = append(breaches, fmt.Sprintf("%s is pure, but imports %s: %s", p.Path, b.Path, b.Why))
			}
		}
	}
	return append(breaches, reached(p, byPath, outside, "is pure")...)
}

// reached follows the imports of a package to those that are banned for it; as describes
// the package in the message.
func reached(p Package, byPath map[string]Package, bans []Ban, as string) (breaches []string) {
	seen := map[string]bool{}
	var follow func(from string, way []string)
	follow = func(from string, way []string) {
		for _, i := range byPath[from].Imports {
			if seen[i] {
				continue
			}
			seen[i] = true
			name := strings.TrimPrefix(i, "std:")
			for _, b := range bans {
				if b.covers(name) {
					breaches = append(breaches, fmt.Sprintf("%s %s, but reaches %s by %s: %s",
						p.Path, as, name, strings.Join(append(way, name), " -> "), b.Why))
				}
			}
			follow(i, append(slices.Clone(way), name))
		}
	}
	follow(p.Path, []string{p.Path})
	return breaches
}
