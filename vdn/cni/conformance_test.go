package cni

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"
	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/testkit"
)

// reference is Debian's directory of the reference plugins.
const reference = "/usr/lib/cni"

// tool runs cnitool on a list of plugins.
type tool struct {
	t    *testing.T
	path string
	dir  string
}

func newTool(t *testing.T, name, version, plugins string) *tool {
	t.Helper()
	c := &tool{t: t, path: programs(t), dir: t.TempDir()}
	list := fmt.Sprintf(`{"cniVersion":%q,"name":%q,"plugins":[%s]}`, version, name, plugins)
	must(t, os.WriteFile(filepath.Join(c.dir, name+".conflist"), []byte(list), 0o600))
	return c
}

func (c *tool) run(verb, name string, ns *netns.NS, env ...string) (*current.Result, error) {
	c.t.Helper()
	cmd := exec.Command(filepath.Join(c.path, "cnitool"), verb, name, ns.Path())
	cmd.Env = append(os.Environ(), append(env, "NETCONFPATH="+c.dir, "CNI_PATH="+c.path+":"+reference)...)
	var out, fault bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &fault
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("cnitool %s: %w: %s%s", verb, err, &out, &fault)
	}
	if verb != "add" {
		return nil, nil
	}
	result, err := create.CreateFromBytes(out.Bytes())
	must(c.t, err)
	return current.NewResultFromResult(result)
}

func (c *tool) must(verb, name string, ns *netns.NS, env ...string) *current.Result {
	c.t.Helper()
	result, err := c.run(verb, name, ns, env...)
	must(c.t, err)
	return result
}

func (r *rig) plugin(network string, more ...string) string {
	return fmt.Sprintf(`{"type":"fairlead-cni","network":%q,"controller":"http://%s","node":"n1","dataDir":%q,"capabilities":{"ips":true,"mac":true}%s}`,
		network, r.address, r.dataDir, prefixed(more))
}

// addresses returns an ipam object for another plugin.
func (r *rig) addresses(network string) string {
	return fmt.Sprintf(`"ipam":{"type":"fairlead-ipam","network":%q,"controller":"http://%s","node":"n1","dataDir":%q}`, network, r.address, r.dataDir)
}

// ipam returns a configuration with that object.
func (r *rig) ipam(network string, more ...string) string {
	return fmt.Sprintf(`{"cniVersion":"1.1.0","name":"lab","type":"ptp",%s%s}`, r.addresses(network), prefixed(more))
}

// TestConformance runs every operation with cnitool, with traffic of both families.
func TestConformance(t *testing.T) {
	r := newRig(t)
	for _, network := range []string{"science", "whole"} {
		t.Run(network, func(t *testing.T) {
			c := newTool(t, "lab", "1.1.0", r.plugin(network))
			one, two := testkit.NetNS(t), testkit.NetNS(t)
			c.must("status", "lab", one)
			first, second := c.must("add", "lab", one), c.must("add", "lab", two)
			c.must("check", "lab", one)
			reaches(t, one, two, hosts(second)...)
			reaches(t, two, one, hosts(first)...)
			c.must("del", "lab", one)
			c.must("del", "lab", one)
			if ids := r.leases(); len(ids) != 1 {
				t.Errorf("leases are %q", ids)
			}
			c.must("gc", "lab", two) // cnitool's GC retains nothing
			if left := links(t, two); len(left) > 0 {
				t.Errorf("the pod has %q", left)
			}
			r.nothingLeft()
		})
	}
}

