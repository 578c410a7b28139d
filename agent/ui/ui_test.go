package ui

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/rates"
	"github.com/fairlead/fairlead/lab/testkit/browser"
	"github.com/fairlead/fairlead/vdn"
)

var update = flag.Bool("update", false, "take the screenshots in docs again")

// serve serves the page of a cluster on a loopback address.
func serve(t *testing.T, services int) (*httptest.Server, []*fakeAgent) {
	t.Helper()
	agents, fakes := cluster(t, services)
	networks := func(context.Context) (any, error) {
		return vdn.View{Domain: "daejeon", Networks: []vdn.Network{{Name: "science", GuaranteedRate: 400e6}}}, nil
	}
	web := httptest.NewServer(Handler(Options{Listen: DefaultListen, Agents: agents, Timeout: 500 * time.Millisecond, Networks: networks}))
	t.Cleanup(web.Close)
	return web, fakes
}

// ask returns the answer to a request, and decodes it unless it is an error.
func ask(t *testing.T, r *http.Request, into any) *http.Response {
	t.Helper()
	resp, err := http.DefaultClient.Do(r.WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK && into != nil {
		if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
			t.Fatal(err)
		}
	}
	return resp
}

func get(t *testing.T, address string) *http.Request {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestSnapshot queries all agents; one that does not answer is named and delays the others
// no longer than the timeout.
func TestSnapshot(t *testing.T) {
	web, _ := serve(t, 10)
	since := time.Now().Add(-2 * time.Minute).Format(time.RFC3339)
	params := url.Values{"rates": {rates.Default(rates.Node).Values().Encode(), rates.Default(rates.Services).Values().Encode()}, "since.lb-3": {since}}
	var got snapshot
	if resp := ask(t, get(t, web.URL+"/api/agents?"+params.Encode()), &got); resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	for i, a := range got.Agents[:3] {
		if a.Error != "" || len(a.Rates) != 2 || a.Missing != "" || !strings.Contains(string(a.Status), `"node":"`+a.Name+`"`) {
			t.Errorf("%s: %q, %q, %d rates, %s", a.Name, a.Error, a.Missing, len(a.Rates), a.Status)
		}
		if want := []int{2, 6, 2}[i]; len(a.Events) != want {
			t.Errorf("%s: %d events, want %d", a.Name, len(a.Events), want)
		}
	}
	if a := got.Agents[3]; a.Name != "lb-4" || a.Error != "does not answer in time" {
		t.Errorf("the silent one: %+v", a)
	}
	if got.Pause != minPause.Seconds() {
		t.Errorf("pause of %v seconds", got.Pause)
	}
	for _, wrong := range []string{"rates=%25zz", strings.Repeat("rates=view%3Dnode&", maxRates+1)} {
		if resp := ask(t, get(t, web.URL+"/api/agents?"+wrong), nil); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s", wrong, resp.Status)
		}
	}
}

func TestExplain(t *testing.T) {
	web, _ := serve(t, 1)
	var got []explained
	ask(t, get(t, web.URL+"/api/explain?kind=service&name=shop/cart"), &got)
	if len(got) != 4 || len(got[0].Chains) != 1 || got[0].Chains[0].Complete || got[3].Error == "" {
		t.Errorf("%+v", got)
	}
	for _, wrong := range []string{"kind=node&name=x", "kind=route&name=x"} {
		if resp := ask(t, get(t, web.URL+"/api/explain?"+wrong), nil); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s", wrong, resp.Status)
		}
	}
}

