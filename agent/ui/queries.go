package ui

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/fairlead/fairlead/agent/api"
	"github.com/fairlead/fairlead/agent/explain"
	"github.com/fairlead/fairlead/agent/journal"
	"github.com/fairlead/fairlead/agent/rates"
	"github.com/fairlead/fairlead/agent/selection"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/internal/limit"
	"github.com/fairlead/fairlead/internal/pktdump"
)

const (
	// maxRates bounds the queries of rates in one poll.
	maxRates = 4
	// maxEvents bounds the events of an agent in one poll.
	maxEvents = 5000
	// minPause is the time between two polls, perByte what a longer status adds: encoding
	// it takes the agent less than 2 % of that.
	minPause = 2 * time.Second
	perByte  = 4 * time.Microsecond
)

// snapshot is what all agents answer.
type snapshot struct {
	Time time.Time `json:"time"`
	// Pause is how many seconds to wait before the next one.
	Pause    float64       `json:"pause"`
	Networks bool          `json:"networks"`
	Agents   []agentAnswer `json:"agents"`
}

// agentAnswer is what one agent answers, as it is.
type agentAnswer struct {
	Name string `json:"name"`
	// Error is why it does not answer.
	Error  string            `json:"error,omitempty"`
	Status json.RawMessage   `json:"status,omitempty"`
	Rates  []json.RawMessage `json:"rates"`
	Events []json.RawMessage `json:"events"`
	// Missing is why a part of the answer is missing.
	Missing string `json:"missing,omitempty"`

	// pause is how long to wait before it is queried again.
	pause time.Duration
}

// snapshot answers a poll. Each parameter "rates" is a query of rates, "since.NAME" the time
// of the last known event of an agent.
func (s *server) snapshot(r *http.Request) (any, error) {
	params := r.URL.Query()
	var queries []url.Values
	for _, text := range params["rates"] {
		q, err := url.ParseQuery(text)
		if err != nil || len(queries) == maxRates {
			return nil, fmt.Errorf("rates: %q is not one of at most %d queries", text, maxRates)
		}
		queries = append(queries, q)
	}
	answer := snapshot{Time: time.Now(), Networks: s.Networks != nil}
	answer.Agents = each(r.Context(), s, func(ctx context.Context, a *Agent) agentAnswer {
		return a.snapshot(ctx, queries, params.Get("since."+a.Name))
	})
	pause := minPause
	for _, a := range answer.Agents {
		pause = max(pause, a.pause)
	}
	answer.Pause = pause.Seconds()
	return answer, nil
}

func (a *Agent) snapshot(ctx context.Context, queries []url.Values, since string) agentAnswer {
	answer := agentAnswer{Name: a.Name, Rates: []json.RawMessage{}, Events: []json.RawMessage{}}
	err := a.get(ctx, status.Path, selection.Selection{Node: true, Problems: true}.Values(), &answer.Status)
	if err != nil {
		answer.Error, answer.Status = err.Error(), nil
		return answer
	}
	answer.pause = time.Duration(len(answer.Status)) * perByte
	for _, q := range queries {
		var one json.RawMessage
		if err := a.get(ctx, rates.Path, q, &one); err != nil {
			answer.Missing = err.Error()
			break // a router has none
		}
		var report struct {
			Next float64 `json:"next"`
		}
		_ = json.Unmarshal(one, &report) // valid JSON; another version may have no such field
		answer.pause = max(answer.pause, time.Duration(report.Next*float64(time.Second)))
		answer.Rates = append(answer.Rates, one)
	}
	events := url.Values{}
	if since != "" {
		events.Set("since", since)
	}
	if answer.Events, err = a.lines(ctx, journal.Path, events, maxEvents); err != nil {
		answer.Missing, answer.Events = err.Error(), []json.RawMessage{}
	}
	return answer
}

// explained is what one agent knows of an object.
type explained struct {
	Name   string          `json:"name"`
	Error  string          `json:"error,omitempty"`
	Chains []explain.Chain `json:"chains"`
}

