package agent

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/journal"
	"github.com/fairlead/fairlead/core/event"
	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/testkit"
)

func journalOf(t *testing.T, dir string) *agent {
	t.Helper()
	a := &agent{config: &config.Resolved{}}
	a.config.Node, a.config.StateDir = "n1", dir
	a.openEvents()
	return a
}

// TestJournalOfAnAgent starts and stops agents that share a directory, as in a cluster, where
// the agent has no other state.
func TestJournalOfAnAgent(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	for range 2 {
		journalOf(t, dir).events.Close()
	}
	a := journalOf(t, dir)
	defer a.events.Close()
	second := journalOf(t, dir)
	defer second.events.Close()
	if err := second.events.Problem(); a.events.Problem() != nil || err == nil || !strings.Contains(err.Error(), "another process uses it") {
		t.Errorf("problem of a second agent: %v", err)
	}
	testkit.Eventually(t, 10*time.Second, func() error {
		var got []string
		for _, e := range a.events.Events(event.Query{}) {
			got = append(got, fmt.Sprintf("%s %s x%d", e.Type, e.Object, e.Count))
		}
		if want := []string{"AgentStopped Node n1 x2", "AgentStarted Node n1 x3"}; !slices.Equal(got, want) {
			return fmt.Errorf("got %q, want %q", got, want)
		}
		return nil
	})
}

// TestAnswerJournal reads events, and follows them, over HTTP.
func TestAnswerJournal(t *testing.T) {
	a := journalOf(t, filepath.Join(t.TempDir(), "state"))
	server := httptest.NewServer(a.events)
	t.Cleanup(server.Close) // after its clients
	defer a.events.Close()
	get := func(q event.Query, follow bool) *http.Response {
		t.Helper()
		resp, err := http.Get(server.URL + "?" + journal.Params(q, follow).Encode())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	if resp := get(event.Query{Types: []event.Type{"Typo"}}, false); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("an unknown type: %s", resp.Status)
	}
	lines := bufio.NewScanner(get(event.Query{Types: []event.Type{event.PeerDown}}, true).Body)
	for i := range 3 {
		a.events.Record(event.Event{Type: event.PeerEstablished, Object: event.Object{Kind: "BGPPeer", Name: "tor-1"}})
		a.events.Record(event.Event{Type: event.PeerDown, Object: event.Object{Kind: "BGPPeer", Name: "tor-1"}})
		var e event.Event
		if !lines.Scan() || json.Unmarshal(lines.Bytes(), &e) != nil || e.Count != i+1 || e.Type != event.PeerDown {
			t.Fatalf("line %d is %q", i, lines.Text())
		}
	}
	if lines := bufio.NewScanner(get(event.Query{Since: time.Now().Add(time.Hour)}, false).Body); lines.Scan() {
		t.Errorf("of the future: %s", lines.Text())
	}
}

func TestServicesOf(t *testing.T) {
	at := func(text string) plan.Backend {
		return plan.Backend{Target: health.Target{Addr: netip.MustParseAddrPort(text), Check: service.HealthCheck{Kind: service.CheckTCP}}}
	}
	web, api := &service.Service{ID: service.ID{Namespace: "shop", Name: "web"}}, &service.Service{ID: service.ID{Namespace: "shop", Name: "api"}}
	got := servicesOf(&plan.Plan{Frontends: []plan.Frontend{
		{Service: web, Backends: []plan.Backend{at("10.0.0.1:80"), at("10.0.0.2:80")}},
		{Service: web, Backends: []plan.Backend{at("10.0.0.1:80")}},
		{Service: api, Backends: []plan.Backend{at("10.0.0.1:80")}},
	}})
	if want := []string{"shop/web", "shop/api"}; !slices.Equal(got["10.0.0.1 tcp port 80"], want) || len(got) != 2 {
		t.Errorf("got %v", got)
	}
}