// TestDropsAndTrace samples a drop and traces it.
func TestDropsAndTrace(t *testing.T) {
	web, _ := serve(t, 1)
	var samples []dropped
	ask(t, get(t, web.URL+"/api/drops?agent=lb-1"), &samples)
	if len(samples) != 2 || len(samples[0].Lines) != 3 || !strings.Contains(samples[0].Lines[1], "192.0.2.7 > 10.1.9.9") {
		t.Fatalf("%+v", samples)
	}
	body, err := json.Marshal(map[string]any{"interface": samples[0].Interface, "frame": samples[0].Data})
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequest(http.MethodPost, web.URL+"/api/trace?agent=lb-1", strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	var tr traced
	ask(t, r, &tr)
	if tr.Drop != "no-frontend" || len(tr.Steps) != 2 || len(tr.InLines) != 3 || tr.OutLines != nil {
		t.Errorf("%+v", tr)
	}
	if resp := ask(t, get(t, web.URL+"/api/drops?agent=lb-4"), nil); resp.StatusCode == http.StatusOK {
		t.Error("an agent that does not answer has dropped nothing")
	}
	if resp := ask(t, get(t, web.URL+"/api/drops?agent=nosuch"), nil); resp.StatusCode != http.StatusBadRequest {
		t.Error(resp.Status)
	}
}

// TestLocal rejects what another website could make a browser request, and has a strict
// policy.
func TestLocal(t *testing.T) {
	web, _ := serve(t, 1)
	r := get(t, web.URL+"/")
	resp := ask(t, r, nil)
	if policy := resp.Header.Get("Content-Security-Policy"); resp.StatusCode != http.StatusOK || !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
		t.Errorf("%s, policy %q", resp.Status, policy)
	}
	for host, want := range map[string]int{"localhost:8643": 200, "[::1]:8643": 200, "127.0.0.1": 200, "evil.example": 421, "127.0.0.1.evil.example:8643": 421} {
		r.Host = host
		if resp := ask(t, r, nil); resp.StatusCode != want {
			t.Errorf("host %s: %s, want %d", host, resp.Status, want)
		}
	}
	post, err := http.NewRequest(http.MethodPost, web.URL+"/api/trace?agent=lb-1", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	post.Header.Set("Sec-Fetch-Site", "cross-site")
	if resp := ask(t, post, nil); resp.StatusCode != http.StatusForbidden {
		t.Errorf("another site's request: %s", resp.Status)
	}
	remote := httptest.NewServer(Handler(Options{Listen: "0.0.0.0:8643"}))
	defer remote.Close()
	r = get(t, remote.URL+"/")
	r.Host = "lb.example"
	if resp := ask(t, r, nil); resp.StatusCode != http.StatusOK {
		t.Errorf("a page that is not local: %s", resp.Status)
	}
}

func TestAgents(t *testing.T) {
	all, err := Agents([]string{"/run/fairlead/agent.sock", "lb2=/tmp/agent.sock", "lb3=10.0.0.3:9000", "10.0.0.4:9000"})
	if err != nil {
		t.Fatal(err)
	}
	names := ""
	for _, a := range all {
		names += a.Name + " "
	}
	if names != "agent lb2 lb3 10.0.0.4:9000 " {
		t.Errorf("names %s", names)
	}
	for _, wrong := range [][]string{{"nowhere"}, {"=/tmp/x.sock"}, {"/a/agent.sock", "/b/agent.sock"}} {
		if _, err := Agents(wrong); err == nil {
			t.Errorf("%q is accepted", wrong)
		}
	}
}

// TestPage uses the page of a thousand Services in a browser, by the keyboard.
func TestPage(t *testing.T) {
	web, fakes := serve(t, 1000)
	p := browser.Open(t, web.URL, 1360, 1240)
	p.Theme("light")
	text := func(id string) string { return fmt.Sprint(p.Eval(`document.getElementById('` + id + `').textContent`)) }
	contains := func(id string, wants ...string) {
		t.Helper()
		for _, want := range wants {
			p.Wait(fmt.Sprintf(`document.getElementById(%q).textContent.includes(%q)`, id, want))
		}
	}
	contains("verdict", "lb-4 does not answer; 1 peer is down; 1 problem")
	contains("topology", "tor-2", "BGP 2/3, BFD 2/3", "lb-4", "does not answer in time", "node-3", "1 of 2 backends down")
	contains("attention", "shop/cart", "no-healthy-backend", "lb-3: pending (not yet programmed into the data plane)")
	contains("nodes", "v0.9.0", "lb-2")
	contains("traffic", "lb-1", "BackendUnhealthy")
	screenshots(t, p)

	p.Eval(`document.querySelector('[role=tab][aria-selected=true]').focus()`)
	p.Press("ArrowRight")
	contains("page", "1 to 50 of 1000")
	p.Press("/")
	for _, key := range "0042" {
		p.Press(string(key))
	}
	contains("page", "1 to 1 of 1")
	p.Press("Escape", "ArrowDown", "Enter")
	contains("detail-name", "service shop/web-0042")
	p.Wait(`document.getElementById('detail').open`)
	contains("detail", "stops at “backends”", "shop.yaml:3", "172.16.3.16:8080 (web-6)", "503 Service Unavailable")
	p.Press("Escape")
	p.Wait(`!document.getElementById('detail').open`)
	p.Press("3")
	contains("all-peers", "BFD: no packets for 900ms")
	p.Press("4")
	contains("all-drops", "rate-limited")
	p.Eval(`document.getElementById('sample').click()`)
	contains("samples", "IPv4 192.0.2.7 > 10.1.9.9")
	p.Eval(`document.querySelector('#samples button').click()`)
	contains("traced", "dropped: no-frontend", "XDP_DROP")
	p.Press("5")
	if n := p.Eval(`document.querySelectorAll('#timeline .stage:not([width="12"])').length`); n != 3.0 {
		t.Errorf("the timeline has %v stages, want 3", n)
	}
	p.Press("6")
	contains("all-events", "DrainCompleted", "BFDDown")
	p.Press("7")
	contains("all-problems", "shop.yaml:14", `"tunel" is not a forwarding mode`, "lb-3")
	p.Press("8")
	contains("networks", "science", "400 Mbit/s")
	p.Press("p")
	contains("pause", "Continue")
	time.Sleep(time.Second) // the last poll may be in progress
	asked := fakes[0].asked.Load()
	time.Sleep(3 * time.Second)
	if now := fakes[0].asked.Load(); now != asked {
		t.Errorf("a paused page has asked %d times", now-asked)
	}
	if errors := p.Errors(); len(errors) > 0 {
		t.Errorf("console: %q", errors)
	}
	for _, address := range p.Requests() {
		if !strings.HasPrefix(address, web.URL) && !strings.HasPrefix(address, "data:") {
			t.Errorf("request to %s", address)
		}
	}
	if text("trouble") != "" && p.Eval(`document.getElementById('trouble').hidden`) != true {
		t.Error(text("trouble"))
	}
}

// screenshots takes those in docs, if it should.
func screenshots(t *testing.T, p *browser.Page) {
	t.Helper()
	dir := os.Getenv("FAIRLEAD_SCREENSHOT")
	if *update {
		dir = filepath.Join("..", "..", "docs")
	}
	if dir == "" {
		return
	}
	time.Sleep(40 * time.Second) // charts need a history
	for _, name := range []string{"light", "dark"} {
		p.Theme(name)
		png, err := browser.Shrink(p.Screenshot())
		if err != nil || len(png) > 150<<10 {
			t.Errorf("the %s screenshot has %d bytes, %v", name, len(png), err)
		}
		if err := os.WriteFile(filepath.Join(dir, "ui-"+name+".png"), png, 0o644); err != nil {
			t.Error(err)
		}
	}
}
