package page

import (
	"context"
	"fmt"
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
	"github.com/fairlead/fairlead/vdn/access"
	"github.com/fairlead/fairlead/vdn/client"
	"github.com/fairlead/fairlead/vdn/server"
	"github.com/fairlead/fairlead/vdn/store"
)

// browser renders a page in headless Chromium and returns its elements as text.
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

// controller is a real controller with two nodes, one of them silent, two pods, a peer, and
// text that needs HTML escaping.
func controller(t *testing.T, token string) *httptest.Server {
	t.Helper()
	kept, err := store.Open(t.TempDir(), "daejeon")
	must(t, err)
	clock := time.Unix(1000, 0)
	o := server.Options{Store: kept, Page: Handler(), Now: func() time.Time { return clock }}
	if token != "" {
		o.Tokens = access.Single("test", token)
	}
	s := server.New(o)
	web := httptest.NewServer(s)
	t.Cleanup(func() {
		web.Close()
		must(t, kept.Close())
	})
	tokenFile := ""
	if token != "" {
		tokenFile = filepath.Join(t.TempDir(), "token")
		must(t, os.WriteFile(tokenFile, []byte(token), 0o600))
	}
	c, err := client.New(client.Config{URL: web.URL, TokenFile: tokenFile, Timeout: time.Minute})
	must(t, err)
	ctx := t.Context()
	must(t, c.PutNetwork(ctx, vdn.Network{
		Name: "science", Devices: []string{"eth1"}, GuaranteedRate: 400e6, PeerNetworks: []string{"busan/genome"},
		Subnets: []vdn.Subnet{{CIDR: netip.MustParsePrefix("10.1.0.0/24"), Ranges: []vdn.Range{{First: netip.MustParseAddr("10.1.0.7"), Last: netip.MustParseAddr("10.1.0.9")}}}},
	}))
	for i, owner := range []string{"lab/reader", "lab/<script>alert(1)</script>"} {
		_, err := c.Attach(ctx, vdn.AttachmentRequest{Network: "science", Node: fmt.Sprintf("n%d", i+1), Container: fmt.Sprintf("c%d", i+1), Interface: "net1", Owner: owner})
		must(t, err)
	}
	_, err = c.Up(ctx, "c1.net1", vdn.UpReport{Device: "eth1", MAC: "02:00:00:00:00:01", NetNS: "/run/netns/c1"})
	must(t, err)
	report := vdn.NodeReport{Node: vdn.Node{Name: "n1", Means: "kernel", Uplinks: []vdn.Uplink{{Device: "eth1", Rate: 300e6}}}, Applied: 7}
	report.Counters = []vdn.Counter{{Network: "science", Device: "eth1"}, {Network: "science", Attachment: "c1.net1", Device: "net1"}}
	must(t, c.Report(ctx, report))
	must(t, c.Report(ctx, vdn.NodeReport{Node: vdn.Node{Name: "n2", Means: "kernel", Gateway: true, Uplinks: []vdn.Uplink{{Device: "eth1", Rate: 1e9}}}}))
	clock = clock.Add(30 * time.Second)
	report.Counters = []vdn.Counter{
		{Network: "science", Device: "eth1", SentBytes: 30 * 391e6 / 8, Drops: map[string]uint64{"outside": 30 * 12}},
		{Network: "science", Attachment: "c1.net1", Device: "net1", SentBytes: 30 * 391e6 / 8, ReceivedBytes: 30 * 5e6 / 8},
	}
	must(t, c.Report(ctx, report))
	clock = clock.Add(time.Second)
	must(t, c.PutPeer(ctx, vdn.Peer{Domain: "busan", URL: "https://busan:7474", NextHops: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}))
	must(t, s.SetOffers(t.Context(), []vdn.PeerView{{Peer: vdn.Peer{Domain: "busan"}, Connected: true, Networks: []vdn.SharedNetwork{
		{Name: "genome", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/24")}, Hosts: []vdn.SharedHost{{Owner: "b/writer", Addresses: []netip.Addr{netip.MustParseAddr("10.9.0.5")}}}},
		{Name: "clash", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}},
	}}}))
	return web
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestPage(t *testing.T) {
	dom := browser(t, controller(t, "").URL)
	for _, want := range []string{
		">daejeon, revision ",
		">lab/reader</td>", ">10.1.0.7</td>", ">391 Mbit/s</td>", ">5 Mbit/s</td>", `bad">12</td>`, // rates and drops
		">400 Mbit/s</td>", "holds plan 7", "silent for 31 s", "n2 (gateway)",
		">connected</text>", ">busan</text>", "10.1.0.0/16 overlaps", "b/writer", "lab/&lt;script&gt;alert(1)",
		"400M are guaranteed in total (science 400M), but uplink eth1 of node n1 has a rate of 300M",
	} {
		if !strings.Contains(dom, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if n := strings.Count(dom, `class="host `); n != 3 {
		t.Errorf("%d hosts in the picture, want ours and the other domain's: 3", n)
	}
	if t.Failed() {
		t.Log(dom)
	}
}

// TestPageKeepsUp checks that changes appear without a reload.
func TestPageKeepsUp(t *testing.T) {
	var asked atomic.Int64
	real := controller(t, "").Config.Handler
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/view" {
			asked.Add(1)
		}
		real.ServeHTTP(w, r)
	}))
	defer web.Close()
	browser(t, web.URL)
	if asked.Load() < 2 {
		t.Errorf("asked %d times", asked.Load())
	}
}

func TestPageWithToken(t *testing.T) {
	dom := browser(t, controller(t, "secret").URL)
	if !strings.Contains(dom, "The controller wants a token.") || strings.Contains(dom, `<form id="ask" hidden`) || strings.Contains(dom, "lab/reader") {
		t.Errorf("does not ask for the token:\n%s", dom)
	}
}
