package top

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/agent/rates"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/core/event"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/lab/testkit"
)

var update = flag.Bool("update", false, "rewrite testdata")

var noon = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// agent answers as an agent with two Services would.
func agent(w Wants) Sample {
	one := uint32(1)
	r := rates.Report{
		Node: "lb1", Time: noon, Seconds: 1, Next: 1, View: w.Query.View, Sort: w.Query.Sort, Total: rates.Rate{Packets: 12345, Bits: 98.1e6, Flows: 120},
		Drops: []rates.Drop{{At: "balancer", Reason: "no-frontend", PerSecond: 3, Total: 1200}, {At: "dsr", Reason: "dropped-source-denied", Total: 9}},
		Rows:  []rates.Row{},
	}
	up := func(backend, name string, packets float64) rates.Row {
		return rates.Row{Service: "shop/web", Frontend: "TCP 10.1.1.1:80", Backend: backend, Name: name, Node: "node1", State: "in-service", Health: "up",
			Since: noon.Add(-time.Hour), Weight: &one, Frontends: 1, Rate: rates.Rate{Packets: packets, Bits: packets * 8000, Flows: 60}}
	}
	down := up("172.16.1.2:80", "web-2", 0)
	down.State, down.Health, down.Since, down.LastError, down.Rate = "draining", "down", noon.Add(-90*time.Second), "HTTP 503, wanted 2xx or 3xx", rates.Rate{}
	switch q := w.Query; {
	case q.View == rates.Services:
		r.Rows = []rates.Row{
			{Service: "shop/web", State: "active", Frontends: 2, Backends: 4, Up: 2, Rate: rates.Rate{Packets: 12000, Bits: 98e6, Flows: 100}},
			{Service: "shop/dns", State: "active", Frontends: 1, Backends: 1, Up: 1, Rate: rates.Rate{Packets: 345, Bits: 1e5, Flows: 20}},
			{Service: "shop/with-a-name-that-is-too-long-for-eighty-columns", State: "no-endpoints", Reason: "the Service has no ready endpoint: see its EndpointSlices"},
		}
	case q.View == rates.Frontends:
		r.Rows = []rates.Row{
			{Service: "shop/web", Frontend: "TCP 10.1.1.1:80", State: "active", Backends: 2, Up: 1, Rate: rates.Rate{Packets: 12000, Bits: 98e6, Flows: 100}},
			{Service: "shop/web", Frontend: "TCP [2001:db8::1]:80", State: "active", Backends: 2, Up: 1},
		}
	case q.Backend != "":
		r.Rows = []rates.Row{down}
	case q.View == rates.Backends:
		r.Rows = []rates.Row{up("172.16.1.1:80", "web-1", 12000), down}
	}
	r.Matching, r.All = len(r.Rows), len(r.Rows)
	s := Sample{For: w, Report: r}
	if w.Status {
		s.Status = status.Status{
			Node: "lb1", Role: "balancer", Version: "v1", Kernel: "Linux 6.12", Time: noon, Started: noon.Add(-26 * time.Hour),
			DataPlane: &dataplane.Description{Kind: "xdp", Attached: []string{"eth0: native"}},
			Peers: []advertise.Peer{{Name: "tor-1", Address: "10.0.0.1", AS: 65001, State: "established", Since: noon.Add(-time.Hour), BFD: "up", Sent: 12},
				{Name: "tor-2", Address: "10.0.0.2", AS: 65001, State: "active", Since: noon.Add(-time.Minute), LastError: "no answer within 5s"}},
			Drain: &status.Drain{Stage: plan.Withdrawn, Reasons: []string{"fairlead drain"}, Since: noon.Add(-9 * time.Second), Entered: noon.Add(-3 * time.Second), Flows: 42},
		}
	}
	if w.Events {
		s.Events = []event.Event{
			{ID: 1, Time: noon, Last: noon.Add(-2 * time.Minute), Count: 1, Type: event.PeerDown, Severity: event.Warning, Object: event.Object{Kind: "BGPPeer", Name: "tor-2"}, From: "established", To: "active", Cause: "no answer within 5s"},
			{ID: 2, Time: noon, Last: noon.Add(-90 * time.Second), Count: 3, Type: event.BackendUnhealthy, Severity: event.Warning, Object: event.Object{Kind: "Backend", Name: "172.16.1.2"}, Field: "HTTP 80", Cause: "HTTP 503, wanted 2xx or 3xx"},
		}
	}
	return s
}

// press presses keys, separated by spaces, and lets the agent answer after each.
func press(m *Model, keys string) *Model {
	m.Answered(agent(m.Wants()))
	for k := range strings.FieldsSeq(keys) {
		if k == "space" {
			k = " "
		}
		m.Key(k)
		m.Answered(agent(m.Wants()))
	}
	return m
}

func text(m *Model) string {
	var b strings.Builder
	for _, l := range m.View() {
		b.WriteString(strings.TrimRight(l.Text, " ") + "\n")
	}
	return b.String()
}

func start(t Tab) *Model { return New(t, rates.ByPackets, "", time.Second) }

// TestScreens compares every page at 80 by 24 with testdata.
func TestScreens(t *testing.T) {
	for name, keys := range map[string]string{
		"services": "down down", "frontends": "2", "frontends-of-a-service": "enter", "backends": "3 down", "backend": "enter enter down enter", "node": "4",
		"peers": "5 down", "drains": "6", "drops": "7", "events": "8", "help": "?", "filter": "/ w e", "paused": "space b",
	} {
		testkit.Golden(t, name+".txt", text(press(start(Services), keys)), *update)
	}
}

