package server_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/access"
	"github.com/fairlead/fairlead/vdn/audit"
	"github.com/fairlead/fairlead/vdn/client"
	"github.com/fairlead/fairlead/vdn/server"
)

// secrets are tokens by the name of their owner; nobody else may see one.
var secrets = map[string]string{"ops": "tok-ops-1", "lab": "tok-lab-2", "n1": "tok-n1-3", "grafana": "tok-grafana-4"}

// guarded returns a controller with tokens of every role and an audit log, and a client for
// each.
func guarded(t *testing.T) (r *rig, as map[string]*client.Client, log string) {
	t.Helper()
	tokens := access.Tokens{}
	for name, token := range secrets {
		for hash := range access.Single(name, token) {
			tokens[hash] = map[string]access.Identity{
				"ops": {Name: name, Role: access.Admin}, "lab": {Name: name, Role: access.Tenant, Networks: []string{"science", "lab-*"}},
				"n1": {Name: name, Role: access.Node, Node: "n1"}, "grafana": {Name: name, Role: access.Reader},
			}[name]
		}
	}
	log = filepath.Join(t.TempDir(), "audit.log")
	trail, err := audit.Open(log, slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { trail.Close() })
	r = start(t, server.Options{Tokens: tokens, Audit: trail, Name: "c0"})
	as = map[string]*client.Client{}
	for name, token := range secrets {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
		if as[name], err = client.New(client.Config{URL: r.url, TokenFile: file}); err != nil {
			t.Fatal(err)
		}
	}
	return r, as, log
}

// denied requires a 403 that says what is missing.
func denied(t *testing.T, err error, want string) {
	t.Helper()
	if !client.IsStatus(err, http.StatusForbidden) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want a refusal with %q", err, want)
	}
}

// TestRoles tests what each role may do through REST; package access tests the rules
// themselves.
func TestRoles(t *testing.T) {
	r, as, log := guarded(t)
	ctx := r.ctx
	check(t, as["lab"].PutNetwork(ctx, network("science", "10.1.0.0/24")), as["ops"].PutNetwork(ctx, network("other", "10.2.0.0/24")))
	denied(t, as["lab"].PutNetwork(ctx, network("theirs", "10.3.0.0/24")), "token lab (role tenant) may not change network theirs: that requires role admin, or network theirs among the token's networks (science, lab-*)")
	denied(t, as["lab"].DeleteNetwork(ctx, "other"), "role tenant")
	denied(t, as["n1"].PutNetwork(ctx, network("science", "10.1.0.0/24")), "token n1 (role node) may not change network science: that requires role admin")
	denied(t, as["grafana"].DeleteNetwork(ctx, "science"), "role reader")

	check(t, as["n1"].Report(ctx, vdn.NodeReport{Node: vdn.Node{Name: "n1", Means: "kernel"}}))
	denied(t, as["n1"].Report(ctx, vdn.NodeReport{Node: vdn.Node{Name: "n2", Means: "kernel"}}), "may not act as node n2: that requires role node with node n2, or admin")
	at := func(network, node, container string) vdn.AttachmentRequest {
		return vdn.AttachmentRequest{Network: network, Node: node, Container: container, Interface: "net1"}
	}
	for _, network := range []string{"science", "other"} {
		_, err := as["n1"].Network(ctx, network)
		check(t, err)
		_, err = as["n1"].Attach(ctx, at(network, "n1", "c-"+network))
		check(t, err)
	}
	_, err := as["n1"].Attach(ctx, at("other", "n2", "c2"))
	denied(t, err, "role node with node n2")
	_, err = as["ops"].Attach(ctx, at("other", "n2", "c2"))
	check(t, err)
	denied(t, as["n1"].Detach(ctx, "c2.net1"), "may not change attachments of network other on node n2")
	_, err = as["n1"].Up(ctx, "c2.net1", vdn.UpReport{Device: "eth1", MAC: "02:00:00:00:00:01", NetNS: "/x"})
	denied(t, err, "node n2")
	_, err = as["n1"].Up(ctx, "c-other.net1", vdn.UpReport{Device: "eth1", MAC: "02:00:00:00:00:01", NetNS: "/x"})
	check(t, err)
	_, _, err = as["n1"].Plan(ctx, "n1", 0, 0)
	check(t, err)
	_, _, err = as["n1"].Plan(ctx, "n2", 0, 0)
	denied(t, err, "act as node n2")
	_, err = as["n1"].Collect(ctx, "n2", "other", nil)
	denied(t, err, "act as node n2")
	_, err = as["n1"].Networks(ctx)
	denied(t, err, "that requires role admin or reader")
	denied(t, as["n1"].DeleteNode(ctx, "n1"), "delete node n1")
	_, err = as["lab"].Attach(ctx, at("science", "n1", "c9"))
	check(t, err)
	denied(t, as["lab"].Detach(ctx, "c-other.net1"), "network other among the token's networks")
	check(t, as["lab"].Detach(ctx, "c9.net1"))
	denied(t, as["grafana"].Detach(ctx, "never.net1"), "role reader")
	denied(t, as["grafana"].PutPeer(ctx, vdn.Peer{Domain: "busan.example"}), "change peers")

	views(t, r, as)
	trail(t, log)
}

