package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/lab/testkit/promtool"
	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/access"
	"github.com/fairlead/fairlead/vdn/client"
	"github.com/fairlead/fairlead/vdn/server"
	"github.com/fairlead/fairlead/vdn/store"
)

// rig is a running controller with a client.
type rig struct {
	*client.Client
	server *server.Server
	store  *store.Store
	url    string
	ctx    context.Context
}

func start(t *testing.T, o server.Options) *rig {
	t.Helper()
	kept, err := store.Open(t.TempDir(), "here")
	if err != nil {
		t.Fatal(err)
	}
	o.Store = kept
	s := server.New(o)
	web := httptest.NewServer(described(t, s))
	t.Cleanup(func() {
		web.Close()
		_ = kept.Close() // a test may have closed it
	})
	c, err := client.New(client.Config{URL: web.URL, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return &rig{c, s, kept, web.URL, t.Context()}
}

// ask sends a raw request and returns status and body.
func (r *rig) ask(t *testing.T, method, path, body string, header ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(r.ctx, method, r.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func network(name, prefix string) vdn.Network {
	return vdn.Network{Name: name, Devices: []string{"eth1"}, Subnets: []vdn.Subnet{{CIDR: netip.MustParsePrefix(prefix)}}}
}

func check(t *testing.T, all ...error) {
	t.Helper()
	if err := errors.Join(all...); err != nil {
		t.Fatal(err)
	}
}

// TestTheLifeOfAnAttachment uses the client, from the creation of the network to the
// deletion.
func TestTheLifeOfAnAttachment(t *testing.T) {
	r := start(t, server.Options{})
	check(t, r.PutNetwork(r.ctx, network("a", "10.1.0.0/24")), r.PutNetwork(r.ctx, network("b", "10.2.0.0/24")), r.Health(r.ctx))
	check(t, r.Report(r.ctx, vdn.NodeReport{Node: vdn.Node{Name: "n1", Means: "kernel"}}), r.Report(r.ctx, vdn.NodeReport{Node: vdn.Node{Name: "n2", Means: "kernel"}}))
	before, fresh, err := r.Plan(r.ctx, "n1", 0, 0)
	if err != nil || !fresh || len(before.Slices) != 2 || len(before.Local) != 0 {
		t.Fatalf("%+v, %v, %v", before, fresh, err)
	}
	request := vdn.AttachmentRequest{Network: "a", Node: "n1", Container: "c1", Interface: "net1", Owner: "x/y"}
	lease, err := r.Attach(r.ctx, request)
	check(t, err)
	if a := lease.Attachment; a.ID != "c1.net1" || a.Addresses[0].String() != "10.1.0.1/24" || a.Phase != vdn.Leased || a.Since == 0 || lease.Network.Name != "a" {
		t.Errorf("%+v", lease)
	}
	again, err := r.Attach(r.ctx, request)
	if err != nil || again.Attachment.Addresses[0] != lease.Attachment.Addresses[0] {
		t.Errorf("%+v, %v", again, err)
	}
	up, err := r.Up(r.ctx, "c1.net1", vdn.UpReport{Device: "eth1", MAC: "02:00:00:00:00:0A", NetNS: "/run/netns/x"})
	if err != nil || up.Phase != vdn.Up || up.MAC != "02:00:00:00:00:0a" {
		t.Errorf("%+v, %v", up, err)
	}
	plan, fresh, err := r.Plan(r.ctx, "n1", before.Revision, time.Minute)
	if err != nil || !fresh || len(plan.Local) != 1 || plan.Local[0].NetNS != "/run/netns/x" || plan.Revision <= before.Revision {
		t.Errorf("%+v, %v, %v", plan, fresh, err)
	}
	if all, err := r.Attachments(r.ctx, "a", "n1"); err != nil || len(all) != 1 {
		t.Errorf("%v, %v", all, err)
	}
	if none, err := r.Attachments(r.ctx, "b", ""); err != nil || none == nil || len(none) != 0 {
		t.Errorf("%v, %v", none, err)
	}
	if got, err := r.Collect(r.ctx, "n1", "a", []string{"c1.net1"}); err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := r.Collect(r.ctx, "n1", "a", nil); err != nil || len(got) != 1 || got[0] != "c1.net1" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := r.Attachment(r.ctx, "c1.net1"); !client.IsStatus(err, http.StatusNotFound) || !strings.Contains(err.Error(), "attachment c1.net1: not found") {
		t.Errorf("got %v", err)
	}
	check(t, r.Detach(r.ctx, "c1.net1"), r.DeleteNetwork(r.ctx, "a"), r.DeleteNetwork(r.ctx, "a"))
	if all, err := r.Networks(r.ctx); err != nil || len(all) != 1 || all[0].Name != "b" {
		t.Errorf("%v, %v", all, err)
	}
}

// TestOnlyConcernedNodesReceiveAChange checks that a pod on one node does not wake the
// others.
func TestOnlyConcernedNodesReceiveAChange(t *testing.T) {
	r := start(t, server.Options{})
	check(t, r.PutNetwork(r.ctx, network("a", "10.1.0.0/24")))
	if _, _, err := r.Plan(r.ctx, "n1", 0, 0); !client.IsStatus(err, http.StatusNotFound) || !strings.Contains(err.Error(), "node n1: not found: has not reported yet: PUT /v1/nodes/n1 first") {
		t.Errorf("got %v", err)
	}
	check(t, r.Report(r.ctx, vdn.NodeReport{Node: vdn.Node{Name: "n1", Means: "kernel"}}))
	plan, _, err := r.Plan(r.ctx, "n1", 0, 0)
	check(t, err)
	type result struct {
		plan  vdn.Plan
		fresh bool
		err   error
	}
	received := make(chan result, 1)
	go func() {
		p, fresh, err := r.Plan(r.ctx, "n1", plan.Revision, time.Minute)
		received <- result{p, fresh, err}
	}()
	request := vdn.AttachmentRequest{Network: "a", Node: "n2", Container: "c1", Interface: "net1"}
	_, err = r.Attach(r.ctx, request)
	check(t, err)
	if p, fresh, err := r.Plan(r.ctx, "n1", plan.Revision, time.Millisecond); fresh || err != nil {
		t.Errorf("n1 receives a change of n2: %+v, %v", p, err)
	}
	request.Node, request.Container = "n1", "c2"
	_, err = r.Attach(r.ctx, request)
	check(t, err)
	if got := <-received; !got.fresh || got.err != nil || len(got.plan.Local) != 1 {
		t.Errorf("n1 receives %+v", got)
	}
	// A client with a revision from the future used another store.
	if _, fresh, err := r.Plan(r.ctx, "n1", 1<<40, time.Minute); !fresh || err != nil {
		t.Errorf("%v, %v", fresh, err)
	}
}

func TestTheViewShowsNodesRatesAndWhatDoesNotHold(t *testing.T) {
	now := time.Unix(1000, 0)
	r := start(t, server.Options{Now: func() time.Time { return now }})
	n := network("a", "10.1.0.0/24")
	n.GuaranteedRate = 400e6
	check(t, r.PutNetwork(r.ctx, n))
	report := vdn.NodeReport{Node: vdn.Node{Name: "n1", Means: "kernel", Uplinks: []vdn.Uplink{{Device: "eth1", Rate: 300e6}}}}
	report.Counters = []vdn.Counter{{Network: "a", Device: "eth1", SentBytes: 1000, Drops: map[string]uint64{"outside": 1}}, {Network: "gone", Device: "eth1", SentBytes: 5}}
	check(t, r.Report(r.ctx, report))
	now = now.Add(2 * time.Second)
	report.Counters = []vdn.Counter{{Network: "a", Device: "eth1", SentBytes: 251000, Drops: map[string]uint64{"outside": 5}}, {Network: "gone", Device: "eth1"}}
	check(t, r.Report(r.ctx, report))
	v, _, err := r.View(r.ctx, 0, 0)
	check(t, err)
	if len(v.Nodes) != 1 || !v.Nodes[0].Alive || len(v.Nodes[0].Rates) != 1 || v.Nodes[0].Rates[0].Sent != 1e6 || v.Nodes[0].Rates[0].Drops != 2 {
		t.Errorf("%+v", v.Nodes)
	}
	if want := "400M are guaranteed in total (a 400M), but uplink eth1 of node n1 has a rate of 300M"; len(v.Notes) != 1 || v.Notes[0] != want {
		t.Errorf("%q", v.Notes)
	}
	n.GuaranteedRate = 500e6
	if err := r.PutNetwork(r.ctx, n); !client.IsStatus(err, http.StatusConflict) || !strings.Contains(err.Error(), "lower guaranteedRate") {
		t.Errorf("got %v", err)
	}
	now = now.Add(time.Minute)
	if v, _, err = r.View(r.ctx, 0, 0); err != nil || v.Nodes[0].Alive || v.Nodes[0].ReportAge != 60 || v.Nodes[0].Rates != nil {
		t.Errorf("%+v, %v", v.Nodes, err)
	}
	if v, fresh, err := r.View(r.ctx, v.Revision, time.Millisecond); fresh || err != nil {
		t.Errorf("%+v, %v", v, err)
	}
	check(t, r.DeleteNode(r.ctx, "n1"))
	_, metrics := r.ask(t, "GET", "/metrics", "")
	for _, want := range []string{`fairlead_vdn_leases{network="a"} 0`, `fairlead_vdn_pool_free_addresses{cidr="10.1.0.0/24",network="a"} 254`, "fairlead_vdn_networks 1", "fairlead_vdn_attach_seconds_count 0"} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %s in\n%s", want, metrics)
		}
	}
	promtool.CheckMetrics(t, metrics)
}

func TestBadRequestsAreRefusedByName(t *testing.T) {
	r := start(t, server.Options{})
	check(t, r.PutNetwork(r.ctx, network("a", "10.1.0.0/24")))
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"PUT", "/v1/networks/b", `{"name": "c"}`, 400, "network c, name: does not match b in the path: use the same name"},
		{"PUT", "/v1/networks/b", `{"gaurantee": "1M"}`, 400, "body: gaurantee: unknown field"},
		{"PUT", "/v1/networks/b", `{"guaranteedRate": "1MB"}`, 400, `rate "1MB" is invalid: use bit/s, such as 400M`},
		{"PUT", "/v1/networks/b", `{"subnets": [{"cidr": "10.1/16"}]}`, 400, "netip.ParsePrefix"},
		{"PUT", "/v1/networks/b", `{}`, 400, "network b, devices: is required"},
		{"PUT", "/v1/networks/b", ``, 400, "body: empty body"},
		{"PUT", "/v1/networks/b", `{} x`, 400, "body: unexpected data after"},
		{"PUT", "/v1/networks/b", `{"devices": ["eth1"], "subnets": [{"cidr": "10.1.0.128/25"}]}`, 409, "overlaps 10.1.0.0/24 of network a"},
		{"PUT", "/v1/networks/b", `"` + strings.Repeat("x", 1<<20) + `"`, 413, "body: longer than 1048576 bytes"},
		{"POST", "/v1/networks", `{}`, 405, "/v1/networks, method: POST is not allowed: use GET"},
		{"GET", "/v1/nothing", ``, 404, "/v1/nothing: not found"},
		{"GET", "/", ``, 404, "/: not found"},
		{"GET", "/v1/networks/none", ``, 404, "network none: not found"},
		{"GET", "/v1/attachments?netwrok=a", ``, 400, "query, netwrok: unknown parameter: use network, node"},
		{"GET", "/v1/attachments?node=a&node=b", ``, 400, "query, node: set 2 times"},
		{"GET", "/v1/view?after=x", ``, 400, `query, after: "x" is not a revision`},
		{"GET", "/v1/view?after=1&wait=1h", ``, 400, `query, wait: "1h" is not a duration`},
		{"GET", "/v1/view?wait=1s", ``, 400, `query, after: is required`},
		{"POST", "/v1/nodes/n1/gc", `{"valid": []}`, 400, "node n1, network: is required"},
		{"POST", "/v1/nodes/n1/gc", `{"network": "a"}`, 400, "node n1, valid: is required"},
		{"PUT", "/v1/nodes/n1", `{"name": "n2"}`, 400, "node n2, name: does not match n1 in the path"},
		{"PUT", "/v1/peers/here", `{"url": "https://x", "nextHops": ["192.0.2.1"]}`, 400, "is this domain itself"},
		{"PUT", "/v1/peers/busan", `{"url": "https://x", "nextHops": ["::ffff:192.0.2.1"]}`, 400, "is an IPv4-mapped IPv6 address: use 192.0.2.1"},
		{"PUT", "/v1/attachments/none.x/up", `{"device": "eth1", "mac": "02:00:00:00:00:01", "netns": "/x"}`, 404, "attachment none.x: not found"},
	} {
		status, text := r.ask(t, c.method, c.path, c.body)
		var f server.Failure
		if err := json.Unmarshal([]byte(text), &f); err != nil || status != c.status || !strings.Contains(f.Error, c.want) {
			t.Errorf("%s %s %.60s\n got %d %s\nwant %d %s", c.method, c.path, c.body, status, text, c.status, c.want)
		}
	}
}

