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

// maxRequest is the largest request body that an agent reads, in bytes.
const maxRequest = 1 << 20

// Paths that an agent serves in addition to its status.
const (
	tracePath   = "/v1/trace"
	dropsPath   = "/v1/drops"
	flowsPath   = "/v1/flows"
	capturePath = "/v1/capture"
)

// endpoints returns the handlers of this agent's roles.
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
	for _, f := range a.loop.View().Plan.Frontends {
		if f.Key == k {
			return f.Service.ID.String()
		}
	}
	return ""
}

// apiClient is a query command that sends requests to these endpoints.
type apiClient struct{ query }

// do sends a request and returns the body of the response.
func (c *apiClient) do(ctx context.Context, method, path string, params url.Values, body io.Reader) (io.ReadCloser, error) {
	socket, err := c.socketPath(ctx)
	if err != nil {
		return nil, err
	}
	if len(params) > 0 {
		path += "?" + params.Encode()
	}
	return status.Ask(ctx, socket, method, path, body)
}

// doJSON sends a request and decodes the response, one JSON value.
func (c *apiClient) doJSON(ctx context.Context, method, path string, body io.Reader, into any) error {
	got, err := c.do(ctx, method, path, nil, body)
	if err != nil {
		return err
	}
	defer got.Close()
	if err := json.NewDecoder(limit.NewReader(got, path, limit.Item)).Decode(into); err != nil {
		return fmt.Errorf("the agent's response is incomplete: %w", err)
	}
	return nil
}

// each calls f for each JSON value of a stream, until the stream or ctx ends. A value
// has at most limit.Item bytes.
func each[T any](ctx context.Context, body io.Reader, f func(T) error) error {
	bounded := limit.NewReader(body, "one value", limit.Item)
	for dec := json.NewDecoder(bounded); ; {
		bounded.Renew()
		var v T
		switch err := dec.Decode(&v); {
		case ctx.Err() != nil || errors.Is(err, io.EOF):
			return nil // even if more values arrived with the last one
		case err != nil:
			return fmt.Errorf("the agent's response is incomplete: %w", err)
		}
		if err := f(v); err != nil {
			return err
		}
	}
}
