package metrics

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/internal/features"
	"github.com/fairlead/fairlead/internal/histogram"
	"github.com/fairlead/fairlead/lab/testkit/promtool"
)

// rows returns the rows of the table in docs/metrics.md.
func rows() (all []string) {
	for _, m := range All {
		all = append(all, row(m))
	}
	for _, d := range Histograms {
		all = append(all, fmt.Sprintf("| `%s` | histogram |  | %s |", d.Name, d.Help))
	}
	for _, m := range Backends {
		all = append(all, row(m))
	}
	return all
}

func row(m Metric) string {
	kind := "gauge"
	if m.Counter {
		kind = "counter"
	}
	var labels []string
	for _, l := range m.Labels {
		labels = append(labels, "`"+l+"`")
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s |", m.Name, kind, strings.Join(labels, " "), m.Help)
}

func TestThePageListsThemAll(t *testing.T) {
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var page []string
	ours, _, _ := strings.Cut(string(text), "## Controller")
	for line := range strings.Lines(ours) {
		if strings.HasPrefix(line, "| `fairlead_") {
			page = append(page, strings.TrimSpace(line))
		}
	}
	if diff := cmp.Diff(rows(), page); diff != "" {
		t.Errorf("docs/metrics.md: -registry +page:\n%s", diff)
	}
}

// TestPagesNameExistingMetrics checks every metric of this package in a page, and its labels.
func TestPagesNameExistingMetrics(t *testing.T) {
	named := regexp.MustCompile(`\b(fairlead_[a-z0-9_]+)(?:\{([a-z,]+)\})?`)
	labels := map[string][]string{}
	for _, m := range slices.Concat(All, Backends) {
		labels[m.Name] = m.Labels
	}
	for _, d := range Histograms {
		labels[d.Name] = []string{"le"}
	}
	pages, _ := filepath.Glob("../../docs/*.md")
	checked := 0
	for _, page := range append(pages, "../../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			if regexp.MustCompile(`^fairlead_(vdn|controller|pool)_`).MatchString(m[1]) { // of other packages
				continue
			}
			checked++
			has, ok := labels[m[1]]
			if !ok {
				t.Errorf("%s names the metric %s, which does not exist", page, m[1])
			}
			for l := range strings.SplitSeq(m[2], ",") {
				if l != "" && !slices.Contains(has, l) {
					t.Errorf("%s names the label %s of %s, which has %q", page, l, m[1], has)
				}
			}
		}
	}
	if checked <= len(All) {
		t.Errorf("only %d metrics are named in the pages", checked)
	}
}

// TestNames checks that a name ends in _total if and only if the value is a counter
// (OpenMetrics), because Prometheus computes rates only of counters.
func TestNames(t *testing.T) {
	for _, m := range slices.Concat(All, Backends) {
		if total := strings.HasSuffix(m.Name, "_total"); total != m.Counter {
			t.Errorf("%s: counter %v", m.Name, m.Counter)
		}
	}
}

// full has a value for everything.
func full() status.Status {
	began := time.Unix(1700000000, 0)
	var delays histogram.Histogram
	delays.Observe(3 * time.Millisecond)
	delays.Observe(20 * time.Millisecond)
	return status.Status{
		Version: "v1", Role: "balancer, dsr, proxy", Node: "node1", Started: began,
		DataPlane:          &dataplane.Description{Kind: "xdp", Drops: map[string]uint64{"ttl-exceeded": 3}},
		Degraded:           []features.Degraded{{Feature: features.Capture, Reason: "EPERM"}},
		DSRAgent:           &status.DSRAgent{Flows: 5, Counters: map[string]uint64{"tunnel-delivered": 6}, ChecksSenders: true, Senders: make([]netip.Addr, 2)},
		Tables:             []dataplane.Table{{Name: "flows", Used: 3, Size: 100}},
		ReconcileDurations: &delays, ProbeDurations: &delays,
		ServiceProxy: &status.ServiceProxy{Services: 7, Frontends: 8, Unwritten: 1, Changes: 9, LastSync: began,
			Delays: delays, Failures: 5, Drops: map[string]uint64{"no-endpoint": 2}},
		FailedCalls: 10, Problems: []problem.Problem{{Message: "a port is wrong"}, {Message: "no space in a map", Failure: true}},
		Drain: &status.Drain{Stage: plan.Withdrawn, Flows: 4},
		Services: []status.Service{{ID: "default/web", Frontends: []status.Frontend{
			{State: plan.Active, Counts: dataplane.Counts{Packets: 100, Bytes: 1000, Flows: 10},
				SYNFlood: &dataplane.SYNCounts{Guarded: true, CookiesSent: 21, CookiesAccepted: 2}, VIP: netip.MustParseAddr("10.1.1.1"), Port: 80, Protocol: "TCP", Backends: []status.Backend{{Health: "up", Address: netip.MustParseAddrPort("172.16.1.1:80"), Counts: dataplane.Counts{Packets: 60}}, {Health: "down", Address: netip.MustParseAddrPort("172.16.1.2:80")}}},
			{State: plan.Conflict, Counts: dataplane.Counts{Packets: 1}},
		}}},
		Routes: []status.Route{{Prefix: netip.MustParsePrefix("10.1.1.1/32"), Advertised: true},
			{Prefix: netip.MustParsePrefix("10.1.1.2/32"), Layer2: &status.Layer2{State: "owner"}}},
		Peers: []advertise.Peer{
			{Name: "tor-1", Address: "10.0.0.1", State: advertise.Established, BFD: "up", Sent: 1, Received: 2, UpdatesSent: 11, UpdatesReceived: 12, Flaps: 13},
			{Address: "10.0.0.2", State: "active", BFD: "off"},
			{Address: "203.0.113.9", State: "idle", Unconfigured: true},
		},
	}
}