func TestChangesMayBeHeldToWhatWasSeen(t *testing.T) {
	r := start(t, server.Options{})
	body := func(max string) string {
		return `{"devices": ["eth1"], "subnets": [{"cidr": "10.1.0.0/24"}], "maxRate": "` + max + `"}`
	}
	put := func(want int, max string, header ...string) {
		t.Helper()
		if status, text := r.ask(t, "PUT", "/v1/networks/a", body(max), header...); status != want {
			t.Errorf("got %d %s, want %d", status, text, want)
		}
	}
	put(412, "1G", "If-Match", `"x"`)
	put(201, "1G", "If-None-Match", "*")
	put(412, "2G", "If-None-Match", "*")
	resp, err := http.Get(r.url + "/v1/networks/a")
	check(t, err)
	resp.Body.Close()
	seen := resp.Header.Get("ETag")
	put(200, "2G", "If-Match", seen)
	put(412, "3G", "If-Match", seen)
	if status, _ := r.ask(t, "DELETE", "/v1/networks/a", "", "If-Match", seen); status != 412 {
		t.Errorf("got %d", status)
	}
	put(200, "3G")
}

func TestTheTokenIsAskedFor(t *testing.T) {
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "page") })
	r := start(t, server.Options{Tokens: access.Single("test", "secret"), Page: page})
	for path, want := range map[string]int{"/v1/networks": 401, "/v1/openapi.json": 401, "/v1/none": 401, "/healthz": 200, "/livez": 200, "/readyz": 200, "/metrics": 200, "/": 200} {
		if status, text := r.ask(t, "GET", path, ""); status != want {
			t.Errorf("%s: got %d %s, want %d", path, status, text, want)
		}
	}
	for header, want := range map[string]int{"Bearer secret": 200, "Bearer secre": 401, "Basic secret": 401, "Bearer ": 401} {
		if status, _ := r.ask(t, "GET", "/v1/networks", "", "Authorization", header); status != want {
			t.Errorf("%q: got %d, want %d", header, status, want)
		}
	}
	file := filepath.Join(t.TempDir(), "token")
	check(t, os.WriteFile(file, []byte("secret\n"), 0o600))
	if _, err := client.New(client.Config{URL: "http://me:hush@127.0.0.1:1"}); err == nil || strings.Contains(err.Error(), "hush") || !strings.Contains(err.Error(), "use a token file") {
		t.Errorf("got %v", err)
	}
	c, err := client.New(client.Config{URL: r.url, TokenFile: file})
	check(t, err)
	check(t, c.PutNetwork(r.ctx, network("a", "10.1.0.0/24")))
	check(t, os.WriteFile(file, []byte("former\n"), 0o600))
	if err := c.PutNetwork(r.ctx, network("a", "10.1.0.0/24")); !client.IsStatus(err, http.StatusUnauthorized) {
		t.Errorf("with a token that changed: %v", err)
	}
	check(t, os.WriteFile(file, []byte("secret\n"), 0o600), c.PutNetwork(r.ctx, network("a", "10.1.0.0/24")))
	if err := r.PutNetwork(r.ctx, network("a", "10.1.0.0/24")); !client.IsStatus(err, http.StatusUnauthorized) {
		t.Errorf("got %v", err)
	}
	if status, text := r.ask(t, "DELETE", "/v1/networks/a", "", "Authorization", "Bearer secret", "Origin", "https://elsewhere.example"); status != 403 {
		t.Errorf("a page from elsewhere gets %d %s", status, text)
	}
}