// TestVersions checks that results have the requested version.
func TestVersions(t *testing.T) {
	r := newRig(t)
	for _, version := range []string{"0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		c := newTool(t, "lab", version, r.plugin("science"))
		ns := testkit.NetNS(t)
		result := c.must("add", "lab", ns, "CNI_IFNAME=net3")
		if len(hosts(result)) != 2 || result.Interfaces[0].Name != "net3" {
			t.Errorf("%s: %+v", version, result)
		}
		if version > "0.4" {
			c.must("check", "lab", ns, "CNI_IFNAME=net3")
		}
		c.must("del", "lab", ns, "CNI_IFNAME=net3")
	}
	for _, name := range []string{"fairlead-cni", "fairlead-ipam"} {
		cmd := exec.Command(filepath.Join(programs(t), name))
		cmd.Env = []string{"CNI_COMMAND=VERSION"}
		out, err := cmd.CombinedOutput()
		var said struct{ SupportedVersions []string }
		if err != nil || json.Unmarshal(out, &said) != nil || !slices.Equal(said.SupportedVersions, []string{"0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}) {
			t.Errorf("%s: %s, %v", name, out, err)
		}
	}
	r.nothingLeft()
}

// fixedBridge creates a bridge with a fixed MAC address. Other bridges take the address of
// their ports, and the reference plugin's CHECK compares it.
func fixedBridge(t *testing.T, name string) {
	t.Helper()
	b := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name, HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 9}}}
	must(t, netlink.LinkAdd(b))
	t.Cleanup(func() { must(t, netlink.LinkDel(b)) })
}

func needReference(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(reference); err != nil {
		t.Skipf("%v: apt install containernetworking-plugins", err)
	}
}

// TestReferencePlugins gives reference plugins a network's addresses with fairlead-ipam.
func TestReferencePlugins(t *testing.T) {
	needReference(t)
	r := newRig(t)
	fixedBridge(t, "cni0")
	ipam := r.addresses("science")
	for kind, plugin := range map[string]string{
		"macvlan": `{"type":"macvlan","master":"eth1",` + ipam + `}`,
		"bridge":  `{"type":"bridge","bridge":"cni0",` + ipam + `}`,
		"ptp":     `{"type":"ptp",` + ipam + `}`,
	} {
		t.Run(kind, func(t *testing.T) {
			c := newTool(t, "lab", "1.0.0", plugin)
			one, two := testkit.NetNS(t), testkit.NetNS(t)
			first, second := c.must("add", "lab", one), c.must("add", "lab", two)
			if kind != "ptp" {
				reaches(t, one, two, hosts(second)...)
				reaches(t, two, one, hosts(first)...)
			}
			c.must("check", "lab", one)
			a := r.store.Attachments("science", "n1")[0]
			if kind == "macvlan" && (a.Device != "eth1" || a.Phase != "up") {
				t.Errorf("the controller knows %+v", a)
			}
			for _, ns := range []*netns.NS{one, two, two} {
				c.must("del", "lab", ns)
			}
			r.nothingLeft()
		})
	}
	c := newTool(t, "lab", "1.0.0", `{"type":"bridge","bridge":"cni0",`+r.addresses("whole")+`}`)
	if _, err := c.run("add", "lab", testkit.NetNS(t)); err == nil || !strings.Contains(err.Error(), "whole NICs") {
		t.Errorf("a network of whole NICs: %v", err)
	}
	must(t, StatusAddresses(args(r.ipam("science"), "", "")))
	must(t, GCAddresses(args(r.ipam("science"), "", "")))
	r.nothingLeft()
}

// command runs fairlead-cni as a runtime does.
func (r *rig) command(verb, conf, container string, ns *netns.NS) *exec.Cmd {
	return r.commandOf("fairlead-cni", verb, conf, container, ns)
}

func (r *rig) commandOf(program, verb, conf, container string, ns *netns.NS) *exec.Cmd {
	cmd := exec.Command(filepath.Join(programs(r.t), program))
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+verb, "CNI_CONTAINERID="+container, "CNI_NETNS="+ns.Path(), "CNI_IFNAME=net1", "CNI_PATH="+programs(r.t))
	cmd.Stdin = strings.NewReader(conf)
	return cmd
}

