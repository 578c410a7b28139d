package cni

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/fairlead/fairlead/lab/testkit"
)

const (
	tuningPlugin  = `{"type":"tuning","sysctl":{"net.ipv4.conf.all.arp_filter":"1"},"mac":"0a:00:00:00:00:0b","mtu":1300}`
	portmapPlugin = `{"type":"portmap","capabilities":{"portMappings":true}}`
	bandwidth     = `{"type":"bandwidth","ingressRate":8000000,"ingressBurst":800000,"egressRate":8000000,"egressBurst":800000}`
	portMappings  = `CAP_ARGS={"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]}`
)

// TestChained checks that subsequent reference plugins find what they need, that CHECK
// accepts their changes, and that DEL leaves nothing behind.
func TestChained(t *testing.T) {
	needReference(t)
	r := newRig(t)
	fixedBridge(t, "cni0")
	for name, c := range map[string]struct {
		version string
		plugins []string
	}{
		"fairlead-cni":        {"1.0.0", []string{r.plugin("science"), tuningPlugin, portmapPlugin}},
		"fairlead-cni, 0.4.0": {"0.4.0", []string{r.plugin("science"), tuningPlugin, portmapPlugin}},
		"fairlead-cni, NIC":   {"1.0.0", []string{r.plugin("whole"), tuningPlugin, portmapPlugin}},
		"bridge":              {"1.0.0", []string{`{"type":"bridge","bridge":"cni0",` + r.addresses("science") + `}`, tuningPlugin, bandwidth, portmapPlugin}},
		"macvlan":             {"1.0.0", []string{`{"type":"macvlan","master":"eth1",` + r.addresses("science") + `}`, tuningPlugin, portmapPlugin}},
		"ptp, 0.3.1":          {"0.3.1", []string{`{"type":"ptp",` + r.addresses("science") + `}`, bandwidth, portmapPlugin}},
	} {
		t.Run(name, func(t *testing.T) {
			tool := newTool(t, "lab", c.version, strings.Join(c.plugins, ","))
			pod := testkit.NetNS(t)
			tool.must("add", "lab", pod, portMappings)
			if out := command(t, "iptables-save", "-t", "nat"); !strings.Contains(out, "8080") {
				t.Errorf("no port is mapped: %s", out)
			}
			if strings.Contains(c.plugins[1], "tuning") {
				a := linkOf(t, pod, "eth0").Attrs()
				if a.MTU != 1300 || a.HardwareAddr.String() != "0a:00:00:00:00:0b" {
					t.Errorf("it is not tuned: %+v", a)
				}
			}
			if c.version > "0.4" {
				tool.must("check", "lab", pod) // no ports: with two families, portmap 1.1 checks one against the other's rules
			}
			for range 2 {
				tool.must("del", "lab", pod, portMappings)
			}
			if out := command(t, "iptables-save", "-t", "nat"); strings.Contains(out, "8080") {
				t.Errorf("a port is still mapped: %s", out)
			}
			r.nothingLeft()
		})
	}
}

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
	return string(out)
}

// TestFormats checks that the process writes results and errors in the requested version,
// including IPAM (SPEC.md, "Success" and "Error").
func TestFormats(t *testing.T) {
	r := newRig(t)
	for _, version := range []string{"0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		for program, conf := range map[string]string{"fairlead-cni": r.conf("science"), "fairlead-ipam": r.ipam("science")} {
			pod := testkit.NetNS(t)
			conf = strings.Replace(conf, `"cniVersion":"1.1.0"`, `"cniVersion":"`+version+`"`, 1)
			out, err := r.commandOf(program, "ADD", conf, "one", pod).Output()
			must(t, err)
			var result struct {
				CNIVersion string
				Interfaces []map[string]any
				IPs        []map[string]any
				Routes     []map[string]any
				DNS        map[string]any
			}
			must(t, json.Unmarshal(out, &result))
			if result.CNIVersion != version || len(result.IPs) != 2 || len(result.Routes) != 5 || result.DNS["nameservers"] == nil {
				t.Errorf("%s %s: %s", program, version, out)
			}
			for i, ip := range result.IPs {
				family := any([]string{"4", "6"}[i])
				if version >= "1" {
					family = nil
				}
				if ip["version"] != family || (ip["interface"] != nil) != (program == "fairlead-cni") {
					t.Errorf("%s %s: address %v", program, version, ip)
				}
			}
			if program == "fairlead-cni" && (len(result.Interfaces) != 1 || result.Interfaces[0]["sandbox"] != pod.Path()) || program == "fairlead-ipam" && result.Interfaces != nil {
				t.Errorf("%s %s: interfaces %v", program, version, result.Interfaces)
			}
			out, err = r.commandOf(program, "DEL", conf, "one", pod).Output()
			if err != nil || len(out) > 0 {
				t.Errorf("%s %s: DEL says %s, %v", program, version, out, err)
			}
		}
	}
	r.nothingLeft()
}

