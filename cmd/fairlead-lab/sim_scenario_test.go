package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cmd/internal/cli"
	"github.com/fairlead/fairlead/lab/sim/report"
)

// labRun runs a command line, and returns what it prints and its exit code.
func labRun(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := newRootCommand()
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	code = cli.Run(t.Context(), cmd, args)
	return out.String(), errs.String(), code
}

const smallScenario = `about: small
duration: 1s
topology:
  clients: [{name: users, count: 4}]
  routers: [{name: router}]
  balancers: [{name: lb, count: 2}]
  servers: [SERVERS]
  links: [{between: [users, router], rate: 1Gbit}]
  lans: [{name: nodes, members: [router, lb, web], rate: 1Gbit}]
load: [{from: users, to: web, rate: 100, requests: 2}]
goals: {failed: 1%}
`

func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestSimRunScenario checks that results are printed and written, and that an invalid
// scenario is rejected with its line number and nothing is run.
func TestSimRunScenario(t *testing.T) {
	good := strings.Replace(smallScenario, "SERVERS", "{name: web, count: 2}", 1) + "services: [{name: web, servers: web}]\n"
	dir := filepath.Join(t.TempDir(), "out")
	out, errs, code := labRun(t, "sim", "run", write(t, "small.yaml", good), "--seeds", "2", "--out", dir, "-o", "json")
	var r report.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 || len(r.Experiments) != 1 || r.Experiments[0].Seeds != 2 {
		t.Fatalf("%d: %v: %s%s", code, err, out, errs)
	}
	if e := r.Experiments[0]; e.Experiment != "small" || e.Verdict != "holds" {
		t.Errorf("%s: %s", e.Experiment, e.Verdict)
	}
	for _, name := range []string{"report.html", "results.json", "small-sums.csv", "small-throughput.svg", "small-throughput.png", "small-events.csv"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	bad := write(t, "bad.yaml", strings.Replace(good, "rate: 100", "rate: -1", 1))
	if _, errs, code = labRun(t, "sim", "run", bad, "--out", dir); code != cli.ExitUsage || !strings.Contains(errs, "bad.yaml:10: load[0].rate: -1 is below 0") {
		t.Errorf("%d: %s", code, errs)
	}
}

// TestSimWhatIf uses the demo's manifests.
func TestSimWhatIf(t *testing.T) {
	demo, err := filepath.Abs("../../docs/scenarios/demo")
	if err != nil {
		t.Fatal(err)
	}
	ask := func(servers string) (string, string, int) {
		file := write(t, "small.yaml", strings.Replace(smallScenario, "SERVERS", servers, 1))
		return labRun(t, "sim", "what-if", "--manifests", demo, "--scenario", file, "--out", filepath.Join(t.TempDir(), "out"))
	}
	out, errs, code := ask("{name: web, of: web, takes: 1ms}")
	for _, want := range []string{
		"demo/web:80  tunnel           maglev     second-chance  lb                 4", "lb         without failures      1", "lb         if one of them fails  2",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%d: %q is missing in\n%s%s", code, want, out, errs)
		}
	}
	for servers, want := range map[string]string{
		"{name: web, of: wbe}":           `small.yaml:7: topology.servers[0].of: no programmed Service in the manifests is named "wbe"; want one of demo/web:80, demo/shop:80`,
		"{name: web}":                    "small.yaml:7: topology.servers[0].of: is missing",
		"{name: web, of: web, count: 3}": "small.yaml:7: topology.servers[0].count: unknown key",
		"{name: web, of: shop}":          "small.yaml:10: load[0].to: no group of servers belongs to web: add one to topology.servers",
	} {
		if _, errs, code := ask(servers); code != cli.ExitUsage || !strings.Contains(errs, want) {
			t.Errorf("%s: %d: %s", servers, code, errs)
		}
	}
	if _, errs, code = labRun(t, "sim", "what-if", "--manifests", "nowhere", "--scenario", "x.yaml"); code != cli.ExitUsage || !strings.Contains(errs, "nowhere") {
		t.Errorf("%d: %s", code, errs)
	}
}

const severalVIPs = `apiVersion: v1
kind: Service
metadata: {name: dns, namespace: demo}
spec:
  type: LoadBalancer
  ports: [{name: udp, port: 53, protocol: UDP}, {name: tcp, port: 53, protocol: TCP}]
status: {loadBalancer: {ingress: [{ip: "2001:db8::1"}, {ip: 198.51.100.7}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: dns-6, namespace: demo, labels: {kubernetes.io/service-name: dns}}
addressType: IPv6
endpoints: [{addresses: ["2001:db8:1::1"]}]
ports: [{name: udp, port: 53, protocol: UDP}, {name: tcp, port: 53, protocol: TCP}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: dns-4, namespace: demo, labels: {kubernetes.io/service-name: dns}}
addressType: IPv4
endpoints: [{addresses: ["10.0.0.1"]}, {addresses: ["10.0.0.2"]}]
ports: [{name: udp, port: 53, protocol: UDP}, {name: tcp, port: 53, protocol: TCP}]
`

// TestSimWhatIfSeveralVIPs checks that a Service's VIPs of both families, and its
// protocols at one port, have separate names, and each family its backends.
func TestSimWhatIfSeveralVIPs(t *testing.T) {
	dir := filepath.Dir(write(t, "dns.yaml", severalVIPs))
	ask := func(servers, to string) (string, string, int) {
		text := strings.NewReplacer("SERVERS", servers, "to: web", "to: "+to, "web]", "four, six]").Replace(smallScenario)
		return labRun(t, "sim", "what-if", "--manifests", dir, "--scenario", write(t, "small.yaml", text), "--out", filepath.Join(t.TempDir(), "out"))
	}
	const four, six = "demo/dns TCP 198.51.100.7:53", "demo/dns TCP [2001:db8::1]:53"
	both := `{name: four, of: "` + four + `"}, {name: six, of: "` + six + `"}`
	out, errs, code := ask(both, `"`+six+`"`)
	if code != 0 {
		t.Fatalf("%d: %s", code, errs)
	}
	for name, servers := range map[string]string{four: "2", six: "1", strings.Replace(four, "TCP", "UDP", 1): "2", strings.Replace(six, "TCP", "UDP", 1): "1"} {
		_, row, _ := strings.Cut(out, name+" ")
		if row, _, _ = strings.Cut(row, "\n"); !strings.HasSuffix(strings.TrimSpace(row), " "+servers) {
			t.Errorf("%s: %q, want %s servers", name, row, servers)
		}
	}
	if _, errs, code = ask(both, "dns"); code != cli.ExitUsage || !strings.Contains(errs, "load[0].to: dns is ambiguous: ") || !strings.Contains(errs, four) {
		t.Errorf("%d: %s", code, errs)
	}
	if _, errs, code = ask(`{name: four, of: dns}, {name: six, of: "`+six+`"}`, `"`+six+`"`); code != cli.ExitUsage || !strings.Contains(errs, "of: dns is ambiguous: ") {
		t.Errorf("%d: %s", code, errs)
	}
}
