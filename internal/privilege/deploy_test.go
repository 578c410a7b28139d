package privilege_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"

	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/internal/privilege"
)

const deploy = "../../deploy"

// list formats what roles need as the chart does: [BPF, NET_ADMIN].
func list(roles ...string) string {
	var names []string
	for _, n := range privilege.For(roles...) {
		names = append(names, n.Capability.Short())
	}
	return "[" + strings.Join(names, ", ") + "]"
}

// containers are the containers in the manifests, with their roles.
var containers = map[string][]string{
	"agent/doctor": {privilege.Balancer, privilege.Takeover, privilege.DSR}, // as the agent, to find what the agent lacks
	"agent/agent":  {privilege.Balancer, privilege.Takeover, privilege.DSR},

	"proxy/agent/doctor":       {privilege.Balancer, privilege.Takeover, privilege.DSR, privilege.Proxy},
	"proxy/agent/agent":        {privilege.Balancer, privilege.Takeover, privilege.DSR, privilege.Proxy},
	"controller/controller":    {privilege.Controller},
	"vdn/vdn/vdn":              {privilege.VDN},
	"vdn/vdn/install-cni":      {},
	"vdn/vdn/node":             {privilege.VDNNode},
	"vdn/vdn-etcd/vdn":         {privilege.VDN},
	"vdn/vdn-etcd/install-cni": {},
	"vdn/vdn-etcd/node":        {privilege.VDNNode},
	"cleanup/cleanup/cleanup":  {privilege.Cleanup, privilege.CleanupVDN},
	"cleanup/cleanup/stay":     {privilege.Cleanup, privilege.CleanupVDN},
}

type securityContext struct {
	AllowPrivilegeEscalation, ReadOnlyRootFilesystem, Privileged *bool

	Capabilities   struct{ Add, Drop []string }
	SeccompProfile struct{ Type string }
}

type container struct {
	Name            string
	SecurityContext securityContext
}

// TestManifests checks that every container has exactly the capabilities of its roles, a
// read-only root and no privilege escalation, and that every pod has the runtime's seccomp
// profile.
func TestManifests(t *testing.T) {
	seen := map[string]bool{}
	for file, text := range manifests(t) {
		for object := range strings.SplitSeq(text, "\n---\n") {
			pod := podOf(t, object)
			for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
				name := file + "/" + c.Name
				seen[name] = true
				checkContainer(t, name, c.SecurityContext, pod.SecurityContext)
			}
		}
	}
	for name := range containers {
		if !seen[name] {
			t.Errorf("the manifests have no container %s", name)
		}
	}
	for name := range seen {
		if _, known := containers[name]; !known {
			t.Errorf("container %s has no roles here", name)
		}
	}
}

// pod is the relevant part of a pod's spec.
type pod struct {
	SecurityContext            securityContext
	InitContainers, Containers []container
}

// podOf returns the pod of a workload; for other objects one without containers.
func podOf(t *testing.T, object string) pod {
	t.Helper()
	var o struct {
		Spec struct{ Template struct{ Spec pod } }
	}
	if err := yaml.Unmarshal([]byte(object), &o); err != nil && strings.Contains(object, "containers:") {
		t.Fatalf("%v in %s", err, object)
	}
	return o.Spec.Template.Spec
}

func checkContainer(t *testing.T, name string, s, pod securityContext) {
	t.Helper()
	if have, want := "["+strings.Join(s.Capabilities.Add, ", ")+"]", list(containers[name]...); have != want {
		t.Errorf("%s adds %s, want %s", name, have, want)
	}
	if !is(s.AllowPrivilegeEscalation, false) || !is(s.ReadOnlyRootFilesystem, true) || is(s.Privileged, true) ||
		!slices.Equal(s.Capabilities.Drop, []string{"ALL"}) || pod.SeccompProfile.Type != "RuntimeDefault" {
		t.Errorf("%s has %+v, its pod %+v", name, s, pod)
	}
}

func is(b *bool, want bool) bool { return b != nil && *b == want }

