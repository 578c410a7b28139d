package page

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/vdn"
)

// browser is a headless Chromium's look at a page, as text of its elements.
func browser(t *testing.T, url string) string {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("no chromium here: make test-page installs it")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, program, "--headless", "--no-sandbox", "--disable-gpu", "--no-proxy-server", "--disable-dev-shm-usage",
		"--user-data-dir="+t.TempDir(), "--virtual-time-budget=3500", "--dump-dom", url)
	if to := os.Getenv("FAIRLEAD_SCREENSHOT"); to != "" {
		c.Args = append(c.Args[:len(c.Args)-1], "--window-size=1240,1000", "--screenshot="+filepath.Join(to, t.Name()+".png"), url)
	}
	c.WaitDelay = 5 * time.Second
	c.Env = append(os.Environ(), "HOME="+t.TempDir())
	text, err := c.Output()
	if err != nil {
		t.Fatalf("chromium: %v", err)
	}
	return string(text)
}

func view() vdn.View {
	prefix, addr := netip.MustParsePrefix, netip.MustParseAddr
	return vdn.View{
		Domain: "daejeon", Revision: 7,
		Networks: []vdn.Network{
			{Name: "science", Devices: []string{"eth1"}, Subnets: []vdn.Subnet{{Prefix: prefix("10.1.0.0/24")}}, Guarantee: 400e6, Reach: []string{"busan/genome"}},
			{Name: "<script>alert(1)</script>", Devices: []string{"eth1"}, Subnets: []vdn.Subnet{{Prefix: prefix("10.2.0.0/24")}}},
		},
		Attachments: []vdn.Attachment{
			{ID: "c1.net1", Network: "science", Node: "n1", Owner: "lab/reader", Addresses: []netip.Prefix{prefix("10.1.0.7/24")}, Phase: vdn.Up},
			{ID: "c2.net1", Network: "science", Node: "n2", Addresses: []netip.Prefix{prefix("10.1.0.8/24")}, Phase: vdn.Leased},
		},
		Nodes: []vdn.NodeView{
			{
				NodeReport: vdn.NodeReport{Node: vdn.Node{Name: "n1", Uplinks: []vdn.Uplink{{Device: "eth1", Rate: 1e9}}, Means: "kernel"}, Applied: 7}, Alive: true,
				Rates: []vdn.CounterRate{{Network: "science", Device: "eth1", Sent: 391e6, Drops: 12}, {Network: "science", Attachment: "c1.net1", Device: "net1", Sent: 391e6, Received: 5e6}},
			},
			{NodeReport: vdn.NodeReport{Node: vdn.Node{Name: "n2", Gateway: true, Uplinks: []vdn.Uplink{{Device: "eth1", Rate: 1e9}}}}, Heard: 31},
		},
		Peers: []vdn.PeerView{{Peer: vdn.Peer{Domain: "busan"}, Connected: true, Networks: []vdn.SharedNetwork{
			{Name: "genome", Prefixes: []netip.Prefix{prefix("10.9.0.0/24")}, Hosts: []vdn.SharedHost{{Owner: "b/writer", Addresses: []netip.Addr{addr("10.9.0.5")}}}},
			{Name: "clash", Prefixes: []netip.Prefix{prefix("10.1.0.0/16")}, Refused: "overlaps science"},
		}}},
	}
}

func serve(t *testing.T, token string) (*httptest.Server, *atomic.Int64) {
	var asked atomic.Int64
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", Handler())
	mux.HandleFunc("GET /v1/view", func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if token != "" && r.Header.Get("Authorization") != "Bearer "+token {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_ = json.NewEncoder(w).Encode(view())
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s, &asked
}

func TestPage(t *testing.T) {
	s, asked := serve(t, "")
	dom := browser(t, s.URL)
	for _, want := range []string{
		"daejeon, revision 7",
		">lab/reader</td>", ">10.1.0.7</td>", ">391 Mbit/s</td>", ">5.0 Mbit/s</td>", `bad">12</td>`, // rates and drops
		">400 Mbit/s</td>", "holds plan 7", "silent for 31 s", "n2 (gateway)",
		">connected</text>", ">busan</text>", "overlaps science", "b/writer", "&lt;script&gt;alert(1)",
	} {
		if !strings.Contains(dom, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if n := strings.Count(dom, `class="host"`); n != 3 {
		t.Errorf("%d hosts in the picture, want ours and the other domain's: 3", n)
	}
	if asked.Load() < 2 {
		t.Errorf("asked %d times: it does not keep up", asked.Load())
	}
	if t.Failed() {
		t.Log(dom)
	}
}

func TestPageWithToken(t *testing.T) {
	s, _ := serve(t, "secret")
	dom := browser(t, s.URL)
	if !strings.Contains(dom, "The controller wants a token.") || strings.Contains(dom, `<form id="ask" hidden`) {
		t.Errorf("does not ask for the token:\n%s", dom)
	}
}
