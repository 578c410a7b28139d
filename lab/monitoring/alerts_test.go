package monitoring

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/lab/testkit/promtool"
)

const (
	files      = "../../deploy/helm/fairlead/files/"
	alertsFile = files + "alerts.yaml"
	runbook    = "https://github.com/fairlead/fairlead/blob/main/docs/troubleshooting.md#"
)

// alert is an alerting rule.
type alert struct {
	Alert, Expr         string
	For                 time.Duration
	Labels, Annotations map[string]string
}

func alerts(t *testing.T) (all []alert) {
	t.Helper()
	var file struct{ Groups []struct{ Rules []alert } }
	if err := yaml.Unmarshal([]byte(read(t, alertsFile)), &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// settled is how long a fault must be visible before the windows of all rates contain it.
const settled = 20 * time.Minute

// TestAlerts checks that each alert fires with its fault once it has lasted long enough, and
// not without it.
func TestAlerts(t *testing.T) {
	var cases []promtool.Case
	left := maps.Clone(faults)
	for _, a := range alerts(t) {
		f, ok := left[a.Alert]
		if !ok {
			t.Errorf("%s has no fault in faults_test.go", a.Alert)
		}
		delete(left, a.Alert)
		with := promtool.Case{Name: a.Alert + " with its fault", Series: f.with, Want: []promtool.Expectation{{Alert: a.Alert, At: a.For + settled, Fires: true}}}
		if a.For > 0 {
			with.Want = append(with.Want, promtool.Expectation{Alert: a.Alert, At: a.For - time.Minute})
		}
		without := promtool.Case{Name: a.Alert + " without its fault", Series: f.without}
		for at := time.Duration(0); at <= a.For+settled; at += 5 * time.Minute {
			without.Want = append(without.Want, promtool.Expectation{Alert: a.Alert, At: at})
		}
		cases = append(cases, with, without)
	}
	for name := range left {
		t.Errorf("faults_test.go has a fault for %s, which does not exist", name)
	}
	if err := promtool.TestRules(t, alertsFile, cases...); err != nil {
		t.Error(err)
	}
}

// TestConfigurationOnThePage checks that Prometheus accepts the configuration in the
// documentation.
func TestConfigurationOnThePage(t *testing.T) {
	m := regexp.MustCompile("(?s)```yaml\n(# prometheus.yml.*?)```").FindStringSubmatch(read(t, "../../docs/monitoring.md"))
	if m == nil {
		t.Fatal("docs/monitoring.md has no prometheus.yml")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"prometheus.yml": m[1], "alerts.yaml": read(t, alertsFile)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := promtool.Run(t, "", "check", "config", filepath.Join(dir, "prometheus.yml")); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestRunbooks checks that each alert links to its section, says what is wrong and how bad
// it is, and that no section is left of an alert that does not exist.
func TestRunbooks(t *testing.T) {
	page := read(t, "../../docs/troubleshooting.md")
	sections := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^### (Fairlead[A-Z]\w+)$`).FindAllStringSubmatch(page, -1) {
		sections[m[1]] = true
	}
	for _, a := range alerts(t) {
		if !sections[a.Alert] {
			t.Errorf("docs/troubleshooting.md has no section %s", a.Alert)
		}
		delete(sections, a.Alert)
		if got := a.Annotations["runbook_url"]; got != runbook+strings.ToLower(a.Alert) {
			t.Errorf("%s: runbook_url %q", a.Alert, got)
		}
		if a.Annotations["summary"] == "" || a.Annotations["description"] == "" || !slices.Contains([]string{"info", "warning", "critical"}, a.Labels["severity"]) {
			t.Errorf("%s: %v %v", a.Alert, a.Labels, a.Annotations)
		}
	}
	for name := range sections {
		t.Errorf("docs/troubleshooting.md has a section %s, which is no alert", name)
	}
}