// TestCodes checks the error codes as the process writes them.
func TestCodes(t *testing.T) {
	r := newRig(t)
	pod := testkit.NetNS(t)
	of := func(version string) string {
		return strings.Replace(r.conf("science"), `"cniVersion":"1.1.0"`, `"cniVersion":"`+version+`"`, 1)
	}
	for _, c := range []struct {
		verb, conf, env string
		code            uint
	}{
		{"ADD", of("0.2.0"), "", types.ErrIncompatibleCNIVersion},
		{"ADD", of("2.0.0"), "", types.ErrIncompatibleCNIVersion},
		{"CHECK", of("0.3.1"), "", types.ErrIncompatibleCNIVersion},
		{"GC", of("1.0.0"), "", types.ErrIncompatibleCNIVersion},
		{"STATUS", of("1.0.0"), "", types.ErrIncompatibleCNIVersion},
		{"ADD", r.conf("science"), "CNI_NETNS=/run/netns/nosuch", types.ErrUnknownContainer},
		{"ADD", r.conf("science"), "CNI_IFNAME=abcdefghijklmnop", types.ErrInvalidEnvironmentVariables},
		{"ADD", r.conf("science"), "CNI_IFNAME=", types.ErrInvalidEnvironmentVariables},
		{"ADD", r.conf("science"), "CNI_CONTAINERID=../one", types.ErrInvalidEnvironmentVariables},
		{"ADD", r.conf("science"), "CNI_ARGS=IP", types.ErrInvalidEnvironmentVariables},
		{"SUB", r.conf("science"), "", types.ErrInvalidEnvironmentVariables},
		{"ADD", r.conf("science", `"x":`), "", types.ErrDecodingFailure},
		{"ADD", `{"cniVersion":"1.1.0","type":"fairlead-cni"}`, "", types.ErrInvalidNetworkConfig},
		{"ADD", r.conf("science"), "CNI_NETNS=/proc/self/ns/net", types.ErrInvalidNetNS},
	} {
		cmd := r.command(c.verb, c.conf, "one", pod)
		if c.env != "" {
			cmd.Env = append(cmd.Env, c.env)
		}
		out, err := cmd.Output()
		var says types.Error
		if err == nil || json.Unmarshal(out, &says) != nil || says.Code != c.code {
			t.Errorf("%s %s %s: %s, %v, want code %d", c.verb, c.env, c.conf, out, err, c.code)
		}
	}
	must(t, r.command("ADD", r.conf("science"), "one", pod).Run())
	fifteen := r.command("ADD", r.conf("tiny", `"defaultRoute":false`), "one", pod)
	fifteen.Env = append(fifteen.Env, "CNI_IFNAME=abcdefghijklmno")
	must(t, fifteen.Run())
	for _, name := range []string{"net1", "abcdefghijklmno"} {
		del := r.command("DEL", r.conf("science"), "one", pod)
		del.Env = append(del.Env, "CNI_NETNS=", "CNI_IFNAME="+name)
		must(t, del.Run())
	}
	if left := links(t, pod); len(left) > 0 {
		t.Errorf("the pod has %q", left)
	}
	r.nothingLeft()
}
