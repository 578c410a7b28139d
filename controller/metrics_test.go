package controller_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/lab/testkit/promtool"
)

// exported has a Service with an address and one without, and compares the metrics with the
// page.
func exported(t *testing.T, w *world) {
	log, stop := w.control(t)
	defer stop()
	w.pool(t, "p", "{addresses: [10.1.1.1]}")
	w.pool(t, "wrong", "{addresses: [10.1.1.0/24]}")
	w.serve(t, "web")
	w.want(t, "web", "10.1.1.1 True")
	w.serve(t, "next")
	w.want(t, "next", " False PoolExhausted")
	var text string
	eventually(t, "the metrics", func() string {
		answer := httptest.NewRecorder()
		log.of.Metrics().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		text = "\n" + answer.Body.String()
		for _, want := range []string{
			"fairlead_controller_leader 1", `fairlead_controller_queue_depth{queue="addresses"} 0`, `fairlead_controller_queue_depth{queue="backend-timestamps"} 0`,
			`fairlead_controller_services{assigned="true"} 1`, `fairlead_controller_services{assigned="false"} 1`,
			`fairlead_pool_addresses{family="IPv4",pool="p"} 1`, `fairlead_pool_used_addresses{family="IPv4",pool="p"} 1`,
			`fairlead_pool_rejected{pool="p"} 0`, `fairlead_pool_rejected{pool="wrong"} 1`,
			`fairlead_controller_api_requests_total{code="200",method="PATCH"} `, `fairlead_controller_api_request_duration_seconds_count{method="PATCH"} `,
			`fairlead_build_info{node="`,
		} {
			if !strings.Contains(text, "\n"+want) {
				return fmt.Sprintf("no %s in %s", want, text)
			}
		}
		return ""
	})
	if err := log.of.Ready(); err != nil {
		t.Errorf("a leader is not ready: %v", err)
	}
	promtool.CheckMetrics(t, text)
	page, err := os.ReadFile("../docs/metrics.md")
	w.must(t, err)
	_, section, _ := strings.Cut(string(page), "## Controller")
	for _, m := range regexp.MustCompile(`(?m)^# HELP (fairlead_\w+) (.*)\n# TYPE \w+ (\w+)$`).FindAllStringSubmatch(text, -1) {
		row := regexp.MustCompile("(?m)^\\| `" + m[1] + "` \\| " + m[3] + " \\| .* \\| " + regexp.QuoteMeta(m[2]) + " \\|$")
		if m[1] != "fairlead_build_info" && !row.MatchString(section) {
			t.Errorf("docs/metrics.md has no row of %s, a %s: %s", m[1], m[3], m[2])
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)`").FindAllStringSubmatch(section, -1) {
		if !strings.Contains(text, "\n# TYPE "+m[1]+" ") {
			t.Errorf("docs/metrics.md lists %s, which is not exported", m[1])
		}
	}
}
