package agent

import (
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/fairlead/fairlead/agent/api"
	"github.com/fairlead/fairlead/agent/socket"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/xdp"
	"github.com/fairlead/fairlead/dataplane/xdp/capture"
	"github.com/fairlead/fairlead/internal/limit"
)

// maxRequest is the largest request body that an agent reads, in bytes.
const maxRequest = 1 << 20

// endpoints returns the handlers of this agent's roles.
func (a *agent) endpoints() []socket.Endpoint {
	all := []socket.Endpoint{status.ReadyEndpoint(a.ready), {Pattern: "GET " + api.FlowsPath, Handler: answer(a.answerFlows)},
		{Pattern: "POST " + api.DrainPath, Handler: answer(a.answerDrain)}, {Pattern: "POST " + api.DiffPath, Handler: answer(a.answerDiff)},
		a.events.Endpoint(), a.ratesEndpoint()}
	if a.xdp == nil {
		return all
	}
	return append(all,
		socket.Endpoint{Pattern: "POST " + api.TracePath, Handler: answer(a.answerTrace)},
		socket.Endpoint{Pattern: "GET " + api.DropsPath, Handler: answer(a.answerDrops)},
		socket.Endpoint{Pattern: "GET " + api.EventsPath, Handler: answer(a.answerEvents)},
		socket.Endpoint{Pattern: "GET " + api.CapturePath, Handler: answer(a.answerCapture)},
	)
}

// answer is an HTTP handler that may fail. An error before the first write becomes the
// response.
type answer func(*stream, *http.Request) error

func (f answer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := &stream{w: w}
	err := f(s, r)
	switch {
	case err == nil:
	case !s.begun:
		http.Error(w, err.Error(), http.StatusBadRequest)
	default:
		slog.Debug("response aborted", "path", r.URL.Path, "error", err)
		panic(http.ErrAbortHandler) // so that the client sees an incomplete response
	}
}

// stream is a response that is written in parts.
type stream struct {
	w     http.ResponseWriter
	begun bool
}

func (s *stream) Write(b []byte) (int, error) {
	s.begun = true
	return s.w.Write(b)
}

// Flush sends what is written so far.
func (s *stream) Flush() {
	s.begun = true
	if f, ok := s.w.(http.Flusher); ok {
		f.Flush()
	}
}

func (a *agent) answerTrace(s *stream, r *http.Request) error {
	var request xdp.TraceRequest
	if err := json.NewDecoder(limit.NewReader(r.Body, "request", maxRequest)).Decode(&request); err != nil {
		return err
	}
	t, err := a.xdp.TracePacket(r.Context(), request, a.serviceOf)
	if err != nil {
		return err
	}
	return json.NewEncoder(s).Encode(t)
}

// serviceOf returns the Service of a planned frontend, or "".
func (a *agent) serviceOf(k service.Key) string {
	if f := a.loop.View().Plan.Find(k); f != nil {
		return f.Service.ID.String()
	}
	return ""
}

// answerFlows writes the flows that match the request, one JSON value each.
func (a *agent) answerFlows(s *stream, r *http.Request) error {
	q, err := api.FlowQuery(r.URL.Query())
	if err != nil {
		return err
	}
	enc := json.NewEncoder(s)
	for f, err := range a.eachFlow(q) {
		if err == nil {
			err = enc.Encode(f)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// eachFlow returns the flows that match a query: of the load balancer first, then of the DSR
// agent. It ends with the first error.
func (a *agent) eachFlow(q dataplane.FlowQuery) iter.Seq2[api.Flow, error] {
	return func(yield func(api.Flow, error) bool) {
		given := 0
		if a.plane != nil {
			for f, err := range a.plane.EachFlow(q) {
				if !yield(api.Flow{Flow: f, At: "balancer"}, err) || err != nil {
					return
				}
				given++
			}
		}
		if a.dsr == nil || q.Limit > 0 && given == q.Limit {
			return
		}
		q.Limit = max(0, q.Limit-given)
		for f, err := range a.dsr.EachFlow(q) {
			if !yield(api.Flow{Flow: f, At: "dsr"}, err) || err != nil {
				return
			}
		}
	}
}

func (a *agent) answerDrops(s *stream, _ *http.Request) error {
	counts, err := a.xdp.DropsByCPU()
	if err != nil {
		return err
	}
	return json.NewEncoder(s).Encode(counts)
}

func (a *agent) answerEvents(s *stream, r *http.Request) error {
	every, err := strconv.ParseUint(r.URL.Query().Get("every"), 10, 32)
	if err != nil {
		return fmt.Errorf("every: %w", err)
	}
	events, err := a.xdp.Events(r.Context(), uint32(every))
	if err != nil {
		return err
	}
	s.Flush()
	enc := json.NewEncoder(s)
	for e := range events {
		if err := enc.Encode(e); err != nil {
			continue // the client is gone; the events end soon
		}
		s.Flush()
	}
	return nil
}

func (a *agent) answerCapture(s *stream, r *http.Request) error {
	var o capture.Options
	if err := json.Unmarshal([]byte(r.URL.Query().Get("options")), &o); err != nil {
		return fmt.Errorf("options: %w", err)
	}
	_, err := a.xdp.Capture(r.Context(), s, o)
	return err
}

// answerDrain orders a drain or its end; the status shows the result.
func (a *agent) answerDrain(s *stream, r *http.Request) error {
	if !a.config.Balancer {
		return fmt.Errorf("this agent does not have the role balancer: nothing to drain")
	}
	undo := r.URL.Query().Get("undo") == "true"
	a.loop.OrderDrain(!undo)
	return json.NewEncoder(s).Encode(map[string]bool{"drain": !undo})
}