// TestWhenTheStoreFailsTheControllerIsAway checks that clients can retry.
func TestWhenTheStoreFailsTheControllerIsAway(t *testing.T) {
	r := start(t, server.Options{})
	check(t, r.PutNetwork(r.ctx, network("a", "10.1.0.0/24")), r.store.Close())
	for _, err := range []error{r.Health(r.ctx), r.PutNetwork(r.ctx, network("b", "10.2.0.0/24")), r.Detach(r.ctx, "x.y"), r.DeleteNetwork(r.ctx, "a")} {
		if !client.IsStatus(err, http.StatusServiceUnavailable) || !client.IsUnavailable(err) {
			t.Errorf("got %v", err)
		}
	}
	away, err := client.New(client.Config{URL: "http://127.0.0.1:1"})
	check(t, err)
	if err := away.Health(r.ctx); !client.IsUnavailable(err) || !strings.Contains(err.Error(), "cannot reach the VDN controller at http://127.0.0.1:1: ") {
		t.Errorf("got %v", err)
	}
}

// TestFederationHasItsDoors covers offers from and to peers, and waiting.
func TestFederationHasItsDoors(t *testing.T) {
	r := start(t, server.Options{})
	a := network("a", "10.1.0.0/24")
	a.SharedWith, a.PeerNetworks = []string{"busan"}, []string{"busan/c"}
	via := netip.MustParseAddr("192.0.2.1")
	check(t, r.PutNetwork(r.ctx, a), r.PutPeer(r.ctx, vdn.Peer{Domain: "busan", URL: "https://x:1", NextHops: []netip.Addr{via}}),
		r.Report(r.ctx, vdn.NodeReport{Node: vdn.Node{Name: "gw", Means: "kernel", Gateway: true}}))
	offer, revision := r.server.Offer("busan")
	if len(offer.Networks) != 1 || offer.Networks[0].PeerNetworks[0] != "c" || offer.Domain != "here" {
		t.Errorf("%+v", offer)
	}
	done := make(chan uint64)
	go func() { done <- r.server.Wait(r.ctx, revision) }()
	check(t, r.PutNetwork(r.ctx, network("other", "10.5.0.0/24")))
	if now := <-done; now <= revision {
		t.Errorf("revision %d after %d", now, revision)
	}
	if again, _ := r.server.Offer("busan"); !reflect.DeepEqual(again, offer) {
		t.Errorf("an offer that nothing concerns is %+v, then %+v", offer, again)
	}
	check(t, r.server.SetOffers(t.Context(), []vdn.PeerView{{Peer: vdn.Peer{Domain: "busan"}, Connected: true, Networks: []vdn.SharedNetwork{
		{Name: "c", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/24")}, PeerNetworks: []string{"a"}}}}}))
	plan, _, err := r.Plan(r.ctx, "gw", 0, 0)
	check(t, err)
	if len(plan.Slices) != 3 || plan.Slices[2].Name != "busan/c" || plan.Slices[2].PeerNetworks[0] != plan.Slices[0].ID || len(plan.Routes) != 1 || plan.Routes[0].GW != via {
		t.Errorf("%+v", plan)
	}
	if peers, err := r.Peers(r.ctx); err != nil || len(peers) != 1 || peers[0].Domain != "busan" {
		t.Errorf("%v, %v", peers, err)
	}
	check(t, r.DeletePeer(r.ctx, "busan"))
	if now := r.server.Peers(); len(now) != 0 {
		t.Errorf("%+v", now)
	}
}

// TestServeEnds checks that waiting clients get a response at the end.
func TestServeEnds(t *testing.T) {
	r := start(t, server.Options{})
	check(t, r.PutNetwork(r.ctx, network("a", "10.1.0.0/24")))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	ctx, cancel := context.WithCancel(r.ctx)
	served := make(chan error, 1)
	go func() { served <- r.server.Serve(ctx, l) }()
	c, err := client.New(client.Config{URL: "http://" + l.Addr().String(), Timeout: time.Minute})
	check(t, err)
	v, _, err := c.View(r.ctx, 0, 0)
	check(t, err)
	waited := make(chan error, 1)
	go func() {
		_, fresh, err := c.View(r.ctx, v.Revision, time.Minute)
		if fresh {
			err = errors.New("something is new")
		}
		waited <- err
	}()
	time.Sleep(50 * time.Millisecond) // usually long enough for it to wait; the result is the same if not
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if err := <-waited; err != nil && !client.IsUnavailable(err) {
		t.Error(err)
	}
}

// TestNetworksElsewhere checks that clients cannot change networks that are managed
// elsewhere.
func TestNetworksElsewhere(t *testing.T) {
	r := start(t, server.Options{Elsewhere: "the cluster's: kubectl apply"})
	body, err := json.Marshal(network("science", "10.1.0.0/24"))
	if err != nil {
		t.Fatal(err)
	}
	for method, body := range map[string]string{"PUT": string(body), "DELETE": ""} {
		status, said := r.ask(t, method, "/v1/networks/science", body)
		if status != http.StatusConflict || !strings.Contains(said, "networks here are the cluster's: kubectl apply") {
			t.Errorf("%s: %d %s", method, status, said)
		}
	}
}
