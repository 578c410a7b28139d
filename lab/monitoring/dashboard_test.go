package monitoring

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/lab/testkit/promtool"
)

type panel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ H, W, X, Y int }
	Targets                  []struct{ Expr string }
}

// dashboard is the part of Grafana's dashboard that is checked.
type dashboard struct {
	UID, Title string
	Panels     []panel
	Templating struct {
		List []struct{ Name, Definition string }
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	if err := json.Unmarshal([]byte(read(t, files+"dashboard.json")), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestDashboardExpressions checks that Prometheus accepts every expression.
func TestDashboardExpressions(t *testing.T) {
	d := readDashboard(t)
	var rules strings.Builder
	rules.WriteString("groups:\n  - name: dashboard\n    rules:\n")
	variables := regexp.MustCompile(`\$(__rate_interval|\w+)`)
	n := 0
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			n++
			expr := variables.ReplaceAllStringFunc(target.Expr, func(v string) string {
				if v == "$__rate_interval" {
					return "5m"
				}
				return ".*"
			})
			fmt.Fprintf(&rules, "      - {record: dashboard:%d, expr: %q}\n", n, expr)
		}
	}
	if n < 40 {
		t.Errorf("the dashboard has only %d expressions", n)
	}
	if out, err := promtool.Run(t, rules.String(), "check", "rules"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestDashboardSchema checks the dashboard against Grafana's own schema.
func TestDashboardSchema(t *testing.T) {
	file, err := filepath.Abs(files + "dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "-C", "../../tools/grafana", "run", ".", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestDashboardLayout checks what Grafana would silently repair or show badly.
func TestDashboardLayout(t *testing.T) {
	d := readDashboard(t)
	ids, at := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" || p.Type != "row" && (p.Description == "" || len(p.Targets) == 0) {
			t.Errorf("panel %d %q: no title, description or expression, or an ID that another panel has", p.ID, p.Title)
		}
		ids[p.ID] = true
		if p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %q is wider than the page", p.Title)
		}
		for y := range p.GridPos.H {
			for x := range p.GridPos.W {
				place := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if at[place] != "" {
					t.Fatalf("panels %q and %q overlap", at[place], p.Title)
				}
				at[place] = p.Title
			}
		}
	}
}

// TestExported checks that alerts and dashboard use only metrics that are documented, and
// hence exported: tests of each daemon compare its metrics with its page.
func TestExported(t *testing.T) {
	exported := map[string]bool{}
	for _, page := range []string{"metrics", "vdn"} {
		for line := range strings.Lines(read(t, "../../docs/"+page+".md")) {
			if strings.HasPrefix(line, "| `fairlead_") {
				first, _, _ := strings.Cut(line[1:], "|")
				for _, name := range regexp.MustCompile(`fairlead_\w+`).FindAllString(first, -1) {
					exported[name] = true
				}
			}
		}
	}
	text := read(t, alertsFile) + read(t, files+"dashboard.json")
	used := regexp.MustCompile(`\bfairlead_\w+`).FindAllString(text, -1)
	for _, name := range used {
		if !exported[name] && !exported[strings.TrimSuffix(name, "_bucket")] {
			t.Errorf("%s is used, but not documented", name)
		}
	}
	if len(used) < 60 || len(exported) < 50 {
		t.Errorf("%d metrics used, %d exported", len(used), len(exported))
	}
}