// explain explains a Service, a backend or a route on all agents.
func (s *server) explain(r *http.Request) (any, error) {
	kind, name := r.URL.Query().Get("kind"), r.URL.Query().Get("name")
	var only selection.Selection
	var chains func(status.Status) ([]explain.Chain, error)
	switch kind {
	case "service":
		only.Services = []string{name}
		chains = func(s status.Status) ([]explain.Chain, error) { return explain.Services(s, name) }
	case "backend":
		only.Backends = []string{name}
		chains = func(s status.Status) ([]explain.Chain, error) { return explain.Backends(s, name) }
	case "route":
		prefix, err := netip.ParsePrefix(name)
		if err != nil {
			return nil, err
		}
		only.Prefixes = []netip.Prefix{prefix.Masked()}
		chains = func(s status.Status) ([]explain.Chain, error) { return explain.Routes(s, prefix.Masked()) }
	default:
		return nil, fmt.Errorf("kind: %q is not service, backend or route", kind)
	}
	return each(r.Context(), s, func(ctx context.Context, a *Agent) explained {
		answer := explained{Name: a.Name}
		var st status.Status
		err := a.get(ctx, status.Path, only.Values(), &st)
		if err == nil {
			answer.Chains, err = chains(st)
		}
		if err != nil {
			answer.Error = err.Error()
		}
		return answer
	}), nil
}

// Limits of a sample of drops.
const (
	sampleTime  = 3 * time.Second
	maxSamples  = 20
	maxFrame    = 9216
	maxTraceAsk = 1 << 20
)

// dropped is a sample of a dropped packet.
type dropped struct {
	Time      time.Time `json:"time"`
	Reason    string    `json:"reason"`
	Interface string    `json:"interface"`
	Length    int       `json:"length"`
	Data      []byte    `json:"data"`
	// Lines describes the packet.
	Lines []string `json:"lines"`
}

// drops returns samples of what an agent drops now. The parameter every limits them to one
// of so many.
func (s *server) drops(r *http.Request) (any, error) {
	a, err := s.agent(r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), sampleTime)
	defer cancel()
	every := cmp.Or(r.URL.Query().Get("every"), "1")
	all, err := a.lines(ctx, api.EventsPath, url.Values{"every": {every}}, maxSamples)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.Name, err)
	}
	samples := make([]dropped, len(all))
	for i := range all {
		d := &samples[i]
		if err := json.Unmarshal(all[i], d); err != nil {
			return nil, err
		}
		d.Lines = pktdump.Lines(d.Data)
		if missing := min(d.Length, maxFrame) - len(d.Data); missing > 0 {
			d.Data = append(d.Data, make([]byte, missing)...) // of the length that its headers say
		}
	}
	return samples, nil
}

// traced is what an agent would do with a packet.
type traced struct {
	Interface string   `json:"interface"`
	Verdict   string   `json:"verdict"`
	Drop      string   `json:"drop,omitempty"`
	Would     []string `json:"would,omitempty"`
	Steps     []struct {
		Text string `json:"text"`
	} `json:"steps"`
	In       []byte   `json:"in"`
	Out      []byte   `json:"out"`
	InLines  []string `json:"inLines"`
	OutLines []string `json:"outLines"`
}

// trace passes a packet on to an agent, which runs it through a copy of its program.
func (s *server) trace(r *http.Request) (any, error) {
	a, err := s.agent(r)
	if err != nil {
		return nil, err
	}
	ask, err := io.ReadAll(limit.NewReader(r.Body, "request", maxTraceAsk))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.Timeout)
	defer cancel()
	body, err := a.ask(ctx, http.MethodPost, api.TracePath, nil, bytes.NewReader(ask))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.Name, err)
	}
	defer body.Close()
	var t traced
	if err := json.NewDecoder(limit.NewReader(body, "answer", limit.Item)).Decode(&t); err != nil {
		return nil, err
	}
	t.InLines = pktdump.Lines(t.In)
	if t.Verdict != "XDP_DROP" && !bytes.Equal(t.In, t.Out) {
		t.OutLines = pktdump.Lines(t.Out)
	}
	return t, nil
}