// views compares what each role sees.
func views(t *testing.T, r *rig, as map[string]*client.Client) {
	t.Helper()
	got := map[string]string{}
	for name, c := range as {
		v, _, err := c.View(r.ctx, 0, 0)
		if err != nil {
			got[name] = "nothing"
			denied(t, err, "read the view of everything")
			continue
		}
		for _, n := range v.Networks {
			got[name] += n.Name + " "
		}
		for _, a := range v.Attachments {
			got[name] += a.ID + " "
		}
		all, err := c.Attachments(r.ctx, "", "")
		check(t, err)
		nets, err := c.Networks(r.ctx)
		check(t, err)
		got[name] += fmt.Sprint(len(v.Nodes), len(all), len(nets))
	}
	want := map[string]string{
		"ops": "other science c-other.net1 c-science.net1 c2.net1 1 3 2", "grafana": "other science c-other.net1 c-science.net1 c2.net1 1 3 2",
		"lab": "science c-science.net1 1 1 1", "n1": "nothing",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	_, err := as["lab"].Attachments(r.ctx, "other", "")
	denied(t, err, "network other")
	_, err = as["lab"].Attachment(r.ctx, "c-other.net1")
	denied(t, err, "network other")
	_, err = as["lab"].Network(r.ctx, "other")
	denied(t, err, "network other")
}

// trail checks that the audit log has who changed what and who was denied, and no token.
func trail(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for s := bufio.NewScanner(strings.NewReader(string(text))); s.Scan(); {
		var r audit.Record
		if err := json.Unmarshal(s.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		if r.Controller != "c0" || r.Time.IsZero() || r.From != "127.0.0.1" || r.Role == "" || (r.Result == "ok") != (r.Error == "") {
			t.Errorf("%s", s.Bytes())
		}
		count[strings.Join([]string{r.Who, r.Method, r.Object, r.Result, fmt.Sprint(r.Status)}, " ")]++
	}
	for _, want := range []string{
		"lab PUT network science ok 201", "lab PUT network theirs denied 403", "n1 POST attachment c-science.net1 ok 201",
		"n1 DELETE attachment c2.net1 denied 403", "lab DELETE attachment c9.net1 ok 204", "n1 GET view denied 403", "n1 PUT node n2 denied 403",
	} {
		if count[want] == 0 {
			t.Errorf("the audit log lacks %q: %v", want, count)
		}
	}
	if count["n1 PUT node n1 ok 204"] > 0 {
		t.Error("the audit log has reports, which come every second")
	}
	for name, token := range secrets {
		if strings.Contains(string(text), token) {
			t.Errorf("the audit log has the token of %s", name)
		}
	}
}

// TestUnknownTokensAreWrittenDown checks that attempts with unknown tokens are logged
// without the token.
func TestUnknownTokensAreWrittenDown(t *testing.T) {
	r, _, log := guarded(t)
	q, err := http.NewRequestWithContext(r.ctx, http.MethodGet, r.url+"/v1/view", nil)
	check(t, err)
	q.Header.Set("Authorization", "Bearer guessed-5")
	resp, err := http.DefaultClient.Do(q)
	check(t, err)
	resp.Body.Close()
	text, err := os.ReadFile(log)
	check(t, err)
	if resp.StatusCode != http.StatusUnauthorized || !strings.Contains(string(text), `"result":"denied","status":401`) || strings.Contains(string(text), "guessed-5") {
		t.Errorf("%s\n%s", resp.Status, text)
	}
}
