package agents_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/testkit/promtool"
)

// faulty are manifests with a Service whose backend does not answer, and one with a typo.
const faulty = `apiVersion: v1
kind: Service
metadata: {name: web, annotations: {fairlead.io/addresses: 10.1.1.1, fairlead.io/health-check: tcp, fairlead.io/panic-mode: disabled}}
spec: {type: LoadBalancer, ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.0.0.1]}]
---
apiVersion: v1
kind: Service
metadata: {name: typo, annotations: {fairlead.io/addresses: 10.1.1.2, fairlead.io/scheduler: maglve}}
spec: {type: LoadBalancer, ports: [{name: http, port: 80}]}
`

// TestAlertsOfAnAgent checks that a real agent with faults exports what the alerts of the
// chart expect, and that its probes answer.
func TestAlertsOfAnAgent(t *testing.T) {
	m := newMachine(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	web, typo, _ := strings.Cut(faulty, "---\napiVersion: v1\n")
	must(os.WriteFile(filepath.Join(m.dir, "web.yaml"), []byte(strings.Replace(web, "health-check: tcp", "health-check: none", 1)), 0o600))
	_, stderr := m.agent("map:ringbuf=EPERM", "--metrics-address", metricsAt, "--probe-address", "127.0.0.1:9475", "--peer", "10.0.0.1",
		"--router-id", "10.0.0.2", "--max-frontends", "1", "--backend-metrics")
	m.ready(stderr)
	if code, text := m.get("127.0.0.1:9475", "/livez"); code != http.StatusOK {
		t.Errorf("/livez: %d %s", code, text)
	}
	if code, text := m.get(metricsAt, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(text, "no BGP session is established") {
		t.Errorf("/readyz without a peer: %d %s", code, text)
	}
	if code, _ := m.get("127.0.0.1:9475", "/metrics"); code != http.StatusNotFound {
		t.Errorf("/metrics at the address of the probes: %d", code)
	}
	m.wantAlerts(map[string]bool{"FairleadBGPSessionDown": true, "FairleadBGPIsolated": true, "FairleadTableFull": true, "FairleadDegraded": true,
		"FairleadConfigRejected": false, "FairleadFrontendDown": false, "FairleadBackendsDown": false})
	must(os.WriteFile(filepath.Join(m.dir, "web.yaml"), []byte(web), 0o600))
	must(os.WriteFile(filepath.Join(m.dir, "typo.yaml"), []byte("apiVersion: v1\n"+typo), 0o600))
	m.wantAlerts(map[string]bool{"FairleadConfigRejected": true, "FairleadFrontendDown": true, "FairleadBackendsDown": true, "FairleadObjectsStale": false})
	must(os.WriteFile(filepath.Join(m.dir, "web.yaml"), []byte(strings.Replace(web, "health-check: tcp", "health-check: tpc", 1)), 0o600))
	m.wantAlerts(map[string]bool{"FairleadObjectsStale": true})
}

// wantAlerts waits until these alerts fire, or do not, if the agent's metrics stay as they
// are.
func (m *machine) wantAlerts(want map[string]bool) {
	m.t.Helper()
	var all []promtool.Expectation
	for alert, fires := range want {
		all = append(all, promtool.Expectation{Alert: alert, At: time.Hour, Fires: fires})
	}
	testkit.Eventually(m.t, fixture.Within, func() error {
		_, text := m.get(metricsAt, "/metrics")
		return promtool.TestRules(m.t, "../../../deploy/helm/fairlead/files/alerts.yaml", promtool.Case{Name: "agent", Series: promtool.Constant(text, "node"), Want: all})
	})
}

// get requests a path of an address on the machine.
func (m *machine) get(address, path string) (code int, text string) {
	m.t.Helper()
	return request(m.t, func(ctx context.Context) (conn net.Conn, err error) {
		testkit.Do(m.t, m.NS, func() error {
			conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", netip.MustParseAddrPort(address).String())
			return nil
		})
		return conn, err
	}, address, path)
}

// request requests a path of an address, to which dial connects.
func request(t *testing.T, dial func(context.Context) (net.Conn, error), address, path string) (code int, text string) {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }, DisableKeepAlives: true}
	client := http.Client{Timeout: fixture.Within, Transport: transport}
	resp, err := client.Get("http://" + address + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}
