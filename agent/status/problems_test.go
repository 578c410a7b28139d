package status

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/reconciler"
	"github.com/fairlead/fairlead/source"
)

// TestManyServices checks that problems of very many Services take few lines, and that no
// line contains an address twice.
func TestManyServices(t *testing.T) {
	const all, room = 5000, 4096
	a := scene(t)
	view := *a.View()
	view.Failures, view.Refused, view.Held = map[string]error{}, map[service.Key]string{}, map[service.Key]desired.Frontend{}
	var services []*service.Service
	for i := range all {
		s := named(fmt.Sprintf("s%04d", i), fmt.Sprintf("10.2.%d.%d", i/250, 1+i%250), time.Hour, "172.16.1.1:80")
		services = append(services, s)
	}
	view.Plan = plan.Build(plan.Input{
		Services: services, Node: plan.Node{Name: "node1", NextHop4: netip.MustParseAddr("10.0.0.105")},
		Health: func(health.Target) health.State { return health.Up },
	})
	for i, f := range view.Plan.Frontends {
		switch err := fmt.Errorf("%s: xdp: all %d frontends are in use", f.Key, room); {
		case i < room:
			view.Held[f.Key] = *f.Want
		case i%2 == 0:
			view.Failures[f.Key.String()] = err
		default:
			view.Refused[f.Key] = err.Error()
		}
	}
	a.View = func() *reconciler.View { return &view }
	text := tableOf(t, a.Gather(eleven).Overview())
	if n := strings.Count(text, "\n"); n > 40 {
		t.Errorf("%d lines:\n%.5000s", n, text)
	}
	if want := "TCP 10.2.16.101:80 and 451 more: xdp: all 4096 frontends are in use (it is tried again)\n"; !strings.Contains(text, want) {
		t.Errorf("there is no %q in\n%.5000s", want, text)
	}
	for _, line := range strings.Split(tableOf(t, a.Gather(eleven).ServicesView())+tableOf(t, a.Gather(eleven).RoutesView())+text, "\n") {
		for _, word := range strings.Fields(line) {
			if word = strings.TrimSuffix(word, ":"); strings.HasPrefix(word, "10.2.") && strings.Count(line, word) > 2 {
				t.Fatalf("%s is in %q more than twice", word, line)
			}
		}
	}
}

// TestDifferentProblems checks that distinct problems are truncated to a number of lines,
// the last of which says where the rest is.
func TestDifferentProblems(t *testing.T) {
	s := balancer()
	s.Problems = nil
	for i := range 1000 {
		s.Problems = append(s.Problems, problem.Problem{Object: "Service default/a", Where: "a.yaml:1", Message: fmt.Sprintf("%d is wrong", i)})
		s.Stale = append(s.Stale, source.Stale{Object: fmt.Sprintf("Service default/s%d", i), Where: "a.yaml:1", Since: ago(time.Hour)})
	}
	text := tableOf(t, s.Overview())
	for _, want := range []string{
		"problems    1000\n", "a.yaml:1: Service default/a: 18 is wrong\n            and 981 more lines: fairlead status -o json\n",
		"stale       1000\n", "a.yaml:1: Service default/s0: the last valid version is in use, since 2026-03-01T10:00:00Z (1h0m ago)\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "19 is wrong") {
		t.Error("more is written than counted")
	}
}

// TestStale checks that a stale object is reported with the Service that it belongs to.
func TestStale(t *testing.T) {
	a := scene(t)
	view := *a.View()
	view.Stale = []source.Stale{
		{Object: "EndpointSlice default/web-1", Where: "web.yaml:9", Service: "default/web", Since: ago(3 * time.Minute)},
		{Object: "Service default/web", Where: "web.yaml:1", Service: "default/web", Since: ago(time.Minute)},
		{Object: "Service default/empty", Where: "empty.yaml:1", Service: "default/empty", Since: ago(time.Minute)},
		{Object: "BGPPeer rack", Where: "bgp.yaml:1", Since: ago(time.Minute)},
	}
	a.View = func() *reconciler.View { return &view }
	s := a.Gather(eleven)
	if len(s.Stale) != 4 {
		t.Errorf("stale: %v", s.Stale)
	}
	one, err := s.Only("web", "empty", "six")
	if err != nil {
		t.Fatal(err)
	}
	for _, svc := range one.Services {
		want := map[string]time.Time{"default/web": ago(3 * time.Minute), "default/empty": ago(time.Minute)}[svc.ID]
		if !svc.StaleSince.Equal(want) {
			t.Errorf("%s is stale since %s, want %s", svc.ID, svc.StaleSince, want)
		}
	}
	text := tableOf(t, one.ServicesView())
	for _, want := range []string{
		"  stale since 2026-03-01T10:57:00Z (3m0s ago): its manifest is rejected (fairlead status)\n",
		"; stale since 2026-03-01T10:59:00Z (1m0s ago): its manifest is rejected (fairlead status)\n",
	} {
		if strings.Count(text, want) != 1 {
			t.Errorf("there is no %q in\n%s", want, text)
		}
	}
}

// TestConflictsOfOneService checks that a VIP of a Service is one problem, however many
// of its ports are in conflict.
func TestConflictsOfOneService(t *testing.T) {
	loser := named("a", "10.1.1.1", time.Hour)
	owner := named("b", "10.1.1.1", 2*time.Hour)
	for _, s := range []*service.Service{loser, owner} {
		for port := uint16(81); port < 90; port++ {
			f := s.Frontends[0]
			f.Port = port
			s.Frontends = append(s.Frontends, f)
		}
	}
	p := plan.Build(plan.Input{
		Services: []*service.Service{loser, owner}, Health: func(health.Target) health.State { return health.Up },
	})
	problems := plan.Conflicts(p.Frontends)
	if len(problems) != 1 || problems[0].String() != "a.yaml:1: Service default/a: Service default/b already has TCP 10.1.1.1:80 (b.yaml:1) and is older: "+
		"give one of the two another address or port (and 9 more of its ports)" {
		t.Errorf("problems %v", problems)
	}
}

// tableOf formats a view as a table.
func tableOf(t *testing.T, v View) string {
	t.Helper()
	var b strings.Builder
	if err := Write(&b, v, Table); err != nil {
		t.Fatal(errors.Join(err, errors.New("no table")))
	}
	return b.String()
}