// Whatever the size, the screen has exactly as many lines, none of which is too long.
func TestSizes(t *testing.T) {
	for _, keys := range []string{"", "enter enter enter", "4", "5", "?", "8"} {
		for _, size := range [][2]int{{1, 1}, {10, 3}, {40, 8}, {80, 24}, {200, 60}} {
			m := press(start(Services), keys)
			m.Resize(size[0], size[1])
			lines := m.View()
			if len(lines) != size[1] {
				t.Errorf("%q at %v: %d lines", keys, size, len(lines))
			}
			for _, l := range lines {
				if utf8.RuneCountInString(l.Text) > size[0] {
					t.Errorf("%q at %v: %q", keys, size, l.Text)
				}
			}
		}
	}
}

func TestKeys(t *testing.T) {
	for _, c := range []struct{ keys, want string }{
		{"", "services packets limit 48"},
		{"b", "services bits limit 48"},
		{"b b", "services bits reverse limit 48"},
		{"b b s", "services state limit 48"},
		{"down j up end", "services packets limit 50"},
		{"pgdn home", "services packets limit 48"},
		{"/ x q enter", "services packets filter xq limit 48"},
		{"/ x q backspace", "services packets filter x limit 48"},
		{"/ x esc", "services packets limit 48"},
		{"/ x enter esc", "services packets limit 48"},
		{"enter", "frontends packets shop/web limit 48"},
		{"down enter enter", "backends packets shop/web TCP 10.1.1.1:80 limit 48"},
		{"enter enter down enter", "backends packets 172.16.1.2:80 limit 48 events"},
		{"enter enter down enter esc esc", "frontends packets shop/web limit 48"},
		{"enter esc esc", "services packets limit 48"},
		{"tab tab", "backends packets limit 48"},
		{"backtab", "node packets limit 48 events"},
		{"5", "node packets limit 48 status"},
		{"4", "node packets limit 48 status events"},
		{"6 enter", "node packets limit 48 status"},
		{"? q", "services packets limit 48"},
		{"x F9", "services packets limit 48"},
	} {
		w := press(start(Services), c.keys).Wants()
		words := []string{string(w.Query.View), string(w.Query.Sort)}
		add := func(is bool, word string) {
			if is {
				words = append(words, word)
			}
		}
		add(w.Query.Reverse, "reverse")
		add(w.Query.Service != "", w.Query.Service)
		add(w.Query.Frontend != "", w.Query.Frontend)
		add(w.Query.Backend != "" && w.Query.Frontend == "", w.Query.Backend)
		add(w.Query.Filter != "", "filter "+w.Query.Filter)
		add(true, fmt.Sprint("limit ", w.Query.Limit))
		add(w.Status, "status")
		add(w.Events && w.Query.View != rates.Services, "events")
		if got := strings.Join(words, " "); got != c.want {
			t.Errorf("%q: %s, want %s", c.keys, got, c.want)
		}
	}
}

func TestQuit(t *testing.T) {
	for keys, want := range map[string]bool{"q": true, "ctrl+c": true, "/ q": false, "/ ctrl+c": true, "? q": false} {
		if got := press(start(Services), keys).Done(); got != want {
			t.Errorf("%q: %v", keys, got)
		}
	}
}

// The cursor stays on a row that moves, once the user has selected it.
func TestCursorFollowsItsRow(t *testing.T) {
	m := press(start(Services), "down")
	next := agent(m.Wants())
	rows := next.Report.Rows
	rows[0], rows[1], rows[2] = rows[2], rows[0], rows[1]
	m.Answered(next)
	if m.page().cursor != 2 {
		t.Errorf("row %d", m.page().cursor)
	}
	next.Report.Rows = rows[:1]
	m.Answered(next)
	if m.page().cursor != 0 {
		t.Errorf("its row is gone: %d", m.page().cursor)
	}
}

func TestAnswersOfThePreviousPage(t *testing.T) {
	m := press(start(Services), "")
	late := agent(m.Wants())
	m.Key("enter")
	m.Answered(late)
	if len(m.sample.Report.Rows) != 0 {
		t.Errorf("Services among frontends: %s", text(m))
	}
}

func TestErrors(t *testing.T) {
	m := press(start(Services), "")
	m.Answered(Sample{Err: errors.New("no agent answers\x1b[2J")})
	if got := text(m); !strings.Contains(got, "no agent answers?[2J") || !strings.Contains(got, "shop/web") {
		t.Errorf("not both the error and the last rows:\n%s", got)
	}
	if got := text(press(m, "")); strings.Contains(got, "no agent answers") {
		t.Errorf("it answers again:\n%s", got)
	}
}

func TestEventsAreMerged(t *testing.T) {
	m := press(start(Events), "")
	again := agent(m.Wants()).Events[0]
	again.Count, again.Last = 7, noon
	m.Answered(Sample{For: m.Wants(), Events: []event.Event{again}})
	if len(m.events) != 2 || m.events[1].Count != 7 || !m.Wants().Since.Equal(noon) {
		t.Errorf("%+v", m.events)
	}
}

func TestRates(t *testing.T) {
	for x, want := range map[float64]string{0: "0", 0.25: "0.2", 9.94: "9.9", 9.96: "10", 999: "999", 999.6: "1.0k", 1234: "1.2k", 45678: "46k", 98.1e6: "98M", 3e21: "3000E"} {
		if got := per(x); got != want {
			t.Errorf("%g: %s, want %s", x, got, want)
		}
	}
}

// The page about fairlead top shows these screens.
func TestPageShowsTheScreens(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/top.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"services", "backend"} {
		screen, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(page), string(screen)) {
			t.Errorf("docs/top.md does not show testdata/%s.txt", name)
		}
	}
}
