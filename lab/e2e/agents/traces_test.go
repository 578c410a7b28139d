package agents_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"

	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/testkit"
)

const tracedService = `apiVersion: v1
kind: Service
metadata: {name: web, annotations: {fairlead.io/addresses: 10.1.1.1, fairlead.io/health-check: none}}
spec: {type: LoadBalancer, ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.0.0.1]}]
`

// TestTraces: a collector receives how long a new Service takes from the folder to the kernel.
func TestTraces(t *testing.T) {
	m := newMachine(t)
	var mu sync.Mutex
	seen := map[string]string{} // the Service of each kind of span
	server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		in := ptraceotlp.NewExportRequest()
		if err := in.UnmarshalJSON(body); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, rs := range in.Traces().ResourceSpans().All() {
			for _, s := range rs.ScopeSpans().At(0).Spans().All() {
				seen[s.Name()] += ""
				if of, ok := s.Attributes().Get("fairlead.service"); ok {
					seen[s.Name()] += of.Str()
				}
			}
		}
	})}
	t.Cleanup(func() { server.Close() })
	var collector net.Listener
	testkit.Do(t, m.NS, func() (err error) {
		collector, err = net.Listen("tcp", "10.0.0.2:0")
		return err
	})
	go func() { _ = server.Serve(collector) }()
	_, stderr := m.agent("", "--otlp-endpoint", "http://"+collector.Addr().String())
	m.ready(stderr)
	if err := os.WriteFile(filepath.Join(m.dir, "web.yaml"), []byte(tracedService), 0o644); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, fixture.Within, func() error {
		mu.Lock()
		defer mu.Unlock()
		_, waited := seen["wait"]
		if _, planned := seen["plan"]; seen["program"] != "default/web" || !waited || !planned {
			return fmt.Errorf("the collector has %q", seen)
		}
		return nil
	})
}
