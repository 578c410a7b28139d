package promtool

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Case is a unit test of alerts.
type Case struct {
	Name string
	// Series are series with values in Prometheus's notation for tests, one a minute:
	// `up{instance="n1"} 1x20 0x20`.
	Series []string
	Want   []Expectation
}

// Expectation is that an alert fires at a time, or does not.
type Expectation struct {
	Alert string
	At    time.Duration
	Fires bool
}

// TestRules runs cases on the rules in a file, and returns what is not as expected.
func TestRules(t testing.TB, file string, cases ...Case) error {
	t.Helper()
	file, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	all := []any{}
	for _, c := range cases {
		all = append(all, c.test())
	}
	text, err := json.Marshal(map[string]any{"rule_files": []string{file}, "tests": all})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "tests.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := Run(t, "", "test", "rules", path); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// test returns the case in promtool's format.
func (c Case) test() map[string]any {
	series, checks := []map[string]string{}, []map[string]any{}
	for _, s := range c.Series {
		at := strings.LastIndex(s, "} ") + 1
		series = append(series, map[string]string{"series": s[:at], "values": s[at+1:]})
	}
	for _, w := range c.Want {
		samples := []map[string]any{}
		if w.Fires {
			samples = append(samples, map[string]any{"labels": "{}", "value": 1})
		}
		checks = append(checks, map[string]any{
			"expr":      fmt.Sprintf(`count(ALERTS{alertname=%q,alertstate="firing"}) > bool 0`, w.Alert),
			"eval_time": fmt.Sprintf("%dm", int(w.At.Minutes())), "exp_samples": samples,
		})
	}
	return map[string]any{"name": c.Name, "interval": "1m", "input_series": series, "promql_expr_test": checks}
}

var sampleLine = regexp.MustCompile(`(?m)^(fairlead_\w+)(?:\{(.*)\})? (\S+)$`)

// Constant returns the series of an instance whose metrics stay as they were exported.
func Constant(exported, instance string) (series []string) {
	for _, m := range sampleLine.FindAllStringSubmatch(exported, -1) {
		labels := strings.TrimSuffix(fmt.Sprintf("instance=%q,%s", instance, m[2]), ",")
		series = append(series, fmt.Sprintf("%s{%s} %sx60", m[1], labels, m[3]))
	}
	return series
}
