package demo

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/lab/testkit/browser"
)

// good is a run that passes.
func good() *Result {
	r := &Result{Version: "v1", Kernel: "6.18", Shares: map[string]float64{"web1": 0.51, "web2": 0.49}, Load: Load{Requests: 100}}
	for i, name := range []string{AddBalancer, RemoveBalancer, KillBalancer, CutBalancer, AddServer, DrainServer, KillServer} {
		r.Events = append(r.Events, Event{Name: name, StartedMs: float64(1000 * i), ConvergedMs: 50, Requests: 10, Subject: "lb1"})
	}
	for i := range 20 {
		r.samples = append(r.samples, Sample{
			At: time.Duration(i) * 100 * time.Millisecond, PerServer: map[string]float64{"web1": 100, "web2": 90},
			PerBalancer: map[string]float64{"lb1": 500},
		})
	}
	return r
}

func TestVerdict(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Result)
		state  bool // the load balancer tracks flows
		want   string
	}{
		"good":                        {change: func(*Result) {}},
		"slow":                        {change: func(r *Result) { r.Events[1].ConvergedMs = 101 }, want: "remove-balancer took 101 ms, more than 100 ms"},
		"slow, with another's router": {change: func(r *Result) { r.Events[1].ConvergedMs, r.foreign = 130, true }},
		"never":                       {change: func(r *Result) { r.Events[3].ConvergedMs = -1 }, want: "cut-balancer never converged"},
		"lost on removal":             {change: func(r *Result) { r.Events[1].Failed = 1 }, want: "remove-balancer cost 1 failed"},
		"broken on removal":           {change: func(r *Result) { r.Events[1].BrokenConnections = 1 }, want: "remove-balancer cost 0 failed requests and 1 broken"},
		"broken on stateful removal":  {change: func(r *Result) { r.Events[1].BrokenConnections = 1 }, state: true},
		"broken on draining":          {change: func(r *Result) { r.Events[5].BrokenConnections = 1 }, state: true, want: "drain-server cost"},
		"killing may cost":            {change: func(r *Result) { r.Events[2].Failed = 3; r.Events[6].BrokenConnections = 2 }},
		"silence":                     {change: func(r *Result) { r.Events[4].Requests = 0 }, want: "no request was answered during add-server"},
		"uneven":                      {change: func(r *Result) { r.Shares = map[string]float64{"web1": 0.56, "web2": 0.44} }, want: "server web1 got 56.0 %"},
		"uneven by chance": {change: func(r *Result) {
			r.Shares, r.sampled = map[string]float64{"web1": 0.56, "web2": 0.44}, 500
		}},
		"no shares":                  {change: func(r *Result) { r.Shares = nil }, want: "while nothing changed"},
		"leftovers are said by name": {change: func(r *Result) { r.Leftovers = []string{"netns x"} }, want: "left behind: [netns x]"},
	} {
		r := good()
		c.change(r)
		r.judge(!c.state)
		if r.Passed != (c.want == "") || !strings.Contains(strings.Join(r.Reasons, "\n"), c.want) {
			t.Errorf("%s: passed %v, reasons %q, want %q", name, r.Passed, r.Reasons, c.want)
		}
	}
}

func TestReport(t *testing.T) {
	r := good()
	r.judge(true)
	r.Tables = []string{"10.1.1.0/24 nhid 1 proto bgp"}
	file := filepath.Join(t.TempDir(), "report.html")
	if err := r.WriteReport(file, "client -- router"); err != nil {
		t.Fatal(err)
	}
	html, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Passed", "remove-balancer", "client -- router", "10.1.1.0/24 nhid 1 proto bgp", "web2", "lb1"} {
		if !strings.Contains(string(html), want) {
			t.Errorf("the report lacks %q", want)
		}
	}
	if n := strings.Count(string(html), "<figcaption>"); n != 4 {
		t.Errorf("%d charts, want 4", n)
	}
	for _, outside := range []string{"<link", "src="} {
		if strings.Contains(string(html), outside) {
			t.Errorf("the report is not self-contained: it has %s", outside)
		}
	}
	p := browser.Open(t, "file://"+file, 1100, 1400)
	p.Wait("document.querySelectorAll('figure svg').length === 4")
	if errors := p.Errors(); len(errors) > 0 {
		t.Errorf("console: %q", errors)
	}
	if dir := os.Getenv("FAIRLEAD_SCREENSHOT"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, "demo.png"), p.Screenshot(), 0o644); err != nil {
			t.Error(err)
		}
	}
}