// TestKilled kills ADD at various points and checks that another ADD, or DEL, recovers.
func TestKilled(t *testing.T) {
	r := newRig(t)
	for _, network := range []string{"science", "whole"} {
		for _, at := range []string{"POST", "PUT"} {
			for _, then := range []string{"ADD", "DEL"} {
				t.Run(network+" at "+at+" then "+then, func(t *testing.T) {
					ns := testkit.NetNS(t)
					cmd := r.command("ADD", r.conf(network), "one", ns)
					var killed sync.Once
					r.onRequest(func(q *http.Request) {
						if q.Method == at {
							killed.Do(func() { must(t, cmd.Process.Kill()) })
						}
					})
					var status *exec.ExitError
					if err := cmd.Run(); !errors.As(err, &status) || status.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
						t.Fatalf("it ends with %v", err)
					}
					r.onRequest(nil)
					a := args(r.conf(network), "one", ns.Path())
					if then == "ADD" {
						result, err := Add(a)
						must(t, err)
						must(t, Check(args(with(t, r.conf(network), result), "one", ns.Path())))
					}
					must(t, Del(a))
					if left := links(t, ns); len(left) > 0 {
						t.Errorf("the pod has %q", left)
					}
					r.nothingLeft()
				})
			}
		}
	}
}

// TestTwentyAtOnce checks that concurrent ADDs get one address each and that none remains.
func TestTwentyAtOnce(t *testing.T) {
	r := newRig(t)
	const n = 20
	var pods []*netns.NS
	for range n {
		pods = append(pods, testkit.NetNS(t))
	}
	seen := map[netip.Addr]bool{}
	for _, verb := range []string{"ADD", "DEL"} {
		var all sync.WaitGroup
		outs, errs := make([][]byte, n), make([]error, n)
		for i, ns := range pods {
			cmd := r.command(verb, r.conf("science"), fmt.Sprintf("c%d", i), ns)
			all.Go(func() { outs[i], errs[i] = cmd.Output() })
		}
		all.Wait()
		for i := range pods {
			if errs[i] != nil {
				t.Fatalf("%s %d: %v: %s", verb, i, errs[i], outs[i])
			}
			if verb == "ADD" {
				result := current.Result{}
				must(t, json.Unmarshal(outs[i], &result))
				for _, a := range hosts(&result) {
					if seen[a] {
						t.Errorf("%s is given twice", a)
					}
					seen[a] = true
				}
			}
		}
		if verb == "ADD" {
			reaches(t, pods[0], pods[n-1], hostsOf(r, n-1)...)
		}
	}
	if len(seen) != 2*n {
		t.Errorf("%d addresses are given", len(seen))
	}
	r.nothingLeft()
}

// hostsOf returns the addresses that the controller leased to a container.
func hostsOf(r *rig, i int) (all []netip.Addr) {
	a, err := r.store.Attachment(fmt.Sprintf("c%d.net1", i))
	must(r.t, err)
	for _, p := range a.Addresses {
		all = append(all, p.Addr())
	}
	return all
}

// TestLatency measures ADD from process start to exit, compared with a process that only
// prints its version.
func TestLatency(t *testing.T) {
	r := newRig(t)
	for _, network := range []string{"science", "whole"} {
		var took, floor, cpu []time.Duration
		for i := range 50 {
			ns, err := netns.Create("latency")
			must(t, err)
			run := func(verb string) (long, busy time.Duration) {
				cmd := r.command(verb, r.conf(network), fmt.Sprintf("c%d", i), ns)
				began := time.Now()
				if out, err := cmd.Output(); err != nil {
					t.Fatalf("%s: %v: %s", verb, err, out)
				}
				return time.Since(began), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
			}
			long, _ := run("VERSION")
			floor = append(floor, long)
			long, busy := run("ADD")
			took, cpu = append(took, long), append(cpu, busy)
			run("DEL")
			must(t, ns.Close())
		}
		at := func(all []time.Duration, percent int) time.Duration {
			slices.Sort(all)
			return all[len(all)*percent/100].Round(time.Millisecond)
		}
		t.Logf("%s: ADD takes %v (p50), %v (p99) of %d, %v of processor (p50); VERSION %v (p50), %v (p99); %v of ADD is spent on duplicate address detection (goal: 200ms)",
			network, at(took, 50), at(took, 99), len(took), at(cpu, 50), at(floor, 50), at(floor, 99), silence)
	}
	r.nothingLeft()
}
