package survival

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func result(goal bool, breaks ...Break) *Result {
	tr := &traffic{began: time.Now().Add(-time.Minute), breaks: breaks, slowest: map[time.Duration]time.Duration{0: time.Second, time.Second: 2 * time.Second}}
	r := &Result{
		variant: variant{name: "second-chance", goal: goal}, connections: 100, traffic: tr, killed: map[uint64]string{9: "web-9"},
		Events: []Event{{Name: KillBalancer, At: 10 * time.Second}, {Name: DrainServer, At: 20 * time.Second}},
	}
	r.finish()
	return r
}

// A break is attributed to the event before it. A break detected by timeout is attributed
// to the event before its request.
func TestBreaksAreCountedByEvent(t *testing.T) {
	r := result(true,
		Break{At: 11 * time.Second, Sent: 9 * time.Second, Reason: reset, Server: 1},
		Break{At: 34 * time.Second, Sent: 19 * time.Second, Reason: timeout, Server: 2},
		Break{At: 35 * time.Second, Sent: 20*time.Second - firstRetry, Reason: timeout, Server: 2},
		Break{At: 21 * time.Second, Sent: 21 * time.Second, Reason: reset, Server: 3},
		Break{At: 22 * time.Second, Sent: 22 * time.Second, Reason: reset, Server: 9}, // on a killed backend
		Break{At: 5 * time.Second, Sent: 5 * time.Second, Reason: wrong, Server: 3},   // before any event
	)
	if r.Events[0].Broken != 2 || r.Events[1].Broken != 2 || len(r.Breaks) != 5 || len(r.Killed) != 1 || r.Slowest != 2*time.Second {
		t.Errorf("%+v; %d breaks, %d killed, slowest %s", r.Events, len(r.Breaks), len(r.Killed), r.Slowest)
	}
	if e := r.Events[0]; e.Reasons[reset] != 1 || e.Reasons[timeout] != 1 || e.Servers[1] != 1 || e.Servers[2] != 1 {
		t.Errorf("%+v", e)
	}
	report := Report(DefaultOptions(), []*Result{r})
	// What broke before the first event is only in the total, and counts as missed.
	want := []string{"second-chance: kill-balancer", "second-chance: drain-server", "second-chance: all events"}
	if got := report.Missed(); !slices.Equal(got, want) || report.Rows[2].Measured != 5 {
		t.Errorf("missed %q; %+v", got, report.Rows)
	}
}

func TestNothingBrokenMeetsTheGoal(t *testing.T) {
	if got := Report(DefaultOptions(), []*Result{result(true)}).Missed(); len(got) > 0 {
		t.Errorf("missed %q", got)
	}
	// Without a goal, none can be missed.
	r := result(false, Break{At: 11 * time.Second, Reason: reset, Server: 1})
	if report := Report(DefaultOptions(), []*Result{r}); len(report.Missed()) > 0 || report.Rows[0].Goal != nil || report.Rows[0].Measured != 1 {
		t.Errorf("%+v", report.Rows)
	}
}

func TestPlot(t *testing.T) {
	dir := t.TempDir()
	r := result(true, Break{At: 11 * time.Second, Reason: reset, Server: 1})
	path, err := Report(DefaultOptions(), []*Result{r, result(false)}).WritePage(dir)
	if err != nil || path != filepath.Join(dir, "survival.html") {
		t.Fatalf("%s: %v", path, err)
	}
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Broken connections", "second-chance: 1", "second-chance: 0", KillBalancer, DrainServer} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

func TestWrongOptionsAreNamed(t *testing.T) {
	if err := DefaultOptions().Validate(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*Options){
		"--connections: 0 is not":            func(o *Options) { o.Connections = 0 },
		"--connections: 99999":               func(o *Options) { o.Connections = 99999 },
		"--balancers: 1 is not":              func(o *Options) { o.Balancers = 1 },
		"--servers: 1 is not":                func(o *Options) { o.Servers = 1 },
		"--rounds: 0 is not":                 func(o *Options) { o.Rounds = 0 },
		`--connection-consistency: "hope"`:   func(o *Options) { o.Survivals = []string{"hope"} },
		"--connection-consistency: name one": func(o *Options) { o.Survivals, o.FullNAT = nil, false },
		`--method: "pigeon"`:                 func(o *Options) { o.Method = "pigeon" },
		`--encapsulation: "vxlan"`:           func(o *Options) { o.Encapsulation = "vxlan" },
		`--scheduler: "best"`:                func(o *Options) { o.Scheduler = "best" },
		`--events: "flood"`:                  func(o *Options) { o.Events = []string{"flood"} },
		"--every, --timeout, --set":          func(o *Options) { o.Timeout = time.Millisecond },
	} {
		o := DefaultOptions()
		change(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
