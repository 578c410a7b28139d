package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp"
	"github.com/fairlead/fairlead/internal/limit"
)

// mostAsked limits the request body that an agent reads, in bytes.
const mostAsked = 1 << 20

// Endpoints of an agent in addition to its status.
const (
	tracePath   = "/v1/trace"
	dropsPath   = "/v1/drops"
	flowsPath   = "/v1/flows"
	capturePath = "/v1/capture"
)

// endpoints returns the endpoints that need the data plane or the DSR agent.
func (a *agent) endpoints() []status.Endpoint {
	all := []status.Endpoint{status.ReadyEndpoint(a.ready), {Pattern: "GET " + flowsPath, Handler: answer(a.answerFlows)},
		{Pattern: "POST " + drainPath, Handler: answer(a.answerDrain)}}
	if a.xdp == nil {
		return all
	}
	return append(all,
		status.Endpoint{Pattern: "POST " + tracePath, Handler: answer(a.answerTrace)},
		status.Endpoint{Pattern: "GET " + dropsPath, Handler: answer(a.answerDrops)},
		status.Endpoint{Pattern: "GET " + eventsPath, Handler: answer(a.answerEvents)},
		status.Endpoint{Pattern: "GET " + capturePath, Handler: answer(a.answerCapture)},
	)
}

// answer is a handler that may return an error, which is sent to the client if nothing
// has been written.
type answer func(*stream, *http.Request) error

func (f answer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := &stream{w: w}
	err := f(s, r)
	switch {
	case err == nil:
	case !s.begun:
		http.Error(w, err.Error(), http.StatusBadRequest)
	default:
		slog.Debug("answer ended", "path", r.URL.Path, "error", err)
		panic(http.ErrAbortHandler) // so that the client notices that the answer is incomplete
	}
}

// stream is an incrementally written response.
type stream struct {
	w     http.ResponseWriter
	begun bool
}

func (s *stream) Write(b []byte) (int, error) {
	s.begun = true
	return s.w.Write(b)
}

// Flush sends what has been written, so that the client sees the start of the response.
func (s *stream) Flush() {
	s.begun = true
	if f, ok := s.w.(http.Flusher); ok {
		f.Flush()
	}
}

func (a *agent) answerTrace(s *stream, r *http.Request) error {
	var ask xdp.TraceRequest
	if err := json.NewDecoder(limit.NewReader(r.Body, "request", mostAsked)).Decode(&ask); err != nil {
		return fmt.Errorf("what is to be traced: %w", err)
	}
	t, err := a.xdp.TracePacket(r.Context(), ask, a.serviceOf)
	if err != nil {
		return err
	}
	return json.NewEncoder(s).Encode(t)
}

// serviceOf returns the Service of a frontend, if it is in the plan.
func (a *agent) serviceOf(k service.Key) string {
	for _, f := range a.loop.View().Plan.Frontends {
		if f.Key == k {
			return f.Service.ID.String()
		}
	}
	return ""
}

// asker is a query command that uses one of these endpoints.
type asker struct{ look }

// ask returns the body of a response.
func (a *asker) ask(ctx context.Context, method, path string, query url.Values, body io.Reader) (io.ReadCloser, error) {
	socket, err := a.where(ctx)
	if err != nil {
		return nil, err
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return status.Ask(ctx, socket, method, path, body)
}

// askJSON decodes a response that is a single JSON value.
func (a *asker) askJSON(ctx context.Context, method, path string, body io.Reader, into any) error {
	got, err := a.ask(ctx, method, path, nil, body)
	if err != nil {
		return err
	}
	defer got.Close()
	if err := json.NewDecoder(limit.NewReader(got, path, limit.Item)).Decode(into); err != nil {
		return fmt.Errorf("the agent's answer broke off: %w", err)
	}
	return nil
}

// each decodes a stream of JSON values until it ends or ctx is canceled. A value is
// limited to limit.Item bytes.
func each[T any](ctx context.Context, body io.Reader, f func(T) error) error {
	bounded := limit.NewReader(body, "one value", limit.Item)
	for dec := json.NewDecoder(bounded); ; {
		bounded.Renew()
		var v T
		switch err := dec.Decode(&v); {
		case ctx.Err() != nil || errors.Is(err, io.EOF):
			return nil // even if further values arrived together with the last one wanted
		case err != nil:
			return fmt.Errorf("the agent's answer broke off: %w", err)
		}
		if err := f(v); err != nil {
			return err
		}
	}
}
