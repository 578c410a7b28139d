package reconciler_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/advertise/cloud"
	"github.com/fairlead/fairlead/advertise/cloud/webhook"
)

// sky is the program behind the cloud webhook. It outlives the agents.
type sky struct {
	server *httptest.Server
	line   *line // of the running agent

	mu      sync.Mutex
	state   string
	changed chan struct{} // closed when the state changes
	routes  []webhook.Route
}

func newSky(t *testing.T) *sky {
	s := &sky{state: "answers", changed: make(chan struct{})}
	s.server = httptest.NewServer(s)
	t.Cleanup(func() {
		_ = s.say("answers") // for requests that hang
		s.server.Close()
	})
	return s
}

// say sets the behavior from now on. Pending requests are answered accordingly.
func (s *sky) say(state string) error {
	if !slices.Contains([]string{"answers", "fails", "hangs", "refuses"}, state) {
		return fmt.Errorf("a cloud does not %s", state)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = state
	close(s.changed)
	s.changed = make(chan struct{})
	return nil
}

func (s *sky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var sent webhook.State
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, &sent)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for {
		s.mu.Lock()
		state, changed := s.state, s.changed
		if state == "hangs" {
			s.mu.Unlock()
			select {
			case <-changed:
				continue
			case <-r.Context().Done(): // the agent has given up
				return
			}
		}
		defer s.mu.Unlock()
		break
	}
	switch s.state {
	case "fails":
		http.Error(w, "broken", http.StatusInternalServerError)
		return
	case "refuses":
		refused := map[string]string{}
		for _, had := range s.routes {
			if !slices.ContainsFunc(sent.Routes, func(r webhook.Route) bool { return r.Prefix == had.Prefix }) {
				refused[had.Prefix.String()] = "it is in use"
				sent.Routes = append(sent.Routes, had)
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"rejected": refused})
	}
	s.routes = sent.Routes
}

// leads lists the prefixes that the cloud routes to the agent.
func (s *sky) leads() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for _, r := range s.routes {
		fmt.Fprintln(&b, r.Prefix)
	}
	return b.String()
}

func (s *sky) announcer(t *testing.T) advertise.Announcer {
	p, err := webhook.New(webhook.Config{URL: s.server.URL, Owner: "story", Node: "lb1"})
	if err != nil {
		t.Fatal(err)
	}
	s.line = &line{Provider: p}
	return cloud.NewAnnouncer("lb1", cloud.Keeper{Provider: s.line, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
}

// line is an agent's connection to the cloud, which is cut when the agent is killed.
type line struct {
	cloud.Provider
	cut atomic.Bool
}

func (l *line) Sync(ctx context.Context, offers []cloud.Offer) (cloud.Refused, error) {
	if l.cut.Load() {
		return nil, errors.New("this agent is dead")
	}
	return l.Provider.Sync(ctx, offers)
}