// manifests returns the files below deploy/manifests by name.
func manifests(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	root := filepath.Join(deploy, "manifests")
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(root, path)
		all[strings.TrimSuffix(name, ".yaml")] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var added = regexp.MustCompile(`(?m)^ *add: (.*?)(?: #.*)?$`)

// TestChart checks what the templates add; the plain manifests have part of it.
func TestChart(t *testing.T) {
	agent := `{{ include "fairlead.agentCapabilities" . }}` // TestAgentCapabilities
	want := map[string][]string{
		"agent.yaml":     {agent, agent},
		"balancers.yaml": {list(privilege.Balancer, privilege.Takeover, privilege.OwnBPFFS)},
		"reflector.yaml": {list(privilege.Reflector)},
		"vdn.yaml":       {list(privilege.VDNNode)},
		"_helpers.tpl":   {list(privilege.Cleanup, privilege.CleanupVDN)},
	}
	files, err := filepath.Glob(filepath.Join(deploy, "helm/fairlead/templates/*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no templates: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var have []string
		for _, m := range added.FindAllStringSubmatch(string(text), -1) {
			have = append(have, m[1])
		}
		if name := filepath.Base(file); !slices.Equal(have, want[name]) {
			t.Errorf("%s adds %q, want %q", name, have, want[name])
		}
	}
}

// TestAgentCapabilities evaluates the chart's helper for all combinations of an agent's
// roles.
func TestAgentCapabilities(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(deploy, "helm/fairlead/templates/_helpers.tpl"))
	if err != nil {
		t.Fatal(err)
	}
	helpers, err := template.New("").Funcs(sprig).Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, roles := range [][]string{
		{"balancer"}, {"dsr"}, {"proxy"}, {"balancer", "dsr"}, {"balancer", "proxy"}, {"dsr", "proxy"}, {"balancer", "dsr", "proxy"},
	} {
		for _, plane := range []string{"auto", "xdp", "ipvs"} {
			for _, interfaces := range [][]string{nil, {"eth0"}} {
				needed := slices.Clone(roles)
				if i := slices.Index(roles, "balancer"); i >= 0 {
					if plane == "ipvs" {
						needed[i] = privilege.BalancerIPVS
					} else {
						needed = append(needed, privilege.Takeover)
					}
					if interfaces != nil {
						needed = append(needed, privilege.BalancerLayer2)
					}
				}
				values := map[string]any{"Values": map[string]any{
					"agent": map[string]any{"roles": roles, "dataplane": plane}, "l2": map[string]any{"interfaces": interfaces},
				}}
				var out bytes.Buffer
				if err := helpers.ExecuteTemplate(&out, "fairlead.agentCapabilities", values); err != nil {
					t.Fatal(err)
				}
				if want := list(needed...); out.String() != want {
					t.Errorf("agent.roles %v, dataplane %s, layer2 on %v: %s, want %s", roles, plane, interfaces, out.String(), want)
				}
			}
		}
	}
}

// sprig has Helm's functions that the helpers use; those that this test does not reach do
// nothing.
var sprig = template.FuncMap{
	"has":    func(item string, in []string) bool { return slices.Contains(in, item) },
	"list":   func(items ...string) []string { return items },
	"append": func(to []string, item string) []string { return append(slices.Clone(to), item) },
	"concat": func(all ...[]string) []string { return slices.Concat(all...) },
	"sortAlpha": func(items []string) []string {
		return slices.Sorted(slices.Values(items))
	},
	"join":     func(separator string, items []string) string { return strings.Join(items, separator) },
	"include":  func(string, any) string { return "" },
	"default":  func(_, _ any) string { return "" },
	"int":      func(any) int { return 0 },
	"dict":     func(...any) any { return nil },
	"set":      func(...any) any { return nil },
	"merge":    func(...any) any { return nil },
	"toJson":   func(any) string { return "" },
	"quote":    func(any) string { return "" },
	"toString": fmt.Sprint,
}

// units are the systemd services, with their roles.
var units = map[string][]string{
	"fairlead-agent":     {privilege.Balancer, privilege.Takeover, privilege.DSR},
	"fairlead-reflector": {privilege.Reflector},
	"fairlead-router":    {privilege.Router, privilege.RouterListens},
	"fairlead-vdn":       {privilege.VDN},
	"fairlead-vdn-node":  {privilege.VDNNode},
}

// sandbox are the settings of every unit.
var sandbox = map[string]string{
	"NoNewPrivileges": "yes", "ProtectSystem": "strict", "ProtectHome": "yes", "PrivateTmp": "yes", "PrivateDevices": "yes",
	"ProtectClock": "yes", "ProtectControlGroups": "yes", "ProtectHostname": "yes", "ProtectKernelLogs": "yes", "ProtectKernelModules": "yes",
	"ProtectProc": "invisible", "LockPersonality": "yes", "MemoryDenyWriteExecute": "yes", "RemoveIPC": "yes", "RestrictRealtime": "yes",
	"RestrictSUIDSGID": "yes", "SystemCallArchitectures": "native", "UMask": "0077",
}

// TestUnits checks that each unit has exactly the capabilities of its roles, and the
// sandbox.
func TestUnits(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(deploy, "systemd/*.service"))
	if err != nil || len(files) != len(units) {
		t.Errorf("there are %q (%v), want %d units", files, err, len(units))
	}
	for name, roles := range units {
		set := directives(t, name)
		want := strings.ReplaceAll(privilege.Words(privilege.For(roles...)), ",", "")
		if have := strings.Join(set["CapabilityBoundingSet"], "|"); have != want || len(set["CapabilityBoundingSet"]) != 1 {
			t.Errorf("%s: CapabilityBoundingSet is %q, want %q", name, have, want)
		}
		ambient := "" // not needed by root
		if set["DynamicUser"] != nil {
			ambient = want
		}
		if have := strings.Join(set["AmbientCapabilities"], "|"); have != ambient {
			t.Errorf("%s: AmbientCapabilities is %q, want %q", name, have, ambient)
		}
		for key, value := range sandbox {
			if have := strings.Join(set[key], "|"); have != value {
				t.Errorf("%s: %s is %q, want %q", name, key, have, value)
			}
		}
		for _, key := range []string{"RestrictAddressFamilies", "RestrictNamespaces", "SystemCallFilter"} {
			if set[key] == nil {
				t.Errorf("%s: %s is not set", name, key)
			}
		}
	}
}

// directives reads a unit.
func directives(t *testing.T, name string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deploy, "systemd", name+".service"))
	if err != nil {
		t.Fatal(err)
	}
	set := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(key, "#") {
			set[key] = append(set[key], value)
		}
	}
	return set
}

// TestExposure checks the exposure score of each unit with systemd-analyze.
func TestExposure(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze here")
	}
	for name := range units {
		const most = "30" // tenths; 0 is no exposure, 100 that of a unit without a sandbox
		unit := filepath.Join(deploy, "systemd", name+".service")
		if out, err := exec.Command(analyze, "security", "--offline=true", "--no-pager", "--threshold="+most, unit).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}
