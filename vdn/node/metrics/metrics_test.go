package metrics

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/lab/testkit/promtool"
	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/client"
	"github.com/fairlead/fairlead/vdn/node"
)

func TestMetrics(t *testing.T) {
	s := node.Status{
		Node: vdn.Node{Name: "n1"}, Since: time.Now().Add(-time.Hour), Controllers: []client.ControllerState{{URL: "https://c1", Reachable: true}, {URL: "https://c2"}},
		Plan: 7, Applied: 6, Error: "no", Degraded: []string{"x"},
	}
	w := httptest.NewRecorder()
	Handler(func() node.Status { return s }).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	text := w.Body.String()
	for _, want := range []string{
		`fairlead_vdn_agent_controller_reachable{url="https://c1"} 1`, `fairlead_vdn_agent_controller_reachable{url="https://c2"} 0`,
		"fairlead_vdn_agent_controllers_unreachable_seconds 3600", "fairlead_vdn_agent_plan_revision 7", "fairlead_vdn_agent_applied_revision 6",
		"fairlead_vdn_agent_plan_failed 1", "fairlead_vdn_agent_degraded 1", "fairlead_vdn_agent_plan_cached 0", `fairlead_build_info{node="n1",role="vdn-agent"`,
	} {
		if !strings.Contains(text, "\n"+want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	promtool.CheckMetrics(t, text)
	page, err := os.ReadFile("../../../docs/vdn.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(line, "# TYPE fairlead_vdn_"); ok && !strings.Contains(string(page), "`fairlead_vdn_"+strings.Fields(name)[0]+"`") {
			t.Errorf("docs/vdn.md has no row of fairlead_vdn_%s", name)
		}
	}
}