func scrape(t *testing.T, s status.Status) string {
	t.Helper()
	srv := httptest.NewServer(Handler(func() status.Status { return s }, Options{Backends: true}))
	defer srv.Close()
	resp, err := http.Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v: %s", resp.Status, err, text)
	}
	return string(text)
}

func TestEveryMetricIsReadOffTheStatus(t *testing.T) {
	got := scrape(t, full())
	for _, want := range []string{
		`fairlead_build_info{node="node1",role="balancer, dsr, proxy",version="v1"} 1`,
		`fairlead_bgp_session_up{peer="tor-1"} 1`, `fairlead_bgp_session_up{peer="10.0.0.2"} 0`,
		`fairlead_bgp_advertised_prefixes{peer="tor-1"} 1`, `fairlead_bgp_received_prefixes{peer="tor-1"} 2`,
		`fairlead_bgp_sent_updates_total{peer="tor-1"} 11`, `fairlead_bgp_received_updates_total{peer="tor-1"} 12`,
		`fairlead_bgp_session_flaps_total{peer="tor-1"} 13`, `fairlead_bfd_session_up{peer="tor-1"} 1`,
		`fairlead_routes{advertised="true"} 1`, `fairlead_routes{advertised="false"} 1`,
		`fairlead_drain_stage{stage="withdrawn"} 1`, `fairlead_drain_stage{stage="drained"} 0`, "fairlead_drain_flows 4",
		"fairlead_services 1", `fairlead_frontends{state="active"} 1`, `fairlead_frontends{state="conflict"} 1`,
		`fairlead_backends{health="up"} 1`, `fairlead_service_packets_total{service="default/web"} 101`,
		`fairlead_service_bytes_total{service="default/web"} 1000`, `fairlead_service_flows_total{service="default/web"} 10`,
		`fairlead_service_syn_protection_active{service="default/web"} 1`,
		`fairlead_service_syn_protection_packets_total{event="cookie-sent",service="default/web"} 21`,
		`fairlead_service_syn_protection_packets_total{event="admitted",service="default/web"} 0`,
		`fairlead_dropped_packets_total{reason="ttl-exceeded"} 3`, "fairlead_dsr_tracked_flows 5", "fairlead_dsr_known_senders 2", `fairlead_dsr_packets_total{outcome="tunnel-delivered"} 6`,
		`fairlead_table_entries{table="flows"} 3`, `fairlead_table_max_entries{table="flows"} 100`,
		`fairlead_l2_addresses{state="owner"} 1`, `fairlead_l2_address_owned{address="10.1.1.2"} 1`,
		`fairlead_backend_up{backend="172.16.1.1:80",frontend="TCP 10.1.1.1:80",service="default/web"} 1`,
		`fairlead_backend_packets_total{backend="172.16.1.1:80",frontend="TCP 10.1.1.1:80",service="default/web"} 60`,
		"fairlead_reconcile_duration_seconds_count 2", "fairlead_probe_duration_seconds_count 2",
		"fairlead_proxy_services 7", "fairlead_proxy_unwritten_frontends 1", "fairlead_config_errors 1", "fairlead_reconcile_errors_total 15",
		`fairlead_proxy_network_programming_duration_seconds_bucket{le="0.005"} 1`, "fairlead_proxy_network_programming_duration_seconds_count 2",
		`fairlead_proxy_dropped_packets_total{reason="no-endpoint"} 2`, "go_goroutines",
	} {
		if !strings.Contains(got, "\n"+want) {
			t.Errorf("there is no %s", want)
		}
	}
	router := scrape(t, status.Status{Role: status.RoleRouter, Routes: []status.Route{
		{Prefix: netip.MustParsePrefix("10.1.1.0/24"), Rule: status.RuleDegraded},
		{Prefix: netip.MustParsePrefix("10.1.1.0/24"), Rule: status.RuleDegraded}, {Prefix: netip.MustParsePrefix("10.1.2.0/24")},
	}})
	if !strings.Contains(router, "\nfairlead_fib_degraded_prefixes 1\n") {
		t.Errorf("a router with one degraded prefix: %s", router)
	}
	for _, m := range slices.Concat(All, Backends) {
		if !strings.Contains(got+router, "\n# TYPE "+m.Name+" ") {
			t.Errorf("%s has no value", m.Name)
		}
	}
	if strings.Contains(got, `fairlead_bfd_session_up{peer="10.0.0.2"}`) {
		t.Error("BFD that is off has a value")
	}
	if strings.Contains(got, "203.0.113.9") {
		t.Error("a rejected peer that is not configured has its own metrics")
	}
	if t.Failed() {
		t.Log(got)
	}
	promtool.CheckMetrics(t, got)
	promtool.CheckMetrics(t, router)
}

// TestBackendsAreExportedOnRequest limits the number of series.
func TestBackendsAreExportedOnRequest(t *testing.T) {
	w := httptest.NewRecorder()
	Handler(full, Options{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if strings.Contains(w.Body.String(), "fairlead_backend_") || !strings.Contains(w.Body.String(), "fairlead_backends") {
		t.Error(w.Body)
	}
}

// Metrics that do not apply to a role are omitted.
func TestRouterHasOnlyRouteMetrics(t *testing.T) {
	got := scrape(t, status.Status{Role: status.RoleRouter, Services: []status.Service{{ID: "a/b"}}})
	for _, not := range []string{"fairlead_drain", "fairlead_service_", "fairlead_proxy", "fairlead_dsr", "fairlead_dropped"} {
		if strings.Contains(got, "\n"+not) {
			t.Errorf("a router has metric %s", not)
		}
	}
}
