package sysdump

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/agent/doctor"
	"github.com/fairlead/fairlead/agent/explain"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/core/event"
	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/source"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// files reads an archive.
func files(t *testing.T, raw []byte) (names []string, texts map[string]string) {
	t.Helper()
	texts = map[string]string{}
	err := Each(bytes.NewReader(raw), func(name string, text []byte) error {
		names, texts[name] = append(names, name), string(text)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names, texts
}

// TestArchive has the summary on top, and leaves out what does not fit.
func TestArchive(t *testing.T) {
	a := NewArchive("sysdump-n1", noon, 64<<10)
	noise := make([]byte, 200<<10)
	source := rand.NewChaCha8([32]byte{})
	_, _ = source.Read(noise)
	a.Add("status.json", []byte("{}"))
	a.Add("cpu.pprof", noise)
	a.Add("log.txt", bytes.Repeat([]byte("a line\n"), 100000))
	var b bytes.Buffer
	if err := Write(&b, a, Summary("n1", noon, nil, nil, a.Left), nil); err != nil {
		t.Fatal(err)
	}
	names, texts := files(t, b.Bytes())
	if got := strings.Join(names, " "); got != "sysdump-n1/summary.txt sysdump-n1/findings.json sysdump-n1/status.json sysdump-n1/log.txt" {
		t.Errorf("files %s", got)
	}
	if b.Len() > 64<<10 || len(texts["sysdump-n1/log.txt"]) != 700000 {
		t.Errorf("%d bytes", b.Len())
	}
	if !strings.Contains(texts["sysdump-n1/summary.txt"], "cpu.pprof: 2") || !strings.Contains(texts["sysdump-n1/summary.txt"], "(--max-size)") {
		t.Errorf("summary %s", texts["sysdump-n1/summary.txt"])
	}
}

const secret = "s3cr3t\"value"

// TestRedact finds a secret in every format.
func TestRedact(t *testing.T) {
	var r Redactor
	r.KnowFile([]byte(secret + "\n"))
	r.KnowFile([]byte("users: [{name: u}]\ntoken: tok-en-1234\nurl: x\n"))
	r.KnowFile([]byte("http://user:pass-word-1@10.0.0.1/hook?key=query-value-1\n"))
	r.KnowSecrets([]byte("kind: Secret\nstringData: {a: plain-in-secret}\ndata: {b: " + base64.StdEncoding.EncodeToString([]byte("coded-in-secret")) + "}\n"))
	r.KnowFile([]byte("begin-of\n"))
	r.KnowFile([]byte("begin-of-hunter2\n"))
	for _, text := range []string{
		"begin-of-hunter2", secret, fmt.Sprintf("%q", secret), base64.StdEncoding.EncodeToString([]byte(secret)), "token tok-en-1234 used", "pass-word-1", "query-value-1", "plain-in-secret",
		"coded-in-secret", "password: hunter2hunter", "--password=hunter2hunter", `"apiKey": "hunter2hunter"`, "Authorization: Bearer hunter2hunter", "http://u:hunter2hunter@h/",
		"-----BEGIN EC PRIVATE KEY-----\nhunter2hunter\n-----END EC PRIVATE KEY-----", "eyJhbGciOiJI.hunter2hunter.x", "AKIAABCDEFGHIJKLMNOP", "FOO_TOKEN=hunter2hunter",
	} {
		got := string(r.Text([]byte("before " + text + " after")))
		if !strings.Contains(got, Redacted) || strings.Contains(got, "hunter2") || strings.Contains(got, "s3cr3t") || !strings.HasPrefix(got, "before ") || !strings.HasSuffix(got, " after") {
			t.Errorf("%q is redacted as %q", text, got)
		}
	}
	for _, harmless := range []string{"no password is set", "--password-file /etc/fairlead/bgp", "passwordSecretRef: second", `"key":"TCP 10.1.1.1:80"`, "cookiesSent: 5"} {
		if got := string(r.Text([]byte(harmless))); got != harmless {
			t.Errorf("%q becomes %q", harmless, got)
		}
	}
}

func TestRedactFields(t *testing.T) {
	var r Redactor
	text, err := r.JSON(map[string]any{"token": "abc", "passwordSecretRef": "second", "count": 3, "env": []any{map[string]any{"name": "X", "value": "abc"}},
		"annotations": map[string]any{"kubectl.kubernetes.io/last-applied-configuration": "abc"}, "list": []any{map[string]any{"kind": "Secret", "data": map[string]any{"x": "abc"}}}})
	if err != nil || strings.Contains(string(text), "abc") || !strings.Contains(string(text), "second") || !strings.Contains(string(text), "3") {
		t.Errorf("%s, %v", text, err)
	}
	for manifest, want := range map[string]string{
		"kind: Secret\nstringData: {password: abc}\n---\nkind: Service\nmetadata: {name: web}\n": "name: web",
		"kind: Service\nspec: [\n":              "spec: [",
		"kind: Secret\nstringData: {x: abc\n{{": Redacted,
	} {
		if got := string(r.Manifest([]byte(manifest))); strings.Contains(got, "abc") || !strings.Contains(got, want) {
			t.Errorf("%q becomes %q", manifest, got)
		}
	}
}

// ill returns a node with one of everything that is found.
func ill() Node {
	backend := status.Backend{Address: netip.MustParseAddrPort("172.16.1.10:80"), Health: "down", LastError: "connection refused", Since: noon.Add(-time.Minute)}
	at := func(t event.Type, object string, count int) event.Event {
		return event.Event{Type: t, Object: event.ParseObject(object), Count: count, Time: noon.Add(-time.Minute), Last: noon.Add(-time.Minute), Cause: "cause"}
	}
	filling := at(event.TableFilling, "Node n1", 1)
	filling.Field = "flows"
	return Node{Name: "n1", Kernel: map[string]uint64{"TCPMD5Failure": 3, "InSegs": 9}, Doctor: doctor.Report{Findings: []doctor.Finding{
		{Check: "bpf-jit", Status: doctor.Degraded, Message: "interpreted", Fix: "sysctl"}, {Check: "btf", Status: doctor.OK}, {Check: "problems", Status: doctor.Degraded, Message: "again"},
	}}, Daemons: []Daemon{{Socket: "gone.sock", Err: errors.New("nothing listens")}, {
		Status: status.Status{
			Time: noon, Role: "balancer", Services: []status.Service{{ID: "default/web", Check: "tcp", Frontends: []status.Frontend{{Backends: []status.Backend{backend}}, {Backends: []status.Backend{backend}}}}},
			Peers:     []advertise.Peer{{Address: "10.0.0.9", State: "active", LastError: "no answer from 10.0.0.9 within 5s"}, {Address: "10.0.0.8", State: advertise.Established}},
			Problems:  []problem.Problem{{Object: "Service default/web", Message: "already explained"}, problem.Failed("state directory /s", "no space left on device")},
			Stale:     []source.Stale{{Object: "Service default/old", Where: "old.yaml:1", Since: noon}},
			DataPlane: &dataplane.Description{Drops: map[string]uint64{"too-big": 9, "full": 2, "no-route": 0}, Warnings: []string{"chains: all in use"}},
		},
		Chains: []explain.Chain{
			{Kind: "service", Name: "default/web", Steps: []explain.Step{{Step: "accepted", Object: "Service default/web", Reason: "already explained", Hint: "fix it"}}},
			{Kind: "service", Name: "default/b", Steps: []explain.Step{{Step: "received", Object: "10.1.1.2", Reason: "no-session"}, {Step: "later", Reason: "follows"}}},
			{Kind: "service", Name: "default/c", Steps: []explain.Step{{Step: "received", Object: "10.1.1.2", Reason: "no-session"}}},
			{Kind: "service", Name: "default/d", Steps: []explain.Step{{Step: "planned", Reason: "dedicated-elsewhere", Hint: "none needed on this node"}}},
		},
		Events:  []event.Event{at(event.AgentStarted, "Node n1", 1), at(event.AgentStarted, "Node n1", 1), at(event.PeerDown, "BGPPeer tor", 5), at(event.BFDDown, "BGPPeer tor", 1), filling},
		Dropped: map[string]uint64{"too-big": 4}, Errors: []string{"level=ERROR msg=x"},
	}}}
}

func TestFindings(t *testing.T) {
	text := string(Summary("n1", noon, nil, ill().Findings(noon), nil))
	for _, want := range []string{
		"findings: 3 broken, 11 degraded, 2 info",
		"broken    n1: socket gone.sock: nothing listens",
		"broken    n1: service default/b and 1 more: received 10.1.1.2: no-session",
		"n1: peer 10.0.0.9: the session with 10.0.0.9 is active: no answer from 10.0.0.9 within 5s\n          fix: check the path",
		"n1: backend 172.16.1.10:80: default/web is down for 1m0s: connection refused (tcp check)",
		"n1: service default/web: accepted Service default/web: already explained\n          fix: fix it",
		"n1: state directory /s: ", "n1: Service default/old: its current version is rejected", "n1: data plane: chains: all in use",
		"n1: dropped packets: too-big: 4 packets while the dump was made, 9 in total\n          fix: increase the MTU",
		"info      n1: dropped packets: full: 2 packets since the start", "info      n1: log of balancer: errors: 1; the last one: level=ERROR",
		"n1: table flows: it is nearly full", "n1: agent: killed or crashed in the last hour: 1", "n1: BGPPeer tor: the session ended 5 times",
		"n1: kernel TCPMD5Failure: connections with a wrong TCP MD5 signature", "n1: bpf-jit: interpreted",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q", want)
		}
	}
	if t.Failed() || strings.Contains(text, "follows") || strings.Contains(text, "dedicated") {
		t.Errorf("%s", text)
	}
}

// TestFixOfTables: a finding names a flag that exists, or else the runbook.
func TestFixOfTables(t *testing.T) {
	for table, want := range map[string]string{
		"flows": "increase --max-flows", "list-entries": "see FairleadTableFilling", "proxy-endpoints": "increase --proxy-max-targets", "rings": "see FairleadTableFilling",
	} {
		var f findings
		f.tables([]event.Event{{Type: event.TableFilling, Field: table}})
		if len(f.all) != 1 || !strings.HasPrefix(f.all[0].Fix, want) {
			t.Errorf("%s: %+v, want %s", table, f.all, want)
		}
	}
}

// TestMerge makes one dump of two, and names the node without one.
func TestMerge(t *testing.T) {
	one := func(version string) *bytes.Buffer {
		a := NewArchive("sysdump-x", noon, DefaultMaxSize)
		a.Add("agent/status.json", fmt.Appendf(nil, `{"version":%q,"role":"balancer"}`, version))
		var b bytes.Buffer
		if err := Write(&b, a, nil, []Finding{{Severity: doctor.Broken, Node: version, Object: "x", Cause: "y"}}); err != nil {
			t.Fatal(err)
		}
		return &b
	}
	parts := []Part{{Name: "n1", Dump: one("v1")}, {Name: "n2", Dump: one("v2")}, {Name: "n3", Err: errors.New("timeout")}, {Name: "n4", Dump: strings.NewReader("x")}}
	a, all, summary := Cluster{Parts: parts, Files: map[string][]byte{"cluster/pods.json": []byte("[]")}}.Merge(noon, DefaultMaxSize)
	var b bytes.Buffer
	if err := Write(&b, a, summary, all); err != nil {
		t.Fatal(err)
	}
	_, texts := files(t, b.Bytes())
	for _, name := range []string{"summary.txt", "n1/agent/status.json", "n2/findings.json", "cluster/pods.json"} {
		if _, is := texts["sysdump-cluster/"+name]; !is {
			t.Errorf("no %s", name)
		}
	}
	for _, want := range []string{"verdict: 1 of 4 nodes disagree (differences: 1); 2 of 4 nodes did not answer", "n2: release: differs from other nodes: v2, others: v1", "n3: agent: does not answer: timeout", "broken    v1: x: y"} {
		if !strings.Contains(string(summary), want) {
			t.Errorf("%s\nlacks %q", summary, want)
		}
	}
}
